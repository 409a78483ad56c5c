"""Reductions with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.reduce import (
    ReduceL1,
    ReduceL2,
    ReduceLogicalAnd,
    ReduceLogicalOr,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    Reduction,
)
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.precision import compute_type, is_float, narrow
from polydevice_cpu.implement import implements

_AS_THEY_ARE = frozenset(map(np.dtype, (np.float32, np.float64, np.int64, np.uint64)))
"""Types that are summed in no other one."""

_add: Any = np.add.reduce  # what `sum` calls after a microsecond
_multiply: Any = np.multiply.reduce

Reduce = Callable[[Array, tuple[int, ...], bool], Any]
"""f(x, axes, keep_dims)"""


def _axes(x: Array, axes: Array) -> tuple[int, ...]:
    """Return the axes from the front; a scalar, of which OpenVINO takes 0 and -1, has none."""
    if not x.ndim:
        return ()
    if axes.size == 1:
        return (normalize_axis(axes.item(), x.ndim),)
    return tuple(sorted({normalize_axis(int(axis), x.ndim) for axis in axes.reshape(-1).tolist()}))


def _reduction(op: type[Reduction], function: Reduce) -> None:
    @implements(op)
    def apply(op: Reduction, x: Array, axes: Array) -> Array:
        if x.dtype in _AS_THEY_ARE:
            return narrow(np.asarray(function(x, _axes(x, axes), op.keep_dims)), x.dtype)
        kind = x.dtype if x.dtype == object else _sum_type(x)
        wide = x.astype(kind, copy=False)
        return _back(np.asarray(function(wide, _axes(x, axes), op.keep_dims)), x.dtype)


def _sum_type(x: Array) -> np.dtype[Any]:
    """Return f32 or f64 for floats; 64 bits for integers, whose low bits are kept at the end."""
    if x.dtype.kind == "u":
        return np.dtype(np.uint64)
    if x.dtype.kind in "ib" or not (is_float(x.dtype) or x.dtype.kind == "c"):
        return np.dtype(np.int64)
    return compute_type(x.dtype)


def _back(y: Array, dtype: np.dtype[Any]) -> Array:
    return y if y.dtype == object else narrow(y, dtype)


def _mean(x: Array, axes: tuple[int, ...], keep_dims: bool) -> Any:
    count = math.prod([x.shape[axis] for axis in axes])
    total = _add(x, axes, keepdims=keep_dims)
    if x.dtype.kind in "iu":
        return np.trunc(total / np.float64(max(count, 1)))
    return total / x.dtype.type(count)


LARGE = 1 << 63

FEW, MANY = 4, 256
"""Up to so many columns are added one by one, of from so many numbers on: NumPy goes through rows,
which takes 16 us of 1,500 with 3 numbers, and 2 this way, to the same sums."""


def _sum(x: Array, axes: tuple[int, ...], keep_dims: bool) -> Any:
    is_short = axes == (x.ndim - 1,) and 2 <= x.shape[-1] <= FEW and x.size >= MANY
    if not is_short or x.dtype.kind not in "fiu":
        return _add(x, axes, keepdims=keep_dims)
    y = x[..., 0] + x[..., 1]
    for column in range(2, x.shape[-1]):
        y += x[..., column]
    return y[..., np.newaxis] if keep_dims else y


_reduction(ReduceSum, _sum)


def _product(x: Array, axes: tuple[int, ...], keep_dims: bool) -> Any:
    if x.dtype == np.int64 and x.ndim == 1 and x.size <= FEW and axes:  # sizes: half of the time
        value = math.prod(x.tolist())
        if -LARGE <= value < LARGE:
            return np.array([value] if keep_dims else value, np.int64)
    return _multiply(x, axes, keepdims=keep_dims)


_reduction(ReduceProd, _product)
_reduction(ReduceMean, _mean)
_reduction(ReduceL1, lambda x, axes, keep: _add(np.abs(x), axes, keepdims=keep))
_reduction(ReduceL2, lambda x, axes, keep: np.sqrt(_add(x * x, axes, keepdims=keep)))


def _limit(x: Array, largest: bool) -> Any:
    """Return what no element of the type exceeds (or is below): the result of no elements."""
    if x.size:
        return None  # to find it takes 3 us
    if is_float(x.dtype):
        return np.inf if largest else -np.inf
    if x.dtype == np.bool_:
        return largest
    info = np.iinfo(x.dtype)
    return info.max if largest else info.min


@implements(ReduceMax)
def reduce_max(op: ReduceMax, x: Array, axes: Array) -> Array:
    """NaN wins."""
    chosen = _axes(x, axes)
    return np.asarray(x.max(axis=chosen, keepdims=op.keep_dims, initial=_limit(x, False)))


@implements(ReduceMin)
def reduce_min(op: ReduceMin, x: Array, axes: Array) -> Array:
    """NaN wins."""
    chosen = _axes(x, axes)
    return np.asarray(x.min(axis=chosen, keepdims=op.keep_dims, initial=_limit(x, True)))


@implements(ReduceLogicalAnd)
def reduce_logical_and(op: ReduceLogicalAnd, x: Array, axes: Array) -> Array:
    """True over no elements."""
    return np.asarray(x.all(axis=_axes(x, axes), keepdims=op.keep_dims)).astype(x.dtype, copy=False)


@implements(ReduceLogicalOr)
def reduce_logical_or(op: ReduceLogicalOr, x: Array, axes: Array) -> Array:
    """False over no elements."""
    return np.asarray(x.any(axis=_axes(x, axes), keepdims=op.keep_dims)).astype(x.dtype, copy=False)
