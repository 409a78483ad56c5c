"""Ranking: which elements come first along the last axis; of equal ones the lower index first.

Keys of 32 bits and indices are sorted together as numbers of 64 bits: 8,400 floats take 0.04 ms
where NumPy's stable argsort takes 0.48 ms.
"""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.algorithms.axes import to_front
from polydevice_cpu.algorithms.by_machine.ranking.best import ranked

_NARROW = "?bhiBHe"
"""NumPy's codes of element types that int32 or f32 hold exactly; f32 itself is `f`."""


FEW_FROM = 64
"""From this length on few elements are selected by value, then sorted: 16 of each of 64 rows of
512 take 0.15 ms where ordering indices with them takes 0.51."""

SELECT_FROM = 2048
"""From this length on rows are looked at one by one, and few elements are selected by groups."""


def smallest(x: Array, count: int | None = None) -> Array:
    """Return [..., count]: indices of the smallest elements, the smallest first; NaN is largest."""
    return _first(x, count, descending=False)


def largest(x: Array, count: int | None = None) -> Array:
    """Return [..., count]: indices of the largest elements, the largest first; NaN is largest."""
    return _first(x, count, descending=True)


FEW, LONG = 800, 300
"""Up to so many floats, in rows up to so long, NumPy's stable sort takes less than what sorts keys
with indices: 2 of each of 32 rows of 8 take 3 us, and 7; but 600 in one row take 25, and 13."""

SIDE_BY_SIDE = 1024
"""From so many rankings on that lie side by side, each position is compared for all of them."""


SHORT, MANY = 12, 4096
"""And for each position of rows up to so long, where there are so many: 16,384 rows of 5 take
`argmax` 250 us, and 85 so."""


def extreme(x: Array, axis: int, *, largest: bool) -> tuple[Array, Array | None] | None:
    """Return the index of the largest or smallest element along an axis, which stays with size 1.

    Of equal ones it is the first. 21 maps of 192x192 take 0.3 ms, where sorting them takes 17.

    Returns:
        The index and, where it is known already, the element; None for a type that NumPy does not
        compare as it is, and where NaN decides.
    """
    if x.dtype.char not in "?bhilqBHILQfd" or not x.size:
        return None
    size = x.shape[axis]
    behind, many = math.prod(x.shape[axis + 1 :]), x.size // size
    side_by_side = behind >= 16 and many >= SIDE_BY_SIDE
    if not side_by_side and (size > SHORT or many < MANY):
        index = x.argmax(axis, keepdims=True) if largest else x.argmin(axis, keepdims=True)
        if largest or x.dtype.kind != "f":  # the first NaN is found, if there is one
            return index, None
        return None if _has_nan(x.min(axis)) else (index, None)
    best, index = _of_planes(to_front(x, axis), largest=largest)
    if _has_nan(best):
        return None
    zero = best == 0  # of which the first may have another sign
    index = np.expand_dims(index, axis).astype(np.int64)
    return index, None if zero.any() else np.expand_dims(best, axis)


def _has_nan(x: Array) -> bool:
    return x.dtype.kind == "f" and bool(np.isnan(x).any())


def _of_planes(planes: Array, *, largest: bool) -> tuple[Array, Array]:
    """The largest or smallest of each place, and the number of the first plane that has it."""
    best = planes[0].copy()
    kind = np.uint8 if len(planes) <= 1 << 8 else np.int32
    index, now, better = np.zeros(best.shape, kind), np.empty(best.shape, kind), best.astype(bool)
    for number, plane in enumerate(planes[1:], 1):
        (np.greater if largest else np.less)(plane, best, out=better)
        # Later numbers are larger. `copyto` with a mask takes 40 times as long as both of these.
        np.multiply(better, kind(number), out=now)
        np.maximum(index, now, out=index)
        (np.maximum if largest else np.minimum)(plane, best, out=best)
    return best, index


class Ranking:
    """Which elements of each part of an array come first; sorted as far as someone asks.

    What all parts need is done once: 100 of each of 80 take 0.2 ms where `smallest` takes 1.3.
    """

    def __init__(self, x: Array, ends: Array) -> None:
        """Rank x [n], f32, cut behind `ends`."""
        self._both = _with_index(_int32(x))
        self._starts = [0, *ends.tolist()]

    def smallest(self, part: int, count: int | None) -> Array:
        """Return the indices in x of the smallest elements of a part, the smallest first."""
        both = self._both[self._starts[part] : self._starts[part + 1]]
        if count is not None and count < len(both):
            both.partition(count - 1)
            both = both[:count]
        both.sort()
        return both & 0xFFFFFFFF


def _first(x: Array, count: int | None, *, descending: bool) -> Array:
    size = x.shape[-1]
    count = size if count is None else min(count, size)
    if x.dtype.char not in _COMPARED:
        return _sorted(x, count, descending=descending)
    is_small = 0 < x.size <= FEW and size <= LONG
    if is_small and x.dtype.char in "fd" and not (descending and math.isnan(x.min())):
        return np.asarray((-x if descending else x).argsort(-1, "stable")[..., :count])
    if is_small and x.dtype.kind in "iu":  # ~x is in the opposite order, and fits
        return np.asarray((~x if descending else x).argsort(-1, "stable")[..., :count])
    if x.dtype == np.float32 and x.size > FEW:
        index = ranked(np.ascontiguousarray(x).reshape(-1, size), count, descending=descending)
        if index is not None:
            return index.reshape(*x.shape[:-1], count)
    return _first_of_many(x, count, descending=descending)


