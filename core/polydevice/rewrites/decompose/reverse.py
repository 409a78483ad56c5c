"""ReverseSequence reads at computed positions; Roll puts two parts together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Subtract
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.comparison import Less
from polydevice.ops.concat import Concat
from polydevice.ops.gather import GatherElements
from polydevice.ops.reverse import ReverseSequence, Roll
from polydevice.ops.select import Select
from polydevice.rewrites.facts import count_of, numbers_of, parameters_known, rank_of, shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.shape import normalize_axis


@decomposes(ReverseSequence, where=lambda _, inputs: count_of(inputs[0]) > 0)
def _reverse_sequence(build: Emitter, op: ReverseSequence, inputs: Sequence[Port]) -> list[Port]:
    """Read each element from length - 1 - position, where that lies in the sequence."""
    x, lengths = inputs
    batch, axis = normalize_axis(op.batch_axis, rank_of(x)), normalize_axis(op.seq_axis, rank_of(x))
    kind = lengths.element_type

    def along(axis: int, size: int) -> tuple[int, ...]:
        return tuple(size if i == axis else 1 for i in range(rank_of(x)))

    length = build.reshape(lengths, along(batch, shape_of(x)[batch]))
    positions = np.arange(shape_of(x)[axis], dtype=kind.dtype).reshape(
        along(axis, shape_of(x)[axis])
    )
    place = build.value(positions, kind)
    one = build.value(1, kind)
    mirrored = build.emit(Subtract(), build.emit(Subtract(), length, one), place)
    index = build.emit(Select(), build.emit(Less(), place, length), mirrored, place)
    whole = build.emit(Broadcast(), index, shape_of(x))
    return build.emit_all(GatherElements(axis=axis), x, whole)


@decomposes(Roll, where=parameters_known)
def _roll(build: Emitter, op: Roll, inputs: Sequence[Port]) -> list[Port]:
    x, shift, axes = inputs
    places = [normalize_axis(axis, rank_of(x)) for axis in numbers_of(axes)]
    shifts = numbers_of(shift)
    shifts = shifts * len(places) if len(shifts) == 1 else shifts
    total: dict[int, int] = {}
    for axis, by in zip(places, shifts, strict=True):
        total[axis] = total.get(axis, 0) + by
    y = x
    for axis, by in total.items():
        size = shape_of(x)[axis]
        start = by % size if size else 0
        if start:
            end = build.cut(y, axis, size - start, size)
            y = build.emit(Concat(axis=axis), end, build.cut(y, axis, 0, size - start))
    return [y]
