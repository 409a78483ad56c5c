"""GridSample."""

from __future__ import annotations

import itertools

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
    position = np.nan_to_num(grid.astype(real), nan=-FAR)
    if 0 in sizes:
        raise InferenceError(f"GridSample: x {x.shape} has no elements to sample")
    axes: list[Taps] = []
    for axis, size in enumerate(sizes):
        at = position[..., len(sizes) - 1 - axis]
        scaled = (at + 1) / 2 * (size - 1) if op.align_corners else ((at + 1) * size - 1) / 2
        axes.append(_taps(op, np.clip(scaled, -FAR, FAR), size))
    image = np.arange(batch).reshape(-1, *(1,) * len(sizes))
    data = np.moveaxis(x, 1, -1)  # channels last, so that one index takes all of them
    total = np.zeros((*grid.shape[:-1], channels), real)
    for taps in itertools.product(*axes):
        weight = np.ones(grid.shape[:-1], real)
        for _, part in taps:
            weight = weight * part
        key = (image, *(index for index, _ in taps))
        total += data[key] * weight[..., None]
    y: Array = np.moveaxis(total, -1, 1)
    return (np.rint(y) if x.dtype.kind in "iu" else y).astype(x.dtype)


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
