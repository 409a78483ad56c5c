"""NonZero, Unique, Bucketize and SearchSorted."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.search import Bucketize, NonZero, SearchSorted, Unique
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.axes import to_front
from polydevice_cpu.algorithms.by_machine.ranking.unique import MOST as MOST_KNOWN
from polydevice_cpu.algorithms.by_machine.ranking.unique import unique as known_of
from polydevice_cpu.implement import implements

MANY = 2048
"""From so many elements on places are found as if there were one axis, for which NumPy's way is
another: 8,400 of [1, 8400], of which 3 in 10 are not 0, take 6 us instead of 31."""

Side: TypeAlias = Literal["left", "right"]


@implements(NonZero)
def non_zero(op: NonZero, x: Array) -> Array:
    """Return the coordinates row by row."""
    dtype = op.output_type.dtype
    if x.ndim == 0:
        return np.zeros((0, int(bool(x))), dtype)
    if x.size < MANY or not x.flags.c_contiguous:
        return np.array(x.nonzero(), dtype)  # a third of the time of `np.stack`, which asks more
    places = x.reshape(-1).nonzero()[0]
    y = np.zeros((x.ndim, len(places)), dtype)
    left = x.size
    for axis in range(x.ndim - 1, -1, -1):
        size = x.shape[axis]
        left //= size
        if left == 1:  # those before have one place each
            y[axis] = places
            break
        if size > 1:
            before = places // size
            np.subtract(places, before * size, out=y[axis], casting="unsafe")
            places = before
    return y


@implements(Unique)
def unique(op: Unique, x: Array, axis: Array | None = None) -> tuple[Array, ...]:
    """Find the values sorted; put them in the order of first occurrence if asked."""
    at = None if axis is None else normalize_axis(int(axis.item(0)), x.ndim)
    if x.ndim == 1:  # for one axis NumPy 1 tells NaN apart
        at = None
    known = _known(x, at, is_sorted=op.sorted)
    if known is not None:
        return _typed(op, _chosen(x, known[0], at), *known)
    keys = _keys(x, at) if x.size else None
    if keys is not None:
        first, inverse, counts = _unique_integers(keys)
        values = _chosen(x, first, at)
    elif x.size and x.dtype == object and at is None:
        values, first, inverse, counts = _unique_texts(x.reshape(-1))
    else:
        values, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=at
        )
        inverse = inverse.reshape(-1)
    if not op.sorted:
        order = first.argsort(kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        values = values.take(order, 0 if at is None else at)
        first, counts, inverse = first.take(order), counts.take(order), rank.take(inverse)
    return _typed(op, values, first, inverse, counts)


def _chosen(x: Array, first: Array, axis: int | None) -> Array:
    """Return elements, or slices along an axis; elements of one axis in a third of the time."""
    if x.ndim == 1:
        return x[first]
    return x.reshape(-1).take(first) if axis is None else x.take(first, axis)


def _typed(
    op: Unique, values: Array, first: Array, inverse: Array, counts: Array
) -> tuple[Array, ...]:
    index, count = op.index_element_type.dtype, op.count_element_type.dtype
    if index != first.dtype:
        first, inverse = first.astype(index), inverse.astype(index)
    return values, first, inverse, counts if count == counts.dtype else counts.astype(count)


def _known(x: Array, axis: int | None, *, is_sorted: bool) -> tuple[Array, Array, Array] | None:
    """Return what machine code knows of the elements, or of slices along an axis."""
    if not 0 < x.size <= MOST_KNOWN:
        return None
    if axis is None:
        return known_of(x.reshape(-1), is_sorted=is_sorted)
    rows = to_front(x, axis) if axis else x
    return known_of(rows.reshape(x.shape[axis], -1), is_sorted=is_sorted)


def _keys(x: Array, axis: int | None) -> Array | None:
    """Return integers [n] in the order of the elements, or of slices along an axis; None else.

    `np.unique` compares slices number by number: 30 rows of 3 take it 57 us, 20,000 14 ms.
    """
    if x.dtype.kind in "iub":
        keys = x
    elif x.dtype in (np.float32, np.float64):
        keys = _ordered(x)
    else:
        return None
    if axis is None or x.ndim == 1:
        return keys.reshape(-1)
    if x.dtype.kind == "f" and np.isnan(x).any():  # which is like no other in a slice
        return None
    return _joined(to_front(keys, axis).reshape(x.shape[axis], -1))


def _ordered(x: Array) -> Array:
    """Return integers in the order of floats: equal for zeros, and for NaN, which is largest."""
    kind = np.int32 if x.dtype == np.float32 else np.int64
    keys: Array = (x + x.dtype.type(0)).view(kind)  # -0 becomes 0
    highest = np.iinfo(kind).max
    keys ^= (keys >> (8 * x.itemsize - 1)) & highest
    is_nan = np.isnan(x)
    if is_nan.any():
        keys[is_nan] = highest
    return keys


def _joined(columns: Array) -> Array | None:
    """Return [n] integers in the order of rows of some [n, columns]; None where too many differ."""
    spans = _spans(columns)
    if math.prod(spans) >= MOST:
        pairs = [_unique_integers(column)[1] for column in columns.T]
        columns = np.stack(pairs, 1)
        spans = _spans(columns)
        if math.prod(spans) >= MOST:
            return None
    steps = np.array([math.prod(spans[number + 1 :]) for number in range(len(spans))], np.int64)
    low = columns.min(0, keepdims=True)
    return np.asarray((columns.astype(np.int64) - low.astype(np.int64)) @ steps)


MOST = 1 << 62
"""Numbers below this may be joined with others in one of 64 bits."""


def _spans(columns: Array) -> list[int]:
    """How many integers there are between the least and the largest of each column."""
    low, high = columns.min(0).tolist(), columns.max(0).tolist()
    return [int(b) - int(a) + 1 for a, b in zip(low, high, strict=True)]


PACKED = 500
"""From so many on integers are sorted with their indices: 20,000 take 0.2 ms, `argsort` 1.1."""


def _unique_integers(x: Array) -> tuple[Array, Array, Array]:
    """What `np.unique` returns of integers [n] besides; of 64 in half its time, mostly Python's."""
    order, ordered = _sorted(x)
    is_new = np.empty(len(x), np.bool_)
    is_new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    starts = is_new.nonzero()[0]
    inverse = np.empty(len(x), np.int64)
    inverse[order] = is_new.cumsum() - 1
    counts = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1] = len(x) - starts[-1]
    return order.take(starts), inverse, counts


