"""collect_parts: what a loop appends to a value that it carries is joined once, behind the loop.

Models gather what iterations give with `out = cat([out, part])`. The value grows, so that no two
iterations are alike, and each copies all the parts before it. Parts of one size are an output of
the loop for each iteration, and what is carried is no longer. So are parts that are inserted into a
list, as TorchScript does, which is joined behind the loop; what it has had before is first.
"""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.errors import PolydeviceError
from polydevice.network import Network
from polydevice.network.names import namer
from polydevice.node import Node, Port
from polydevice.ops.concat import Concat
from polydevice.ops.containers import (
    ConcatFromSequence,
    SequenceConstruct,
    SequenceEmpty,
    SequenceInsert,
)
from polydevice.ops.control_flow import BackEdge, BodyInput, BodyOutput, Iteration, Loop, Slicing
from polydevice.ops.io import Result
from polydevice.ops.reshape import Unsqueeze
from polydevice.shape import Shape, normalize_axis

TRIAL = 4
"""A size in the place of those that are not known, to see which ones follow from them."""


def collect_parts(network: Network) -> int:
    """Change every loop of a network that appends parts of one size; return how many values."""
    found = 0
    for node in network.nodes():
        if isinstance(node.op, Iteration) and isinstance(node.op.body, Network):
            while any(
                _collect(network, node, edge) or _collect_list(network, node, edge)
                for edge in node.op.back_edges
            ):
                found += 1
    if found:
        network.infer()
    return found


def _collect(network: Network, node: Node, edge: BackEdge) -> bool:
    op = node.op
    assert isinstance(op, Iteration)
    body = op.body
    assert isinstance(body, Network)
    ties = [tie for tie in op.body_outputs if tie.result == edge.result]
    first = [tie for tie in op.body_inputs if tie.parameter == edge.parameter]
    appended = _appended(body, edge)
    if appended is None or not ties or any(tie.slicing is not None for tie in ties):
        return False
    if len(first) != 1 or first[0].slicing is not None:
        return False
    axis, number = appended
    changed = body.clone()
    part = changed.results[edge.result].inputs[0].node.inputs[number]
    shape = _shape(changed, part, node)
    if shape is None:
        return False
    at = normalize_axis(axis, len(shape))
    changed.results[edge.result].inputs[0] = part
    slicing = Slicing(at, part_size=shape[at])
    places = sorted(tie.output for tie in op.body_outputs)
    collected = op.replace(
        body=changed,
        body_inputs=tuple(tie for tie in op.body_inputs if tie not in first),
        back_edges=tuple(other for other in op.back_edges if other != edge),
        body_outputs=tuple(
            BodyOutput(tie.output, tie.result, slicing) if tie in ties else tie
            for tie in op.body_outputs
        ),
    )
    node.op = _without_parameter(collected, changed, edge.parameter)
    for tie in ties:
        output = node.outputs[places.index(tie.output)]
        build = Emitter(f"{node.name}/joined")
        joined = build.emit(Concat(axis=at), node.inputs[first[0].input], output)
        build.name_nodes([joined], namer(network))
        network.replace({output: joined})
    return True


def _without_parameter(op: Iteration, body: Network, gone: int) -> Iteration:
    """Return a loop without a parameter that nobody reads or feeds any more.

    It may begin empty, and for empty inputs bodies are planned by themselves.
    """
    del body.parameters[gone]

    def place(parameter: int) -> int:
        return parameter - (parameter > gone)

    made = op.replace(
        body_inputs=tuple(
            BodyInput(tie.input, place(tie.parameter), tie.slicing) for tie in op.body_inputs
        ),
        back_edges=tuple(BackEdge(each.result, place(each.parameter)) for each in op.back_edges),
    )
    if isinstance(made, Loop) and made.current_iteration is not None:
        made = made.replace(current_iteration=place(made.current_iteration))
    return made


def joins_of_list(network: Network, node: Node, edge: BackEdge) -> list[Node]:
    """Return what joins a list behind a loop that inserts parts; none where it does more with it.

    Args:
        network: the loop's.
        node: the loop.
        edge: of the list.
    """
    op = node.op
    assert isinstance(op, Iteration)
    body = op.body
    assert isinstance(body, Network)
    ties = [tie for tie in op.body_outputs if tie.result == edge.result]
    first = [tie for tie in op.body_inputs if tie.parameter == edge.parameter]
    if len(ties) != 1 or len(first) != 1 or not _is_inserted(body, edge):
        return []
    begun = node.inputs[first[0].input].node
    if not isinstance(begun.op, (SequenceEmpty, SequenceConstruct)):
        return []
    output = node.outputs[sorted(tie.output for tie in op.body_outputs).index(ties[0].output)]
    readers = [reader for reader, _ in network.consumers().get(output, [])]
    joins = {reader.op for reader in readers if isinstance(reader.op, ConcatFromSequence)}
    is_joined = all(isinstance(each.op, ConcatFromSequence) for each in readers)
    return readers if len(joins) == 1 and is_joined else []


