"""GridSample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.grid_sample import GridMode, GridPadding, GridSample
from polydevice.ops.resampling import cubic_weights
from polydevice_cpu.algorithms.by_machine.resampling.sampling import FAR, Along, sample_pairs
from polydevice_cpu.implement import implements

Taps = tuple[Array, Array]
"""Index and weight [taps, points] of the elements that an axis contributes.

All taps at once: where points are few, what takes time is the number of NumPy's calls.
"""


PLANES_BELOW = 8
"""Channels from which on one index takes all of them, behind one another; fewer are taken plane by
plane, since an index takes as long for 3 numbers as for 16."""

BLOCK = 1 << 17
"""Numbers of a result that are computed at once, in a core's cache: 9,600 points of 32 channels
take 3.0 ms in one go and 1.0 so."""


@implements(GridSample)
def grid_sample(op: GridSample, x: Array, grid: Array) -> Array:
    """Add up one gathered array per element of the filter."""
    batch, channels, *sizes = x.shape
    if grid.shape[-1] != len(sizes) or len(grid) != batch:
        raise InferenceError(f"GridSample: grid {grid.shape} does not fit x {x.shape}")
    real = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    if 0 in sizes:
        raise InferenceError(f"GridSample: x {x.shape} has no elements to sample")
    points = grid.astype(real, copy=False).reshape(-1, len(sizes))
    if op.mode is GridMode.BILINEAR and len(sizes) == 2 and real == np.float32 and x.size:
        sampled = _sampled(op, x, points)
        if sampled is not None:
            y: Array = sampled.reshape(batch, channels, *grid.shape[1:-1])
            return (np.rint(y) if x.dtype.kind in "iu" else y).astype(x.dtype, copy=False)
    area, each = math.prod(sizes), max(len(points) // max(batch, 1), 1)
    planes = channels < PLANES_BELOW
    shape = (channels, len(points)) if planes else (len(points), channels)
    total: Array = np.zeros(shape, real)
    data: Array = x.reshape(-1)
    step = area * channels
    if not planes:
        data = np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(batch * area, channels)
        step = area
    size = max(BLOCK // (8 if planes else channels), 1)
    for start in range(0, len(points), size):
        block = slice(start, start + size)
        axes = [
            _taps(op, _positions(op, points[block, len(sizes) - 1 - axis], extent), extent)
            for axis, extent in enumerate(sizes)
        ]
        for number, (index, _) in enumerate(axes[:-1]):
            index *= math.prod(sizes[number + 1 :])
        if batch > 1:
            index = axes[0][0]
            index += np.arange(start, start + index.shape[1]) // each * step
        if planes:
            _add_planes(data, area, axes, total[:, block])
        else:
            _add_rows(data, axes, total[block])
    if planes:
        y = total.reshape(channels, batch, *grid.shape[1:-1]).swapaxes(0, 1)
    else:
        y = np.moveaxis(total.reshape(*grid.shape[:-1], channels), -1, 1)
    return (np.rint(y) if x.dtype.kind in "iu" else y).astype(x.dtype, copy=False)


def _sampled(op: GridSample, x: Array, points: Array) -> Array | None:
    """Return [batch, channels, points] of images, by machine code; None where there is none."""
    if op.padding_mode is GridPadding.REFLECTION:
        return None
    across, down = (_along(op, size) for size in (x.shape[3], x.shape[2]))
    images = np.ascontiguousarray(x, np.float32)
    sampled = sample_pairs(images, points.reshape(len(x), -1, 2), across, down)
    if op.padding_mode is GridPadding.BORDER and sampled is not None and sampled.size:
        # At the first element the next one counts nothing, which infinities must not tell.
        return None if np.isnan(sampled.max()) else sampled
    return sampled


def _along(op: GridSample, size: int) -> Along:
    """How positions along an axis follow from -1 to 1."""
    times = (size - 1) / 2 if op.align_corners else size / 2
    if op.padding_mode is GridPadding.BORDER:
        return Along(times, (size - 1) / 2, 0, size - 1)
    return Along(times, (size - 1) / 2)


def _positions(op: GridSample, at: Array, size: int) -> Array:
    """Return the positions [points] along an axis, in elements; what is no number lies outside."""
    at = np.asarray(at + at.dtype.type(1))
    if op.align_corners:
        at /= 2
        at *= size - 1
    else:
        at *= size
        at -= 1
        at /= 2
    np.fmin(at, at.dtype.type(FAR), out=at)
    np.fmax(at, at.dtype.type(-FAR), out=at)
    return at


def _elements(axes: Sequence[Taps]) -> Iterator[Taps]:
    """Yield the place [points] and the weight [points] of each element of the filter."""
    for taps in itertools.product(*(range(len(index)) for index, _ in axes)):
        (place, factor), *rest = (
            (index[tap], weight[tap]) for tap, (index, weight) in zip(taps, axes, strict=True)
        )
        for index, weight in rest:
            place, factor = place + index, factor * weight
        yield place, factor


def _add_planes(flat: Array, area: int, axes: Sequence[Taps], total: Array) -> None:
    """Add up samples of planes that lie `area` numbers apart into [channels, points]."""
    term = np.empty(total.shape[1], total.dtype)
    read = term if flat.dtype == total.dtype else np.empty(term.shape, flat.dtype)
    for place, factor in _elements(axes):
        for channel, sums in enumerate(total):
            flat[channel * area :].take(place, out=read, mode="clip")
            np.multiply(read, factor, out=term)
            sums += term


def _add_rows(rows: Array, axes: Sequence[Taps], total: Array) -> None:
    """Add up samples of rows into [points, channels]."""
    term = np.empty_like(total)
    read = term if rows.dtype == total.dtype else np.empty(term.shape, rows.dtype)
    for place, factor in _elements(axes):
        rows.take(place, axis=0, out=read, mode="clip")
        np.multiply(read, factor[:, None], out=term)
        total += term


def _taps(op: GridSample, position: Array, size: int) -> Taps:
    if op.mode is GridMode.NEAREST:
        index = np.rint(position, out=position)[None].astype(np.int64)
        return _padded(op, index, np.ones_like(position)[None], size)
    low = np.floor(position)
    part = np.subtract(position, low, out=position)
    if op.mode is GridMode.BILINEAR:
        weight = np.stack([1 - part, part])
        steps = range(2)
    else:
        weight = np.moveaxis(cubic_weights(part, -0.75), -1, 0).astype(position.dtype)
        steps = range(-1, 3)
    index = np.empty(weight.shape, np.int64)
    index[0] = low
    index[0] += steps[0]
    for number in range(1, len(steps)):
        np.add(index[0], number, out=index[number])
    return _padded(op, index, weight, size)


def _padded(op: GridSample, index: Array, weight: Array, size: int) -> Taps:
    """Move indices into the axis, or take away the weight of those outside."""
    if op.padding_mode is GridPadding.ZEROS:
        inside = index.view(np.uint64) < size  # negative ones are large then
        index *= inside
        weight *= inside
        return index, weight
    if op.padding_mode is GridPadding.BORDER:
        return np.clip(index, 0, size - 1, out=index), weight
    if op.align_corners:
        period = max(2 * (size - 1), 1)
        folded = np.mod(index, period)
        return np.minimum(folded, period - folded) if size > 1 else np.zeros_like(index), weight
    folded = np.mod(index, 2 * size)
    return np.minimum(folded, 2 * size - 1 - folded), weight
