"""Blocks between depth, batch and space, as reshapes and transposes.

All of these are views but for one copy where the last reshape needs the elements in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.blocks import (
    BatchToSpace,
    DepthMode,
    DepthToSpace,
    ShuffleChannels,
    SpaceToBatch,
    SpaceToDepth,
)
from polydevice.ops.pad import Pad
from polydevice.rewrites.facts import numbers_of, parameters_known, rank_of, shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.shape import normalize_axis


@decomposes(DepthToSpace)
def _depth_to_space(build: Emitter, op: DepthToSpace, inputs: Sequence[Port]) -> list[Port]:
    (x,) = inputs
    batch, depth, *space = shape_of(x)
    k, b = len(space), op.block_size
    channels = depth // b**k
    blocks = [b] * k
    if op.mode is DepthMode.BLOCKS_FIRST:
        split = build.reshape(x, (batch, *blocks, channels, *space))
        order = [0, k + 1, *(axis for i in range(k) for axis in (k + 2 + i, 1 + i))]
    else:
        split = build.reshape(x, (batch, channels, *blocks, *space))
        order = [0, 1, *(axis for i in range(k) for axis in (k + 2 + i, 2 + i))]
    sizes = (batch, channels, *(size * b for size in space))
    return [build.reshape(build.transpose(split, order), sizes)]


@decomposes(SpaceToDepth)
def _space_to_depth(build: Emitter, op: SpaceToDepth, inputs: Sequence[Port]) -> list[Port]:
    (x,) = inputs
    batch, channels, *space = shape_of(x)
    k, b = len(space), op.block_size
    split = build.reshape(x, (batch, channels, *(n for s in space for n in (s // b, b))))
    inner, outer = [3 + 2 * i for i in range(k)], [2 + 2 * i for i in range(k)]
    first = op.mode is DepthMode.BLOCKS_FIRST
    order = [0, *inner, 1, *outer] if first else [0, 1, *inner, *outer]
    sizes = (batch, channels * b**k, *(s // b for s in space))
    return [build.reshape(build.transpose(split, order), sizes)]


@decomposes(ShuffleChannels)
def _shuffle(build: Emitter, op: ShuffleChannels, inputs: Sequence[Port]) -> list[Port]:
    (x,) = inputs
    axis = normalize_axis(op.axis, rank_of(x))
    before, size, behind = shape_of(x)[:axis], shape_of(x)[axis], shape_of(x)[axis + 1 :]
    split = build.reshape(x, (*before, op.group, size // op.group, *behind))
    order = [*range(axis), axis + 1, axis, *range(axis + 2, rank_of(x) + 1)]
    return [build.reshape(build.transpose(split, order), shape_of(x))]


@decomposes(BatchToSpace, where=parameters_known)
def _batch_to_space(build: Emitter, op: BatchToSpace, inputs: Sequence[Port]) -> list[Port]:
    x = inputs[0]
    block, begin, end = (numbers_of(value) for value in inputs[1:4])
    total = int(np.prod(block))
    n, k = shape_of(x)[0] // total, rank_of(x) - 1
    split = build.reshape(x, (*block[1:], n, *shape_of(x)[1:]))
    order = [k, *(axis for i in range(k) for axis in (k + 1 + i, i))]
    sizes = [n, *(size * b for size, b in zip(shape_of(x)[1:], block[1:], strict=True))]
    y = build.reshape(build.transpose(split, order), sizes)
    for axis in range(1, rank_of(x)):
        if begin[axis] or end[axis]:
            y = build.cut(y, axis, begin[axis], sizes[axis] - end[axis])
    return [y]


@decomposes(SpaceToBatch, where=parameters_known)
def _space_to_batch(build: Emitter, op: SpaceToBatch, inputs: Sequence[Port]) -> list[Port]:
    x = inputs[0]
    block, begin, end = (numbers_of(value) for value in inputs[1:4])
    if any(begin) or any(end):
        x = build.emit(Pad(), x, begin, end)
    k = rank_of(x) - 1
    pairs = [(size // b, b) for size, b in zip(shape_of(x)[1:], block[1:], strict=True)]
    split = build.reshape(x, (shape_of(x)[0], *(n for pair in pairs for n in pair)))
    order = [*(2 + 2 * i for i in range(k)), 0, *(1 + 2 * i for i in range(k))]
    sizes = (shape_of(x)[0] * int(np.prod(block)), *(size for size, _ in pairs))
    return [build.reshape(build.transpose(split, order), sizes)]
