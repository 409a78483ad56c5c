"""Running sums and products, by shifted additions and multiplications."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, FloorMod, Multiply
from polydevice.ops.comparison import Equal
from polydevice.ops.cumulative import CumProd
from polydevice.ops.pad import Pad
from polydevice.ops.select import Select
from polydevice.ops.signal import (
    CumSum,
)
from polydevice.ops.slice import Slice
from polydevice.rewrites.facts import count_of, is_known, numbers_of, rank_of, shape_of
from polydevice.rewrites.rule import decomposes


def _shifted(build: Emitter, x: Port, axis: int, by: int, *, reverse: bool, fill: int) -> Port:
    """Move a value along an axis, away from where sums start; `fill` takes the free places."""
    size = shape_of(x)[axis]
    none, pads = [0] * rank_of(x), [0] * rank_of(x)
    pads[axis] = by
    first = by if reverse else 0
    filler = build.value(fill, x.element_type)
    begin, end = (build.value(np.array(p, np.int64)) for p in (none, pads))
    if not reverse:
        begin, end = end, begin
    padded = build.emit(Pad(), x, begin, end, filler)
    limits = [[v] for v in (first, first + size, 1, axis)]
    return build.emit(Slice(), padded, *limits)


@decomposes(CumProd)
def running(build: Emitter, op: CumSum | CumProd, inputs: Sequence[Port]) -> list[Port]:
    """Sum or multiply along an axis; one known at inference only is chosen of all."""
    x = inputs[0]
    if count_of(x) == 0:
        return [x]
    if len(inputs) < 2:
        return [_along_axis(build, op, x, 0)]
    if is_known(inputs[1]):
        return [_along_axis(build, op, x, numbers_of(inputs[1])[0] % rank_of(x))]
    kind = inputs[1].element_type
    rank = build.value(np.asarray(rank_of(x), kind.dtype), kind)
    axis = build.emit(FloorMod(), build.reshape(inputs[1], ()), rank)
    y = _along_axis(build, op, x, 0)
    for candidate in range(1, rank_of(x)):
        number = build.value(candidate, kind)
        chosen = build.emit(Equal(), axis, number)
        y = build.emit(Select(), chosen, _along_axis(build, op, x, candidate), y)
    return [y]


def _along_axis(build: Emitter, op: CumSum | CumProd, x: Port, axis: int) -> Port:
    """Add the value moved by 1, 2, 4… places: log2(n) additions (or multiplications)."""
    join, fill = (Add(), 0) if isinstance(op, CumSum) else (Multiply(), 1)
    if op.exclusive:
        x = _shifted(build, x, axis, 1, reverse=op.reverse, fill=fill)
    by = 1
    while by < shape_of(x)[axis]:
        moved = _shifted(build, x, axis, by, reverse=op.reverse, fill=fill)
        x = build.emit(join, x, moved)
        by *= 2
    return x
