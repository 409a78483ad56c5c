"""Pooling with NumPy; windows are separable, so each axis is pooled on its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from polydevice.dtype import Array
from polydevice.ops.pooling import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    MaxPool,
    MaxPoolWithIndices,
    Pool,
)
from polydevice_cpu.algorithms.precision import compute_type, is_float, narrow
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.convolution import check_size

MANY_TAPS = 32
"""Above this NumPy's reduction of a view is faster than one pass over the array per tap."""


class _Axis:
    """How the window moves along one axis of the array."""

    def __init__(self, op: Pool, axis: int, shape: Sequence[int]) -> None:
        window = op.window
        self.axis = axis + 2
        self.size = shape[axis + 2]
        self.stride = window.strides[axis]
        self.dilation = window.dilations[axis]
        begin, end = window.pads(shape[2:])
        self.begin, self.end = begin[axis], end[axis]
        self.whole = op.kernel[axis]
        # Taps further behind meet nothing: a window of 640 on 3 elements took 10 ms with them.
        self.kernel = min(self.whole, -(-(self.begin + self.size + self.end) // self.dilation))
        (count,) = window.output(shape[2:])[axis : axis + 1]
        assert isinstance(count, int)
        self.count = count

    def padded(self, x: Array, value: object) -> Array:
        """Return x with padding, and more at the end where the last window sticks out."""
        reach = (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        end = max(self.end, reach - self.size - self.begin)
        if not self.begin and not end:
            return x
        widths = [(0, 0)] * x.ndim
        widths[self.axis] = (self.begin, end)
        check_size([size + sum(width) for size, width in zip(x.shape, widths, strict=True)], x)
        return np.pad(x, widths, constant_values=value)  # type: ignore[call-overload, no-any-return]

    def tap(self, padded: Array, tap: int) -> Array:
        """Return the elements that one tap of the kernel meets, for every stop."""
        start = tap * self.dilation
        part = [slice(None)] * padded.ndim
        part[self.axis] = slice(start, start + (self.count - 1) * self.stride + 1, self.stride)
        return padded[tuple(part)]

    def positions(self, tap: int) -> Array:
        """Return where in the unpadded input a tap falls, for every stop."""
        return np.arange(self.count) * self.stride + tap * self.dilation - self.begin

    def windows(self, padded: Array) -> Array:
        """Return a view with the taps of every stop as last axis."""
        extent = (self.kernel - 1) * self.dilation + 1
        view = np.moveaxis(sliding_window_view(padded, extent, self.axis), self.axis, -2)
        stops = view[..., : (self.count - 1) * self.stride + 1 : self.stride, :: self.dilation]
        return np.moveaxis(stops, -2, self.axis)

    def inside(self, low: int, high: int) -> Array:
        """Count the taps that fall on positions low <= p < high, for every stop."""
        start = self.positions(0)
        first = np.clip(-(-(low - start) // self.dilation), 0, self.kernel)
        last = np.clip(-(-(high - start) // self.dilation), 0, self.kernel)
        return np.asarray(np.maximum(last - first, 0))

    def along(self, vector: Array, rank: int) -> Array:
        """Lay a vector along this axis of an array of that rank."""
        return vector.reshape([-1 if i == self.axis else 1 for i in range(rank)])


def _axes(op: Pool, x: Array) -> list[_Axis]:
    return [_Axis(op, axis, x.shape) for axis in range(x.ndim - 2)]


def _empty_result(axes: Sequence[_Axis], x: Array) -> Array | None:
    sizes = [*x.shape[:2], *(axis.count for axis in axes)]
    return np.zeros(sizes, x.dtype) if math.prod(sizes) == 0 else None


def _lowest(x: Array) -> object:
    if is_float(x.dtype):
        return -np.inf
    return False if x.dtype == np.bool_ else np.iinfo(x.dtype).min


@implements(MaxPool)
def max_pool(op: MaxPool, x: Array) -> Array:
    """Padding is the type's lowest value."""
    axes = _axes(op, x)
    empty = _empty_result(axes, x)
    if empty is not None:
        return empty
    for axis in axes:
        padded = axis.padded(x, _lowest(x))
        if axis.kernel > MANY_TAPS:
            x = axis.windows(padded).max(axis=-1)
            continue
        best = axis.tap(padded, 0)
        for tap in range(1, axis.kernel):
            best = np.maximum(best, axis.tap(padded, tap))
        x = np.array(best) if best.base is not None else best
    return x


@implements(MaxPoolWithIndices)
def max_pool_with_indices(op: MaxPoolWithIndices, x: Array) -> tuple[Array, Array]:
    """Pool the last axis first and keep strictly larger elements, so that the first one wins."""
    kind = op.index_element_type.dtype
    axes = _axes(op, x)
    empty = _empty_result(axes, x)
    if empty is not None:
        return empty, empty.astype(kind)
    shape = x.shape
    index = np.zeros((1,) * x.ndim, np.int64)
    pitch = 1
    for axis in reversed(axes):
        x, index = _max_along(axis, x, index, pitch)
        pitch *= axis.size
    planes = np.arange(math.prod(shape[:2])).reshape(*shape[:2], *(1,) * len(axes)) * pitch
    start = op.axis % len(shape)
    flat = (index + planes) % max(math.prod(shape[start:]), 1)
    return x, flat.astype(kind)


def _max_along(axis: _Axis, x: Array, index: Array, pitch: int) -> tuple[Array, Array]:
    padded = axis.padded(x, _lowest(x))
    carried = np.broadcast_to(index, x.shape)
    carried = axis.padded(carried, 0)
    best: Array | None = None
    for tap in range(axis.kernel):
        place = axis.positions(tap)
        valid = axis.along((place >= 0) & (place < axis.size), x.ndim)
        value = axis.tap(padded, tap)
        where = (
            axis.tap(carried, tap) + axis.along(np.clip(place, 0, axis.size - 1), x.ndim) * pitch
        )
        if best is None:
            best, found, seen = np.array(value), np.array(where), np.array(valid)
            continue
        # NaN is taken as larger than everything, as np.maximum does; padding only until
        # something real was seen.
        better = valid & (~seen | (value > best) | ((value != value) & (best == best)))
        best = np.where(better, value, best)
        found = np.where(better, where, found)
        seen = seen | valid
    assert best is not None
    return best, found


@implements(AvgPool)
def avg_pool(op: AvgPool, x: Array) -> Array:
    """Sum along each axis, then divide by the number of elements that count."""
    axes = _axes(op, x)
    empty = _empty_result(axes, x)
    if empty is not None:
        return empty
    total = x.astype(compute_type(x.dtype), copy=False)
    for axis in axes:
        padded = axis.padded(total, 0)
        if axis.kernel > MANY_TAPS:
            total = axis.windows(padded).sum(axis=-1)
            continue
        part = np.array(axis.tap(padded, 0))
        for tap in range(1, axis.kernel):
            part += axis.tap(padded, tap)
        total = part
    divisor = np.ones((1,) * x.ndim, total.dtype)
    overhang = op.counts_overhang and any(axis.begin or axis.end for axis in axes)
    for axis in axes:
        if op.exclude_pad:
            counts = axis.inside(0, axis.size)
        elif overhang:
            counts = np.array(axis.whole)
        else:
            counts = axis.inside(-axis.begin, axis.size + axis.end)
        divisor = divisor * axis.along(counts, x.ndim).astype(total.dtype)
    return narrow(total / np.maximum(divisor, 1), x.dtype)


def _bins(size: int, count: int) -> list[tuple[int, int]]:
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


@implements(AdaptiveAvgPool)
def adaptive_avg_pool(_op: AdaptiveAvgPool, x: Array, output_shape: Array) -> Array:
    """Bins overlap when they do not divide the size; each axis has its own."""
    total = x.astype(compute_type(x.dtype), copy=False)
    for axis, count in enumerate(output_shape.reshape(-1), 2):
        parts = [
            np.take(total, range(first, last), axis).mean(axis, keepdims=True)
            for first, last in _bins(x.shape[axis], int(count))
        ]
        total = np.concatenate(parts, axis)
    return narrow(total, x.dtype)


@implements(AdaptiveMaxPool)
def adaptive_max_pool(op: AdaptiveMaxPool, x: Array, output_shape: Array) -> tuple[Array, Array]:
    """The last axis first, so that of equal elements the first in memory is found."""
    index = np.zeros(x.shape, np.int64)
    shape, pitch = x.shape, 1
    counts = [int(n) for n in output_shape.reshape(-1)]
    for axis in reversed(range(2, x.ndim)):
        values, places = [], []
        for first, last in _bins(shape[axis], counts[axis - 2]):
            part = np.take(x, range(first, last), axis)
            best = np.expand_dims(part.argmax(axis), axis)
            values.append(np.take_along_axis(part, best, axis))
            carried = np.take(index, range(first, last), axis)
            places.append(np.take_along_axis(carried, best, axis) + (best + first) * pitch)
        x, index = np.concatenate(values, axis), np.concatenate(places, axis)
        pitch *= shape[axis]
    return x, index.astype(op.index_element_type.dtype)
