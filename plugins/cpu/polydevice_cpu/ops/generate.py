"""Range, OneHot and Eye."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.generate import Eye, NegativeIndices, OneHot, Range, Range1, range_length
from polydevice.shape import normalize_axis
from polydevice_cpu.implement import implements

EXACT = 1 << 53
"""Up to here NumPy, which divides in f64, counts the elements of a range right."""


@implements(Range1)
def range_1(_op: Range1, start: Array, stop: Array, step: Array) -> Array:
    """Count in the inputs' type."""
    return _range(start, stop, step, start.dtype)


@implements(Range)
def range_(op: Range, start: Array, stop: Array, step: Array) -> Array:
    """Count in the output's type; integers want integer limits."""
    return _range(start, stop, step, op.output_type.dtype)


def _range(start: Array, stop: Array, step: Array, dtype: np.dtype[np.generic]) -> Array:
    if not start.size == stop.size == step.size == 1:  # of ranks that only the data tells
        shapes = [list(each.shape) for each in (start, stop, step)]
        raise InferenceError(f"Range: start, stop and step are of {shapes}, not one number each")
    wide = np.int64 if dtype.kind in "iu" else np.float64
    if dtype == np.int64 and start.dtype == stop.dtype == step.dtype == dtype and step.item():
        limits: list[int] = [start.item(), stop.item(), step.item()]
        if max(limits[:2]) - min(limits[:2]) < EXACT:
            return np.arange(*limits, dtype=dtype)  # a fifth of the time
    first, last, by = (a.reshape(-1)[:1].astype(wide)[0] for a in (start, stop, step))
    count = range_length(first, last, by)
    return np.asarray((first + by * np.arange(count, dtype=wide)).astype(dtype))


@implements(OneHot)
def one_hot(op: OneHot, indices: Array, depth: Array, on: Array, off: Array) -> Array:
    """Put one number where the indices say: 1,000 of 1,000 in 0.2 ms, to compare all takes 3.2."""
    axis = normalize_axis(op.axis, indices.ndim + 1)
    size = int(depth.reshape(-1)[0])
    if size < 0:
        raise InferenceError(f"OneHot: depth {size} is negative")
    shape = (*indices.shape[:axis], size, *indices.shape[axis:])
    if not indices.size:
        return np.empty(shape, on.dtype)
    index = indices.reshape(math.prod(shape[:axis]), -1).astype(np.int64, copy=False)
    if op.negative_indices_mode is NegativeIndices.NORMALIZE:
        index = np.where(index < 0, index + size, index)
    y = np.full((len(index), size, index.shape[1]), off.reshape(-1)[0], on.dtype)
    inside = (index >= 0) & (index < size)
    before, behind = inside.nonzero()
    y[before, index[inside], behind] = on.reshape(-1)[0]
    return y.reshape(shape)


@implements(Eye)
def eye(op: Eye, rows: Array, columns: Array, diagonal: Array, batch: Array | None = None) -> Array:
    """Make one matrix and repeat it over the batch."""
    shape = (int(rows.reshape(-1)[0]), int(columns.reshape(-1)[0]))
    matrix = np.eye(*shape, int(diagonal.reshape(-1)[0])).astype(op.output_type.dtype)
    if batch is None:
        return matrix
    return np.broadcast_to(matrix, (*(int(n) for n in batch.reshape(-1)), *shape))
