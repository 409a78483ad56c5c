"""ScatterUpdate, ScatterElementsUpdate and ScatterNDUpdate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.scatter import (
    Reduction,
    ScatterElementsUpdate,
    ScatterNDUpdate,
    ScatterUpdate,
)
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.axes import to_front
from polydevice_cpu.algorithms.by_machine.indexed.put import with_elements, with_rows
from polydevice_cpu.implement import implements, writes
from polydevice_cpu.ops.gather import checked_index, counted_places, flat_index

_UFUNCS: dict[Reduction, Any] = {
    Reduction.SUM: np.add,
    Reduction.SUB: np.subtract,
    Reduction.PROD: np.multiply,
    Reduction.MIN: np.minimum,
    Reduction.MAX: np.maximum,
}


@implements(ScatterUpdate)
def scatter_update(
    _op: ScatterUpdate, x: Array, indices: Array, updates: Array, axis: Array
) -> Array:
    """Copy x and write the slices."""
    at = normalize_axis(int(axis.reshape(-1)[0]), x.ndim)
    index = checked_index("ScatterUpdate", indices, x.shape[at])
    needed = x.shape[:at] + index.shape + x.shape[at + 1 :]
    if updates.shape != needed:
        raise InferenceError(f"ScatterUpdate: updates {updates.shape} need the shape {needed}")
    y = _copied(x, updates)
    y[(slice(None),) * at + (index,)] = updates
    return y


@implements(ScatterElementsUpdate)
def scatter_elements_update(
    op: ScatterElementsUpdate, x: Array, indices: Array, updates: Array, axis: Array
) -> Array:
    """Index every axis: the updates' own position, but for the scattered axis."""
    at = normalize_axis(int(axis.reshape(-1)[0]), x.ndim)
    if x.ndim == 1 and op.reduction is Reduction.NONE:
        copied = _put_plainly(x, indices, updates)
        if copied is not None:
            return copied
    if op.use_init_val or op.reduction is Reduction.NONE:
        made = with_elements(x, at, indices, updates, op.reduction)
        if made is not None:
            return made
    index = checked_index("ScatterElementsUpdate", indices, x.shape[at])
    for i, (size, taken) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i != at and taken > size:
            raise InferenceError(
                f"ScatterElementsUpdate: indices {indices.shape} reach beyond {x.shape} at axis {i}"
            )
    rows = to_front(index, at)
    if op.use_init_val and updates.size and _are_worth_rows(op.reduction, x, rows[0].size):
        rows = rows.reshape(len(rows), -1)
        first = rows[:, 0]
        if (first == rows[:, -1]).all() and (first == rows.T).all():
            y: Array = x.copy()
            within = tuple(slice(None if i == at else n) for i, n in enumerate(indices.shape))
            place, put = (to_front(array, at) for array in (y[within], updates))
            _put_rows(place, first, put, op.reduction)
            return y
    places, values = flat_index(x, index, at).reshape(-1), updates.reshape(-1)
    flat = _put(x.reshape(-1), (places,), values, op.reduction, keep=op.use_init_val)
    return flat.reshape(x.shape)


def _copied(x: Array, updates: Array) -> Array:
    """Return a copy of x for updates, which are objects where they are numbers of open sizes."""
    return x.astype(object) if updates.dtype == object else x.copy()


def _put_plainly(x: Array, index: Array, updates: Array) -> Array | None:
    """Return a copy of x with rows put where indices say; None where NumPy refuses an index.

    NumPy looks at indices itself: 84 of 144 take 2 us, and 9 where that is done before; by machine
    code whose call is kept 5.
    """
    y = _copied(x, updates)
    try:
        y[index] = updates
    except (IndexError, TypeError):  # TypeError: u64
        return None
    return y


_OF_ROWS = frozenset({Reduction.SUM, Reduction.PROD, Reduction.MIN, Reduction.MAX})
"""What reduces updates of one place first, and then with what was there."""


_WIDE = 48
"""Rows of so many elements are reduced as such, narrower ones one number after the other."""

_COPIED = 16
"""Rows of so many elements are copied as such."""


def _are_worth_rows(reduction: Reduction, x: Array, width: int) -> bool:
    if reduction is Reduction.NONE:
        return width >= _COPIED
    return width >= _WIDE and reduction in _OF_ROWS and x.dtype.kind in "iuf"


