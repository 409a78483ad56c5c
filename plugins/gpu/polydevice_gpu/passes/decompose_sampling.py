# ruff: noqa: ARG001 - every decomposition takes builder, operation and inputs
"""What reading between the pixels is made of: GridSample and DeformableConvolution.

Each corner of the filter is gathered at indices that pointwise operations compute, and added with
its weight; both fuse into few launches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, FloorMod, Minimum, Multiply, Subtract
from polydevice.ops.comparison import GreaterEqual, Less
from polydevice.ops.convert import Convert
from polydevice.ops.convolution_special import DeformableConvolution
from polydevice.ops.gather import Gather
from polydevice.ops.grid_sample import GridMode, GridPadding, GridSample
from polydevice.ops.logical import LogicalAnd
from polydevice.ops.math import Floor, Round
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.ops.select import Select
from polydevice.ops.split import Split
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

Taps = list[tuple[Value, Value]]
"""Position and weight of each element that an axis contributes."""

_CUBIC = -0.75


class _Maker:
    """Arithmetic on positions, in floating point."""

    def __init__(self, build: Builder, kind: ElementType) -> None:
        self.build = build
        self.kind = kind

    def constant(self, value: float | Array) -> Value:
        """Make a constant in the positions' type."""
        return self.build.constant(np.asarray(value, self.kind.dtype), self.kind)

    def apply(self, op: Op, a: Value, b: Value | float | Array) -> Value:
        """Apply an operation to a value and a value or number."""
        return self.build.one(op, a, b if isinstance(b, Value) else self.constant(b))

    def where(self, condition: Value, a: Value | float, b: float) -> Value:
        """A where the condition holds, else b."""
        first = a if isinstance(a, Value) else self.constant(a)
        return self.build.one(Select(), condition, first, self.constant(b))

    def within(self, x: Value, low: float, high: float) -> Value:
        """Whether low <= x < high."""
        return self.build.one(
            LogicalAnd(), self.apply(GreaterEqual(), x, low), self.apply(Less(), x, high)
        )

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Sum c[i] * x^i."""
        total = self.constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.apply(Add(), self.apply(Multiply(), x, total), coefficient)
        return total


def _gathered(build: Builder, data: Value, position: Value) -> Value:
    """Read [B, C, size] at whole positions [B, P]: [B, C, P]."""
    index = build.one(Convert(destination_type=ElementType.i32), position)
    axis = build.constant(np.asarray(2, np.int64))
    return build.one(Gather(batch_dims=1, negative_indices=False), data, index, axis)


def _sum_of_taps(make: _Maker, data: Value, axes: Sequence[Taps], sizes: Sequence[int]) -> Value:
    """Add up [B, C, size] at all combinations of the axes' taps: [B, C, P]."""
    build = make.build
    total: Value | None = None
    for taps in itertools.product(*axes):
        position, weight = taps[0]
        for (at, part), size in zip(taps[1:], sizes[1:], strict=True):
            position = make.apply(Add(), make.apply(Multiply(), position, float(size)), at)
            weight = make.apply(Multiply(), weight, part)
        factor = reshape(build, weight, (weight.shape[0], 1, weight.shape[1]))
        term = build.one(Multiply(), _gathered(build, data, position), factor)
        total = term if total is None else build.one(Add(), total, term)
    assert total is not None
    return total


def _in_f32(build: Builder, value: Value) -> Value:
    """Positions need f32, whatever type the data have."""
    if value.element_type is ElementType.f32:
        return value
    return build.one(Convert(destination_type=ElementType.f32), value)


# -- GridSample -----------------------------------------------------------------------------------


def _is_plain(op: GridSample | DeformableConvolution, inputs: Sequence[Value]) -> bool:
    x = inputs[0]
    # f32 counts exactly up to 2^24.
    return x.element_type.is_float and 0 < math.prod(x.shape[2:]) < 1 << 24


@decomposes(GridSample, when=_is_plain)
def _grid_sample(build: Builder, op: GridSample, inputs: Sequence[Value]) -> list[Value]:
    x, grid = inputs[0], _in_f32(build, inputs[1])
    make = _Maker(build, ElementType.f32)
    batch, channels, *sizes = x.shape
    count = math.prod(grid.shape[1:-1])
    where = build.constant(np.asarray(2, np.int64))
    flat = reshape(build, grid, (batch, count, len(sizes)))
    parts = build.add(Split(num_splits=len(sizes)), flat, where)
    axes = []
    for size, part in zip(sizes, reversed(parts), strict=True):
        at = make.apply(Add(), reshape(build, part, (batch, count)), 1.0)
        if op.align_corners:
            place = make.apply(Multiply(), at, (size - 1) / 2)
        else:
            place = make.apply(Subtract(), make.apply(Multiply(), at, size / 2), 0.5)
        axes.append(_grid_taps(make, op, place, size))
    data = reshape(build, _in_f32(build, x), (batch, channels, math.prod(sizes)))
    y = _sum_of_taps(make, data, axes, sizes)
    if x.element_type is not ElementType.f32:
        y = build.one(Convert(destination_type=x.element_type), y)
    return [reshape(build, y, (batch, channels, *grid.shape[1:-1]))]


