"""GridSample."""

from __future__ import annotations

import itertools
import math

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.grid_sample import GridMode, GridPadding, GridSample
from polydevice.ops.resampling import cubic_weights
from polydevice_cpu.implement import implements

FAR = 1e9
"""Positions beyond this are cut, so that they fit an integer."""

Taps = list[tuple[Array, Array]]
"""Index and weight of each element that an axis contributes; both have the grid's shape."""


@implements(GridSample)
def grid_sample(op: GridSample, x: Array, grid: Array) -> Array:
    """Add up one gathered array per element of the filter."""
    batch, channels, *sizes = x.shape
    if grid.shape[-1] != len(sizes) or len(grid) != batch:
        raise InferenceError(f"GridSample: grid {grid.shape} does not fit x {x.shape}")
    real = np.float64 if x.dtype == np.float64 else np.float32
    position = grid.astype(real, copy=False)
    if 0 in sizes:
        raise InferenceError(f"GridSample: x {x.shape} has no elements to sample")
    axes: list[Taps] = []
    for axis, size in enumerate(sizes):
        at = position[..., len(sizes) - 1 - axis]
        scaled = (at + 1) / 2 * (size - 1) if op.align_corners else ((at + 1) * size - 1) / 2
        near = np.fmax(np.fmin(scaled, real(FAR)), real(-FAR))  # what is no number lies outside
        axes.append(_taps(op, near, size))
    # Channels last, so that one index takes all of them.
    data = np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(batch * math.prod(sizes), channels)
    first = np.arange(0, len(data), math.prod(sizes)).reshape(-1, *(1,) * len(sizes))
    total = np.zeros((*grid.shape[:-1], channels), real)
    term = np.empty_like(total)
    read = term if data.dtype == real else np.empty(total.shape, data.dtype)
    for (index, weight), *taps in itertools.product(*axes):
        place, factor = index, weight
        for size, (index, weight) in zip(sizes[1:], taps, strict=True):
            place, factor = place * size + index, factor * weight
        # One index for all axes, and no new memory: 8x1200 positions of 32 channels take 10.2 ms
        # otherwise, and 3.3 so.
        data.take(place + first, axis=0, out=read, mode="clip")
        np.multiply(read, factor[..., None], out=term)
        total += term
    y: Array = np.moveaxis(total, -1, 1)
    return (np.rint(y) if x.dtype.kind in "iu" else y).astype(x.dtype, copy=False)


def _taps(op: GridSample, position: Array, size: int) -> Taps:
    if op.mode is GridMode.NEAREST:
        index = np.rint(position).astype(np.int64)
        return [_padded(op, index, np.ones_like(position), size)]
    low = np.floor(position)
    part = position - low
    index = low.astype(np.int64)
    if op.mode is GridMode.BILINEAR:
        return [_padded(op, index, 1 - part, size), _padded(op, index + 1, part, size)]
    weights = cubic_weights(part, -0.75).astype(position.dtype)
    return [_padded(op, index + i - 1, weights[..., i], size) for i in range(4)]


def _padded(op: GridSample, index: Array, weight: Array, size: int) -> tuple[Array, Array]:
    """Move indices into the axis, or take away the weight of those outside."""
    if op.padding_mode is GridPadding.ZEROS:
        inside = (index >= 0) & (index < size)
        return np.where(inside, index, 0), np.where(inside, weight, 0)
    if op.padding_mode is GridPadding.BORDER:
        return np.clip(index, 0, size - 1), weight
    if op.align_corners:
        period = max(2 * (size - 1), 1)
        folded = np.mod(index, period)
        return np.minimum(folded, period - folded) if size > 1 else np.zeros_like(index), weight
    folded = np.mod(index, 2 * size)
    return np.minimum(folded, 2 * size - 1 - folded), weight
