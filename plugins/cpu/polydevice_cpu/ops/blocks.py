"""DepthToSpace, SpaceToDepth, BatchToSpace, SpaceToBatch, ShuffleChannels: reshape, transpose."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.blocks import (
    BatchToSpace,
    DepthMode,
    DepthToSpace,
    ShuffleChannels,
    SpaceToBatch,
    SpaceToDepth,
)
from polydevice.shape import normalize_axis
from polydevice_cpu.implement import implements


@implements(DepthToSpace)
def depth_to_space(op: DepthToSpace, x: Array) -> Array:
    """Move the block axes next to their spatial axes."""
    batch, depth, *space = x.shape
    block, k = op.block_size, len(space)
    rest = depth // block**k
    if op.mode is DepthMode.BLOCKS_FIRST:
        x = x.reshape(batch, *[block] * k, rest, *space)
        blocks, depth_axis = range(1, k + 1), k + 1
    else:
        x = x.reshape(batch, rest, *[block] * k, *space)
        blocks, depth_axis = range(2, k + 2), 1
    order = [0, depth_axis]
    for i, axis in enumerate(blocks):
        order += [k + 2 + i, axis]
    sizes = (batch, rest, *(n * block for n in space))
    return np.transpose(x, order).reshape(sizes)


@implements(SpaceToDepth)
def space_to_depth(op: SpaceToDepth, x: Array) -> Array:
    """Move the block axes next to the depth axis."""
    batch, depth, *space = x.shape
    block, k = op.block_size, len(space)
    split = [part for n in space for part in (n // block, block)]
    x = x.reshape(batch, depth, *split)
    blocks, rest = [3 + 2 * i for i in range(k)], [2 + 2 * i for i in range(k)]
    first = [*blocks, 1] if op.mode is DepthMode.BLOCKS_FIRST else [1, *blocks]
    sizes = (batch, depth * block**k, *(n // block for n in space))
    return np.transpose(x, [0, *first, *rest]).reshape(sizes)


@implements(BatchToSpace)
def batch_to_space(
    _op: BatchToSpace, x: Array, block_shape: Array, crops_begin: Array, crops_end: Array
) -> Array:
    """Split the batch into blocks, interleave them with their axes, crop."""
    block = [int(n) for n in block_shape.reshape(-1)]
    begin, end = crops_begin.reshape(-1), crops_end.reshape(-1)
    rank, total = x.ndim, math.prod(block)
    if total < 1 or x.shape[0] % total:
        raise InferenceError(f"BatchToSpace: batch {x.shape[0]} is not a multiple of {total}")
    y = x.reshape(*block, x.shape[0] // total, *x.shape[1:])
    order = [rank, 0]
    for axis in range(1, rank):
        order += [rank + axis, axis]
    # The first block is 1, so that the batch's own two axes fold into one.
    y = y.transpose(order).reshape(
        x.shape[0] // total * block[0],
        *(n * b for n, b in zip(x.shape[1:], block[1:], strict=True)),
    )
    crop = tuple(slice(int(b), n - int(e)) for n, b, e in zip(y.shape, begin, end, strict=True))
    return np.asarray(y[crop])


@implements(SpaceToBatch)
def space_to_batch(
    _op: SpaceToBatch, x: Array, block_shape: Array, pads_begin: Array, pads_end: Array
) -> Array:
    """Pad, split each axis into blocks, move those to the batch."""
    block = [int(n) for n in block_shape.reshape(-1)]
    pads = [
        (int(b), int(e)) for b, e in zip(pads_begin.reshape(-1), pads_end.reshape(-1), strict=True)
    ]
    y = np.pad(x, pads)
    for size, by in zip(y.shape, block, strict=True):
        if by < 1 or size % by:
            raise InferenceError(f"SpaceToBatch: padded size {size} is not a multiple of {by}")
    rank = x.ndim
    parts = [part for n, b in zip(y.shape, block, strict=True) for part in (n // b, b)]
    order = [2 * i + 1 for i in range(rank)] + [2 * i for i in range(rank)]
    sizes = [n // b for n, b in zip(y.shape, block, strict=True)]
    shape = (math.prod(block) * sizes[0], *sizes[1:])
    return np.transpose(y.reshape(parts), order).reshape(shape)


@implements(ShuffleChannels)
def shuffle_channels(op: ShuffleChannels, x: Array) -> Array:
    """Swap the group axis with the position in the group."""
    axis = normalize_axis(op.axis, x.ndim)
    parts = (*x.shape[:axis], op.group, x.shape[axis] // op.group, *x.shape[axis + 1 :])
    return np.swapaxes(x.reshape(parts), axis, axis + 1).reshape(x.shape)
