"""Convolutions with NumPy: patches and matrix products; a few taps are added one by one.

Memory beyond input and output is bounded by `COLUMN_BYTES` for any size of input.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.convolution import (
    Convolution,
    ConvolutionBackpropData,
    ConvolutionLike,
    GroupConvolution,
)
from polydevice.ops.window import Window
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice_cpu.algorithms.precision import narrow, product_type
from polydevice_cpu.algorithms.product import product
from polydevice_cpu.implement import implements

COLUMN_BYTES = 32 << 20
"""Largest buffer of patches; small enough for a last-level cache share, large enough for BLAS."""
PADDED_BYTES = 1 << 31
"""Largest copy that padding may make; more than that is nonsense in a model file."""


@implements(Convolution, GroupConvolution)
def convolution(op: Convolution, x: Array, w: Array) -> Array:
    """Pad, then multiply the weights with the patches under the window."""
    window = op.window(w.shape)
    desc = op.infer([TensorDesc(desc_of(x).element_type, Shape(x.shape)), desc_of(w)])[0]
    assert desc.shape is not None
    output = desc.shape.static
    kernel = tuple(w.shape[-window.rank :])
    grouped = _with_groups(op, w)
    kind = product_type(x, w, math.prod(grouped.shape[2:]))
    begin, end = window.pads(x.shape[2:])
    padded = pad(x.astype(kind, copy=False), begin, end)
    weights = grouped.astype(kind, copy=False)
    groups = weights.shape[0]
    data = padded.reshape(x.shape[0], groups, weights.shape[2], *padded.shape[2:])
    if weights.shape[2] == 1 and math.prod(kernel) <= 64:
        result = _tap_by_tap(data, weights, window, output[2:])
    else:
        result = _by_patches(data, weights, window, output[2:])
    return narrow(result.reshape(output), x.dtype)


def _with_groups(op: ConvolutionLike, w: Array) -> Array:
    return w if op.grouped else w[np.newaxis]


def pad(x: Array, begin: Sequence[int], end: Sequence[int], value: float = 0) -> Array:
    """Pad the spatial axes of [N, C, spatial...]; x itself when there is nothing to pad."""
    if not any(begin) and not any(end):
        return x
    widths = [(0, 0), (0, 0), *zip(begin, end, strict=True)]
    check_size([size + sum(width) for size, width in zip(x.shape, widths, strict=True)], x)
    return np.pad(x, widths, constant_values=value)


def check_size(shape: Sequence[int], like: Array) -> None:
    """Raise InferenceError before an array with such a padded shape is made, if it is too large."""
    if math.prod(shape) * like.itemsize > max(PADDED_BYTES, 16 * like.nbytes):
        raise InferenceError(
            f"padding {list(like.shape)} to {list(shape)} needs more than {PADDED_BYTES} bytes; "
            "use a smaller padding or stride"
        )


def _last(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make an index of the last axes."""
    return (Ellipsis, *index)


def taps(
    window: Window, output: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield each kernel position, and the padded input's elements it meets at all stops."""
    for position in itertools.product(*(range(k) for k in window.kernel if isinstance(k, int))):
        starts = [p * d for p, d in zip(position, window.dilations, strict=True)]
        yield (
            position,
            tuple(
                slice(start, start + (count - 1) * stride + 1 if count else start, stride)
                for start, count, stride in zip(starts, output, window.strides, strict=True)
            ),
        )


def _tap_by_tap(data: Array, weights: Array, window: Window, output: Sequence[int]) -> Array:
    """Depthwise: one multiplication and addition per tap, over whole planes."""
    batch, groups = data.shape[:2]
    result = np.zeros((batch, groups, weights.shape[1], *output), data.dtype)
    ones = (1,) * len(output)
    for position, part in taps(window, output):
        factor = weights[:, :, 0][_last(position)]
        result += data[_last(part)] * factor.reshape(1, *factor.shape, *ones)
    return result


def _by_patches(data: Array, weights: Array, window: Window, output: Sequence[int]) -> Array:
    """Copy patches [channels * taps, stops] of some images and rows, and multiply them."""
    batch, groups, channels = data.shape[:3]
    per_group, kernel = weights.shape[1], weights.shape[3:]
    result = np.zeros((batch, groups, per_group, *output), data.dtype)
    if result.size == 0 or channels == 0:
        return result
    matrix = weights.reshape(groups, per_group, -1)
    rank = len(output)
    strides = data.strides[3:]
    patches = as_strided(
        data,
        (batch, groups, channels, *kernel, *output),
        (
            *data.strides[:3],
            *(s * d for s, d in zip(strides, window.dilations, strict=True)),
            *(s * step for s, step in zip(strides, window.strides, strict=True)),
        ),
        writeable=False,
    )
    row = math.prod(patches.shape[1 : 3 + rank]) * math.prod(output[1:]) * data.itemsize
    rows = max(1, min(output[0], COLUMN_BYTES // max(row, 1)))
    images = max(1, COLUMN_BYTES // max(row * output[0], 1)) if rows == output[0] else 1
    for image in range(0, batch, images):
        for first in range(0, output[0], rows):
            stops = (slice(first, first + rows), *(slice(None),) * (rank - 1))
            block = patches[image : image + images][_last(stops)]
            columns = block.reshape(*block.shape[:2], matrix.shape[2], -1)
            total = product(matrix, columns)
            place = result[image : image + images, :, :, first : first + rows]
            place[...] = total.reshape(place.shape)
    return result


@implements(ConvolutionBackpropData)
def convolution_backprop_data(
    op: ConvolutionBackpropData, x: Array, w: Array, output_shape: Array | None = None
) -> Array:
    """Spread each input element over the output: one matrix product per tap, added in place."""
    window = op.window(w.shape)
    given = [TensorDesc(desc_of(x).element_type, Shape(x.shape)), desc_of(w)]
    desc = op.infer(given if output_shape is None else [*given, desc_of(output_shape)])[0]
    assert desc.shape is not None
    output = desc.shape.static
    grouped = _with_groups(op, w)
    kind = product_type(x, w, math.prod(grouped.shape[1:]) // max(grouped.shape[2], 1))
    weights = grouped.astype(kind, copy=False)
    groups, channels, per_group = weights.shape[:3]
    sizes = x.shape[2:]
    data = x.astype(kind, copy=False).reshape(x.shape[0], groups, channels, math.prod(sizes))
    begin = op.crops(sizes, window, output[2:])
    full = [
        max(b + o, (n - 1) * s + int(e) if isinstance(e, int) else 0)
        for b, o, n, s, e in zip(
            begin, output[2:], sizes, window.strides, window.extent, strict=True
        )
    ]
    check_size((x.shape[0], groups, per_group, *full), x)
    spread = np.zeros((x.shape[0], groups, per_group, *full), kind)
    if data.size:
        for position, part in taps(window, sizes):
            matrix = weights[_last(position)].swapaxes(1, 2)
            spread[_last(part)] += product(matrix, data).reshape(
                x.shape[0], groups, per_group, *sizes
            )
    kept = tuple(slice(b, b + o) for b, o in zip(begin, output[2:], strict=True))
    return narrow(np.ascontiguousarray(spread[_last(kept)]).reshape(output), x.dtype)
