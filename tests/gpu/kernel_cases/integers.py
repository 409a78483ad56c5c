"""Products of 8-bit integers: the same convolutions and matrices as of floats, summed exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice.testing.op_case import OpCase
from polydevice_gpu.ops import IntegerConvolution, IntegerGroupConvolution, IntegerMatMul
from tests.gpu.kernel_cases.convolution import convolutions
from tests.gpu.kernel_cases.data import Cases, Data
from tests.gpu.kernel_cases.matmul import matmuls
from tests.ops.openvino_oracle import openvino_case


def _bytes(data: Data, shape: tuple[int, ...], kind: type[np.integer[Any]]) -> Array:
    """Bytes of the whole range, its largest more often than others."""
    limits = np.iinfo(kind)
    values = data.random.integers(limits.min, limits.max + 1, shape)
    return np.where(data.random.random(shape) < 0.1, limits.max, values).astype(kind)


def _beyond_bytes(data: Data, weights: Array, output: int) -> Array:
    """Weights in i16: bytes and a number for each output, that is from -128 to 128."""
    shape = [1] * weights.ndim
    shape[output] = -1
    more = data.random.integers(-128, 129, weights.shape[output])
    return np.asarray(weights.astype(np.int16) + more.reshape(shape).astype(np.int16))


def _of_bytes(data: Data, case: OpCase, made: type[Op], wide: int | None = None) -> OpCase:
    """The case on bytes; OpenVINO answers it in f32, in which all partial sums are exact.

    Args:
        data: of random numbers.
        case: of floats.
        made: the operation of bytes.
        wide: the axis of the outputs of weights that i8 does not hold.
    """
    kind = np.uint8 if data.random.random() < 0.6 else np.int8
    x, w = (np.asarray(array) for array in case.inputs)
    attributes = case.op.attributes()
    zero = 0
    if made is not IntegerMatMul and data.random.random() < 0.7:
        limits = np.iinfo(kind)
        zero = attributes["zero"] = int(data.random.integers(limits.min, limits.max + 1))

    def expected(values: Sequence[Array]) -> list[Array]:
        left, right = (np.asarray(array, np.float32) for array in values)
        answers = openvino_case(case.op, left - zero, right, constants={1}).answers()
        return [np.rint(np.asarray(answer)).astype(np.int32) for answer in answers]

    weights = _bytes(data, w.shape, np.int8)
    if wide is not None:
        weights = _beyond_bytes(data, weights, wide)
    inputs = (_bytes(data, x.shape, kind), weights)
    return OpCase(made(**attributes), inputs, expected, constants={1})


def _convolutions(data: Data, made: type[Op], *, grouped: bool) -> Iterator[OpCase]:
    for case in convolutions(data):
        if isinstance(case.op, GroupConvolution) is grouped:
            yield _of_bytes(data, case, made)


def plain(data: Data) -> Iterator[OpCase]:
    yield from _convolutions(data, IntegerConvolution, grouped=False)
    # Channels in pieces of 16, so many that every kernel can split them.
    padded = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (0, 2)}
    case = openvino_case(Convolution(**padded), data(1, 464, 4, 3), data(19, 464, 3, 3))
    yield _of_bytes(data, case, IntegerConvolution)

    # An image, whose columns come in eights.
    window = {"strides": (2, 1), "dilations": (1, 2), "pads_begin": (1, 2), "pads_end": (0, 1)}
    case = openvino_case(Convolution(**window), data(2, 3, 19, 37), data(40, 3, 5, 4))
    yield _of_bytes(data, case, IntegerConvolution)

    # Fewer channels than are summed at once, and results that fill shorter vectors.
    for inputs, outputs in ((1, 12), (2, 28), (3, 9), (6, 23)):
        window = {"strides": (1, 2), "dilations": (2, 1), "pads_begin": (2, 1), "pads_end": (1, 2)}
        x, w = data(1, inputs, 5, 9), data(outputs, inputs, 2, 3)
        yield _of_bytes(data, openvino_case(Convolution(**window), x, w), IntegerConvolution)

    # So long a window that its pixels are read where they lie.
    window = {"strides": (1,), "dilations": (1,), "pads_begin": (3,), "pads_end": (1,)}
    case = openvino_case(Convolution(**window), data(1, 2, 2090), data(3, 2, 2080))
    yield _of_bytes(data, case, IntegerConvolution)

    # Weights with a number for each output that i8 does not hold.
    for inputs, outputs in ((2, 5), (23, 17), (87, 35)):
        window = {"strides": (1, 2), "dilations": (1, 2), "pads_begin": (0, 1), "pads_end": (1, 0)}
        x, w = data(2, inputs, 4, 29), data(outputs, inputs, 1, 3)
        case = openvino_case(Convolution(**window), x, w)
        yield _of_bytes(data, case, IntegerConvolution, wide=0)

    yield from _filled(data)

    # In vectors of eight, so many that every kernel can split steps of 128; f32 is too short.
    zero, x, w = 7, _bytes(data, (1, 8208, 4, 3), np.uint8), _bytes(data, (24, 8208, 1, 1), np.int8)
    op = IntegerConvolution(
        strides=(1, 1), dilations=(1, 1), pads_begin=(1, 0), pads_end=(0, 2), zero=zero
    )

    def expected(values: Sequence[Array]) -> list[Array]:
        left, right = (np.asarray(array, np.int64) for array in values)
        inside = np.pad(left - zero, ((0, 0), (0, 0), (1, 0), (0, 2)))
        return [np.einsum("bchw,oc->bohw", inside, right[..., 0, 0]).astype(np.int32)]

    yield OpCase(op, (x, w), expected, constants={1})


def _filled(data: Data) -> Iterator[OpCase]:
    """Zero points that come as bytes, in the place of which padding is."""
    window = {"strides": (1, 2), "dilations": (1, 1), "pads_begin": (2, 0), "pads_end": (1, 1)}
    for number, (inputs, outputs) in enumerate(((3, 18), (21, 33), (4, 7))):
        w = _bytes(data, (outputs, inputs, 3, 2), np.int8)
        w = _beyond_bytes(data, w, 0) if number == 1 else w
        x = _bytes(data, (2, inputs, 6, 13), np.uint8)
        fill = np.full(-(-inputs // 4) * 4 + 4 * number, (0, 201, 255)[number], np.uint8)
        plain = Convolution(**window)

        def expected(values: Sequence[Array], plain: Convolution = plain) -> list[Array]:
            left, right, zero = (np.asarray(array, np.float32) for array in values)
            answers = openvino_case(plain, left - zero[0], right, constants={1}).answers()
            return [np.rint(np.asarray(answer)).astype(np.int32) for answer in answers]

        yield OpCase(IntegerConvolution(**window), (x, w, fill), expected, constants={1})


def grouped(data: Data) -> Iterator[OpCase]:
    yield from _convolutions(data, IntegerGroupConvolution, grouped=True)
    # Groups that fill no vectors, one of which has too many terms for floats.
    plain = {"dilations": (1, 1), "pads_begin": (1, 0), "pads_end": (0, 2)}
    for outputs, inputs, taps in ((12, 5, 3), (24, 8, 3), (3, 40, 4), (41, 4, 1)):
        op = GroupConvolution(strides=(1, 2), **plain)
        case = openvino_case(op, data(1, 2 * inputs, 7, 9), data(2, outputs, inputs, taps, taps))
        yield _of_bytes(data, case, IntegerGroupConvolution)


def ranges(data: Data) -> Iterator[OpCase]:
    def expected(values: Sequence[Array]) -> list[Array]:
        x = np.asarray(values[0], np.float32)
        low, high = (np.float32(limit) for limit in (x.min(initial=0), x.max(initial=0)))
        scale = (high - low) / np.float32(255) or np.float32(1)
        return [np.asarray(scale), np.rint(np.clip(-low / scale, 0, 255)).astype(np.uint8)]

    nothing = np.zeros((2, 3), np.float32)
    for x in (data(2, 3, 19), data(67), 3 + abs(data(4, 5)), -abs(data(3, 40)), data(), nothing):
        yield OpCase(DynamicRange(), (x,), expected)


def matrices(data: Data) -> Iterator[OpCase]:
    for case in matmuls(data):
        if case.constants == {1}:
            yield _of_bytes(data, case, IntegerMatMul)
    for terms, columns, is_turned in ((5, 3, False), (83, 33, True), (211, 50, False)):
        w = data(columns, terms) if is_turned else data(terms, columns)
        case = openvino_case(MatMul(transpose_b=is_turned), data(3, 7, terms), w)
        yield _of_bytes(data, case, IntegerMatMul, wide=0 if is_turned else 1)

    # Terms in pieces of 16, so many that every kernel can split them.
    case = openvino_case(MatMul(transpose_b=True), data(2, 7, 4112), data(21, 4112))
    yield _of_bytes(data, case, IntegerMatMul)

    def expected(values: Sequence[Array]) -> list[Array]:
        left, right = (np.asarray(array, np.int64) for array in values)
        return [(left @ right.T).astype(np.int32)]

    # As above.
    x, w = _bytes(data, (2, 7, 8208), np.int8), _bytes(data, (24, 8208), np.int8)
    yield OpCase(IntegerMatMul(transpose_b=True), (x, w), expected, constants={1})


CASES: dict[type[Op], Cases] = {
    IntegerConvolution: plain,
    IntegerGroupConvolution: grouped,
    IntegerMatMul: matrices,
    DynamicRange: ranges,
}
