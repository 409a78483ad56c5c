"""What rounds where it reads: products of 16 bits, and bytes by their range; NumPy answers."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from polydevice_gpu.rounded_ops import DynamicQuantize, RoundedConvolution, RoundedMatMul
from tests.gpu.kernel_cases.data import Cases, Data

LIMITS = ((-32768, 32767), (-17211, 48324), (0, 65535), (-65535, 0), (-5, 40000))
"""Of whole numbers, in i16 and u16 with various zero points."""


def _steps(data: Data, shape: tuple[int, ...], low: int, high: int, scale: float) -> Array:
    """Numbers near whole steps, some beyond the limits."""
    whole = data.random.integers(low, high + 1, shape)
    whole = np.where(data.random.random(shape) < 0.1, whole * 3, whole)
    near = whole + data.random.uniform(-0.4, 0.4, shape)
    return np.asarray(near * scale, np.float32)


def _whole(x: Array, low: int, high: int, scale: float) -> Array:
    return np.clip(np.rint(x.astype(float) / scale), low, high).astype(np.int64)


def _weights(data: Data, shape: tuple[int, ...]) -> Array:
    """Numbers of i8, or a little beyond."""
    most, kind = ((128, np.int8), (250, np.int16))[int(data.random.integers(2))]
    return np.asarray(data.random.integers(-most, most, shape), kind)


def matrices(data: Data) -> Iterator[OpCase]:
    scale = 0.0117
    for number, (rows, terms, columns) in enumerate(
        (((3, 7), 83, 33), ((1,), 5, 3), ((2, 3), 16, 48), ((25,), 97, 67), ((4,), 31, 130))
    ):
        (low, high), is_turned = LIMITS[number % len(LIMITS)], bool(number % 2)
        w = _weights(data, (columns, terms) if is_turned else (terms, columns))
        op = RoundedMatMul(transpose_b=is_turned, scale=scale, low=low, high=high)
        matrix = w.T if is_turned else w

        def expected(
            values: Sequence[Array], op: RoundedMatMul = op, matrix: Array = matrix
        ) -> list[Array]:
            whole = _whole(np.asarray(values[0]), op.low, op.high, op.scale)
            return [np.asarray(whole @ matrix.astype(np.int64), np.float32)]

        x = _steps(data, (*rows, terms), low, high, scale)
        yield OpCase(op, (x, w), expected, constants={1}, tolerance=(1e-7, 0))


def convolutions(data: Data) -> Iterator[OpCase]:
    scale = 0.0231
    for number, (x_shape, w_shape, strides, dilations, begin, end) in enumerate((
        ((2, 9, 5, 13), (17, 9, 3, 3), (1, 1), (1, 1), (1, 1), (1, 2)),
        ((1, 16, 6, 29), (20, 16, 1, 5), (2, 1), (1, 2), (0, 3), (1, 4)),
        ((1, 35, 4, 27), (70, 35, 2, 1), (1, 2), (2, 1), (0, 0), (1, 0)),
        ((3, 8, 31), (5, 8, 4), (3,), (1,), (2,), (1,)),
        ((1, 3, 3, 4, 9), (33, 3, 2, 2, 3), (1, 2, 1), (1, 1, 1), (1, 0, 1), (0, 1, 1)),
    )):  # fmt: skip
        low, high = LIMITS[number % len(LIMITS)]
        op = RoundedConvolution(*(strides, begin, end, dilations), scale=scale, low=low, high=high)
        w = _weights(data, w_shape)

        def expected(
            values: Sequence[Array], op: RoundedConvolution = op, w: Array = w
        ) -> list[Array]:
            whole = _whole(np.asarray(values[0]), op.low, op.high, op.scale)
            return [np.asarray(_sums(whole, w.astype(np.int64), op), np.float32)]

        x = _steps(data, x_shape, low, high, scale)
        yield OpCase(op, (x, w), expected, constants={1}, tolerance=(1e-7, 0))


def _sums(x: Array, w: Array, op: RoundedConvolution) -> Array:
    """The convolution by its definition, tap by tap."""
    borders = [(0, 0), (0, 0), *zip(op.pads_begin, op.pads_end, strict=True)]
    padded = np.pad(x, borders)
    sizes = [
        (size - (kernel - 1) * dilation - 1) // stride + 1
        for size, kernel, dilation, stride in zip(
            padded.shape[2:], w.shape[2:], op.dilations, op.strides, strict=True
        )
    ]
    total = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    for tap in np.ndindex(*w.shape[2:]):
        cut = tuple(
            slice(at * dilation, at * dilation + (size - 1) * stride + 1, stride)
            for at, dilation, size, stride in zip(tap, op.dilations, sizes, op.strides, strict=True)
        )
        total += np.einsum("bc...,oc->bo...", padded[(..., *cut)], w[(..., *tap)])
    return total


def quantised(data: Data) -> Iterator[OpCase]:
    def expected(values: Sequence[Array], op: DynamicQuantize) -> list[Array]:
        x = np.asarray(values[0], np.float32)
        low, high = np.float32(np.nanmin(x, initial=0)), np.float32(np.nanmax(x, initial=0))
        scale = (high - low) / np.float32(255) or np.float32(1)
        zero = np.rint(np.clip(-low / scale, 0, 255))
        whole = np.nan_to_num(np.clip(np.rint(x / scale) + zero, 0, 255))
        made = (whole - zero).astype(np.float32) if op.floats else whole.astype(np.uint8)
        fill = [np.full(op.fills, zero, np.uint8)] if op.fills else []
        return [made, np.asarray(scale), zero.astype(np.uint8), *fill]

    nothing = np.zeros((2, 3), np.float32)
    short = (data(2, 3, 19), data(67), 3 + abs(data(4, 5)), -abs(data(3, 40)), data(), nothing)
    cases = [(DynamicQuantize(), x) for x in (*short, data(3, 5, 7, 31), data(2, 1031))]
    for op in (DynamicQuantize(floats=True), DynamicQuantize(fills=20)):
        cases += [(op, data(2, 5, 61)), (op, data(3, 7, 11, 149))]
    halves = data.random.integers(-510, 511, 3001) / 2  # between two bytes, and beside
    halves = np.r_[-255 / 2, 255 / 2, halves, np.nextafter(np.float32(halves), np.float32(0))]
    wide = data(4099)
    wide[[7, 2048]] = np.nan, 0  # which widens no range, and becomes the least
    cases += [(DynamicQuantize(), halves.clip(-255 / 2, 255 / 2) * 2.0**power) for power in (0, 9)]
    for power in (-140, -110, -95, 97, 118):  # steps so small and large that they are divided by
        cases.append((DynamicQuantize(floats=power % 2 == 0), halves * 2.0**power))
    cases.append((DynamicQuantize(), wide))
    for op, x in cases:
        yield OpCase(op, (x.astype(np.float32),), functools.partial(expected, op=op))


CASES: dict[type[Op], Cases] = {
    RoundedConvolution: convolutions,
    RoundedMatMul: matrices,
    DynamicQuantize: quantised,
}
