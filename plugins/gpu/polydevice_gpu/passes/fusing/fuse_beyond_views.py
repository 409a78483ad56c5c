"""fuse_beyond_views: where pointwise operations may be computed before views and concatenations.

``ReLU(Reshape(x))`` is ``Reshape(ReLU(x))``, and ``ReLU(Concat(a, b))`` is ``Concat(ReLU(a),
ReLU(b))``: what reads a view can join the node that computes what is looked at, with its other
operands seen the same way back. Used by `fuse_pointwise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import accumulate

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.ops.concat import Concat
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice
from polydevice.ops.transpose import Transpose, permutation
from polydevice.shape import are_same, is_one, normalize_axis, stay_equal
from polydevice.symbolic_size import array_of, is_symbolic, number_of
from polydevice_gpu import views
from polydevice_gpu.graph import GpuNode, Value, constant_value

_MOST_REPEATED = 1 << 16
"""Elements to which a constant may grow that is broadcast along some axes a reshape joins."""

Users = dict[Value, list[GpuNode]]


@dataclass
class Way:
    """How a pointwise node gets beyond what lies between it and those that take it over.

    Attributes:
        hosts: each node that takes it over, with the operands for its part.
        parts: inputs of concatenations that nobody takes it over for, with their concatenation and
            the operands: they would be copied, and are computed there instead.
        between: values whose type becomes that of the pointwise node's result.
        made: views of operands that are needed for it.
        copies: how many of those may have to be copied, which depends on layouts.
    """

    hosts: list[tuple[GpuNode, list[Value]]] = field(default_factory=list)
    parts: list[tuple[Value, GpuNode, list[Value]]] = field(default_factory=list)
    between: list[Value] = field(default_factory=list)
    made: list[GpuNode] = field(default_factory=list)
    copies: int = 0

    def assign(self, other: Way) -> None:
        """Become what another is."""
        self.hosts, self.parts, self.between = other.hosts, other.parts, other.between
        self.made, self.copies = other.made, other.copies

    def copy(self) -> Way:
        """Return another that can be changed."""
        lists = (self.hosts[:], self.parts[:], self.between[:], self.made[:])
        return Way(*lists, copies=self.copies)


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
        starts = accumulate((v.shape[_axis(node)] for v in node.inputs[:-1]), initial=0)
        for part, start in zip(node.inputs, starts, strict=True):
            if any(v.border is not None for v in operands):
                return False
            sliced = [_sliced(v, node, start, part, way.made) for v in operands]
            tried = way.copy()
            if _walk(tried, part, node, sliced, users, hosts):
                way.assign(tried)
            elif _is_copied(part):
                way.parts.append((part, node, sliced))
            else:
                return False
        return True
    if (
        not views.is_view(node)
        or len(node.outputs) > 1
        or not are_same([value.elements], [node.inputs[0].elements])
    ):
        return False  # of a view of a part, others may need what is not in it
    before = [_seen_back(v, node, way) for v in operands]
    known = [v for v in before if v is not None]
    # One copy of an operand for one launch less: that is no loss, two would be.
    good = len(known) == len(before) and way.copies <= 1
    return good and _walk(way, node.inputs[0], node, known, users, hosts)


def _is_copied(part: Value) -> bool:
    """Whether a concatenation copies an input: it lies elsewhere for good."""
    node = part.producer
    return (
        node is None
        or part.is_output
        or (views.is_view(node) and part.elements < node.inputs[0].elements)
    )


def _axis(concat: GpuNode) -> int:
    op = concat.operation(Concat)
    return normalize_axis(op.axis, concat.output.rank)


def _aligned(operand: Value, rank: int) -> tuple[int, ...]:
    return (1,) * (rank - operand.rank) + operand.shape


def _sliced(operand: Value, concat: GpuNode, start: int, part: Value, made: list[GpuNode]) -> Value:
    """Return the part of an operand that meets an input of a concatenation."""
    axis, rank = _axis(concat), concat.output.rank
    shape = _aligned(operand, rank)
    if shape[axis] == 1:
        return operand
    stop = start + part.shape[axis]
    if operand.constant is not None:
        index = [slice(None)] * rank
        index[axis] = slice(start, stop)
        data = np.asarray(operand.constant).reshape(shape)[tuple(index)]
        return _constant(operand, data, f"from {start}")
    own = axis - rank + operand.rank
    sizes = [stop - start if n == own else size for n, size in enumerate(operand.shape)]
    value = _like(operand, f"{operand.name}/from {start} of {concat.name}", sizes)
    bounds = [
        constant_value(f"{value.name}/{n}", array_of([n], np.int64)) for n in (start, stop, 1, own)
    ]
    made.append(GpuNode(value.name, Slice(), [operand, *bounds], [value]))
    return value


def _constant(operand: Value, data: Array, what: str) -> Value:
    made = constant_value(f"{operand.name}/{what}", data, operand.element_type)
    made.storage = operand.storage
    return made


def _seen_back(operand: Value, view: GpuNode, way: Way) -> Value | None:
    """Return an operand of what reads a view as an operand of what the view looks at."""
    x, out, made = view.inputs[0], view.output, way.made
    shape = _aligned(operand, out.rank)
    if operand.border is not None:
        return None
    if is_one(operand.elements):
        return operand if operand.rank <= x.rank else _reshaped(operand, (), view, made)
    if isinstance(view.op, Transpose):
        order = permutation(views.integers(view, 1), x.rank)
        back = [order.index(axis) for axis in range(x.rank)]
        if operand.constant is not None:
            data = np.asarray(operand.constant).reshape(shape).transpose(back)
            return _constant(operand, data, "turned")
        target = tuple(shape[axis] for axis in back)
        kept = [axis for axis in back if not is_one(shape[axis])]
        if kept == sorted(kept):  # equal sizes would say so of axes that changed places, too
            return _reshaped(operand, target, view, made)
        full = _reshaped(operand, shape, view, made)
        turned = _like(operand, f"{full.name}/turned before {view.name}", target)
        order_value = constant_value(f"{turned.name}/order", np.array(back, np.int64))
        made.append(GpuNode(turned.name, Transpose(), [full, order_value], [turned]))
        return turned
    if isinstance(view.op, (Reshape, Squeeze, Unsqueeze)):
        found = _shape_before(x.shape, out.shape, shape)
        if found is None:
            return None
        repeated, wanted = found
        if operand.constant is not None:
            return _repeated(operand, shape, repeated, wanted)
        if not are_same(repeated, shape):
            return None
        is_same = are_same(_without_ones(shape), _without_ones(wanted))
        if not is_same and operand.producer is not None:
            way.copies += 1
        return _reshaped(operand, wanted, view, made)
    return None


def _repeated(
    operand: Value, shape: Sequence[int], repeated: Sequence[int], wanted: Sequence[int]
) -> Value | None:
    """Show a constant in another shape, for which it may have to be repeated; None if too often."""
    if not are_same(repeated, shape) and any(map(is_symbolic, repeated)):
        return None  # memory holds one number of repetitions
    if math.prod(repeated) > max(operand.elements, _MOST_REPEATED):
        return None
    data = np.broadcast_to(np.asarray(operand.constant).reshape(shape), repeated)
    return _constant(operand, data.reshape(wanted), "seen")


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if not is_one(size)]


def _like(operand: Value, name: str, shape: Sequence[int]) -> Value:
    return Value(name, operand.element_type, shape, storage=operand.storage)


def _reshaped(operand: Value, shape: tuple[int, ...], view: GpuNode, made: list[GpuNode]) -> Value:
    """Show an operand in another shape; with more or fewer axes of size 1 any layout allows it."""
    if are_same(operand.shape, shape):
        return operand
    if operand.constant is not None:
        return _constant(operand, np.asarray(operand.constant).reshape(shape), "seen")
    value = _like(operand, f"{operand.name}/seen before {view.name}", shape)
    sizes = constant_value(f"{value.name}/shape", array_of(shape, np.int64))
    made.append(GpuNode(value.name, Reshape(special_zero=False), [operand, sizes], [value]))
    return value


def _shape_before(
    old: tuple[int, ...], new: tuple[int, ...], operand: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return how an operand of a reshape's result is one of the reshape's input.

    Of axes that a reshape joins or cuts, it must be broadcast along all or along none; for that it
    may have to be repeated along some.

    Returns:
        The shape to which the operand is repeated, and its shape before the reshape.
    """
    wanted: list[int] = []
    repeated: list[int] = []
    i = j = 0
    while i < len(old) or j < len(new):
        begin_i, begin_j, left, right = i, j, 1, 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while not stay_equal(left, right):
            if number_of(left) < number_of(right) and i < len(old):
                left, i = left * old[i], i + 1
            elif number_of(left) > number_of(right) and j < len(new):
                right, j = right * new[j], j + 1
            else:
                return None
        if all(map(is_one, operand[begin_j:j])):
            repeated += [1] * (j - begin_j)
            wanted += [1] * (i - begin_i)
        else:
            repeated += new[begin_j:j]
            wanted += old[begin_i:i]
    return tuple(repeated), tuple(wanted)
