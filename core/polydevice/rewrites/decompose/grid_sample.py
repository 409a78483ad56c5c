"""Reading between pixels: corners gathered at computed indices, added with their weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, FloorMod, Maximum, Minimum, Multiply, Subtract
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.convert import Convert
from polydevice.ops.grid_sample import GridMode, GridPadding, GridSample
from polydevice.ops.math import Floor, Round
from polydevice.ops.split import Split
from polydevice.rewrites.facts import shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.rewrites.taps import (
    Taps,
    chosen,
    is_plain,
    number,
    polynomial,
    sum_of_taps,
    within,
)
from polydevice.symbolic_size import array_of, largest


@decomposes(GridSample, where=is_plain)
def _grid_sample(build: Emitter, op: GridSample, inputs: Sequence[Port]) -> list[Port]:
    x, grid = inputs[0], build.convert(inputs[1], ElementType.f32)
    batch, channels, *sizes = shape_of(x)
    count = math.prod(shape_of(grid)[1:-1])
    where = 2
    flat = build.reshape(grid, (batch, count, len(sizes)))
    parts = build.emit_all(Split(num_splits=len(sizes)), flat, where)
    axes = []
    for size, part in zip(sizes, reversed(parts), strict=True):
        at = build.emit(Add(), build.reshape(part, (batch, count)), 1.0)
        place = _halves(build, at, size - 1 if op.align_corners else size)
        if not op.align_corners:
            place = build.emit(Subtract(), place, 0.5)
        axes.append(_grid_taps(build, op, place, size))
    data = build.reshape(build.convert(x, ElementType.f32), (batch, channels, math.prod(sizes)))
    y = sum_of_taps(build, data, axes, sizes)
    if x.element_type is not ElementType.f32:
        y = build.emit(Convert(destination_type=x.element_type), y)
    return [build.reshape(y, (batch, channels, *shape_of(grid)[1:-1]))]


def _halves(build: Emitter, at: Port, size: int) -> Port:
    """Return at * (size / 2); where sizes are symbolic, as at / 2 * size, which is the same."""
    found = number(build, size)
    if isinstance(found, Port):
        return build.emit(Multiply(), build.emit(Multiply(), at, 0.5), found)
    return build.emit(Multiply(), at, found / 2)


_CUBIC = -0.75


def _grid_taps(build: Emitter, op: GridSample, place: Port, size: int) -> Taps:
    if op.mode is GridMode.NEAREST:
        one = build.emit(Broadcast(), build.like(1.0, place), array_of(shape_of(place), np.int64))
        return [_padded(build, op, build.emit(Round(), place), one, size)]
    low = build.emit(Floor(), place)
    part = build.emit(Subtract(), place, low)
    rest = build.emit(Subtract(), build.like(1.0, place), part)
    if op.mode is GridMode.BILINEAR:
        weights, first = [rest, part], 0
    else:
        a = _CUBIC
        near, far = (1.0, 0.0, -(a + 3), a + 2), (-4 * a, 8 * a, -5 * a, a)
        weights = [
            polynomial(build, build.emit(Add(), part, 1.0), far),
            polynomial(build, part, near),
            polynomial(build, rest, near),
            polynomial(build, build.emit(Add(), rest, 1.0), far),
        ]
        first = -1
    return [
        _padded(build, op, build.emit(Add(), low, float(first + i)), weight, size)
        for i, weight in enumerate(weights)
    ]


def _padded(
    build: Emitter, op: GridSample, index: Port, weight: Port, size: int
) -> tuple[Port, Port]:
    """Move indices into the axis, or take away the weight of those outside."""
    if op.padding_mode is GridPadding.ZEROS:
        inside = within(build, index, 0, size)
        return chosen(build, inside, index, 0.0), chosen(build, inside, weight, 0.0)
    if op.padding_mode is GridPadding.REFLECTION:
        last = size - 1 if op.align_corners else size
        period, top = (2 * last, 2 * last) if op.align_corners else (2 * size, 2 * size - 1)
        folded = build.emit(FloorMod(), index, number(build, largest([period, 1])))
        mirrored = build.emit(Subtract(), number(build, top), folded)
        index = build.emit(Minimum(), folded, mirrored)
    end = number(build, size - 1)
    if not isinstance(end, Port):
        return build.emit(Clamp(min=0.0, max=end), index), weight
    # Both leave NaN as it is, like Clamp.
    return build.emit(Minimum(), build.emit(Maximum(), index, 0.0), end), weight