def _grid_taps(make: _Maker, op: GridSample, place: Value, size: int) -> Taps:
    build = make.build
    one = make.constant(np.ones(place.shape))
    if op.mode is GridMode.NEAREST:
        return [_padded(make, op, build.one(Round(), place), one, size)]
    low = build.one(Floor(), place)
    part = make.apply(Subtract(), place, low)
    rest = build.one(Subtract(), make.constant(1.0), part)
    if op.mode is GridMode.BILINEAR:
        weights, first = [rest, part], 0
    else:
        a = _CUBIC
        near, far = (1.0, 0.0, -(a + 3), a + 2), (-4 * a, 8 * a, -5 * a, a)
        weights = [
            make.polynomial(make.apply(Add(), part, 1.0), far),
            make.polynomial(part, near),
            make.polynomial(rest, near),
            make.polynomial(make.apply(Add(), rest, 1.0), far),
        ]
        first = -1
    return [
        _padded(make, op, make.apply(Add(), low, float(first + i)), weight, size)
        for i, weight in enumerate(weights)
    ]


def _padded(
    make: _Maker, op: GridSample, index: Value, weight: Value, size: int
) -> tuple[Value, Value]:
    """Move indices into the axis, or take away the weight of those outside."""
    build = make.build
    if op.padding_mode is GridPadding.ZEROS:
        inside = make.within(index, 0, size)
        return make.where(inside, index, 0.0), make.where(inside, weight, 0.0)
    if op.padding_mode is GridPadding.REFLECTION:
        last = size - 1 if op.align_corners else size
        period, top = (2 * last, 2 * last) if op.align_corners else (2 * size, 2 * size - 1)
        folded = make.apply(FloorMod(), index, float(max(period, 1)))
        mirrored = build.one(Subtract(), make.constant(float(top)), folded)
        index = build.one(Minimum(), folded, mirrored)
    return build.one(Clamp(min=0.0, max=float(size - 1)), index), weight


# -- DeformableConvolution ------------------------------------------------------------------------


@decomposes(DeformableConvolution, when=_is_plain)
def _deformable(build: Builder, op: DeformableConvolution, inputs: Sequence[Value]) -> list[Value]:
    x, offsets, w, *mask = (_in_f32(build, value) for value in inputs)
    make = _Maker(build, ElementType.f32)
    batch, channels, height, width = x.shape
    groups, taps = op.deformable_group, math.prod(w.shape[2:])
    rows, columns = offsets.shape[2:]
    count = taps * rows * columns
    data = reshape(build, x, (batch * groups, channels // groups, height * width))
    shifts = reshape(build, offsets, (batch * groups, taps, 2, rows * columns))
    where = build.constant(np.asarray(2, np.int64))
    places = []
    for part, grid in zip(
        build.add(Split(num_splits=2), shifts, where), _grids(op, x, w, rows, columns), strict=True
    ):
        flat = reshape(build, part, (batch * groups, count))
        places.append(make.apply(Add(), flat, grid.reshape(1, count)))
    soft = op.bilinear_interpolation_pad
    least = np.nextafter(np.float32(-1), np.float32(0)) if soft else 0.0
    inside = build.one(
        LogicalAnd(),
        make.within(places[0], float(least), height),
        make.within(places[1], float(least), width),
    )
    axes = [
        _deformable_taps(make, place, size, soft=soft)
        for place, size in zip(places, (height, width), strict=True)
    ]
    seen = make.where(inside, 1.0, 0.0)
    if mask:
        seen = build.one(Multiply(), seen, reshape(build, mask[0], (batch * groups, count)))
    sampled = _sum_of_taps(make, data, axes, (height, width))
    sampled = build.one(Multiply(), sampled, reshape(build, seen, (batch * groups, 1, count)))
    depth = channels // op.group * taps
    stacked = reshape(build, sampled, (batch, op.group, depth, rows * columns))
    matrix = reshape(build, w, (1, op.group, w.shape[0] // op.group, depth))
    product = reshape(
        build, build.one(MatMul(), matrix, stacked), (batch, w.shape[0], rows, columns)
    )
    if inputs[0].element_type is ElementType.f32:
        return [product]
    return build.add(Convert(destination_type=inputs[0].element_type), product)


def _grids(op: DeformableConvolution, x: Value, w: Value, rows: int, columns: int) -> list[Array]:
    """Return where the taps would read without offsets: [taps, rows * columns] per axis."""
    window = op.window(w.shape)
    begin, _ = window.pads(x.shape[2:])
    tap = np.indices(w.shape[2:]).reshape(2, -1)
    stops = np.indices((rows, columns)).reshape(2, -1)
    return [
        stops[i] * window.strides[i] - begin[i] + (tap[i] * window.dilations[i])[:, np.newaxis]
        for i in range(2)
    ]


def _deformable_taps(make: _Maker, place: Value, size: int, *, soft: bool) -> Taps:
    """Two neighbours; beyond the edge there is nothing when `soft`, else the edge again."""
    build = make.build
    low = build.one(Floor(), place)
    part = make.apply(Subtract(), place, low)
    rest = build.one(Subtract(), make.constant(1.0), part)
    taps = []
    for index, weight in ((low, rest), (make.apply(Add(), low, 1.0), part)):
        if soft:
            weight = make.where(make.within(index, 0, size), weight, 0.0)
        taps.append((build.one(Clamp(min=0.0, max=float(size - 1)), index), weight))
    return taps