def _put_rows(y: Array, index: Array, updates: Array, reduction: Reduction) -> None:
    """Reduce whole rows into rows of y, as graph networks do: those of one place after another.

    Either the first row of every place, then the second of those that have one, and so on, or all
    rows of one place at a time. `ufunc.at` goes from number to number: 1,200 rows of 128 to 200
    places take it 330 us, the first way 115.
    """
    if reduction is Reduction.NONE:
        y[index] = updates
        return
    ufunc = _UFUNCS[reduction]
    order = np.argsort(index, kind="stable")
    sorted_ = index.take(order)
    starts = np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]]))
    counts = np.diff(starts, append=len(index))
    if counts.max() * 5_000 > 12 * len(starts) * (updates.size // len(index)):
        places = sorted_.take(starts)
        y[places] = ufunc(y[places], ufunc.reduceat(updates[order], starts, axis=0, dtype=y.dtype))
        return
    most_first = np.argsort(-counts, kind="stable")
    starts = starts.take(most_first)
    places = sorted_.take(starts)
    result = y.take(places, axis=0)
    have = np.searchsorted(-counts.take(most_first), -np.arange(1, counts.max() + 1), side="right")
    for turn, count in enumerate(have.tolist()):
        rows = updates.take(order.take(starts[:count] + turn), axis=0)
        ufunc(result[:count], rows, out=result[:count])
    y[places] = result


@implements(ScatterNDUpdate)
def scatter_nd_update(op: ScatterNDUpdate, x: Array, indices: Array, updates: Array) -> Array:
    """Index with one array per coordinate."""
    count = indices.shape[-1]
    if _puts_nothing(x, indices, updates):
        same: Array = x.copy()
        return same  # which would be tried in all ways below: 10 us
    if count == 1 and op.reduction is Reduction.NONE and updates.size:
        copied = _put_plainly(x, indices[..., 0], updates)
        if copied is not None:
            return copied
    made = with_rows(x, indices, updates, op.reduction)
    if made is not None:
        return made
    places = counted_places(indices, x.shape[:count]) if count > 1 else None
    if places is None:
        columns = [
            checked_index("ScatterNDUpdate", indices[..., i], x.shape[i]) for i in range(count)
        ]
        if count:
            places = np.ravel_multi_index(columns, x.shape[:count]) if count > 1 else columns[0]
    shape = indices.shape[:-1] + x.shape[count:]
    if updates.shape != shape:
        updates = np.broadcast_to(updates, shape)
    if places is None:  # no coordinates: each update covers all of x
        y: Array = x.copy()
        for update in updates.reshape((-1, *x.shape)):
            y = _put(y, (), update, op.reduction, keep=True)
        return y
    if not updates.size:
        return np.array(x)
    rows = x.reshape(-1, *x.shape[count:])
    put = _put_flat_rows(rows, places.reshape(-1), updates, op.reduction)
    return put.reshape(x.shape)


@writes(ScatterNDUpdate)
def write_rows(
    op: ScatterNDUpdate, x: Array, indices: Array, updates: Array, result: Array
) -> None:
    """Copy once where there are no updates, as of boxes of which none is left."""
    is_same = _puts_nothing(x, indices, updates)
    np.copyto(result, x if is_same else scatter_nd_update(op, x, indices, updates))


def _puts_nothing(x: Array, indices: Array, updates: Array) -> bool:
    count = indices.shape[-1]
    are_none = count and not indices.size
    return bool(are_none and updates.shape == indices.shape[:-1] + x.shape[count:])


def _put_flat_rows(x: Array, index: Array, updates: Array, reduction: Reduction) -> Array:
    """Return a copy of x with updates reduced into rows; narrow ones number by number.

    1,200 rows of 4 take `ufunc.at` 14 us, where it is given one axis, and 58 as rows.
    """
    width = math.prod(x.shape[1:])
    if reduction is Reduction.NONE or _are_worth_rows(reduction, x, width):
        y: Array = x.copy()
        _put_rows(y, index, updates.reshape(-1, *x.shape[1:]), reduction)
        return y
    places = index[:, np.newaxis] * width + np.arange(width)
    flat = _put(x.reshape(-1), (places.reshape(-1),), updates.reshape(-1), reduction, keep=True)
    return flat.reshape(x.shape)


def _put(
    x: Array, index: tuple[Array, ...], updates: Array, reduction: Reduction, *, keep: bool
) -> Array:
    """Return a copy of x with the updates reduced into ``x[index]``.

    Without `keep`, updated elements start from the reduction's neutral value instead of x's.
    """
    y: Array = x.copy()
    if reduction is Reduction.NONE or not updates.size:
        y[index] = updates
        return y
    if x.dtype == np.bool_:
        return _put_bool(y, index, updates, reduction, keep=keep)
    if not keep:
        y[index] = _neutral(reduction, x.dtype)
    if reduction is not Reduction.MEAN:
        _UFUNCS[reduction].at(y, index, updates)
        return y
    # Small types are summed wide, so that a mean does not overflow on its way.
    wide = np.int64 if x.dtype.kind in "iu" else np.float64
    total: Array = y.astype(wide)
    np.add.at(total, index, updates.astype(wide))
    count = np.full(x.shape, 1 if keep else 0, np.int64)
    np.add.at(count, index, 1)
    count = np.maximum(count, 1)
    mean = total // count if x.dtype.kind in "iu" else total / count
    return np.asarray(mean.astype(x.dtype))


def _put_bool(
    y: Array, index: tuple[Array, ...], updates: Array, reduction: Reduction, *, keep: bool
) -> Array:
    """Reduce booleans: sum and max are "or", prod and min are "and"."""
    either = reduction in (Reduction.SUM, Reduction.MAX)
    if reduction not in (Reduction.SUM, Reduction.MAX, Reduction.PROD, Reduction.MIN):
        raise InferenceError(f"scatter reduction {reduction.value} is not defined for boolean")
    if not keep:
        y[index] = not either
    (np.logical_or if either else np.logical_and).at(y, index, updates)
    return y


def _neutral(reduction: Reduction, dtype: np.dtype[Any]) -> Any:
    if reduction in (Reduction.SUM, Reduction.SUB, Reduction.MEAN):
        return 0
    if reduction is Reduction.PROD:
        return 1
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.max if reduction is Reduction.MIN else limits.min
    return np.inf if reduction is Reduction.MIN else -np.inf
