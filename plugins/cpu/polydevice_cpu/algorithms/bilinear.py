"""Bilinear samples of an image: at points, and on a grid."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array


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


def bilinear_grid(x: Array, rows: Array, columns: Array) -> Array:
    """Return [C, h, w]: samples of x [C, H, W] at every row and column position.

    Positions more than 1 outside the image give zeros; others outside take the nearest element.
    """
    y: Array = x.astype(np.float32 if x.dtype != np.float64 else np.float64)
    for axis, positions in ((1, rows), (2, columns)):
        size = y.shape[axis]
        outside = ~((positions >= -1) & (positions <= size))
        at = np.clip(np.where(outside, 0, positions), 0, size - 1)
        low = at.astype(np.int64)
        high = np.minimum(low + 1, size - 1)
        part = (at - low).astype(y.dtype)
        part = part.reshape(-1, *(1,) * (2 - axis))
        y = np.take(y, low, axis) * (1 - part) + np.take(y, high, axis) * part
        y[(slice(None),) * axis + (outside,)] = 0
    return y
