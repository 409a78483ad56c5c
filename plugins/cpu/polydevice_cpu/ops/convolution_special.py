"""Convolutions of single bits, and with sampling points that are inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.convolution import Convolution
from polydevice.ops.convolution_special import (
    BinaryConvolution,
    DeformableConvolution,
    binary_weights,
)
from polydevice.ops.grid_sample import GridMode, GridPadding
from polydevice.ops.window import PadType, Window
from polydevice.tensor import desc_of
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.resampling import filters
from polydevice_cpu.algorithms.by_machine.resampling.sampling import FAR, sample
from polydevice_cpu.algorithms.precision import narrow, widen
from polydevice_cpu.algorithms.product import product
from polydevice_cpu.implement import implements
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.ops.convolution import COLUMN_BYTES, convolution, pad
from polydevice_cpu.passes.convolution.deformable_convolution import DeformableColumns, has_columns


@implements(BinaryConvolution)
def binary_convolution(op: BinaryConvolution, x: Array, w: Array) -> Array:
    """Convolve -1 and 1; the padding is written out, since it may be either or 0."""
    signs = np.where(x > 0, np.float32(1), np.float32(-1))
    begin, end = op.window(w.shape).pads(x.shape[2:])
    padded = pad(signs, begin, end, op.pad_value)
    plain = Convolution(strides=op.strides, dilations=op.dilations, auto_pad=PadType.VALID)
    return narrow(np.asarray(convolution(plain, padded, binary_weights(w))), x.dtype)


@implements(DeformableConvolution)
def deformable_convolution(
    op: DeformableConvolution, x: Array, offsets: Array, w: Array, mask: Array | None = None
) -> Array:
    """Sample all taps of some output rows, and multiply them with the weights."""
    window = op.window(w.shape)
    batch, channels = x.shape[:2]
    rows, columns = (int(n) for n in window.output(x.shape[2:]) if isinstance(n, int))
    data, weights = widen(x), widen(w)
    taps = math.prod(w.shape[2:])
    groups, deformable = op.group, op.deformable_group
    shifts = widen(offsets).reshape(batch, deformable, taps, 2, rows, columns)
    factors = None if mask is None else widen(mask).reshape(batch, deformable, taps, rows, columns)
    result = np.zeros((batch, w.shape[0], rows, columns), data.dtype)
    if result.size == 0 or channels == 0:
        return narrow(result, x.dtype)
    matrix = weights.reshape(groups, w.shape[0] // groups, -1)
    kernel = (w.shape[2], w.shape[3])
    if data.dtype == np.float32 and has_columns(x.shape, offsets.shape, kernel):
        given = [data, *(widen(each) for each in (offsets, mask) if each is not None)]
        read = deformable_columns(DeformableColumns(op, kernel), *given)
        total = product(matrix, read.reshape(batch, groups, matrix.shape[2], -1))
        return narrow(total.reshape(result.shape), x.dtype)
    row_bytes = channels * taps * columns * data.itemsize * 4  # four corners are gathered
    step = max(1, COLUMN_BYTES // max(row_bytes, 1))
    for image in range(batch):
        for first in range(0, rows, step):
            part = slice(first, min(first + step, rows))
            shift = shifts[image, :, :, :, part]
            places = taps_places(window, x.shape[2:], shift.shape[3:], first)
            y, z = np.moveaxis(places + shift, 2, 0)
            sampled = _bilinear(op, data[image].reshape(deformable, -1, *x.shape[2:]), y, z)
            if factors is not None:
                sampled *= factors[image, :, np.newaxis, :, part]
            # [deformable, channels of one, taps, rows, columns] -> one matrix per group
            stacked = sampled.reshape(groups, matrix.shape[2], -1)
            total = product(matrix, stacked)
            result[image, :, part] = total.reshape(w.shape[0], -1, columns)
    return narrow(result, x.dtype)


@implements(DeformableColumns)
def deformable_columns(
    op: DeformableColumns, x: Array, offsets: Array, mask: Array | None = None
) -> Array:
    """Sample all taps of all rows by machine code."""
    given = [np.ascontiguousarray(each) for each in (x, offsets, mask) if each is not None]
    desc = op.infer([desc_of(each) for each in given])[0]
    assert desc.shape is not None
    result = np.empty(desc.shape.static, np.float32)
    code = columns_code(op, [each.shape for each in given])
    code.bound([address_of(each) for each in (*given, result)])()
    return result


def columns_code(op: DeformableColumns, shapes: Sequence[Sequence[int]]) -> Code:
    """Return code that is told where x, offsets, the mask if any, and the columns are."""
    (batch, channels, *sizes), (_, _, *spatial) = shapes[:2]
    groups, taps, points = op.convolution.deformable_group, math.prod(op.kernel), math.prod(spatial)
    form = filters.Form(
        *(GridMode.BILINEAR, GridPadding.ZEROS, len(sizes)),
        is_grid=False,
        is_cut=not op.convolution.bilinear_interpolation_pad,
        has_factors=len(shapes) > 2,
    )
    places = taps_places(op.convolution.window((0, 0, *op.kernel)), sizes, spatial)
    return filters.code_of(
        form,
        filters.Points(batch * groups, channels // groups, tuple(sizes), taps, points),
        openmp.thread_count(),
        places=places.astype(np.float32).reshape(taps, len(sizes), points),
    )


def taps_places(
    window: Window, sizes: Sequence[int], spatial: Sequence[int], first: int = 0
) -> Array:
    """Where taps read before anything shifts them, [taps, 2, rows, columns].

    Args:
        window: of two axes.
        sizes: of the picture.
        spatial: rows and columns of the result.
        first: the first row.
    """
    begin, _ = window.pads(sizes)
    kernel = [k for k in window.kernel if isinstance(k, int)]
    tap = np.indices(kernel).reshape(2, -1)
    places = np.empty((tap.shape[1], 2, *spatial))
    for axis, start in ((0, first), (1, 0)):
        place = (np.arange(spatial[axis]) + start) * window.strides[axis] - begin[axis]
        laid = place.reshape((-1, 1) if axis == 0 else (1, -1))
        places[:, axis] = laid + (tap[axis] * window.dilations[axis])[:, np.newaxis, np.newaxis]
    return places


def _bilinear(op: DeformableConvolution, data: Array, y: Array, x: Array) -> Array:
    """Sample [D, C, H, W] at [D, K, rows, columns] points: [D, C, K, rows, columns]."""
    height, width = data.shape[2:]
    soft = op.bilinear_interpolation_pad
    if data.dtype == np.float32:
        sampled = sample(data, *(_places(at, size, soft) for at, size in ((x, width), (y, height))))
        if sampled is not None:
            return sampled.reshape(*data.shape[:2], *y.shape[1:])
    least = -1 if soft else 0
    inside = ((y > least) if soft else (y >= 0)) & (y < height)
    inside &= ((x > least) if soft else (x >= 0)) & (x < width)
    y, x = np.where(inside, y, 0), np.where(inside, x, 0)
    top, left = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    flat = data.reshape(*data.shape[:2], 1, -1)
    total = np.zeros((*data.shape[:2], *y.shape[1:]), data.dtype)
    for down in (0, 1):
        for right in (0, 1):
            row, column = top + down, left + right
            weight = (y - top if down else 1 - (y - top)) * (x - left if right else 1 - (x - left))
            if soft:
                weight = weight * ((row >= 0) & (row < height) & (column >= 0) & (column < width))
            # Without padding the last row and column are repeated.
            place = np.clip(row, 0, height - 1) * width + np.clip(column, 0, width - 1)
            index = place.reshape(place.shape[0], 1, 1, -1)
            corner = np.take_along_axis(flat, index, axis=3).reshape(total.shape)
            total += corner * np.where(inside, weight, 0)[:, np.newaxis].astype(data.dtype)
    return total


def _places(at: Array, size: int, soft: bool) -> Array:
    """Return where points [D, …] are read, as `sample` takes them: [D, points]."""
    if not soft:  # nothing is outside by a part, and the last element is repeated
        at = np.where((at >= 0) & (at < size), np.minimum(at, size - 1), FAR)
    return np.ascontiguousarray(at, np.float32).reshape(len(at), -1)
