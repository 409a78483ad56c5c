"""EmbeddingBag and segment operations."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.embedding import (
    BagReduction,
    EmbeddingBagOffsets,
    EmbeddingBagOffsetsSum,
    EmbeddingBagPacked,
    EmbeddingBagPackedSum,
    EmbeddingSegmentsSum,
    EmptySegment,
    SegmentMax,
    SparseFillEmptyRows,
)
from polydevice.rewrites.recognise.embedding import Rotation
from polydevice_cpu.implement import implements


@implements(EmbeddingBagOffsetsSum)
def bag_offsets(
    op: EmbeddingBagOffsetsSum,
    table: Array,
    indices: Array,
    offsets: Array,
    default_index: Array | None = None,
    weights: Array | None = None,
) -> Array:
    """Number the bag of each index, then sum by bag."""
    starts = offsets.reshape(-1).astype(np.int64)
    if (starts < 0).any() or (starts > indices.size).any() or (np.diff(starts) < 0).any():
        raise InferenceError(
            f"{op.type}: offsets must ascend from 0 to {indices.size} at most, "
            f"not {starts.tolist()[:8]}"
        )
    bags = np.searchsorted(starts, np.arange(indices.size), "right") - 1
    mean = isinstance(op, EmbeddingBagOffsets) and op.reduction is BagReduction.MEAN
    return _sum(op.type, table, indices, bags, len(starts), default_index, weights, mean=mean)


@implements(EmbeddingBagPackedSum)
def bag_packed(
    op: EmbeddingBagPackedSum, table: Array, indices: Array, weights: Array | None = None
) -> Array:
    """Number the bag of each index, then sum by bag."""
    bags = np.repeat(np.arange(len(indices)), indices.shape[1])
    mean = isinstance(op, EmbeddingBagPacked) and op.reduction is BagReduction.MEAN
    return _sum(op.type, table, indices.reshape(-1), bags, len(indices), None, weights, mean=mean)


@implements(EmbeddingSegmentsSum)
def segments_sum(
    op: EmbeddingSegmentsSum,
    table: Array,
    indices: Array,
    segments: Array,
    count: Array,
    default_index: Array | None = None,
    weights: Array | None = None,
) -> Array:
    """Sum by segment."""
    number = int(count.reshape(-1)[0])
    return _sum(op.type, table, indices, segments, number, default_index, weights, mean=False)


def _sum(
    what: str,
    table: Array,
    indices: Array,
    bags: Array,
    count: int,
    default_index: Array | None,
    weights: Array | None,
    *,
    mean: bool,
) -> Array:
    """Add the rows of each bag; an empty bag takes the default row, or zeros."""
    rows = _rows(what, indices, len(table))
    bag = _rows(what, bags, count)
    real = np.float32 if table.dtype.kind not in "iuf" or table.dtype == np.float16 else table.dtype
    taken = table[rows].astype(real)
    if weights is not None:
        taken = taken * weights.reshape(-1, *(1,) * (table.ndim - 1)).astype(real)
    y = np.zeros((count, *table.shape[1:]), real)
    np.add.at(y, bag, taken)
    sizes = np.bincount(bag, minlength=count)
    if mean:
        y = (y / np.maximum(sizes, 1).reshape(-1, *(1,) * (table.ndim - 1))).astype(real)
    default = -1 if default_index is None else int(default_index.reshape(-1)[0])
    if default >= 0 and (sizes == 0).any():
        y[sizes == 0] = table[_rows(what, np.array([default]), len(table))[0]].astype(real)
    return y.astype(table.dtype)


def _rows(what: str, indices: Array, size: int) -> Array:
    """Return indices as i64; raises InferenceError when one is outside [0, size)."""
    index: Array = indices.reshape(-1).astype(np.int64)
    bad = (index < 0) | (index >= size)
    if bad.any():
        raise InferenceError(f"{what}: index {int(index[bad][0])} is outside [0, {size})")
    return index


@implements(SegmentMax)
def segment_max(op: SegmentMax, x: Array, segments: Array, count: Array | None = None) -> Array:
    """Take the maximum by segment; rows of segments beyond `count` are left out."""
    ids = segments.reshape(-1).astype(np.int64)
    number = int(ids.max(initial=-1)) + 1 if count is None else int(count.reshape(-1)[0])
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else np.finfo(np.float32).min
    if x.dtype.kind == "f":
        lowest = np.finfo(x.dtype).min
    y: Array = np.full((number, *x.shape[1:]), lowest, x.dtype)
    kept = (ids >= 0) & (ids < number)
    np.maximum.at(y, ids[kept], x[kept])
    if op.fill_mode is EmptySegment.ZERO:
        empty = np.bincount(ids[kept], minlength=number) == 0
        y[empty] = 0
    return y


@implements(SparseFillEmptyRows)
def sparse_fill_empty_rows(
    _op: SparseFillEmptyRows, values: Array, shape: Array, indices: Array, default: Array
) -> tuple[Array, ...]:
    """Append the missing rows, then sort by row."""
    rows = int(shape.reshape(-1)[0])
    row = _rows("SparseFillEmptyRows", indices[:, 0], rows)
    empty = np.bincount(row, minlength=rows) == 0
    missing = np.flatnonzero(empty)
    added = np.stack([missing, np.zeros_like(missing)], 1).astype(indices.dtype)
    all_indices = np.concatenate([indices, added])
    filler = np.full(len(missing), default.reshape(-1)[0], values.dtype)
    all_values = np.concatenate([values, filler])
    order = np.argsort(all_indices[:, 0], kind="stable")
    return all_indices[order], all_values[order], empty


@implements(Rotation)
def rotation(_: Rotation, x: Array, cos: Array, sin: Array) -> Array:
    """Turn half by half."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    first = a * cos[..., :half] - b * sin[..., :half]
    return np.concatenate([first, b * cos[..., -half:] + a * sin[..., -half:]], axis=-1)
