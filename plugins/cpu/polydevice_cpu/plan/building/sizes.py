"""Sizes: a copy of a network into which shapes of inputs are filled, one set after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from polydevice.bounds import computing_ahead
from polydevice.memory_budget import host_memory_bytes
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.control_flow import If
from polydevice.passes.check_sizes import check_sizes
from polydevice.rewrites.control_flow.inline_branches import inline_branches
from polydevice.runtime.plan_cache import Shapes
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_cpu.implement import evaluate


@dataclass(frozen=True)
class Sized:
    """A network whose inputs have known shapes; `nodes` are all of it, producers first."""

    network: Network
    nodes: Sequence[Node]


class Sizes:
    """Fills shapes into one network; for one thread at a time.

    Only what depends on sizes that have changed is inferred again.
    """

    def __init__(self, network: Network) -> None:
        """Begin with a network, which stays as it is."""
        self._source = network
        self._latest: Sized | None = None

    def fill(self, shapes: Shapes, prepared: Callable[[Network], Network]) -> Sized:
        """Return the network for inputs of these shapes; the one returned before is no more.

        Args:
            shapes: of the inputs.
            prepared: returns the body of an If with the passes applied.

        Raises:
            NetworkError: when an operation does not accept the shapes.
            ModelLimitError: a value is larger than any memory here.
        """
        latest, self._latest = self._latest, None  # what fails leaves nothing behind
        if latest is None:
            sized, can_stay = self._first(shapes, prepared)
        else:
            sized, can_stay = latest, self._again(latest, shapes)
            if not can_stay:
                sized, can_stay = self._first(shapes, prepared)
        self._latest = sized if can_stay else None
        return sized

    def clear(self) -> None:
        """Let go of what was filled in last."""
        self._latest = None

    def _first(self, shapes: Shapes, prepared: Callable[[Network], Network]) -> tuple[Sized, bool]:
        """The network, and whether other sizes can be filled into it."""
        network = self._source.clone()
        network.evaluate = evaluate
        _set(network, shapes)
        network.infer()
        inlined = inline_branches(network, prepared)
        nodes = network.nodes()
        check_sizes(nodes, host_memory_bytes(), "CPU")
        return Sized(network, nodes), not inlined

    def _again(self, sized: Sized, shapes: Shapes) -> bool:
        """Infer what other shapes change; False where an If can be replaced now."""
        changed: set[Port] = set()
        touched: list[Node] = []
        parameters = set(_set(sized.network, shapes))
        with computing_ahead():
            for node in sized.nodes:
                if node not in parameters and changed.isdisjoint(node.inputs):
                    continue
                before = [port.desc for port in node.outputs]
                node.infer(evaluate)
                touched.append(node)
                for port, known in zip(node.outputs, before, strict=True):
                    if _same(port.desc, known):
                        port.desc = known
                    else:
                        changed.add(port)
        check_sizes(touched, host_memory_bytes(), "CPU")
        return not any(
            isinstance(node.op, If) and node.inputs[0].desc.constant is not None
            for node in sized.nodes
        )


def _set(network: Network, shapes: Shapes) -> list[Node]:
    """Give parameters their shapes; return those that have changed."""
    changed = []
    for parameter, shape in zip(network.parameters, shapes, strict=True):
        if shape is not None and parameter.output.shape != shape:
            parameter.op = parameter.op.replace(shape=Shape(shape))
            changed.append(parameter)
    return changed


def _same(one: TensorDesc, other: TensorDesc) -> bool:
    """Whether two descriptions say the same, of elements too."""
    if one != other:
        return False
    a, b = one.value, other.value
    if a is None or b is None:
        return a is b
    return a is b or (a.dtype == b.dtype and a.dtype != object and np.array_equal(a, b))
