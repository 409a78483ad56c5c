"""What Fourier transforms are made of: matrix products; running sums are shifted additions.

A transform of n points as a product costs n²; below `MAX_POINTS` that is still one quick product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from polydevice.dtype import Array
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Divide, Multiply
from polydevice.ops.comparison import Greater
from polydevice.ops.convolution import ConvolutionBackpropData
from polydevice.ops.gather import Gather
from polydevice.ops.matmul import MatMul
from polydevice.ops.pad import Pad
from polydevice.ops.select import Select
from polydevice.ops.signal import (
    DFT,
    IDFT,
    IRDFT,
    ISTFT,
    RDFT,
    STFT,
    CumSum,
    FourierTransform,
)
from polydevice.rewrites.decompose.cumulative import running
from polydevice.rewrites.facts import array_of, count_of, is_known, numbers_of, rank_of, shape_of
from polydevice.rewrites.rule import decomposes

MAX_POINTS = 2048


def _is_small(op: FourierTransform, inputs: Sequence[Port]) -> bool:
    if any(not is_known(value) for value in inputs[1:]) or count_of(inputs[0]) == 0:
        return False
    places, sizes = _sizes(op, inputs)
    points = [*sizes, *(shape_of(inputs[0])[place] for place in places)]
    return max(points, default=0) <= MAX_POINTS


def _sizes(op: FourierTransform, inputs: Sequence[Port]) -> tuple[list[int], list[int]]:
    """Return the axes, and how many points each is transformed with."""
    x = inputs[0]
    places = op.axes_of([int(a) for a in array_of(inputs[1]).reshape(-1)], rank_of(x))
    sizes = [shape_of(x)[place] for place in places]
    if isinstance(op, IRDFT) and sizes:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if len(inputs) > 2:
        asked = [int(n) for n in array_of(inputs[2]).reshape(-1)]
        sizes = [size if n == -1 else n for size, n in zip(sizes, asked, strict=True)]
    return places, sizes


@decomposes(CumSum)
def _cum_sum(build: Emitter, op: CumSum, inputs: Sequence[Port]) -> Sequence[Port]:
    """Add shifted values."""
    return running(build, op, inputs)


@decomposes(DFT, IDFT, RDFT, IRDFT, where=_is_small)
def _fourier(build: Emitter, op: Any, inputs: Sequence[Port]) -> list[Port]:
    x = inputs[0]
    places, sizes = _sizes(op, inputs)
    order = list(zip(places, sizes, strict=True))
    real_axis = order.pop() if isinstance(op, (RDFT, IRDFT)) and order else None
    if isinstance(op, RDFT) and real_axis is not None:
        place, n = real_axis
        x = _along(build, x, place, _real_matrix(shape_of(x)[place], n), pairs_in=False)
    sign = 1 if isinstance(op, (IDFT, IRDFT)) else -1
    for place, n in order:
        x = _along(build, x, place, _complex_matrix(shape_of(x)[place], n, sign))
    if isinstance(op, IRDFT) and real_axis is not None:
        place, n = real_axis
        x = _along(build, x, place, _inverse_real_matrix(shape_of(x)[place], n), pairs_out=False)
    return [x]


def _along(
    build: Emitter, x: Port, axis: int, matrix: Array, *, pairs_in: bool = True,
    pairs_out: bool = True,
) -> Port:  # fmt: skip
    """Multiply the points of an axis (and their two parts) with a matrix."""
    signal = rank_of(x) - 1 if pairs_in else rank_of(x)
    rest = [i for i in range(signal) if i != axis]
    order = [*rest, axis, *([signal] if pairs_in else [])]
    moved = build.transpose(x, order)
    rows = [shape_of(x)[i] for i in rest]
    flat = build.reshape(moved, (*rows, matrix.shape[0]))
    kind = x.element_type
    product = build.emit(MatMul(), flat, build.value(matrix, kind))
    points = matrix.shape[1] // 2 if pairs_out else matrix.shape[1]
    tail = (points, 2) if pairs_out else (points,)
    back = [rest.index(i) if i != axis else signal - 1 for i in range(signal)]
    return build.transpose(
        build.reshape(product, (*rows, *tail)), [*back, *([signal] if pairs_out else [])]
    )


def _complex_matrix(given: int, n: int, sign: int) -> Array:
    """[given * 2, n * 2]: from pairs to pairs; the inverse divides by n."""
    used = np.arange(given) < n
    w = np.exp(sign * 2j * np.pi * np.outer(np.arange(given), np.arange(n)) / n) * used[:, None]
    w = w / n if sign > 0 else w
    blocks = np.array([[w.real, w.imag], [-w.imag, w.real]])  # [re/im in, re/im out, given, n]
    return np.ascontiguousarray(blocks.transpose(2, 0, 3, 1).reshape(2 * given, 2 * n))


def _real_matrix(given: int, n: int) -> Array:
    """[given, (n // 2 + 1) * 2]: from real numbers to the first half of their spectrum."""
    used = np.arange(given) < n
    w = np.exp(-2j * np.pi * np.outer(np.arange(given), np.arange(n // 2 + 1)) / n)
    w = w * used[:, None]
    return np.stack([w.real, w.imag], axis=-1).reshape(given, -1)


def _inverse_real_matrix(given: int, n: int) -> Array:
    """[given * 2, n]: from the first half of a spectrum to real numbers."""
    k = np.arange(given)
    twice = np.where((k == 0) | (2 * k == n), 1.0, 2.0) * (k <= n // 2) / n
    angle = 2 * np.pi * np.outer(k, np.arange(n)) / n
    parts = np.stack([np.cos(angle), -np.sin(angle)], axis=1) * twice[:, None, None]
    return parts.reshape(2 * given, n)


def _is_framed(op: STFT, inputs: Sequence[Port]) -> bool:
    if not is_known(inputs[2]) or not is_known(inputs[3]):
        return False
    return numbers_of(inputs[2])[0] <= MAX_POINTS


@decomposes(STFT, where=_is_framed)
def _stft(build: Emitter, op: STFT, inputs: Sequence[Port]) -> list[Port]:
    """Gather the frames, weight them, and transform them all by one product."""
    signal, window = inputs[:2]
    length, hop = (numbers_of(port)[0] for port in inputs[2:4])
    frames = (shape_of(signal)[-1] - length) // hop + 1
    places = np.arange(frames)[:, np.newaxis] * hop + np.arange(length)
    axis = build.value(np.asarray(rank_of(signal) - 1, np.int64))
    cut = build.emit(Gather(), signal, build.value(places.astype(np.int32)), axis)
    window = _centred(build, window, length)
    weighted = build.emit(Multiply(), cut, window)
    kind = signal.element_type
    matrix = build.value(_real_matrix(length, length), kind)
    spectra = build.emit(MatMul(), weighted, matrix)
    result = build.reshape(spectra, (*shape_of(signal)[:-1], frames, length // 2 + 1, 2))
    if op.transpose_frames:
        order = [
            *range(rank_of(signal) - 1),
            rank_of(signal),
            rank_of(signal) - 1,
            rank_of(signal) + 1,
        ]
        result = build.transpose(result, order)
    return [result]


def _is_known(op: ISTFT, inputs: Sequence[Port]) -> bool:
    if any(not is_known(value) for value in inputs[2:]) or count_of(inputs[0]) == 0:
        return False
    return numbers_of(inputs[2])[0] <= MAX_POINTS


@decomposes(ISTFT, where=_is_known)
def _istft(build: Emitter, op: ISTFT, inputs: Sequence[Port]) -> list[Port]:
    """Transform back by a product; a transposed convolution with ones adds the frames up."""
    x = inputs[0]
    length, hop = (numbers_of(port)[0] for port in inputs[2:4])
    bins, count = shape_of(x)[-3:-1]
    batch, kind = count_of(x) // (bins * 2 * count), x.element_type

    def constant(array: Array) -> Port:
        return build.value(array, kind)

    signal = build.reshape(x, (batch, bins, count, 2))
    pairs = build.reshape(build.transpose(signal, [0, 2, 1, 3]), (batch, count, 2 * bins))
    scale = np.sqrt(length) if op.normalized else 1.0
    frames = build.emit(MatMul(), pairs, constant(_inverse_real_matrix(bins, length) * scale))
    window = _centred(build, inputs[1], length)
    weighted = build.transpose(build.emit(Multiply(), frames, window), [0, 2, 1])
    squares = build.emit(Multiply(), window, window)
    spread = build.emit(
        Multiply(), build.reshape(squares, (1, length, 1)), constant(np.ones((1, 1, count)))
    )
    add_up = ConvolutionBackpropData(strides=(hop,))
    ones = constant(np.eye(length).reshape(length, 1, length))
    total, norm = build.emit(add_up, weighted, ones), build.emit(add_up, spread, ones)
    least = ml_dtypes.finfo(kind.dtype).tiny  # type: ignore[no-untyped-call]  # has no types
    covered = build.emit(Greater(), norm, constant(np.asarray(least)))
    divisor = build.emit(Select(), covered, norm, constant(np.asarray(1.0)))
    y = build.emit(Divide(), total, divisor)
    return [_trimmed(build, op, y, length, inputs, shape_of(x)[:-3])]


def _centred(build: Emitter, window: Port, length: int) -> Port:
    """Fill a window up to the length of a frame, at both ends."""
    missing = length - shape_of(window)[0]
    if not missing:
        return window
    begin = missing // 2
    return build.emit(Pad(), window, [begin], [missing - begin], build.like(0, window))


def _trimmed(
    build: Emitter, op: ISTFT, y: Port, length: int, inputs: Sequence[Port],
    batch: Sequence[int],
) -> Port:  # fmt: skip
    """Drop half a frame at the ends, or cut and fill up to the length that was asked for."""
    covered = shape_of(y)[2]
    first = length // 2 if op.center else 0
    wanted = numbers_of(inputs[4])[0] if len(inputs) > 4 else covered - 2 * first
    last = min(first + wanted, covered)
    if (first, last) != (0, covered):
        y = build.cut(y, 2, first, last)
    if wanted > last - first:
        y = build.emit(Pad(), y, [0, 0, 0], [0, 0, wanted - last + first], build.like(0, y))
    return build.reshape(y, (*batch, wanted))