def _first_of_many(x: Array, count: int, *, descending: bool) -> Array:
    size = x.shape[-1]
    rows = x.size // max(size, 1)
    if 0 < count * (8_000 + rows * (30 + 0.2 * size)) < 45_000 + 6 * x.size:
        index = _in_turns(x, count, descending=descending)
        if index is not None:
            return index
    if size < FEW_FROM or not 0 < count * 4 <= size:
        return _sorted(x, count, descending=descending)
    if size >= SELECT_FROM and 0 < rows <= size:
        by_groups = [_by_groups(row, count, descending=descending) for row in x.reshape(-1, size)]
        if all(row is not None for row in by_groups):
            return np.array(by_groups).reshape(*x.shape[:-1], count)
    last = size - count if descending else count - 1
    parted = np.partition(x, last, axis=-1)  # NaN comes last
    limits = parted[..., last : last + 1]
    if x.dtype.kind == "f" and np.isnan(parted[..., last:] if descending else limits).any():
        return _sorted(x, count, descending=descending)
    near = np.flatnonzero(x >= limits if descending else x <= limits)
    if near.size == limits.size * count:  # none besides is equal to the last one
        near = near.reshape(*x.shape[:-1], count)
        order = _sorted(np.take(x, near), count, descending=descending)
        return np.asarray(np.take_along_axis(near, order, -1) % size)
    if size < SELECT_FROM:
        return _sorted(x, count, descending=descending)
    y = np.empty((*x.shape[:-1], count), np.int64)
    for row in np.ndindex(*x.shape[:-1]):
        near = np.flatnonzero(x[row] >= limits[row] if descending else x[row] <= limits[row])
        y[row] = near[_sorted(x[row][near], count, descending=descending)]
    return y


def _by_groups(x: Array, count: int, *, descending: bool) -> Array | None:
    """Return [count]: indices of the first elements of a long row; None where that takes long.

    At least `count` elements are as good as the best of the count-th best group, so that few are
    left to sort: 100 of 184,320 take 55 us, where partitioning all takes 260, and 3,000 where nine
    of ten are equal.
    """
    groups = min(max(8 * count, 256), len(x) // 4)
    length = len(x) // groups
    parts = x[: length * groups].reshape(length, groups)
    best = (np.maximum if descending else np.minimum).reduce(parts, 0)
    last = groups - count if descending else count - 1
    limit = np.partition(best, last)[last]
    if x.dtype.kind == "f" and (np.isnan(best).any() or np.isnan(x[parts.size :]).any()):
        return None
    near = np.flatnonzero(x >= limit if descending else x <= limit)
    if near.size * 4 > len(x):
        return None
    return np.asarray(near[_sorted(x[near], count, descending=descending)])


def _in_turns(x: Array, count: int, *, descending: bool) -> Array | None:
    """The best, then the best of the rest: 5 of each of 50 rows of 1,000 take 0.1 ms, sorted 0.35.

    A turn takes 8 us, 30 ns a row and 0.2 ns an element, sorting 45 us and 6 ns an element (EPYC).

    Returns:
        None where what marks the elements taken is among the best, and where NaN would be smallest.
    """
    size = x.shape[-1]
    left = x.reshape(-1, size).copy()
    flat, starts = left.reshape(-1), np.arange(0, left.size, size)
    if x.dtype.kind == "f":
        taken = -np.inf if descending else np.inf
    else:
        taken = np.iinfo(x.dtype).min if descending else np.iinfo(x.dtype).max
    y = np.empty((len(left), count), np.int64)
    for turn in range(count):
        index = left.argmax(1) if descending else left.argmin(1)
        y[:, turn] = index
        index += starts
        best = flat.take(index)
        if turn == 0 and not descending and np.isnan(best).any():
            return None
        if turn == count - 1 and (best == taken).any():
            return None
        flat[index] = taken
    return y.reshape(*x.shape[:-1], count)


_COMPARED = "iIlLqQfd"
"""NumPy's codes of types that it compares as they are."""


def _sorted(x: Array, count: int, *, descending: bool) -> Array:
    size = x.shape[-1]
    keys = _keys(x)
    if keys is None:
        if not descending:
            return np.asarray(np.argsort(x, axis=-1, kind="stable")[..., :count])
        # Sorting the reversed row stably and reading it backwards keeps equal elements in order.
        backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        return np.asarray(size - 1 - backwards[..., :count])
    both = _with_index(~keys if descending else keys)
    if 0 < count < size:
        both = np.partition(both, count - 1, axis=-1)
    both = both[..., :count]
    both.sort(axis=-1)
    both &= 0xFFFFFFFF
    return both


def _keys(x: Array) -> Array | None:
    """Return int32 that are in the same order; None for types that have more values."""
    if x.dtype.kind == "V" or x.dtype.char in _NARROW:  # bfloat16 and the like are of kind V
        x = x.astype(np.float32 if x.dtype.kind in "Vf" else np.int32)
    if x.dtype == np.int32:
        return x
    return _int32(x) if x.dtype == np.float32 else None


def _with_index(keys: Array) -> Array:
    """Return int64 that are in the order of the keys, of equal ones in that of their indices."""
    both = keys.astype(np.int64)
    both <<= 32
    both |= np.arange(keys.shape[-1])
    return both


def _int32(x: Array) -> Array:
    """Return int32 in the order of f32; NaN is largest."""
    keys: Array = (x + np.float32(0)).view(np.int32)  # -0 becomes 0, its equal
    flipped = keys >> 31  # `where` takes 60 us for 8,192 signs that nobody foresees, this 4
    flipped &= 0x7FFFFFFF
    keys ^= flipped
    is_nan = np.isnan(x)
    if is_nan.any():
        keys[is_nan] = 0x7FFFFFFF
    return keys