def _sorted(x: Array) -> tuple[Array, Array]:
    """Return indices in the order of integers, and numbers that are alike where these are."""
    bits = len(x).bit_length()
    if len(x) >= PACKED:
        low = int(x.min())
        if int(x.max()) - low < MOST >> bits:
            wide = x if x.dtype == np.uint64 else x.astype(np.int64)
            both = (wide - low).astype(np.int64)
            both <<= bits
            both |= np.arange(len(x))
            both.sort()
            return both & ((1 << bits) - 1), both >> bits
    order = x.argsort(kind="stable")
    return order, x.take(order)


def _unique_texts(x: Array) -> tuple[Array, Array, Array, Array]:
    """What `np.unique` returns of texts [n]: only those that differ are sorted."""
    items = x.tolist()
    ordered = sorted(dict.fromkeys(items))
    number = dict(zip(ordered, range(len(ordered)), strict=True))
    values = np.fromiter(ordered, object, len(ordered))
    inverse = np.fromiter(map(number.__getitem__, items), np.int64, len(items))
    first = np.empty(len(ordered), np.int64)
    first[inverse[::-1]] = np.arange(len(items) - 1, -1, -1)  # of several, the last one stays
    return values, first, inverse, np.bincount(inverse)


@implements(Bucketize)
def bucketize(op: Bucketize, x: Array, buckets: Array) -> Array:
    """Search the boundaries."""
    side: Side = "left" if op.with_right_bound else "right"
    return np.searchsorted(_plain(buckets), _plain(x), side).astype(op.output_type.dtype)


@implements(SearchSorted)
def search_sorted(op: SearchSorted, table: Array, values: Array) -> Array:
    """Search each row of the table."""
    side: Side = "right" if op.right_mode else "left"
    table, wanted = _plain(table), _plain(values)
    if table.ndim == 1:
        return np.searchsorted(table, wanted, side).astype(op.output_type.dtype)
    y = np.empty(values.shape, op.output_type.dtype)
    for row in np.ndindex(*table.shape[:-1]):
        y[row] = np.searchsorted(table[row], wanted[row], side)
    return y


def _plain(x: Array) -> Array:
    """Return x in a type that NumPy can compare (bfloat16 and float8 become f32)."""
    return x if x.dtype.kind in "biuf" else x.astype(np.float32)
