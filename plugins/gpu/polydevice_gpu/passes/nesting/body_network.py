"""BodyNetwork: a body of a loop or If in the making as a network of its own.

Constants that it is given become its own, and its parameters and results those that are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.control_flow import BodyInput
from polydevice.ops.io import Parameter, Result
from polydevice.passes.constant_folding import constant_folding
from polydevice.tensor import TensorDesc
from polydevice_gpu.graph import GpuGraph

Build = Callable[[Network, AbstractSet[str]], GpuGraph]
"""Compiles the network of a body, in which some results may lie in any way."""


class BodyNetwork:
    """A copy of a body, to be changed.

    Attributes:
        network: the copy.
        parameters: those of the body, in its order.
        results: port → name of the result that gives it.
    """

    def __init__(self, body: Network, name: str, evaluate: Evaluate) -> None:
        self.network = body.clone()
        self.network.name = name
        self.network.evaluate = evaluate
        self._evaluate = evaluate
        self.parameters = list(self.network.parameters)
        for index, node in enumerate(self.parameters):
            node.name = f"parameter {index}"
        self._old = self.network.results
        self._named: dict[Port, str] = {}
        self._results: list[Node] = []

    def describe(self, descs: Sequence[TensorDesc], constants: Mapping[int, Array]) -> None:
        """Give parameters their types and shapes, or values, and fold what follows."""
        for index, (node, desc) in enumerate(zip(self.parameters, descs, strict=True)):
            node.op = Parameter(desc.element_type, desc.shape, desc.kind)
            if index in constants:
                made = constant(f"{node.name}/constant", constants[index], desc.element_type)
                self.network.replace({node.output: made.output})
        self.network.infer()
        constant_folding(self.network, self._evaluate)

    def source(self, result: int) -> Port:
        """Return what a result of the body gives."""
        return self._old[result].inputs[0]

    def read(self) -> set[int]:
        """Return the parameters that something reads."""
        used = {port for node in self.network.nodes() for port in node.inputs}
        return {index for index, node in enumerate(self.parameters) if node.output in used}

    def result(self, index: int, name: str = "") -> str:
        """Name a result; without a name of its own it may be one that exists."""
        port = self.source(index)
        if not name and port in self._named:
            return self._named[port]
        name = name or f"result {index}"
        self._results.append(Node(name, Result(output_name=name), [port]))
        self._named[port] = name
        return name

    def finish(self, kept: AbstractSet[int]) -> None:
        """Leave only these parameters, and the results that were named."""
        self.network.parameters = [self.parameters[index] for index in sorted(kept)]
        self.network.results = self._results


def constants_of(
    node: Node, ties: Sequence[BodyInput], carried: Container[int] = ()
) -> dict[int, Array]:
    """Return parameter → value of what the body is given of constants."""
    found = {}
    for tie in ties:
        value = node.inputs[tie.input].node.constant
        if value is not None and tie.slicing is None and tie.parameter not in carried:
            found[tie.parameter] = value
    return found
