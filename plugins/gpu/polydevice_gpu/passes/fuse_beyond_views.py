"""fuse_beyond_views: where pointwise operations may be computed before views and concatenations.

``ReLU(Reshape(x))`` is ``Reshape(ReLU(x))``, and ``ReLU(Concat(a, b))`` is ``Concat(ReLU(a),
ReLU(b))``: what reads a view can join the node that computes what is looked at, with its other
operands seen the same way back. Used by `fuse_pointwise`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.concat import Concat
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.transpose import Transpose, permutation
from polydevice.shape import normalize_axis
from polydevice_gpu import views
from polydevice_gpu.graph import GpuNode, Value, constant_value

Users = dict[Value, list[GpuNode]]


@dataclass
class Way:
    """How a pointwise node gets beyond what lies between it and those that take it over.

    Attributes:
        hosts: each node that takes it over, with the operands for its part.
        between: values whose type becomes that of the pointwise node's result.
        made: views of operands that are needed for it.
    """

    hosts: list[tuple[GpuNode, list[Value]]] = field(default_factory=list)
    between: list[Value] = field(default_factory=list)
    made: list[GpuNode] = field(default_factory=list)


def find_way(
    node: GpuNode,
    value: Value,
    users: Users,
    hosts: Callable[[Value, Sequence[Value]], bool],
) -> Way | None:
    """Return how a pointwise node can be computed before its input `value` is looked at.

    Args:
        node: the pointwise node.
        value: what it reads; of the shape of its result.
        users: who reads each value.
        hosts: whether the node that computes a value takes over an operation with these operands.
    """
    way = Way()
    operands = [each for each in node.inputs if each is not value]
    return way if _walk(way, value, node, operands, users, hosts) else None


def _walk(
    way: Way,
    value: Value,
    reader: GpuNode,
    operands: list[Value],
    users: Users,
    hosts: Callable[[Value, Sequence[Value]], bool],
) -> bool:
    node = value.producer
    if node is None or node.on_host or value.is_output:
        return False
    if any(user is not reader for user in users.get(value, [])):
        return False
    if hosts(value, operands):
        way.hosts.append((node, operands))
        way.between.append(value)
        return True
    way.between.append(value)
    if isinstance(node.op, Concat):
        if len(set(node.inputs)) < len(node.inputs):
            return False
        starts = np.cumsum([0, *(v.shape[_axis(node)] for v in node.inputs)])
        for part, start in zip(node.inputs, starts[:-1], strict=True):
            sliced = [_sliced(v, node, int(start), part) for v in operands]
            found = [v for v in sliced if v is not None]
            if len(found) < len(sliced) or not _walk(way, part, node, found, users, hosts):
                return False
        return True
    if (
        not views.is_view(node)
        or len(node.outputs) > 1
        or value.elements != node.inputs[0].elements
    ):
        return False  # of a view of a part, others may need what is not in it
    before = [_seen_back(v, node, way.made) for v in operands]
    known = [v for v in before if v is not None]
    return len(known) == len(before) and _walk(way, node.inputs[0], node, known, users, hosts)


def _axis(concat: GpuNode) -> int:
    assert isinstance(concat.op, Concat)
    return normalize_axis(concat.op.axis, concat.output.rank)


def _aligned(operand: Value, rank: int) -> tuple[int, ...]:
    return (1,) * (rank - operand.rank) + operand.shape


def _sliced(operand: Value, concat: GpuNode, start: int, part: Value) -> Value | None:
    """Return the part of an operand that meets an input of a concatenation."""
    axis, rank = _axis(concat), concat.output.rank
    shape = _aligned(operand, rank)
    if shape[axis] == 1:
        return operand
    if operand.constant is None:
        return None
    index = [slice(None)] * rank
    index[axis] = slice(start, start + part.shape[axis])
    data = np.asarray(operand.constant).reshape(shape)[tuple(index)]
    return _constant(operand, data, f"from {start}")


def _constant(operand: Value, data: Array, what: str) -> Value:
    made = constant_value(f"{operand.name}/{what}", data, operand.element_type)
    made.storage = operand.storage
    return made


def _seen_back(operand: Value, view: GpuNode, made: list[GpuNode]) -> Value | None:
    """Return an operand of what reads a view as an operand of what the view looks at."""
    x, out = view.inputs[0], view.output
    shape = _aligned(operand, out.rank)
    if operand.elements == 1:
        return operand if operand.rank <= x.rank else _reshaped(operand, (), made)
    if isinstance(view.op, Transpose):
        order = permutation(views.integers(view, 1), x.rank)
        back = [order.index(axis) for axis in range(x.rank)]
        if operand.constant is not None:
            data = np.asarray(operand.constant).reshape(shape).transpose(back)
            return _constant(operand, data, "turned")
        target = tuple(shape[axis] for axis in back)
        if _without_ones(shape) == _without_ones(target):
            return _reshaped(operand, target, made)
        full = _reshaped(operand, shape, made)
        turned = _like(operand, f"{full.name}/turned", target)
        order_value = constant_value(f"{turned.name}/order", np.array(back, np.int64))
        made.append(GpuNode(turned.name, Transpose(), [full, order_value], [turned]))
        return turned
    if isinstance(view.op, (Reshape, Squeeze, Unsqueeze)):
        wanted = _shape_before(x.shape, out.shape, shape)
        if wanted is None:
            return None
        if operand.constant is not None:
            return _constant(operand, np.asarray(operand.constant).reshape(wanted), "seen")
        if _without_ones(shape) == _without_ones(wanted):
            return _reshaped(operand, wanted, made)
    return None


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _like(operand: Value, name: str, shape: Sequence[int]) -> Value:
    return Value(name, operand.element_type, shape, storage=operand.storage)


def _reshaped(operand: Value, shape: tuple[int, ...], made: list[GpuNode]) -> Value:
    """Show an operand with more or fewer axes of size 1, which any layout allows."""
    if operand.shape == shape:
        return operand
    if operand.constant is not None:
        return _constant(operand, np.asarray(operand.constant).reshape(shape), "seen")
    value = _like(operand, f"{operand.name}/seen", shape)
    sizes = constant_value(f"{value.name}/shape", np.array(shape, np.int64))
    made.append(GpuNode(value.name, Reshape(special_zero=False), [operand, sizes], [value]))
    return value


def _shape_before(
    old: tuple[int, ...], new: tuple[int, ...], operand: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the shape of an operand of a reshape's result as an operand of its input.

    Axes that a reshape joins or cuts must all be broadcast, or none.
    """
    wanted: list[int] = []
    i = j = 0
    while i < len(old) or j < len(new):
        begin_i, begin_j, left, right = i, j, 1, 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right and i < len(old):
                left, i = left * old[i], i + 1
            elif left > right and j < len(new):
                right, j = right * new[j], j + 1
            else:
                return None
        sizes = operand[begin_j:j]
        if all(size == 1 for size in sizes):
            wanted += [1] * (i - begin_i)
        elif sizes == new[begin_j:j]:
            wanted += old[begin_i:i]
        else:
            return None
    return tuple(wanted)
