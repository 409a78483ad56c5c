"""Operations that only look at their input in another way: no work, no memory.

Each function answers with one layout per output, over the memory of the node's first input, or
None when the input lies so that no pitches can show it that way; after a copy they always can.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polydevice.ops.broadcast import Broadcast
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.reverse import Reverse
from polydevice.ops.slice import Slice, StridedSlice, resolved, slice_index
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose, permutation
from polydevice.shape import normalize_axis
from polydevice.symbolic_size import whole
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.layout import Layout, broadcast, reshaped, sliced, transposed

View = Callable[[GpuNode], "list[Layout] | None"]

_VIEWS: dict[type[Op], View] = {}


def find_view(op: type[Op]) -> View | None:
    """Return the function for an operation; None when it is not a view."""
    return _VIEWS.get(op)


def is_view(node: GpuNode) -> bool:
    """Whether a node can be a view: its operation is one, and its parameters are known."""
    if isinstance(node.op, Pad) and node.output.border is None:
        return False
    return type(node.op) in _VIEWS and all(v.constant is not None for v in node.inputs[1:])


def _view(*ops: type[Op]) -> Callable[[View], View]:
    def register(function: View) -> View:
        for op in ops:
            _VIEWS[op] = function
        return function

    return register


def seen_back(node: GpuNode, layout: Layout) -> Layout | None:
    """Return how a view's input must lie so that the view lies as `layout` says.

    None for views of a part of their input, and where no pitches can do that.
    """
    x = node.inputs[0]
    if isinstance(node.op, (Reshape, Squeeze, Unsqueeze)):
        return reshaped(layout, node.output.shape, x.shape)
    if isinstance(node.op, Transpose):
        order = permutation(integers(node, 1), x.rank)
        return transposed(layout, [order.index(axis) for axis in range(x.rank)])
    return None


def integers(node: GpuNode, index: int) -> list[int]:
    """Return a constant input as a list of ints."""
    constant = node.inputs[index].constant
    assert constant is not None, f"{node.name}: input {index} is not constant"
    return [whole(v) for v in np.asarray(constant).reshape(-1)]


@_view(Reshape, Squeeze, Unsqueeze)
def _reshape(node: GpuNode) -> list[Layout] | None:
    x = node.inputs[0]
    layout = reshaped(x.placed, x.shape, node.output.shape)
    return None if layout is None else [layout]


@_view(Transpose)
def _transpose(node: GpuNode) -> list[Layout]:
    x = node.inputs[0]
    return [transposed(x.placed, permutation(integers(node, 1), x.rank))]


@_view(Split, VariadicSplit)
def _split(node: GpuNode) -> list[Layout]:
    x = node.inputs[0]
    axis = normalize_axis(integers(node, 1)[0], x.rank)
    layouts, start = [], 0
    for value in node.outputs:
        starts = [start if a == axis else 0 for a in range(x.rank)]
        layouts.append(sliced(x.placed, starts))
        start += value.shape[axis]
    return layouts


@_view(StridedSlice)
def _strided_slice(node: GpuNode) -> list[Layout]:
    op, x = node.operation(StridedSlice), node.inputs[0]
    begin, end = integers(node, 1), integers(node, 2)
    strides = integers(node, 3) if len(node.inputs) > 3 else [1] * len(begin)
    pitches, offset, axis = [], x.placed.offset, 0
    for item in op.index(x.rank, begin, end, strides):
        if item is None:
            pitches.append(0)
            continue
        size, pitch = x.shape[axis], x.placed.pitches[axis]
        axis += 1
        if isinstance(item, slice):
            taken = resolved(item, size)
            pitches.append(pitch * taken.step)
            offset += pitch * min(taken.start, max(size - 1, 0))
        else:
            offset += pitch * (item + size if item < 0 else item)
    return [Layout(tuple(pitches), offset)]


@_view(Slice)
def _slice(node: GpuNode) -> list[Layout]:
    x = node.inputs[0]
    axes = integers(node, 4) if len(node.inputs) > 4 else None
    items = slice_index(x.rank, integers(node, 1), integers(node, 2), integers(node, 3), axes)
    taken = [resolved(item, size) for item, size in zip(items, x.shape, strict=True)]
    starts = [min(each.start, max(n - 1, 0)) for each, n in zip(taken, x.shape, strict=True)]
    return [sliced(x.placed, starts, [each.step for each in taken])]


@_view(Pad)
def _pad(node: GpuNode) -> list[Layout]:
    """Where readers know the border, see `Border`: coordinates count from its beginning."""
    return [sliced(node.inputs[0].placed, [-n for n in integers(node, 1)])]


@_view(Broadcast)
def _broadcast(node: GpuNode) -> list[Layout]:
    op, x, out = node.operation(Broadcast), node.inputs[0], node.output.shape
    axes = integers(node, 2) if len(node.inputs) > 2 else None
    try:
        aligned = op.aligned(x.shape, out, axes)
    except Exception:  # noqa: BLE001 - bidirectional shapes align from the last axis
        return [broadcast(x.placed, x.shape, out)]
    pitches = iter(x.placed.pitches)
    full, sizes = [], iter(x.shape)
    remaining = next(sizes, None)
    for size in aligned:
        if remaining is not None and size == remaining:
            full.append(next(pitches))
            remaining = next(sizes, None)
        else:
            full.append(0)
    layout = Layout(tuple(full), x.placed.offset)
    shape = tuple(map(whole, aligned))
    return [broadcast(layout, shape, out)]


@_view(Reverse)
def _reverse(node: GpuNode) -> list[Layout]:
    op, x = node.operation(Reverse), node.inputs[0]
    reversed_axes = set(op.axes(integers(node, 1), x.rank))
    starts = [x.shape[a] - 1 if a in reversed_axes and x.shape[a] else 0 for a in range(x.rank)]
    steps = [-1 if a in reversed_axes else 1 for a in range(x.rank)]
    return [sliced(x.placed, starts, steps)]
