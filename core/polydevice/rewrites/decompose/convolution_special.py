"""A binary convolution is one of signs; a deformable one gathers what it multiplies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.comparison import Greater
from polydevice.ops.convert import Convert
from polydevice.ops.convolution import Convolution
from polydevice.ops.convolution_special import (
    BinaryConvolution,
    DeformableConvolution,
    binary_weights,
)
from polydevice.ops.logical import LogicalAnd
from polydevice.ops.math import Floor
from polydevice.ops.matmul import MatMul
from polydevice.ops.pad import Pad
from polydevice.ops.select import Select
from polydevice.ops.split import Split
from polydevice.ops.window import PadType
from polydevice.rewrites.facts import array_of, is_known, shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.rewrites.taps import Taps, chosen, is_plain, sum_of_taps, within


@decomposes(BinaryConvolution, where=lambda _, inputs: is_known(inputs[1]))
def _binary(build: Emitter, op: BinaryConvolution, inputs: Sequence[Port]) -> list[Port]:
    x, w = inputs
    kind = x.element_type

    def number(value: float) -> Port:
        return build.value(value, kind)

    positive = build.emit(Greater(), x, number(0.0))
    signs = build.emit(Select(), positive, number(1.0), number(-1.0))
    begin, end = op.window(shape_of(w)).pads(shape_of(x)[2:])
    if any(begin) or any(end):
        pads = ([0, 0, *pad] for pad in (begin, end))
        signs = build.emit(Pad(), signs, *pads, number(op.pad_value))
    plain = Convolution(strides=op.strides, dilations=op.dilations, auto_pad=PadType.VALID)
    weights = binary_weights(array_of(w)).astype(kind.dtype)
    return build.emit_all(plain, signs, build.value(weights, kind))


@decomposes(DeformableConvolution, where=is_plain)
def _deformable(build: Emitter, op: DeformableConvolution, inputs: Sequence[Port]) -> list[Port]:
    x, offsets, w, *mask = (build.convert(value, ElementType.f32) for value in inputs)
    batch, channels, height, width = shape_of(x)
    groups, taps = op.deformable_group, math.prod(shape_of(w)[2:])
    rows, columns = shape_of(offsets)[2:]
    count = taps * rows * columns
    data = build.reshape(x, (batch * groups, channels // groups, height * width))
    shifts = build.reshape(offsets, (batch * groups, taps, 2, rows * columns))
    where = 2
    places = []
    for part, grid in zip(
        build.emit_all(Split(num_splits=2), shifts, where),
        _grids(op, x, w, rows, columns),
        strict=True,
    ):
        flat = build.reshape(part, (batch * groups, count))
        places.append(build.emit(Add(), flat, build.like(grid.reshape(1, count), flat)))
    soft = op.bilinear_interpolation_pad
    least = np.nextafter(np.float32(-1), np.float32(0)) if soft else 0.0
    inside = build.emit(
        LogicalAnd(),
        within(build, places[0], float(least), height),
        within(build, places[1], float(least), width),
    )
    axes = [
        _deformable_taps(build, place, size, soft=soft)
        for place, size in zip(places, (height, width), strict=True)
    ]
    seen = build.convert(inside, ElementType.f32)
    if mask:
        seen = build.emit(Multiply(), seen, build.reshape(mask[0], (batch * groups, count)))
    sampled = sum_of_taps(build, data, axes, (height, width))
    sampled = build.emit(Multiply(), sampled, build.reshape(seen, (batch * groups, 1, count)))
    depth = channels // op.group * taps
    stacked = build.reshape(sampled, (batch, op.group, depth, rows * columns))
    matrix = build.reshape(w, (1, op.group, shape_of(w)[0] // op.group, depth))
    product = build.reshape(
        build.emit(MatMul(), matrix, stacked), (batch, shape_of(w)[0], rows, columns)
    )
    if inputs[0].element_type is ElementType.f32:
        return [product]
    return build.emit_all(Convert(destination_type=inputs[0].element_type), product)


def _grids(op: DeformableConvolution, x: Port, w: Port, rows: int, columns: int) -> list[Array]:
    """Return where the taps would read without offsets: [taps, rows * columns] per axis."""
    window = op.window(shape_of(w))
    begin, _ = window.pads(shape_of(x)[2:])
    tap = np.indices(shape_of(w)[2:]).reshape(2, -1)
    stops = np.indices((rows, columns)).reshape(2, -1)
    return [
        stops[i] * window.strides[i] - begin[i] + (tap[i] * window.dilations[i])[:, np.newaxis]
        for i in range(2)
    ]


def _deformable_taps(build: Emitter, place: Port, size: int, *, soft: bool) -> Taps:
    """Two neighbours; beyond the edge there is nothing when `soft`, else the edge again."""
    low = build.emit(Floor(), place)
    part = build.emit(Subtract(), place, low)
    rest = build.emit(Subtract(), build.like(1.0, place), part)
    taps = []
    for index, weight in ((low, rest), (build.emit(Add(), low, 1.0), part)):
        if soft:
            weight = chosen(build, within(build, index, 0, size), weight, 0.0)
        taps.append((build.emit(Clamp(min=0.0, max=float(size - 1)), index), weight))
    return taps
