"""nest_bodies: loops and Ifs whose bodies the device can run get a graph for each body.

A body becomes a network of known sizes: constants that it is given are its own, and its parameters
and results are those that something needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from polydevice.dtype import Array
from polydevice.errors import NetworkError, UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.control_flow import (
    BodyInput,
    BodyOutput,
    If,
    Iteration,
    Loop,
    TensorIterator,
)
from polydevice.ops.io import Parameter, Result
from polydevice.passes.constant_folding import constant_folding
from polydevice.tensor import TensorDesc
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.host import lives_on_host
from polydevice_gpu.nested import (
    MANY,
    Branch,
    Branches,
    Carried,
    Given,
    LoopBody,
    Nested,
    Taken,
)

LOOP_DEPTH = 4
"""Loops within one another on the device; every loop doubles what is bound of those inside."""

Build = Callable[[Network, AbstractSet[str]], GpuGraph]
"""Compiles the network of a body, in which some results may lie in any way."""


def nest_bodies(network: Network, evaluate: Evaluate, build: Build) -> dict[Node, Nested]:
    """Return the loops and Ifs that the device runs; all others are the host's.

    The host computes those with values that device memory cannot hold, with random numbers or
    variables inside, with layers that no kernel takes, or with nothing that a kernel computes.

    Args:
        network: of static shapes, with constants folded.
        evaluate: computes constants.
        build: compiles a body.
    """
    found: dict[Node, Nested] = {}
    for node in network.nodes():
        if not isinstance(node.op, (If, TensorIterator, Loop)) or not _fits(node):
            continue
        try:
            if isinstance(node.op, If):
                made: Nested | None = _branches(network.name, node, node.op, evaluate, build)
            else:
                made = _loop(network.name, node, node.op, evaluate, build)
        except UnsupportedNetworkError:
            continue  # no kernel takes something in the body
        if made is not None and all(_is_worth_it(graph) for graph in made.graphs):
            found[node] = made
    return found


def _fits(node: Node) -> bool:
    """Whether device memory holds all inputs and outputs, and bodies keep nothing.

    Joined results may be of unknown length: those are collected on the host.
    """
    ties = node.op.body_outputs if isinstance(node.op, Iteration) else ()
    joined = {tie.output for tie in ties if tie.slicing is not None}
    others = [port for port in node.outputs if port.index not in joined]
    if any(lives_on_host(port.desc) for port in (*node.inputs, *others)):
        return False
    return not any(_keeps_something(body) for body in _bodies(node))


def _bodies(node: Node) -> list[Network]:
    fields = vars(node.op).values()
    return [value for value in fields if isinstance(value, Network)]


def _keeps_something(body: Network) -> bool:
    """Whether a body has state, as variables and random numbers are."""
    return bool(body.sinks) or any(
        node.op.is_stateful or any(_keeps_something(inner) for inner in _bodies(node))
        for node in body.nodes()
    )


def _is_worth_it(graph: GpuGraph) -> bool:
    return any(not node.on_host for node in graph.nodes) or not graph.nodes


def _depth(graph: GpuGraph) -> int:
    """Return how many loops lie within one another."""
    deepest = 0
    for node in graph.nodes:
        if node.nested is not None:
            inside = max((_depth(each) for each in node.nested.graphs), default=0)
            deepest = max(deepest, inside + isinstance(node.nested, LoopBody))
    return deepest


class _Body:
    """A body in the making as a network of its own.

    Attributes:
        network: a copy of the body.
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
            node.op = Parameter(desc.element_type, desc.shape)
            if index in constants:
                made = constant(f"{node.name}/constant", constants[index], desc.element_type)
                self.network.replace(node.output, made.output)
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

    def finish(self, kept: set[int]) -> None:
        """Leave only these parameters, and the results that were named."""
        self.network.parameters = [self.parameters[index] for index in sorted(kept)]
        self.network.results = self._results


