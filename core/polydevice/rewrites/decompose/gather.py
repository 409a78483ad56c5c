"""Gathering at evenly spaced, known indices is a part of the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.gather import Gather
from polydevice.ops.slice import Slice
from polydevice.rewrites.facts import array_of, count_of, is_known, numbers_of, rank_of, shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.shape import normalize_axis
from polydevice.symbolic_size import is_formula, is_symbolic

_END = np.iinfo(np.int64).max


def _as_slice(op: Gather, inputs: Sequence[Port]) -> tuple[int, int, int] | None:
    """Return start, stop and step of indices inside of the axis; None when they are no such range.

    Those that count from the end of an axis of unknown length stay so.
    """
    x, indices, axis = inputs
    if not is_known(indices) or not is_known(axis) or op.batch_dims or not count_of(indices):
        return None
    size = shape_of(x)[normalize_axis(numbers_of(axis)[0], rank_of(x))]
    if is_formula(array_of(indices)):
        return None
    places = np.asarray(array_of(indices), np.int64).reshape(-1)
    low, high = int(places.min()), int(places.max())
    step = int(places[1] - places[0]) if places.size > 1 else 1
    if low < 0 and op.negative_indices:
        if is_symbolic(size):
            if high >= 0 or -low > size:
                return None
        else:
            places = np.where(places < 0, places + size, places)
            low, high = int(places.min()), int(places.max())
            step = int(places[1] - places[0]) if places.size > 1 else 1
            if low < 0:
                return None
    elif low < 0:
        return None
    if step == 0 or high >= size or np.any(np.diff(places) != step):
        return None
    first, stop = int(places[0]), int(places[-1]) + step
    if (first < 0) == (stop < 0):
        return first, stop, step
    return first, _END if step > 0 else -_END, step


@decomposes(Gather, where=lambda op, inputs: _as_slice(op, inputs) is not None)
def _gather(build: Emitter, op: Gather, inputs: Sequence[Port]) -> list[Port]:
    """Show the part of x: how PyTorch's exports take query, key and value out of one product."""
    x, indices, axis_value = inputs
    limits, axis = _as_slice(op, inputs), normalize_axis(numbers_of(axis_value)[0], rank_of(x))
    assert limits is not None
    part = build.emit(Slice(), x, *([n] for n in (*limits, axis)))
    return [
        build.reshape(part, (*shape_of(x)[:axis], *shape_of(indices), *shape_of(x)[axis + 1 :]))
    ]
