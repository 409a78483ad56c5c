"""Scatters: a copy, and what is put into it, as one call for planned steps and for arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.scatter import Reduction
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.indexed import scattered
from polydevice_cpu.algorithms.by_machine.kept_calls import KeptCalls

_HOW = {
    Reduction.NONE: "",
    Reduction.SUM: "add",
    Reduction.PROD: "multiply",
    Reduction.MAX: "largest",
    Reduction.MIN: "smallest",
}
_INDICES = (np.dtype(np.int32), np.dtype(np.int64))
_CALLS = KeptCalls()


def meeting_of_elements(
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    axis: int,
    kinds: tuple[np.dtype[Any], np.dtype[Any]],
    reduction: Reduction,
) -> scattered.Meeting | None:
    """Return how `elements` has it that updates meet what is there; None where it has no code."""
    others = [(*each[:axis], *each[axis + 1 :]) for each in sizes]
    return None if others[0] != others[1] or 0 in sizes[1] else _meeting(kinds, reduction)


def elements(
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    axis: int,
    kinds: tuple[np.dtype[Any], np.dtype[Any]],
    reduction: Reduction,
) -> Code | None:
    """Return code that puts elements along an axis; None where there is none.

    It is told addresses of what is copied, of indices, updates and the result, all row-major, and
    refuses indices that lie outside.

    Args:
        sizes: of what is copied, and of indices and updates.
        axis: which indices count along.
        kinds: types of elements and of indices.
        reduction: how updates meet what is there.
    """
    meeting = meeting_of_elements(sizes, axis, kinds, reduction)
    if meeting is None:
        return None
    (shape, indices), items = sizes, (kinds[0].itemsize, kinds[1].itemsize)
    put = scattered.elements(shape, axis, indices[axis], items, meeting)
    return Code.of([scattered.copying(math.prod(shape) * items[0]), put])


def meeting_of_rows(
    sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    kinds: tuple[np.dtype[Any], np.dtype[Any]],
    reduction: Reduction,
) -> scattered.Meeting | None:
    """Return the same of `rows`."""
    shape, indices, updates = sizes
    meeting, coordinates = _meeting(kinds, reduction), indices[-1]
    if meeting is None or kinds[0].itemsize not in (4, 8) or 0 in updates:
        return None
    if not 0 < coordinates <= scattered.MOST_COORDINATES:
        return None
    return meeting if updates == (*indices[:-1], *shape[coordinates:]) else None


def rows(
    sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    kinds: tuple[np.dtype[Any], np.dtype[Any]],
    reduction: Reduction,
) -> Code | None:
    """Return code, likewise, that puts rows of elements of 4 or 8 bytes.

    Args:
        sizes: of what is copied, of indices and of updates.
        kinds: types of elements and of indices.
        reduction: how updates meet what is there.
    """
    meeting = meeting_of_rows(sizes, kinds, reduction)
    if meeting is None:
        return None
    shape, indices, _ = sizes
    items, count = (kinds[0].itemsize, kinds[1].itemsize), math.prod(indices[:-1])
    put = scattered.rows(shape, indices[-1], count, items, meeting)
    return Code.of([scattered.copying(math.prod(shape) * items[0]), put])


def _meeting(
    kinds: tuple[np.dtype[Any], np.dtype[Any]], reduction: Reduction
) -> scattered.Meeting | None:
    """How code has it that updates meet what is there; None where it has nothing."""
    kind, index = kinds
    how = _HOW.get(reduction)
    if how is None or not has_avx512() or kind.hasobject or index not in _INDICES:
        return None
    if not how:
        return scattered.Meeting() if kind.itemsize in (1, 2, 4, 8) else None
    if kind == np.float32:
        return scattered.Meeting(how, "f")
    has_sign = kind.kind == "i" or (kind.kind == "u" and how in ("add", "multiply"))
    return scattered.Meeting(how, "i") if has_sign and kind.itemsize in (4, 8) else None


def with_elements(
    x: Array, axis: int, indices: Array, updates: Array, reduction: Reduction
) -> Array | None:
    """Return a copy of x with elements put into it; None where there is no code for it."""
    sizes, kinds = (x.shape, indices.shape), (x.dtype, indices.dtype)
    if updates.shape != indices.shape or updates.dtype != x.dtype:
        return None
    key = sizes, axis, x.dtype.str, indices.dtype.str, reduction
    arrays = [*map(np.ascontiguousarray, (x, indices, updates)), np.empty(x.shape, x.dtype)]
    done = _CALLS.run(key, lambda: elements(sizes, axis, kinds, reduction), arrays) == 0
    return arrays[-1] if done else None


def with_rows(x: Array, indices: Array, updates: Array, reduction: Reduction) -> Array | None:
    """Return a copy of x with rows put into it; None where there is no code for it."""
    sizes, kinds = (x.shape, indices.shape, updates.shape), (x.dtype, indices.dtype)
    if updates.dtype != x.dtype:
        return None
    key = sizes, x.dtype.str, indices.dtype.str, reduction
    arrays = [*map(np.ascontiguousarray, (x, indices, updates)), np.empty(x.shape, x.dtype)]
    done = _CALLS.run(key, lambda: rows(sizes, kinds, reduction), arrays) == 0
    return arrays[-1] if done else None
