"""slice_inputs: what a loop reads one element of, by the iteration's number, is cut for it.

TorchScript writes `x[t]` in a loop as a Gather of all of x, as TensorFlow's recurrent layers do,
which count by themselves. Iterations are then planned anew for each length of x; those that get
their part are alike for all lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.network.names import namer
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.comparison import Less
from polydevice.ops.control_flow import BackEdge, BodyInput, Loop, Slicing
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.logical import LogicalAnd
from polydevice.ops.reshape import Squeeze
from polydevice.rewrites.facts import array_of, is_known
from polydevice.shape import DimLike, Shape, normalize_axis, stay_equal
from polydevice.symbolic_size import is_symbolic

Size = int
"""A number, or one as a symbol."""

_EXACT = 1 << 24
"""Numbers up to here are compared exactly as f32, too."""


def slice_inputs(network: Network) -> int:
    """Change every loop of a network that reads inputs so; return how many inputs."""
    found = 0
    for node in network.nodes():
        if isinstance(node.op, Loop) and isinstance(node.op.body, Network):
            found += _slice_inputs(node, node.op, node.op.body)
    if found:
        network.infer()
    return found


def _slice_inputs(node: Node, op: Loop, body: Network) -> int:
    carried = {edge.parameter for edge in op.back_edges}
    numbers = _numbers(node, op, body)
    most = [*_trips(node), *_limits(node, op, body, numbers)]
    cut: dict[int, int] = {}
    for tie in op.body_inputs if most else ():
        if tie.slicing is not None or tie.parameter in (*carried, op.current_iteration):
            continue
        axis, shape = _axis(body, tie.parameter, numbers), node.inputs[tie.input].shape
        if axis is not None and shape is not None and _are_within(most, shape[axis]):
            cut[tie.parameter] = axis
    if not cut:
        return 0
    changed = body.clone()
    for parameter, axis in cut.items():
        _read_parts(changed, parameter, axis)
    ties = tuple(
        BodyInput(tie.input, tie.parameter, Slicing(cut[tie.parameter]))
        if tie.parameter in cut
        else tie
        for tie in op.body_inputs
    )
    node.op = op.replace(body=changed, body_inputs=ties)
    return len(cut)


def _numbers(node: Node, op: Loop, body: Network) -> set[Port]:
    """Return what is the iteration's number in a body: also what is carried, and counts from 0."""
    found = set() if op.current_iteration is None else {op.current_iteration}
    for edge in op.back_edges:
        counter, following = body.parameters[edge.parameter].output, body.results[edge.result]
        if _given(node, op, edge.parameter) == 0 and _is_next(following.inputs[0], {counter}):
            found.add(edge.parameter)
    ports = (body.parameters[parameter].output for parameter in found)
    return {port for port in ports if port.desc.rank == 0}


def _is_next(port: Port, numbers: set[Port]) -> bool:
    """Whether a value is one more than one of these numbers."""
    if not isinstance(port.node.op, Add):
        return False
    left, right = port.node.inputs
    for number, one in ((left, right), (right, left)):
        if number in numbers and is_known(one) and array_of(one).size == 1:
            return bool(array_of(one).reshape(()) == 1)
    return False


def _given(node: Node, op: Loop, parameter: int) -> Size | None:
    """Return the number that a parameter has first, if it is one that is known."""
    ties = [tie for tie in op.body_inputs if tie.parameter == parameter]
    if len(ties) != 1 or ties[0].slicing is not None:
        return None
    return _number(node.inputs[ties[0].input])


def _number(port: Port) -> Size | None:
    value = port.node.constant
    if value is None or value.size != 1 or not port.element_type.is_integer:
        return None
    found: Size = value.reshape(-1).tolist()[0]
    return found


def _trips(node: Node) -> list[Size]:
    """Return how many iterations there are at most, as the loop is told; none if it is not."""
    count = _number(node.inputs[0])
    return [] if count is None or (not is_symbolic(count) and count < 0) else [count]


def _limits(node: Node, op: Loop, body: Network, numbers: set[Port]) -> list[Size]:
    """Return the limits of conditions `number + 1 < limit`, without which there is no other one."""
    if op.execution_condition is None:
        return []
    changing = {edge.parameter for edge in op.back_edges if not _stays(body, edge)}
    places = {each.output: number for number, each in enumerate(body.parameters)}
    limits, conditions = [], [body.results[op.execution_condition].inputs[0]]
    while conditions:
        at = conditions.pop().node
        if isinstance(at.op, LogicalAnd):
            conditions += at.inputs
        if not isinstance(at.op, Less):
            continue
        number, limit = map(_converted, at.inputs)
        parameter = places.get(limit)
        found = _number(limit) if parameter is None else _given(node, op, parameter)
        if found is not None and parameter not in changing and _is_next(number, numbers):
            limits.append(found)
    return limits


def _stays(body: Network, edge: BackEdge) -> bool:
    """Whether what is carried is handed on as it is."""
    return body.results[edge.result].inputs[0] is body.parameters[edge.parameter].output


def _converted(port: Port) -> Port:
    """Return what a value was converted from: TensorFlow compares whole numbers as f32."""
    while isinstance(port.node.op, Convert):
        port = port.node.inputs[0]
    return port


def _axis(body: Network, parameter: int, numbers: set[Port]) -> int | None:
    """Return along which axis nothing but the element of the iteration's number is read."""
    whole, axes = body.parameters[parameter].output, set()
    if whole.desc.rank is None:
        return None
    for reader, index in body.consumers().get(whole, []):
        is_element = isinstance(reader.op, Gather) and index == 0 and not reader.op.batch_dims
        if not is_element or reader.inputs[1] not in numbers or not is_known(reader.inputs[2]):
            return None
        axes.add(normalize_axis(int(array_of(reader.inputs[2]).reshape(-1)[0]), whole.desc.rank))
    return axes.pop() if len(axes) == 1 else None


def _are_within(most: Sequence[Size], size: DimLike) -> bool:
    """Whether there are no more iterations than elements: beyond them Gather gives zeros.

    The first one may come whatever limits the next ones.
    """
    if not (isinstance(size, int) and 1 <= size <= _EXACT):
        return False
    return any(
        stay_equal(count, size) if is_symbolic(count) or is_symbolic(size) else count <= size
        for count in most
    )


def _read_parts(body: Network, parameter: int, axis: int) -> None:
    """Let a body read a part of one element in the place of all that a parameter had."""
    node = body.parameters[parameter]
    readers = [reader for reader, _ in body.consumers().get(node.output, [])]
    assert node.output.shape is not None
    sizes = [1 if at == axis else size for at, size in enumerate(node.output.shape)]
    node.op = node.op.replace(shape=Shape(sizes))
    node.infer()
    for reader in readers:
        build = Emitter(reader.name, origins=reader.layers)
        part = build.emit(Squeeze(), node.output, [axis])
        build.name_nodes([part], namer(body), reader)
        body.replace({reader.output: part})