def _loop(
    outer: str, node: Node, op: Iteration, evaluate: Evaluate, build: Build
) -> LoopBody | None:
    assert isinstance(op.body, Network)
    descs = [port.desc for port in node.inputs]
    parameters = op.parameters(descs)
    if any(lives_on_host(desc) for desc in parameters):
        return None
    body = _Body(op.body, f"{outer}/{node.name}", evaluate)
    carried = {edge.parameter: edge.result for edge in op.back_edges}
    body.describe(parameters, _constants(node, op.body_inputs, set(carried)))
    if any(lives_on_host(port.inputs[0].desc) for port in body.network.results):
        return None
    made = LoopBody(GpuGraph(""), op.iterations(descs), True)
    condition = None
    if isinstance(op, Loop):
        condition = op.execution_condition
        made.count, made.starts = _bounds(descs)
    if condition is not None and (known := body.source(condition).node.constant) is not None:
        condition = None
        if not known.all():
            made.count = 1 if made.count is None else min(made.count, 1)
    runs = made.starts is True and made.count is not None and made.count > 0 and condition is None
    lasting = {tie.result for tie in op.body_outputs if tie.slicing is None}
    kept = body.read() | {p for p, r in carried.items() if r in lasting and not runs}
    first: dict[int, str] = {}
    for tie in op.body_inputs:
        if tie.parameter not in kept:
            continue
        name = body.parameters[tie.parameter].name
        if tie.slicing is None and tie.parameter in carried:
            result = body.result(carried[tie.parameter], f"next {name}")
            made.carried.append(Carried(tie.input, name, result))
            first.setdefault(carried[tie.parameter], name)
        else:
            made.given.append(Given(tie.input, name, tie.slicing))
    for out in op.body_outputs:
        result = body.result(out.result)
        made.taken.append(Taken(out.output, result, out.slicing, first.get(out.result, "")))
    if condition is not None:
        made.condition = body.result(condition)
    if isinstance(op, Loop) and op.current_iteration in kept:
        assert op.current_iteration is not None
        made.counter = body.parameters[op.current_iteration].name
    body.finish(kept)
    firm = {out.result for out in made.taken if not _is_joined(node, out)} | {made.condition}
    firm |= {each.result for each in made.carried}
    made.graph = build(body.network, {out.result for out in made.taken} - firm)
    return made if _depth(made.graph) < LOOP_DEPTH else None


def _is_joined(node: Node, out: Taken) -> bool:
    """Whether the device puts results together, which it can from any layout."""
    return out.slicing is not None and not lives_on_host(node.outputs[out.output].desc)


def _bounds(descs: Sequence[TensorDesc]) -> tuple[int | None, bool | None]:
    """Return the trip count (`MANY` for -1) and whether a first iteration runs, if known."""
    trips, first = descs[0].static_ints, descs[1].static_ints
    count = None if trips is None else trips[0]
    if count is not None and count < 0:
        count = MANY
    return count, None if first is None else bool(first[0])


def _constants(node: Node, ties: Sequence[BodyInput], carried: set[int]) -> dict[int, Array]:
    """Return parameter → value of what the body is given of constants."""
    found = {}
    for tie in ties:
        value = node.inputs[tie.input].node.constant
        if value is not None and tie.slicing is None and tie.parameter not in carried:
            found[tie.parameter] = value
    return found


def _branches(outer: str, node: Node, op: If, evaluate: Evaluate, build: Build) -> Branches | None:
    made: list[Branch | None] = []
    for kind, body, ties, outputs in (
        ("then", op.then_body, op.then_inputs, op.then_outputs),
        ("else", op.else_body, op.else_inputs, op.else_outputs),
    ):
        assert isinstance(body, Network)
        work = _Body(body, f"{outer}/{node.name}/{kind}", evaluate)
        try:
            branch = _branch(node, work, ties, outputs)
        except NetworkError:  # inputs of these shapes never take this one
            made.append(None)
            continue
        if branch is None:
            return None
        branch.graph = build(work.network, frozenset())
        made.append(branch)
    return Branches(*made)


def _branch(
    node: Node, work: _Body, ties: Sequence[BodyInput], outputs: Sequence[BodyOutput]
) -> Branch | None:
    """Tie one body; None when a result is not of the size that the layer has."""
    descs = [parameter.output.desc for parameter in work.parameters]
    for tie in ties:
        descs[tie.parameter] = node.inputs[tie.input].desc
    work.describe(descs, _constants(node, ties, set()))
    branch = Branch(GpuGraph(""))
    for out in outputs:
        desc = work.source(out.result).desc
        if lives_on_host(desc) or desc.shape != node.outputs[out.output].shape:
            return None
        branch.taken.append(Taken(out.output, work.result(out.result, f"result {out.output}")))
    kept = work.read()
    for tie in ties:
        if tie.parameter in kept:
            branch.given.append(Given(tie.input, work.parameters[tie.parameter].name))
    if any(lives_on_host(work.parameters[index].output.desc) for index in kept):
        return None
    work.finish(kept)
    return branch
