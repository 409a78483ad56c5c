"""slice_early: of rows of which only some are wanted the others are not computed.

Vision transformers classify by their first token, language models by the last one: behind the last
attention every layer computes each token by itself, and a Slice throws all but one away. It moves
in front of products with constant weights, and of normalisations and pointwise layers on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polydevice.dataclass import dataclass
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.matmul import MatMul
from polydevice.ops.normalization import MVN
from polydevice.ops.slice import Slice, resolved, slice_index
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fused
from polydevice_gpu.views import integers, is_view

_TWO_SIDED = (Add, Divide, Multiply, Subtract)
_LEAST_SHRINKING = 2
"""Times that rows must become fewer."""


@dataclass(frozen=True)
class _Part:
    """What a Slice takes of one axis, which is counted from the last one: -1, -2 and so on."""

    axis: int
    start: int
    stop: int
    step: int

    def count(self) -> int:
        return len(range(self.start, self.stop, self.step))


def slice_early(graph: GpuGraph, target: Target) -> None:
    """Move every Slice in front of products, if what it leaves out is used by nobody else."""
    if target.sizes_vary:
        return
    users = graph.users()
    for node in [each for each in graph.nodes if _part_of(each) is not None]:
        part = _part_of(node)
        if part is None or node not in users.get(node.inputs[0], ()):
            continue  # it went with another one that takes the same
        parts = _values_of_which_a_part_will_do(node.inputs[0], part, users)
        if any(isinstance(_maker(value).op, MatMul) for value in parts):
            _narrow(graph, parts, part, users)
            users = graph.users()


def _part_of(node: GpuNode) -> _Part | None:
    """Return what a Slice takes, if that is less than half of one axis, forwards."""
    if type(node.op) is not Slice or node.is_opaque or not is_view(node):
        return None
    x = node.inputs[0]
    axes = integers(node, 4) if len(node.inputs) > 4 else None
    items = slice_index(x.rank, integers(node, 1), integers(node, 2), integers(node, 3), axes)
    cut = [axis for axis in range(x.rank) if node.output.shape[axis] != x.shape[axis]]
    if len(cut) != 1 or x.constant is not None:
        return None
    axis = cut[0]
    taken = resolved(items[axis], x.shape[axis])
    fewer = node.output.shape[axis] * _LEAST_SHRINKING <= x.shape[axis]
    if taken.step < 0 or not fewer or not node.output.elements:
        return None
    return _Part(axis - x.rank, taken.start, taken.stop, taken.step)


def _values_of_which_a_part_will_do(
    last: Value, part: _Part, users: Mapping[Value, Sequence[GpuNode]]
) -> list[Value]:
    """Return the values that need be made in part only, `last` being one; empty if it is none."""
    found: dict[Value, None] = {}
    left = [last]
    while left:
        value = left.pop()
        inputs = None if value in found else _cut_inputs(value, part)
        if inputs is not None:
            found[value] = None
            left += inputs
    while True:
        wrong = [value for value in found if not _is_wanted_in_part(value, part, found, users)]
        if not wrong:
            return list(found) if last in found else []
        for value in wrong:
            del found[value]


def _is_wanted_in_part(
    value: Value,
    part: _Part,
    found: Mapping[Value, None],
    users: Mapping[Value, Sequence[GpuNode]],
) -> bool:
    """Whether all who read a value take this part of it, or are made in part themselves."""
    return not value.is_output and all(
        _part_of(reader) == part
        or (reader.output in found and value in (_cut_inputs(reader.output, part) or ()))
        for reader in users[value]
    )


def _cut_inputs(value: Value, part: _Part) -> list[Value] | None:
    """Return the inputs of which a part makes that part of a value; None if its maker needs all."""
    node = value.producer
    if node is None or node.is_opaque or len(node.outputs) > 1 or node.epilogue is not None:
        return None
    if value.rank < -part.axis:
        return None
    x, axis = node.inputs[0], value.rank + part.axis
    if isinstance(node.op, Fused):
        return _cut_operands(node, part)
    if x.shape != value.shape and type(node.op) is not MatMul:
        return None
    if type(node.op) is MVN and node.inputs[1].constant is not None:
        along = {normalize_axis(each, x.rank) for each in integers(node, 1)}
        return None if axis in along else [x]
    if type(node.op) is MatMul:
        weights = node.inputs[1]
        by_row = weights.constant is not None and weights.rank == 2 and x.rank == value.rank
        return [x] if by_row and not node.op.transpose_a and part.axis < -1 else None
    return None


def _cut_operands(node: GpuNode, part: _Part) -> list[Value] | None:
    """Return the operands of a pointwise layer that have the axis, where others are spread."""
    steps = node.operation(Fused).fragment.steps
    two_sided = len(steps) == 1 and isinstance(steps[0].op, _TWO_SIDED)
    if len(node.inputs) > 1 and not two_sided:
        return None
    size = node.output.shape[part.axis]
    cut = []
    for x in node.inputs:
        own = x.shape[part.axis] if x.rank >= -part.axis else 1
        if own != size and own != 1:
            return None
        if own == size:
            cut.append(x)
    return cut


def _narrow(
    graph: GpuGraph, parts: Sequence[Value], part: _Part, users: Mapping[Value, Sequence[GpuNode]]
) -> None:
    """Make only a part of these values."""
    cut: dict[Value, Value] = {}
    makers = {_maker(value): value for value in parts}
    for node in [each for each in graph.nodes if each in makers]:
        for x in _cut_inputs(makers[node], part) or ():
            if x not in makers.values() and x not in cut:
                cut[x] = _cut(graph, node, x, part)
        node.inputs = [cut.get(x, x) for x in node.inputs]
    for value in parts:
        shape = list(value.shape)
        shape[part.axis] = part.count()
        for reader in users[value]:
            if reader.output not in makers.values():
                graph.replace(reader.output, value)
                graph.remove(reader, "OPTIMIZED_OUT", "", "no more than it takes is computed")
        value.shape = tuple(shape)


def _cut(graph: GpuGraph, before: GpuNode, x: Value, part: _Part) -> Value:
    """Return a part of a value, which a new Slice takes in front of a node."""
    shape = list(x.shape)
    shape[part.axis] = part.count()
    name = f"{before.name}/{x.name}/part"
    made = Value(name, x.element_type, shape, storage=x.storage)
    numbers = (part.start, part.stop, part.step, x.rank + part.axis)
    limits = [constant_value(f"{name}/{n}", [number]) for n, number in enumerate(numbers)]
    graph.insert_before(before, GpuNode(name, Slice(), [x, *limits], [made]))
    return made


def _maker(value: Value) -> GpuNode:
    assert value.producer is not None
    return value.producer