def _collect_list(network: Network, node: Node, edge: BackEdge) -> bool:
    """Change a loop that inserts parts into a list which is joined behind it."""
    op, readers = node.op, joins_of_list(network, node, edge)
    if not readers:
        return False
    assert isinstance(op, Iteration)
    body = op.body
    assert isinstance(body, Network)
    ties = [tie for tie in op.body_outputs if tie.result == edge.result]
    first = [tie for tie in op.body_inputs if tie.parameter == edge.parameter]
    begun = node.inputs[first[0].input].node
    places = sorted(tie.output for tie in op.body_outputs)
    output = node.outputs[places.index(ties[0].output)]
    join = readers[0].operation(ConcatFromSequence)
    changed = body.clone()
    part = changed.results[edge.result].inputs[0].node.inputs[1]
    shape = _known_shape(changed, part, node)
    cut = _cut(join, shape)
    if cut is None or not _are_alike(begun, shape, join, cut[0]):
        return False
    axis, size = cut
    if join.new_axis:
        part = Emitter(f"{node.name}/part").emit(Unsqueeze(), part, [axis])
    changed.results[edge.result].inputs[0] = part
    slicing = Slicing(axis, part_size=size)
    whole = op.replace(
        body=changed,
        back_edges=tuple(other for other in op.back_edges if other != edge),
        body_outputs=tuple(
            BodyOutput(tie.output, tie.result, slicing) if tie in ties else tie
            for tie in op.body_outputs
        ),
    )
    inputs = [*node.inputs]
    inputs[first[0].input] = inputs[0]  # a tensor, which nobody reads there, for the list
    if begun.inputs and not _is_known_without_parts(whole, inputs, places.index(ties[0].output)):
        return False
    node.op, node.inputs = whole, inputs
    node.infer()
    if begun.inputs:
        build = Emitter(f"{node.name}/joined")
        before = [
            build.emit(Unsqueeze(), each, [axis]) if join.new_axis else each
            for each in begun.inputs
        ]
        output = build.emit(Concat(axis=axis), *before, output)
        build.name_nodes([output], namer(network))
    network.replace({reader.outputs[0]: output for reader in readers})
    return True


def _are_alike(begun: Node, part: Shape | None, join: ConcatFromSequence, axis: int) -> bool:
    """Whether a list may begin with parts that can be joined with those that are inserted.

    Others are joined where there is no iteration. Sizes that are not known are taken to be equal.
    """
    for port in begun.inputs:
        if part is None or port.shape is None:
            continue
        if len(port.shape) != len(part):
            return False
        for at, (size, other) in enumerate(zip(port.shape, part, strict=True)):
            is_joined = at == axis and not join.new_axis
            if isinstance(size, int) and isinstance(other, int) and size != other and not is_joined:
                return False
    return True


def _is_known_without_parts(op: Iteration, inputs: Sequence[Port], output: int) -> bool:
    """Whether sizes of the inputs tell those of what no iteration adds to, but its number.

    Nothing is joined with what was there before only if it has the same sizes.
    """
    shapes = [port.desc.shape for port in inputs]
    if any(shape is None for shape in shapes):
        return False
    described = [
        port.desc.with_shape(Shape(n if isinstance(n, int) else TRIAL for n in shape))
        for port, shape in zip(inputs, shapes, strict=True)
        if shape is not None
    ]
    try:
        made = op.infer(described)[output].shape
    except PolydeviceError:  # of sizes that do not fit
        return False
    return made is not None and sum(not isinstance(size, int) for size in made) <= 1


def _cut(join: ConcatFromSequence, shape: Shape | None) -> tuple[int, int] | None:
    """Return along which axis parts are joined, and how long each is; None if that is not known."""
    if shape is None:
        return (join.axis, 1) if join.new_axis and join.axis >= 0 else None
    axis = normalize_axis(join.axis, len(shape) + join.new_axis)
    if join.new_axis:
        return axis, 1
    size = shape[axis]
    return (axis, size) if isinstance(size, int) and size else None


def _is_inserted(body: Network, edge: BackEdge) -> bool:
    """Whether a value is put behind a parameter, and nothing else is done with either list."""
    whole, parameter = body.results[edge.result].inputs[0], body.parameters[edge.parameter].output
    if not isinstance(whole.node.op, SequenceInsert) or len(whole.node.inputs) != 2:
        return False
    users = body.consumers()
    return (
        users.get(parameter, []) == [(whole.node, 0)]
        and whole.node.inputs[0] is parameter
        and users.get(whole, []) == [(body.results[edge.result], 0)]
    )


def _appended(body: Network, edge: BackEdge) -> tuple[int, int] | None:
    """Return along which axis one value is appended to a parameter, and which input it is.

    None where the iteration does anything else with the parameter, or with the whole.
    """
    whole, parameter = body.results[edge.result].inputs[0], body.parameters[edge.parameter].output
    op = whole.node.op
    if not isinstance(op, Concat) or len(whole.node.inputs) != 2:
        return None
    if whole.node.inputs[0] is not parameter:
        return None
    users = body.consumers()
    if users.get(parameter, []) != [(whole.node, 0)]:
        return None
    if users.get(whole, []) != [(body.results[edge.result], 0)]:
        return None
    return op.axis, 1


def _shape(body: Network, part: Port, loop: Node) -> tuple[int, ...] | None:
    """Return the part's shape where it is the same in all iterations, with some elements."""
    shape = _known_shape(body, part, loop)
    if shape is None or not shape.is_static or 0 in shape.static or not shape.static:
        return None
    return shape.static


def _known_shape(body: Network, part: Port, loop: Node) -> Shape | None:
    """Return what is known of the part's shape in all iterations; None without its rank."""
    assert isinstance(loop.op, Iteration)
    trial = Network(body.name, body.parameters, [*body.results, Node("part", Result(), [part])])
    descs = loop.op.parameters([port.desc for port in loop.inputs])
    return trial.infer_results(descs)[-1].shape
