"""Interpolate and ONNX's Resize: one axis after the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polydevice.bounds import current_bounds
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
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.resampling import taps
from polydevice_cpu.implement import implements
from polydevice_cpu.onednn.engine import address_of

_SLICE, _RUN = 4096, 64
"""Elements across an axis, and of them side by side, from which on it is resampled slice by slice.

Slices stay in a cache: 64x64x24 to 256x256, cubic, took 4.8 instead of 7.5 ms (one thread, EPYC).
"""


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
    x = _padded(op, x)
    found = _kept(interpolate_tables, op, x.shape, target, axes)
    stepwise = op.mode in (InterpolateMode.BILINEAR_PILLOW, InterpolateMode.BICUBIC_PILLOW)
    return _resample(x, found, stepwise=stepwise, away=op.mode is InterpolateMode.LINEAR)


@implements(Resize)
def resize(op: Resize, x: Array, target: Array, roi: Array | None = None) -> Array:
    """Resample each axis by its table; fill what lies outside the region."""
    found = _kept(resize_tables, op, x.shape, target, roi)
    y = _resample(x, found)
    for table in found.tables:
        if table.outside is not None and table.outside.any():
            y[(slice(None),) * table.axis + (table.outside,)] = op.extrapolation_value
    return y


class _Resampling:
    """Tables of axes, and the code that adds up by them, of each that was asked for."""

    def __init__(self, tables: Sequence[AxisTable]) -> None:
        self.tables = tables
        self._codes: dict[tuple[int, tuple[int, ...]], Code] = {}

    def along(self, x: Array, table: AxisTable) -> Array:
        """Return x resampled along an axis."""
        if x.dtype != np.float32 or table.weight is None or not has_avx512() or not x.size:
            return _resample_axis(x, table)
        x, key = np.ascontiguousarray(x), (table.axis, x.shape)
        code = self._codes.get(key)
        if code is None:
            if len(self._codes) >= _MOST_CODES:
                self._codes.clear()
            found = taps.Table(table.index, table.weight)
            code = self._codes[key] = taps.code_of(x.shape, table.axis, found, 1)
        y = np.empty(
            (*x.shape[: table.axis], len(table.index), *x.shape[table.axis + 1 :]), x.dtype
        )
        code.bound((address_of(x), address_of(y)))()
        return y


_KEPT_LENGTH, _MOST_CODES = 1024, 8
"""Axes up to here are kept with their tables, which take 128 KB each at most; and code for so many
shapes, which takes three quarters of that."""


def _kept(
    make: Callable[..., list[AxisTable]],
    op: Interpolate | Resize,
    sizes: tuple[int, ...],
    *numbers: Array | None,
) -> _Resampling:
    """Return tables that are made once for an operation, its sizes and what else they follow from.

    To make them takes 20 to 80 us, as long as to resample pictures of a few thousand elements.
    """
    given = [each for each in numbers if each is not None and each.dtype.kind in "iu"]
    longest = max(max(sizes, default=0), *(int(each.max(initial=0)) for each in given), 0)
    if longest > _KEPT_LENGTH:
        return _Resampling(make(op, sizes, *numbers))
    told = tuple(
        None if each is None else (each.dtype.str, *each.ravel().tolist()) for each in numbers
    )
    return _made(make, op, sizes, told)


@functools.lru_cache(maxsize=64)
def _made(
    make: Callable[..., list[AxisTable]],
    op: Interpolate | Resize,
    sizes: tuple[int, ...],
    told: tuple[tuple[Any, ...] | None, ...],
) -> _Resampling:
    numbers = [None if each is None else np.array(each[1:], each[0]) for each in told]
    return _Resampling(make(op, sizes, *numbers))


def interpolate_tables(
    op: Interpolate, sizes: Sequence[int], target: Array, axes: Array | None = None
) -> list[AxisTable]:
    """Return the tables of the axes that change, for an input of these sizes, pads included."""
    places = _axes(len(sizes), axes)
    if op.shape_calculation_mode is ShapeCalculation.SIZES:
        shape = resized_shape(sizes, places, [int(n) for n in target.reshape(-1)], None).static
        scales = [shape[a] / sizes[a] if sizes[a] else 1.0 for a in places]
    else:
        scales = [float(s) for s in target.reshape(-1)]
        shape = resized_shape(sizes, places, None, scales).static
    shrinks = any(scale < 1 for scale in scales)
    tables = []
    for axis, scale in zip(places, scales, strict=True):
        _check(sizes[axis], shape[axis], axis)
        if sizes[axis] and (shape[axis] != sizes[axis] or scale != 1):
            tables.append(
                interpolate_table(op, axis, sizes[axis], shape[axis], scale, shrinks=shrinks)
            )
    return tables


def resize_tables(
    op: Resize, sizes: Sequence[int], target: Array, roi: Array | None = None
) -> list[AxisTable]:
    """Return the tables of the axes that change, or of all axes with a region of interest."""
    places = _axes(len(sizes), None if op.axes is None else np.array(op.axes))
    if target.dtype.kind == "f":
        scales = [float(s) for s in target.reshape(-1)]
        shape = resized_shape(sizes, places, None, scales).static
    else:
        wanted, scales = op.fitted(sizes, [int(n) for n in target.reshape(-1)])
        shape = resized_shape(sizes, places, wanted, None).static
    region = [0.0] * len(places) + [1.0] * len(places)
    if roi is not None and roi.size == len(region):
        region = [float(v) for v in roi.reshape(-1)]
    tables = []
    for i, (axis, scale) in enumerate(zip(places, scales, strict=True)):
        _check(sizes[axis], shape[axis], axis)
        if sizes[axis] and (shape[axis] != sizes[axis] or scale != 1 or roi is not None):
            part = region[i], region[i + len(places)]
            tables.append(resize_table(op, axis, sizes[axis], shape[axis], scale, part))
    return tables


def _axes(rank: int, axes: Array | None) -> list[int]:
    if axes is None:
        return list(range(rank))
    return [normalize_axis(int(axis), rank) for axis in axes.reshape(-1)]


def _check(size: int, resized: int, axis: int) -> None:
    if size == 0 and resized:
        raise InferenceError(f"Interpolate: axis {axis} is empty and cannot become {resized} long")


def _padded(op: Interpolate, x: Array) -> Array:
    """Add the border of zeros."""
    shape = op.padded(x.shape)
    if list(x.shape) == shape:
        return x
    sizes = [int(str(n)) for n in shape]
    current_bounds().admit(math.prod(sizes) * x.itemsize, op.type)
    y = np.zeros(sizes, x.dtype)
    begin = (*op.pads_begin, *[0] * x.ndim)
    y[tuple(slice(b, b + n) for b, n in zip(begin, x.shape, strict=False))] = x
    return y


def _resample(x: Array, found: _Resampling, *, stepwise: bool = False, away: bool = False) -> Array:
    """Apply the tables in turn, in f32 or wider.

    `stepwise` rounds integers after each axis, the last one first, `away` rounds halves away from
    zero.
    """
    dtype, tables = x.dtype, found.tables[::-1] if stepwise else found.tables
    if all(table.weight is None for table in tables):
        for table in tables:
            x = np.take(x, table.index[:, 0], table.axis)
        return np.array(x) if not tables else x
    wide = np.float32 if dtype.itemsize < 4 or dtype == np.float32 else np.float64
    y = x.astype(np.float64 if stepwise and dtype.kind in "iu" else wide, copy=False)
    if dtype.kind not in "iu":  # what grows least first, of equals the axis that lies closest
        tables = sorted(tables, key=lambda each: (len(each.index) / x.shape[each.axis], -each.axis))
    for table in tables:
        y = found.along(y, table)
        if stepwise and dtype.kind in "iu":
            y = _rounded(y, dtype, away=True).astype(y.dtype)
    return _rounded(y, dtype, away=away) if dtype.kind in "iu" else y.astype(dtype, copy=False)


def _resample_axis(x: Array, table: AxisTable) -> Array:
    if table.weight is None:
        return np.take(x, table.index[:, 0], table.axis)
    run = math.prod(x.shape[table.axis + 1 :])
    if run >= _RUN and run * math.prod(x.shape[: table.axis]) >= _SLICE:
        return _resample_slices(x, table)
    behind = (1,) * (x.ndim - table.axis - 1)
    total: Array | None = None
    for tap in range(table.index.shape[1]):
        part = np.take(x, table.index[:, tap], table.axis)
        part *= table.weight[:, tap].astype(x.dtype).reshape(-1, *behind)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def _resample_slices(x: Array, table: AxisTable) -> Array:
    """Sum up one slice across the axis after the other, while it is in the core's cache."""
    assert table.weight is not None
    weight = table.weight.astype(x.dtype)
    sizes = [*x.shape]
    sizes[table.axis] = len(weight)
    result = np.empty(sizes, x.dtype)
    source, target = (np.moveaxis(each, table.axis, 0) for each in (x, result))
    room = np.empty(target.shape[1:], x.dtype)
    for slice_, index, weights in zip(target, table.index.tolist(), weight, strict=True):
        np.multiply(source[index[0]], weights[0], out=slice_)
        for tap, factor in zip(index[1:], weights[1:], strict=True):
            slice_ += np.multiply(source[tap], factor, out=room)
    return result


def _rounded(x: Array, dtype: np.dtype[Any], *, away: bool) -> Array:
    """Round, halves away from zero or to even, and saturate."""
    limits = np.iinfo(dtype)
    rounded = np.trunc(x + np.copysign(0.5, x)) if away else np.rint(x)
    return np.asarray(np.clip(rounded, limits.min, limits.max).astype(dtype))
