"""Reading between pixels: corners gathered at computed indices, added with their weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, FloorMod, Minimum, Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.grid_sample import GridMode, GridPadding, GridSample
from polydevice.ops.math import Floor, Round
from polydevice.ops.split import Split
from polydevice.rewrites.facts import shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.rewrites.taps import Taps, chosen, is_plain, polynomial, sum_of_taps, within


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
        if op.align_corners:
            place = build.emit(Multiply(), at, (size - 1) / 2)
        else:
            place = build.emit(Subtract(), build.emit(Multiply(), at, size / 2), 0.5)
        axes.append(_grid_taps(build, op, place, size))
    data = build.reshape(build.convert(x, ElementType.f32), (batch, channels, math.prod(sizes)))
    y = sum_of_taps(build, data, axes, sizes)
    if x.element_type is not ElementType.f32:
        y = build.emit(Convert(destination_type=x.element_type), y)
    return [build.reshape(y, (batch, channels, *shape_of(grid)[1:-1]))]


_CUBIC = -0.75


def _grid_taps(build: Emitter, op: GridSample, place: Port, size: int) -> Taps:
    one = build.like(np.ones(shape_of(place)), place)
    if op.mode is GridMode.NEAREST:
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
        folded = build.emit(FloorMod(), index, float(max(period, 1)))
        mirrored = build.emit(Subtract(), build.like(top, index), folded)
        index = build.emit(Minimum(), folded, mirrored)
    return build.emit(Clamp(min=0.0, max=float(size - 1)), index), weight
