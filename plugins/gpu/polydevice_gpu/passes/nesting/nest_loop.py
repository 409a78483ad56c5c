"""nest_loop: what the device needs to know of a TensorIterator or Loop."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from polydevice.network import Network
from polydevice.node import Evaluate, Node
from polydevice.ops.control_flow import Iteration, Loop
from polydevice.tensor import TensorDesc
from polydevice_gpu.control_flow.nested import MANY, Carried, Given, LoopBody, Taken
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.host_layers import lives_on_host
from polydevice_gpu.passes.nesting.body_network import BodyNetwork, Build, constants_of

LOOP_DEPTH = 4
"""Loops within one another on the device; every loop doubles what is bound of those inside."""


def nest_loop(
    outer: str, node: Node, op: Iteration, evaluate: Evaluate, build: Build
) -> LoopBody | None:
    """Compile the body; None when the host has to run the loop.

    Raises:
        UnsupportedNetworkError: no kernel takes something in the body.
    """
    assert isinstance(op.body, Network)
    descs = [port.desc for port in node.inputs]
    parameters = op.parameters(descs)
    if any(lives_on_host(desc) for desc in parameters):
        return None
    body = BodyNetwork(op.body, f"{outer}/{node.name}", evaluate)
    carried = {edge.parameter: edge.result for edge in op.back_edges}
    body.describe(parameters, constants_of(node, op.body_inputs, carried))
    made = _ends(op, descs, body)
    if made is None or not _is_consistent(node, op, body):
        return None
    kept = _tie(made, op, body)
    if kept is None:
        return None
    body.finish(kept)
    loose = {out.result for out in made.taken if _is_joined(node, out)}
    loose -= {out.result for out in made.taken if not _is_joined(node, out)}
    loose -= {made.condition, *(each.result for each in made.carried)}
    made.graph = build(body.network, loose)
    for each in made.carried:
        one, other = made.graph.inputs[each.parameter], made.graph.outputs[each.result]
        if one.storage is not other.storage:
            return None
    return made if _depth(made.graph) < LOOP_DEPTH else None


def _ends(op: Iteration, descs: Sequence[TensorDesc], body: BodyNetwork) -> LoopBody | None:
    """Find out how often the body runs, and what decides that."""
    made = LoopBody(GpuGraph(""), op.iterations(descs), True)
    if not isinstance(op, Loop):
        return None if made.count is None else made
    made.count, made.starts = _bounds(descs)
    if op.execution_condition is None:
        return made
    known = body.source(op.execution_condition).node.constant
    if known is None:
        made.condition = body.result(op.execution_condition)
    elif not known.all():
        made.count = 1 if made.count is None else min(made.count, 1)
    return made


def _bounds(descs: Sequence[TensorDesc]) -> tuple[int | None, bool | None]:
    """Return the trip count (`MANY` for -1) and whether a first iteration runs, if known."""
    trips, first = descs[0].static_ints, descs[1].static_ints
    count = None if trips is None else trips[0]
    if count is not None and count < 0:
        count = MANY
    return count, None if first is None else bool(first[0])


def _tie(made: LoopBody, op: Iteration, body: BodyNetwork) -> AbstractSet[int] | None:
    """Name what goes in and out of the body; return the parameters that it needs.

    None when nothing feeds one of them.
    """
    carried = {edge.parameter: edge.result for edge in op.back_edges}
    runs = made.starts and made.count is not None and made.count > 0 and not made.condition
    lasting = {tie.result for tie in op.body_outputs if tie.slicing is None}
    kept = body.read() | {p for p, r in carried.items() if r in lasting and not runs}
    counter = op.current_iteration if isinstance(op, Loop) else None
    ties = {tie.parameter: tie for tie in op.body_inputs if tie.parameter in kept - {counter}}
    if kept - {counter} != ties.keys():
        return None
    first: dict[int, str] = {}
    for tie in ties.values():
        name = body.parameters[tie.parameter].name
        if tie.slicing is None and tie.parameter in carried:
            result = body.result(carried[tie.parameter], f"next {name}")
            made.carried.append(Carried(tie.input, name, result))
            first[carried[tie.parameter]] = name
        else:
            made.given.append(Given(tie.input, name, tie.slicing))
    for out in op.body_outputs:
        result = body.result(out.result)
        made.taken.append(Taken(out.output, result, out.slicing, first.get(out.result, "")))
    if counter is not None and counter in kept:
        made.counter = body.parameters[counter].name
    return kept


def _is_consistent(node: Node, op: Iteration, body: BodyNetwork) -> bool:
    """Whether device memory holds what the body gives, the same in all iterations and outwards."""
    if any(lives_on_host(result.inputs[0].desc) for result in body.network.results):
        return False
    for edge in op.back_edges:
        one, other = body.parameters[edge.parameter].output, body.source(edge.result)
        if (one.element_type, one.shape) != (other.element_type, other.shape):
            return False
    return all(
        out.slicing is not None or node.outputs[out.output].shape == body.source(out.result).shape
        for out in op.body_outputs
    )


def _is_joined(node: Node, out: Taken) -> bool:
    """Whether the device puts results together, which it can from any layout."""
    return out.slicing is not None and not lives_on_host(node.outputs[out.output].desc)


def _depth(graph: GpuGraph) -> int:
    """Return how many loops lie within one another."""
    deepest = 0
    for node in graph.nodes:
        if node.nested is not None:
            inside = max((_depth(each) for each in node.nested.graphs), default=0)
            deepest = max(deepest, inside + isinstance(node.nested, LoopBody))
    return deepest
