"""Bilinear samples of an image: at points, on a grid, and averaged over the bins of a region."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.roi import RoiMode


def bilinear_points(x: Array, channel: Array, rows: Array, columns: Array) -> Array:
    """Return samples of x [C, H, W] at points; those outside take the nearest element."""
    height, width = x.shape[1:]
    rows, columns = np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)
    top, left = rows.astype(np.int64), columns.astype(np.int64)
    bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    down, across = rows - top, columns - left
    upper = x[channel, top, left] * (1 - across) + x[channel, top, right] * across
    lower = x[channel, bottom, left] * (1 - across) + x[channel, bottom, right] * across
    return np.asarray(upper * (1 - down) + lower * down)


def bilinear_grid(x: Array, rows: Array, columns: Array, *, reach: float) -> Array:
    """Return [C, h, w]: samples of x [C, H, W] at every row and column position.

    Positions outside [-reach, size - 1 + reach] give zeros; those within it but outside the
    image take the nearest element.
    """
    y: Array = x.astype(np.float32 if x.dtype != np.float64 else np.float64)
    for axis, positions in ((1, rows), (2, columns)):
        size = y.shape[axis]
        outside = ~((positions >= -reach) & (positions <= size - 1 + reach))
        at = np.clip(np.where(outside, 0, positions), 0, size - 1)
        low = at.astype(np.int64)
        high = np.minimum(low + 1, size - 1)
        part = (at - low).astype(y.dtype)
        part = part.reshape(-1, *(1,) * (2 - axis))
        y = np.take(y, low, axis) * (1 - part) + np.take(y, high, axis) * part
        y[(slice(None),) * axis + (outside,)] = 0
    return y


def align(
    x: Array,
    start: Array,
    extent: Array,
    pooled: tuple[int, int],
    ratio: int,
    mode: RoiMode,
    *,
    onnx: bool = False,
) -> Array:
    """Return [C, *pooled]: x [C, H, W] sampled over the region from `start` (x, y).

    The average is a product with one matrix per axis, since the samples form a grid; samples
    outside the image count, but cost nothing, whatever the region's size.
    """
    rows = _axis_samples(float(start[1]), float(extent[1]), pooled[0], ratio, x.shape[1])
    columns = _axis_samples(float(start[0]), float(extent[0]), pooled[1], ratio, x.shape[2])
    if rows is None or columns is None:
        return np.zeros((len(x), *pooled), np.float32)
    (bin_y, at_y, count_y), (bin_x, at_x, count_x) = rows, columns
    if mode is RoiMode.AVG:
        down = _averaging(bin_y, at_y, count_y, pooled[0], x.shape[1])
        across = _averaging(bin_x, at_x, count_x, pooled[1], x.shape[2])
        # Only the part of the image that the region covers is read.
        part_y, part_x = _covered(down), _covered(across)
        part = x[:, part_y, part_x].astype(np.float32)
        return np.asarray(np.matmul(np.matmul(down[:, part_y], part), across[:, part_x].T))
    samples = _largest_parts(x, at_y, at_x) if onnx else bilinear_grid(x, at_y, at_x, reach=1.0)
    y = np.full((len(x), *pooled), -np.inf, np.float32)
    for i in np.unique(bin_y):
        strip = samples[:, bin_y == i].max(axis=1)
        for j in np.unique(bin_x):
            y[:, i, j] = strip[:, bin_x == j].max(axis=1)
    if onnx:  # 0 counts only for samples outside the image
        inside = np.outer(
            np.bincount(bin_y, minlength=pooled[0]) == count_y,
            np.bincount(bin_x, minlength=pooled[1]) == count_x,
        )
        return np.where(inside, y, np.maximum(y, 0))
    return np.maximum(y, 0)


def _covered(weights: Array) -> slice:
    """Return the range of columns with a weight."""
    used = np.flatnonzero(weights.any(axis=0))
    return slice(int(used[0]), int(used[-1]) + 1) if used.size else slice(0, 0)


def _largest_parts(x: Array, rows: Array, columns: Array) -> Array:
    """Return [C, h, w]: the largest of the four weighted elements around each position."""
    y: Array = x.astype(np.float32)[None]
    for axis, positions in ((2, rows), (3, columns)):
        at = np.clip(positions, 0, y.shape[axis] - 1)
        low = at.astype(np.int64)
        high = np.minimum(low + 1, y.shape[axis] - 1)
        part = (at - low).astype(np.float32).reshape(-1, *(1,) * (3 - axis))
        y = np.concatenate([np.take(y, low, axis) * (1 - part), np.take(y, high, axis) * part])
    return np.asarray(y.max(axis=0))


Samples = tuple[Array, Array, int]
"""Bin and position of each sample within the image, and samples per bin."""


def _axis_samples(start: float, extent: float, bins: int, ratio: int, size: int) -> Samples | None:
    """Return the samples of one axis that lie within [-1, size]; None without any."""
    width = extent / bins
    per_bin = ratio or math.ceil(width)
    if per_bin <= 0 or width == 0:
        return None
    distance = width / per_bin
    # Position of sample i is start + (i + 0.5) * distance; only a range of i can be inside.
    ends = sorted(((-1 - start) / distance - 0.5, (size - start) / distance - 0.5))
    first, last = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), per_bin * bins - 1)
    if last < first:
        return None
    index = np.arange(first, last + 1)
    position = (start + (index + 0.5) * distance).astype(np.float32)
    inside = (position >= -1) & (position <= size)
    return index[inside] // per_bin, position[inside], per_bin


def _averaging(which: Array, position: Array, count: int, bins: int, size: int) -> Array:
    """Return [bins, size]: the weights with which each bin averages the elements of the axis."""
    at = np.clip(position, 0, size - 1)
    low = at.astype(np.int64)
    high = np.minimum(low + 1, size - 1)
    part = (at - low).astype(np.float32)
    matrix = np.zeros((bins, size), np.float32)
    np.add.at(matrix, (which, low), (1 - part) / count)
    np.add.at(matrix, (which, high), part / count)
    return matrix
