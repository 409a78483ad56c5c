# ruff: noqa: ARG001 - every decomposition takes builder, operation and inputs
"""What running sums and Fourier transforms are made of: shifted additions, and matrix products.

A transform of n points as a product costs n^2; below `MAX_POINTS` that is still one quick kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from polydevice.dtype import Array
from polydevice.ops.arithmetic import Add, Divide, FloorMod, Multiply
from polydevice.ops.comparison import Equal, Greater
from polydevice.ops.convolution import ConvolutionBackpropData
from polydevice.ops.cumulative import CumProd
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
from polydevice.ops.slice import Slice
from polydevice.ops.transpose import Transpose
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

MAX_POINTS = 2048


def _shifted(build: Builder, x: Value, axis: int, by: int, *, reverse: bool, fill: int) -> Value:
    """Move a value along an axis, away from where sums start; `fill` takes the free places."""
    size = x.shape[axis]
    none, pads = [0] * x.rank, [0] * x.rank
    pads[axis] = by
    first = by if reverse else 0
    filler = build.constant(np.asarray(fill, x.element_type.dtype), x.element_type)
    begin, end = (build.constant(np.array(p, np.int64)) for p in (none, pads))
    if not reverse:
        begin, end = end, begin
    padded = build.one(Pad(), x, begin, end, filler)
    limits = [build.constant(np.array([v], np.int64)) for v in (first, first + size, 1, axis)]
    return build.one(Slice(), padded, *limits)


@decomposes(CumSum, CumProd)
def _cumulative(build: Builder, op: CumSum | CumProd, inputs: Sequence[Value]) -> list[Value]:
    """An axis that is known at inference only: compute all, and choose."""
    x = inputs[0]
    if x.elements == 0:
        return [x]
    if len(inputs) < 2:
        return [_along_axis(build, op, x, 0)]
    if inputs[1].constant is not None:
        return [_along_axis(build, op, x, _numbers(inputs[1:2])[0] % x.rank)]
    kind = inputs[1].element_type
    rank = build.constant(np.asarray(x.rank, kind.dtype), kind)
    axis = build.one(FloorMod(), reshape(build, inputs[1], ()), rank)
    y = _along_axis(build, op, x, 0)
    for candidate in range(1, x.rank):
        number = build.constant(np.asarray(candidate, kind.dtype), kind)
        chosen = build.one(Equal(), axis, number)
        y = build.one(Select(), chosen, _along_axis(build, op, x, candidate), y)
    return [y]


def _along_axis(build: Builder, op: CumSum | CumProd, x: Value, axis: int) -> Value:
    """Add the value moved by 1, 2, 4… places: log2(n) additions (or multiplications)."""
    join, fill = (Add(), 0) if isinstance(op, CumSum) else (Multiply(), 1)
    if op.exclusive:
        x = _shifted(build, x, axis, 1, reverse=op.reverse, fill=fill)
    by = 1
    while by < x.shape[axis]:
        moved = _shifted(build, x, axis, by, reverse=op.reverse, fill=fill)
        x = build.one(join, x, moved)
        by *= 2
    return x


def _is_small(op: FourierTransform, inputs: Sequence[Value]) -> bool:
    if any(value.constant is None for value in inputs[1:]) or inputs[0].elements == 0:
        return False
    places, sizes = _sizes(op, inputs)
    points = [*sizes, *(inputs[0].shape[place] for place in places)]
    return max(points, default=0) <= MAX_POINTS


def _sizes(op: FourierTransform, inputs: Sequence[Value]) -> tuple[list[int], list[int]]:
    """Return the axes, and how many points each is transformed with."""
    x = inputs[0]
    places = op.axes_of([int(a) for a in np.asarray(inputs[1].constant).reshape(-1)], x.rank)
    sizes = [x.shape[place] for place in places]
    if isinstance(op, IRDFT) and sizes:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if len(inputs) > 2:
        asked = [int(n) for n in np.asarray(inputs[2].constant).reshape(-1)]
        sizes = [size if n == -1 else n for size, n in zip(sizes, asked, strict=True)]
    return places, sizes


@decomposes(DFT, IDFT, RDFT, IRDFT, when=_is_small)
def _fourier(build: Builder, op: Any, inputs: Sequence[Value]) -> list[Value]:
    x = inputs[0]
    places, sizes = _sizes(op, inputs)
    order = list(zip(places, sizes, strict=True))
    real_axis = order.pop() if isinstance(op, (RDFT, IRDFT)) and order else None
    if isinstance(op, RDFT) and real_axis is not None:
        place, n = real_axis
        x = _along(build, x, place, _real_matrix(x.shape[place], n), pairs_in=False)
    sign = 1 if isinstance(op, (IDFT, IRDFT)) else -1
    for place, n in order:
        x = _along(build, x, place, _complex_matrix(x.shape[place], n, sign))
    if isinstance(op, IRDFT) and real_axis is not None:
        place, n = real_axis
        x = _along(build, x, place, _inverse_real_matrix(x.shape[place], n), pairs_out=False)
    return [x]


def _along(
    build: Builder, x: Value, axis: int, matrix: Array, *, pairs_in: bool = True,
    pairs_out: bool = True,
) -> Value:  # fmt: skip
    """Multiply the points of an axis (and their two parts) with a matrix."""
    signal = x.rank - 1 if pairs_in else x.rank
    rest = [i for i in range(signal) if i != axis]
    order = [*rest, axis, *([signal] if pairs_in else [])]
    moved = _transposed(build, x, order)
    rows = [x.shape[i] for i in rest]
    flat = reshape(build, moved, (*rows, matrix.shape[0]))
    kind = x.element_type
    product = build.one(MatMul(), flat, build.constant(matrix.astype(kind.dtype), kind))
    points = matrix.shape[1] // 2 if pairs_out else matrix.shape[1]
    tail = (points, 2) if pairs_out else (points,)
    back = [rest.index(i) if i != axis else signal - 1 for i in range(signal)]
    return _transposed(
        build, reshape(build, product, (*rows, *tail)), [*back, *([signal] if pairs_out else [])]
    )


def _transposed(build: Builder, x: Value, order: Sequence[int]) -> Value:
    if list(order) == sorted(order):
        return x
    return build.one(Transpose(), x, build.constant(np.array(order, np.int64)))


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


def _numbers(values: Sequence[Value]) -> list[int]:
    return [int(np.asarray(v.constant).reshape(-1)[0]) for v in values]


def _is_framed(op: STFT, inputs: Sequence[Value]) -> bool:
    if inputs[2].constant is None or inputs[3].constant is None:
        return False
    return _numbers(inputs[2:3])[0] <= MAX_POINTS


@decomposes(STFT, when=_is_framed)
def _stft(build: Builder, op: STFT, inputs: Sequence[Value]) -> list[Value]:
    """Gather the frames, weight them, and transform them all by one product."""
    signal, window = inputs[:2]
    length, hop = _numbers(inputs[2:4])
    frames = (signal.shape[-1] - length) // hop + 1
    places = np.arange(frames)[:, np.newaxis] * hop + np.arange(length)
    axis = build.constant(np.asarray(signal.rank - 1, np.int64))
    cut = build.one(Gather(), signal, build.constant(places.astype(np.int32)), axis)
    window = _centred(build, window, length)
    weighted = build.one(Multiply(), cut, window)
    kind = signal.element_type
    matrix = build.constant(_real_matrix(length, length).astype(kind.dtype), kind)
    spectra = build.one(MatMul(), weighted, matrix)
    result = reshape(build, spectra, (*signal.shape[:-1], frames, length // 2 + 1, 2))
    if op.transpose_frames:
        order = [*range(signal.rank - 1), signal.rank, signal.rank - 1, signal.rank + 1]
        result = _transposed(build, result, order)
    return [result]


def _is_known(op: ISTFT, inputs: Sequence[Value]) -> bool:
    if any(value.constant is None for value in inputs[2:]) or inputs[0].elements == 0:
        return False
    return _numbers(inputs[2:3])[0] <= MAX_POINTS


@decomposes(ISTFT, when=_is_known)
def _istft(build: Builder, op: ISTFT, inputs: Sequence[Value]) -> list[Value]:
    """Transform back by a product; a transposed convolution with ones adds the frames up."""
    x = inputs[0]
    length, hop = _numbers(inputs[2:4])
    bins, count = x.shape[-3:-1]
    batch, kind = x.elements // (bins * 2 * count), x.element_type

    def constant(array: Array) -> Value:
        return build.constant(array.astype(kind.dtype), kind)

    signal = reshape(build, x, (batch, bins, count, 2))
    pairs = reshape(build, _transposed(build, signal, [0, 2, 1, 3]), (batch, count, 2 * bins))
    scale = np.sqrt(length) if op.normalized else 1.0
    frames = build.one(MatMul(), pairs, constant(_inverse_real_matrix(bins, length) * scale))
    window = _centred(build, inputs[1], length)
    weighted = _transposed(build, build.one(Multiply(), frames, window), [0, 2, 1])
    squares = build.one(Multiply(), window, window)
    spread = build.one(
        Multiply(), reshape(build, squares, (1, length, 1)), constant(np.ones((1, 1, count)))
    )
    add_up = ConvolutionBackpropData(strides=(hop,))
    ones = constant(np.eye(length).reshape(length, 1, length))
    total, norm = build.one(add_up, weighted, ones), build.one(add_up, spread, ones)
    least = ml_dtypes.finfo(kind.dtype).tiny  # type: ignore[no-untyped-call]  # has no types
    covered = build.one(Greater(), norm, constant(np.asarray(least)))
    divisor = build.one(Select(), covered, norm, constant(np.asarray(1.0)))
    y = build.one(Divide(), total, divisor)
    return [_trimmed(build, op, y, length, inputs, x.shape[:-3])]


def _centred(build: Builder, window: Value, length: int) -> Value:
    """Fill a window up to the length of a frame, at both ends."""
    missing = length - window.shape[0]
    if not missing:
        return window
    pads = (np.array([p], np.int64) for p in (missing // 2, missing - missing // 2))
    zero = build.constant(np.zeros((), window.element_type.dtype), window.element_type)
    return build.one(Pad(), window, *map(build.constant, pads), zero)


def _trimmed(
    build: Builder, op: ISTFT, y: Value, length: int, inputs: Sequence[Value],
    batch: Sequence[int],
) -> Value:  # fmt: skip
    """Drop half a frame at the ends, or cut and fill up to the length that was asked for."""
    covered = y.shape[2]
    first = length // 2 if op.center else 0
    wanted = _numbers(inputs[4:5])[0] if len(inputs) > 4 else covered - 2 * first
    last = min(first + wanted, covered)
    if (first, last) != (0, covered):
        limits = [build.constant(np.array([v], np.int64)) for v in (first, last, 1, 2)]
        y = build.one(Slice(), y, *limits)
    if wanted > last - first:
        pads = (np.array([0, 0, p], np.int64) for p in (0, wanted - last + first))
        zero = build.constant(np.zeros((), y.element_type.dtype), y.element_type)
        y = build.one(Pad(), y, *map(build.constant, pads), zero)
    return reshape(build, y, (*batch, wanted))
