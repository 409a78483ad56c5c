"""Interpolate and ONNX's Resize: one axis after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.interpolate import (
    Interpolate,
    Interpolate1,
    Interpolate4,
    InterpolateMode,
    Resize,
    ShapeCalculation,
    resized_shape,
)
from polydevice.ops.resampling import AxisTable, interpolate_table, resize_table
from polydevice.shape import normalize_axis
from polydevice_cpu.implement import implements


@implements(Interpolate1)
def interpolate_1(op: Interpolate1, x: Array, sizes: Array) -> Array:
    """Compute the newer version that is the same."""
    return interpolate(op.modern(x.ndim), x, sizes, np.array(op.axes, np.int64))


@implements(Interpolate4)
def interpolate_4(
    op: Interpolate4, x: Array, sizes: Array, scales: Array, axes: Array | None = None
) -> Array:
    """Compute the newest version with the input that counts."""
    by_sizes = op.shape_calculation_mode is ShapeCalculation.SIZES
    return interpolate(op.modern(), x, sizes if by_sizes else scales, axes)


@implements(Interpolate)
def interpolate(op: Interpolate, x: Array, target: Array, axes: Array | None = None) -> Array:
    """Pad, then resample each axis by its table."""
    places = _axes(x, axes)
    x = _padded(op, x)
    if op.shape_calculation_mode is ShapeCalculation.SIZES:
        shape = resized_shape(x.shape, places, [int(n) for n in target.reshape(-1)], None).static
        scales = [shape[a] / x.shape[a] if x.shape[a] else 1.0 for a in places]
    else:
        scales = [float(s) for s in target.reshape(-1)]
        shape = resized_shape(x.shape, places, None, scales).static
    if 0 in shape:
        return np.empty(shape, x.dtype)
    shrinks = any(scale < 1 for scale in scales)
    tables = []
    for axis, scale in zip(places, scales, strict=True):
        _check(x.shape[axis], shape[axis], axis)
        if x.shape[axis] and (shape[axis] != x.shape[axis] or scale != 1):
            tables.append(
                interpolate_table(op, axis, x.shape[axis], shape[axis], scale, shrinks=shrinks)
            )
    stepwise = op.mode in (InterpolateMode.BILINEAR_PILLOW, InterpolateMode.BICUBIC_PILLOW)
    away = op.mode is InterpolateMode.LINEAR
    return _resample(x, tables[::-1] if stepwise else tables, stepwise=stepwise, away=away)


@implements(Resize)
def resize(op: Resize, x: Array, target: Array, roi: Array | None = None) -> Array:
    """Resample each axis by its table; fill what lies outside the region."""
    places = _axes(x, None if op.axes is None else np.array(op.axes))
    if target.dtype.kind == "f":
        scales = [float(s) for s in target.reshape(-1)]
        shape = resized_shape(x.shape, places, None, scales).static
    else:
        sizes, scales = op.fitted(x.shape, [int(n) for n in target.reshape(-1)])
        shape = resized_shape(x.shape, places, sizes, None).static
    region = [0.0] * len(places) + [1.0] * len(places)
    if roi is not None and roi.size == len(region):
        region = [float(v) for v in roi.reshape(-1)]
    tables = []
    for i, (axis, scale) in enumerate(zip(places, scales, strict=True)):
        _check(x.shape[axis], shape[axis], axis)
        if x.shape[axis] and (shape[axis] != x.shape[axis] or scale != 1 or roi is not None):
            tables.append(
                resize_table(
                    op,
                    axis,
                    x.shape[axis],
                    shape[axis],
                    scale,
                    (region[i], region[i + len(places)]),
                )
            )
    y = _resample(x, tables)
    for table in tables:
        if table.outside is not None and table.outside.any():
            y[(slice(None),) * table.axis + (table.outside,)] = op.extrapolation_value
    return y


def _axes(x: Array, axes: Array | None) -> list[int]:
    if axes is None:
        return list(range(x.ndim))
    return [normalize_axis(int(axis), x.ndim) for axis in axes.reshape(-1)]


def _check(size: int, resized: int, axis: int) -> None:
    if size == 0 and resized:
        raise InferenceError(f"Interpolate: axis {axis} is empty and cannot become {resized} long")


def _padded(op: Interpolate, x: Array) -> Array:
    """Add the border of zeros."""
    shape = op.padded(x.shape)
    if list(x.shape) == shape:
        return x
    y = np.zeros([int(str(n)) for n in shape], x.dtype)
    begin = (*op.pads_begin, *[0] * x.ndim)
    y[tuple(slice(b, b + n) for b, n in zip(begin, x.shape, strict=False))] = x
    return y


def _resample(
    x: Array, tables: Sequence[AxisTable], *, stepwise: bool = False, away: bool = False
) -> Array:
    """Apply the tables in turn, in f32 or wider.

    `stepwise` rounds integers after each axis, `away` rounds halves away from zero.
    """
    dtype = x.dtype
    if all(table.weight is None for table in tables):
        for table in tables:
            x = np.take(x, table.index[:, 0], table.axis)
        return np.array(x) if not tables else x
    wide = np.float32 if dtype.itemsize < 4 or dtype == np.float32 else np.float64
    y = x.astype(np.float64 if stepwise and dtype.kind in "iu" else wide)
    for table in tables:
        y = _resample_axis(y, table)
        if stepwise and dtype.kind in "iu":
            y = _rounded(y, dtype, away=True).astype(y.dtype)
    return _rounded(y, dtype, away=away) if dtype.kind in "iu" else y.astype(dtype)


def _resample_axis(x: Array, table: AxisTable) -> Array:
    if table.weight is None:
        return np.take(x, table.index[:, 0], table.axis)
    behind = (1,) * (x.ndim - table.axis - 1)
    total: Array | None = None
    for tap in range(table.index.shape[1]):
        part = np.take(x, table.index[:, tap], table.axis)
        part *= table.weight[:, tap].astype(x.dtype).reshape(-1, *behind)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def _rounded(x: Array, dtype: np.dtype[Any], *, away: bool) -> Array:
    """Round, halves away from zero or to even, and saturate."""
    limits = np.iinfo(dtype)
    rounded = np.trunc(x + np.copysign(0.5, x)) if away else np.rint(x)
    return np.asarray(np.clip(rounded, limits.min, limits.max).astype(dtype))
