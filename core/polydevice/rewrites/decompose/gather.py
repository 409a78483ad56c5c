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


def _as_range(op: Gather, inputs: Sequence[Port]) -> range | None:
    """Return the indices as a range inside of the axis; None when they are not known or not one."""
    x, indices, axis = inputs
    if not is_known(indices) or not is_known(axis) or op.batch_dims or not count_of(indices):
        return None
    size = shape_of(x)[normalize_axis(numbers_of(axis)[0], rank_of(x))]
    places = np.asarray(array_of(indices), np.int64).reshape(-1)
    places = np.where((places < 0) & op.negative_indices, places + size, places)
    step = int(places[1] - places[0]) if places.size > 1 else 1
    if step == 0 or places.min() < 0 or places.max() >= size or np.any(np.diff(places) != step):
        return None
    return range(int(places[0]), int(places[-1]) + step, step)


@decomposes(Gather, where=lambda op, inputs: _as_range(op, inputs) is not None)
def _gather(build: Emitter, op: Gather, inputs: Sequence[Port]) -> list[Port]:
    """Show the part of x: how PyTorch's exports take query, key and value out of one product."""
    x, indices, axis_value = inputs
    places, axis = _as_range(op, inputs), normalize_axis(numbers_of(axis_value)[0], rank_of(x))
    assert places is not None
    stop = places.stop if places.stop >= 0 else -shape_of(x)[axis] - 1
    limits = (places.start, stop, places.step, axis)
    part = build.emit(Slice(), x, *([n] for n in limits))
    return [
        build.reshape(part, (*shape_of(x)[:axis], *shape_of(indices), *shape_of(x)[axis + 1 :]))
    ]
