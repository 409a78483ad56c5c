"""Looks: where the elements are that operations select or reorder without computing anything.

Sizes may be formulas; each function returns None where elements would have to be copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.node import Node
from polydevice.ops.op import Op
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Index, Slice, StridedSlice, resolved, slice_index
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose, permutation
from polydevice.shape import happen_to_be_equal, normalize_axis
from polydevice.symbolic_size import is_symbolic, number_of
from polydevice.tensor import TensorDesc

Look = tuple[tuple[int, ...], tuple[int, ...], int]
"""Sizes, strides and elements skipped of a view."""


def looks(node: Node, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[Look] | None:
    """Return what a node's outputs see of a tensor with these sizes and strides."""
    sizes = [port.desc.shape.static for port in node.outputs if port.desc.shape is not None]
    return _TABLE[type(node.op)](node, sizes, shape, strides)


def _reshaped(
    _: Node, sizes: list[tuple[int, ...]], shape: tuple[int, ...], strides: tuple[int, ...]
) -> list[Look] | None:
    (wanted,) = sizes
    if 0 in shape:
        return [(wanted, _any_strides(wanted), 0)]
    steps = reshaped_strides(shape, strides, wanted)
    return None if steps is None else [(wanted, steps, 0)]


def _any_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor without elements."""
    return (1,) * len(shape)


def reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]
) -> tuple[int, ...] | None:
    """Return strides with which the same elements in the same order have other sizes.

    Axes of runs that multiply to the same number are one run of memory, or there are none.
    """
    axes = [
        (n, step) for n, step in zip(shape, strides, strict=True) if not happen_to_be_equal(n, 1)
    ]
    places = [number for number, n in enumerate(wanted) if not happen_to_be_equal(n, 1)]
    found = [1] * len(wanted)
    old = new = 0
    while old < len(axes) and new < len(places):
        last_old, last_new = old + 1, new + 1
        have, want = axes[old][0], wanted[places[new]]
        while number_of(have) != number_of(want):
            if number_of(have) < number_of(want):
                if last_old == len(axes):
                    return None
                have = have * axes[last_old][0]
                last_old += 1
            else:
                if last_new == len(places):
                    return None
                want = want * wanted[places[last_new]]
                last_new += 1
        if not happen_to_be_equal(have, want):
            return None
        for outer, inner in zip(axes[old:last_old], axes[old + 1 : last_old], strict=False):
            if not happen_to_be_equal(outer[1], inner[0] * inner[1]):
                return None
        step = axes[last_old - 1][1]
        for place in reversed(places[new:last_new]):
            found[place] = step
            step = step * wanted[place]
        old, new = last_old, last_new
    return tuple(found) if old == len(axes) and new == len(places) else None


def _transposed(
    node: Node, _: list[tuple[int, ...]], shape: tuple[int, ...], strides: tuple[int, ...]
) -> list[Look] | None:
    order = node.inputs[1].desc.static_ints
    if order is None:
        return None
    places = permutation([int(axis) for axis in order], len(shape))
    return [(tuple(shape[d] for d in places), tuple(strides[d] for d in places), 0)]


def _cut(
    node: Node, sizes: list[tuple[int, ...]], shape: tuple[int, ...], strides: tuple[int, ...]
) -> list[Look] | None:
    axis = node.inputs[1].desc.static_ints
    if axis is None:
        return None
    at = normalize_axis(int(axis[0]), len(shape))
    found, start = [], 0
    for part in sizes:
        found.append((part, strides, start * strides[at]))
        start = start + part[at]
    return found


def _sliced(
    node: Node, sizes: list[tuple[int, ...]], shape: tuple[int, ...], strides: tuple[int, ...]
) -> list[Look] | None:
    (wanted,) = sizes
    items = _index(node.op, len(shape), [port.desc for port in node.inputs[1:]])
    return None if items is None else _sliced_by(items, wanted, shape, strides)


def _sliced_by(
    items: Sequence[Index],
    wanted: tuple[int, ...],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> list[Look] | None:
    steps, skipped, axis = [], 0, 0
    for item in items:
        if item is None:
            steps.append(1)
            continue
        size, step = shape[axis], strides[axis]
        axis += 1
        if isinstance(item, slice):
            taken = resolved(item, size)
            if taken.step < 0:
                return None
            steps.append(step * taken.step)
            skipped = skipped + taken.start * step
        else:
            skipped = skipped + (item + size if item < 0 else item) * step
    return [(wanted, tuple(steps), skipped)]


class Backwards(NamedTuple):
    """What is taken from back to front.

    Attributes:
        indices: by axis, elements of it in order.
        items: what is taken of each axis then.
    """

    indices: dict[int, Array]
    items: Sequence[Index]

    def look(self, node: Node, shape: tuple[int, ...], strides: tuple[int, ...]) -> Look:
        """Return what is seen of these elements, which have such sizes and strides."""
        target = node.outputs[0].desc.shape
        assert target is not None
        found = _sliced_by(self.items, target.static, shape, strides)
        assert found is not None
        return found[0]


def backwards(node: Node, shape: tuple[int, ...]) -> Backwards | None:
    """Return what Slice or StridedSlice takes from back to front; None where sizes are formulas."""
    if not isinstance(node.op, (Slice, StridedSlice)) or any(map(is_symbolic, shape)):
        return None
    items = _index(node.op, len(shape), [port.desc for port in node.inputs[1:]])
    if items is None:
        return None
    indices, others, axis = dict[int, Array](), list[Index](), 0
    for item in items:
        others.append(item)
        if item is None:
            continue
        if isinstance(item, slice):
            taken = resolved(item, shape[axis])
            if taken.step < 0:
                indices[axis] = np.arange(shape[axis])[taken]
                others[-1] = slice(None)
        axis += 1
    return Backwards(indices, others) if indices else None


def _index(op: Op, rank: int, limits: Sequence[TensorDesc]) -> Sequence[Index] | None:
    """What Slice and StridedSlice take from each axis."""
    ints = [limit.static_ints for limit in limits]
    known = [each for each in ints if each is not None]
    if len(known) < len(ints):
        return None
    if isinstance(op, StridedSlice):
        begin, end, *rest = known
        return op.index(rank, begin, end, rest[0] if rest else [1] * len(begin))
    start, stop, step, *axes = known
    chosen = [int(axis) for axis in axes[0]] if axes else None
    return slice_index(rank, start, stop, step, chosen)


_Find = Callable[
    [Node, list[tuple[int, ...]], tuple[int, ...], tuple[int, ...]], "list[Look] | None"
]
_TABLE: dict[type[Op], _Find] = {
    **dict.fromkeys((Reshape, Squeeze, Unsqueeze), _reshaped),
    **dict.fromkeys((Split, VariadicSplit), _cut),
    **dict.fromkeys((Slice, StridedSlice), _sliced),
    Transpose: _transposed,
}

OPS = tuple(_TABLE)
"""The operations that are looks at their first input, where their others are constant."""
