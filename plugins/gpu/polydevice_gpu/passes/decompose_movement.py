# ruff: noqa: ARG001 - every decomposition takes builder, operation and inputs
"""Rearrangements of elements as reshapes, transposes, slices and concatenations.

All of these are views but for one copy where the last reshape needs the elements in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.ops.blocks import (
    BatchToSpace,
    DepthMode,
    DepthToSpace,
    ShuffleChannels,
    SpaceToBatch,
    SpaceToDepth,
)
from polydevice.ops.broadcast import Broadcast, Tile
from polydevice.ops.concat import Concat
from polydevice.ops.gather import Gather
from polydevice.ops.pad import Pad
from polydevice.ops.reverse import Roll
from polydevice.ops.scatter import ScatterUpdate
from polydevice.ops.slice import Slice, SliceScatter, resolved, slice_index
from polydevice.ops.transpose import Transpose
from polydevice.ops.yolo import ReorgYolo
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder


def _known(op: object, inputs: Sequence[Value]) -> bool:
    return all(value.constant is not None for value in inputs[1:])


def _numbers(value: Value) -> list[int]:
    return [int(v) for v in np.asarray(value.constant).reshape(-1)]


def transpose(build: Builder, x: Value, order: Sequence[int]) -> Value:
    """Show a value with its axes in another order."""
    return build.one(Transpose(), x, build.constant(np.asarray(order, np.int64)))


def cut(build: Builder, x: Value, axis: int, start: int, stop: int) -> Value:
    """Show a range of one axis."""
    limits = [build.constant(np.array([n], np.int64)) for n in (start, stop, 1, axis)]
    return build.one(Slice(), x, *limits)


def _as_range(op: Gather, inputs: Sequence[Value]) -> range | None:
    """Return the indices as a range inside of the axis; None when they are not known or not one."""
    x, indices, axis = inputs
    if indices.constant is None or axis.constant is None or op.batch_dims or not indices.elements:
        return None
    size = x.shape[normalize_axis(_numbers(axis)[0], x.rank)]
    places = np.asarray(indices.constant, np.int64).reshape(-1)
    places = np.where((places < 0) & op.negative_indices, places + size, places)
    step = int(places[1] - places[0]) if places.size > 1 else 1
    if step == 0 or places.min() < 0 or places.max() >= size or np.any(np.diff(places) != step):
        return None
    return range(int(places[0]), int(places[-1]) + step, step)


@decomposes(Gather, when=lambda op, inputs: _as_range(op, inputs) is not None)
def _gather(build: Builder, op: Gather, inputs: Sequence[Value]) -> list[Value]:
    """Show the part of x: how PyTorch's exports take query, key and value out of one product."""
    x, indices, axis_value = inputs
    places, axis = _as_range(op, inputs), normalize_axis(_numbers(axis_value)[0], x.rank)
    assert places is not None
    stop = places.stop if places.stop >= 0 else -x.shape[axis] - 1
    limits = (places.start, stop, places.step, axis)
    part = build.one(Slice(), x, *(build.constant(np.array([n], np.int64)) for n in limits))
    return [reshape(build, part, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]


@decomposes(DepthToSpace)
def _depth_to_space(build: Builder, op: DepthToSpace, inputs: Sequence[Value]) -> list[Value]:
    (x,) = inputs
    batch, depth, *space = x.shape
    k, b = len(space), op.block_size
    channels = depth // b**k
    blocks = [b] * k
    if op.mode is DepthMode.BLOCKS_FIRST:
        split = reshape(build, x, (batch, *blocks, channels, *space))
        order = [0, k + 1, *(axis for i in range(k) for axis in (k + 2 + i, 1 + i))]
    else:
        split = reshape(build, x, (batch, channels, *blocks, *space))
        order = [0, 1, *(axis for i in range(k) for axis in (k + 2 + i, 2 + i))]
    sizes = (batch, channels, *(size * b for size in space))
    return [reshape(build, transpose(build, split, order), sizes)]


@decomposes(SpaceToDepth)
def _space_to_depth(build: Builder, op: SpaceToDepth, inputs: Sequence[Value]) -> list[Value]:
    (x,) = inputs
    batch, channels, *space = x.shape
    k, b = len(space), op.block_size
    split = reshape(build, x, (batch, channels, *(n for s in space for n in (s // b, b))))
    inner, outer = [3 + 2 * i for i in range(k)], [2 + 2 * i for i in range(k)]
    first = op.mode is DepthMode.BLOCKS_FIRST
    order = [0, *inner, 1, *outer] if first else [0, 1, *inner, *outer]
    sizes = (batch, channels * b**k, *(s // b for s in space))
    return [reshape(build, transpose(build, split, order), sizes)]


@decomposes(ShuffleChannels)
def _shuffle(build: Builder, op: ShuffleChannels, inputs: Sequence[Value]) -> list[Value]:
    (x,) = inputs
    axis = normalize_axis(op.axis, x.rank)
    before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    split = reshape(build, x, (*before, op.group, size // op.group, *behind))
    order = [*range(axis), axis + 1, axis, *range(axis + 2, x.rank + 1)]
    return [reshape(build, transpose(build, split, order), x.shape)]


@decomposes(BatchToSpace, when=_known)
def _batch_to_space(build: Builder, op: BatchToSpace, inputs: Sequence[Value]) -> list[Value]:
    x = inputs[0]
    block, begin, end = (_numbers(value) for value in inputs[1:4])
    total = int(np.prod(block))
    n, k = x.shape[0] // total, x.rank - 1
    split = reshape(build, x, (*block[1:], n, *x.shape[1:]))
    order = [k, *(axis for i in range(k) for axis in (k + 1 + i, i))]
    sizes = [n, *(size * b for size, b in zip(x.shape[1:], block[1:], strict=True))]
    y = reshape(build, transpose(build, split, order), sizes)
    for axis in range(1, x.rank):
        if begin[axis] or end[axis]:
            y = cut(build, y, axis, begin[axis], sizes[axis] - end[axis])
    return [y]


@decomposes(SpaceToBatch, when=_known)
def _space_to_batch(build: Builder, op: SpaceToBatch, inputs: Sequence[Value]) -> list[Value]:
    x = inputs[0]
    block, begin, end = (_numbers(value) for value in inputs[1:4])
    if any(begin) or any(end):
        pads = [build.constant(np.asarray(pad, np.int64)) for pad in (begin, end)]
        x = build.one(Pad(), x, *pads)
    k = x.rank - 1
    pairs = [(size // b, b) for size, b in zip(x.shape[1:], block[1:], strict=True)]
    split = reshape(build, x, (x.shape[0], *(n for pair in pairs for n in pair)))
    order = [*(2 + 2 * i for i in range(k)), 0, *(1 + 2 * i for i in range(k))]
    sizes = (x.shape[0] * int(np.prod(block)), *(size for size, _ in pairs))
    return [reshape(build, transpose(build, split, order), sizes)]


@decomposes(ReorgYolo)
def _reorg_yolo(build: Builder, op: ReorgYolo, inputs: Sequence[Value]) -> list[Value]:
    # Darknet reads the input as if it were [N, C / s², H × s, W × s] and gathers blocks of s × s.
    (x,) = inputs
    n, c, h, w = x.shape
    s = op.stride
    split = reshape(build, x, (n, c // s**2, h, s, w, s))
    moved = transpose(build, split, [0, 3, 5, 1, 2, 4])
    return [reshape(build, moved, (n, c * s**2, h // s, w // s))]


@decomposes(Tile, when=_known)
def _tile(build: Builder, op: Tile, inputs: Sequence[Value]) -> Sequence[Value]:
    x, repeats = inputs
    times = _numbers(repeats)
    rank = max(x.rank, len(times))
    shape = (1,) * (rank - x.rank) + x.shape
    times = [1] * (rank - len(times)) + times
    target = [n for pair in zip(times, shape, strict=True) for n in pair]
    spread = reshape(build, x, [n for size in shape for n in (1, size)])
    repeated = build.one(Broadcast(), spread, build.constant(np.asarray(target, np.int64)))
    return [reshape(build, repeated, [n * size for n, size in zip(times, shape, strict=True)])]


@decomposes(Roll, when=_known)
def _roll(build: Builder, op: Roll, inputs: Sequence[Value]) -> list[Value]:
    x, shift, axes = inputs
    places = [normalize_axis(axis, x.rank) for axis in _numbers(axes)]
    shifts = _numbers(shift)
    shifts = shifts * len(places) if len(shifts) == 1 else shifts
    total: dict[int, int] = {}
    for axis, by in zip(places, shifts, strict=True):
        total[axis] = total.get(axis, 0) + by
    y = x
    for axis, by in total.items():
        size = x.shape[axis]
        start = by % size if size else 0
        if start:
            end = cut(build, y, axis, size - start, size)
            y = build.one(Concat(axis=axis), end, cut(build, y, axis, 0, size - start))
    return [y]


@decomposes(SliceScatter, when=lambda op, inputs: _known(op, inputs[1:]))
def _slice_scatter(build: Builder, op: SliceScatter, inputs: Sequence[Value]) -> list[Value]:
    """Scatter to places that are known beforehand."""
    x, updates = inputs[:2]
    start, stop, step, *axes = (
        [int(n) for n in np.asarray(v.constant).reshape(-1)] for v in inputs[2:]
    )
    items = slice_index(len(x.shape), start, stop, step, axes[0] if axes else None)
    index = tuple(resolved(item, size) for item, size in zip(items, x.shape, strict=True))
    places = np.arange(x.elements, dtype=np.int64).reshape(x.shape)[index].reshape(-1)
    if not places.size:
        return [x]
    flat = build.one(
        ScatterUpdate(),
        reshape(build, x, (x.elements,)),
        build.constant(places),
        reshape(build, updates, (updates.elements,)),
        build.constant(np.asarray(0, np.int64)),
    )
    return [reshape(build, flat, x.shape)]
