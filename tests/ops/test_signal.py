"""Fourier transforms and running sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.ops import signal as ops
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(53)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cum_sum(axis, exclusive, reverse, device):
    op = ops.CumSum(exclusive, reverse)
    case = openvino_case(op, floats(3, 4, 5), np.array(axis, np.int32), constants={1})
    check(case, device)


@pytest.mark.parametrize("axis", [0, 1])
def test_cum_sums_side_by_side(axis, device):
    case = openvino_case(ops.CumSum(True), floats(5, 3, 20), np.array(axis), constants={1})
    check(case, device)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64, np.float16, ml_dtypes.bfloat16])
def test_cum_sum_of_other_types(dtype, device):
    x = RANDOM.integers(-9, 9, (3, 7)).astype(dtype)
    expected = np.cumsum(x.astype(np.float64), 1).astype(dtype)
    check(OpCase(ops.CumSum(), [x, np.array(1)], [expected], constants={1}), device)


def test_cum_sum_without_axis_and_without_elements(device):
    x = floats(3, 2)
    check(OpCase(ops.CumSum(), [x], [np.cumsum(x, 0)]), device)
    check(OpCase(ops.CumSum(True), [floats(0, 2), np.array(0)], [floats(0, 2)]), device)


TRANSFORMS = [
    ((2, 5, 9, 2), (1,), None),
    ((2, 5, 8, 2), (1, 2), None),
    ((2, 5, 9, 2), (-1,), None),
    ((4, 6, 3, 2), (0, 1), (6, 4)),
    ((4, 6, 3, 2), (2, 0), (-1, 7)),
]


@pytest.mark.parametrize(("shape", "axes", "sizes"), TRANSFORMS)
@pytest.mark.parametrize("op", [ops.DFT(), ops.IDFT()], ids=repr)
def test_transforms_of_complex_numbers(op, shape, axes, sizes, device):
    inputs = [floats(*shape), ints(*axes), *([] if sizes is None else [ints(*sizes)])]
    check(
        openvino_case(op, *inputs, constants=range(1, len(inputs)), tolerance=(1e-4, 1e-4)), device
    )


@pytest.mark.parametrize("axes", [(1,), (1, 2), (-1,)])
def test_inverse_transforms_to_real_numbers(axes, device):
    case = openvino_case(ops.IRDFT(), floats(2, 5, 8, 2), ints(*axes), constants={1})
    check(case, device)


@pytest.mark.parametrize("sizes", [(6, 4), (3, 9), (4, 10)])
def test_inverse_transforms_to_given_sizes(sizes, device):
    # By the definition; OpenVINO crashes when it has to fill up.
    x = floats(4, 5, 2)
    m, n = sizes
    z = np.zeros((m, n // 2 + 1), np.complex128)
    rows, columns = min(m, 4), min(n // 2 + 1, 5)
    z[:rows, :columns] = (x[..., 0] + 1j * x[..., 1])[:rows, :columns]
    t, k = np.arange(m), np.arange(n // 2 + 1)
    z = np.exp(2j * np.pi * np.outer(t, t) / m) @ z / m
    weight = np.where((k == 0) | (2 * k == n), 1, 2)
    y = np.real(z * weight @ np.exp(2j * np.pi * np.outer(k, np.arange(n)) / n)) / n
    inputs = [x, ints(0, 1), ints(*sizes)]
    check(OpCase(ops.IRDFT(), inputs, [y.astype(np.float32)], constants={1, 2}), device)


@pytest.mark.parametrize("axes", [(1,), (1, 2), (-1,)])
def test_transforms_of_real_numbers(axes, device):
    check(openvino_case(ops.RDFT(), floats(2, 5, 9), ints(*axes), constants={1}), device)


@pytest.mark.parametrize("sizes", [(6, 4), (3, 9), (-1, 10)])
def test_transforms_of_real_numbers_of_given_sizes(sizes, device):
    # By the definition; OpenVINO returns memory that it never wrote.
    x = floats(4, 5)
    m, n = 4 if sizes[0] == -1 else sizes[0], sizes[1]
    z = np.zeros((m, n))
    z[: min(m, 4), : min(n, 5)] = x[:m, :n]
    t, k = np.arange(m), np.arange(n // 2 + 1)
    y = np.exp(-2j * np.pi * np.outer(t, t) / m) @ z
    y = y @ np.exp(-2j * np.pi * np.outer(np.arange(n), k) / n)
    expected = np.stack([y.real, y.imag], -1).astype(np.float32)
    inputs = [x, ints(0, 1), ints(*sizes)]
    check(OpCase(ops.RDFT(), inputs, [expected], constants={1, 2}), device)


def test_transforms_with_axes_known_at_inference_only(device):
    x = floats(3, 8, 2)
    expected = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1)
    pairs = np.stack([expected.real, expected.imag], -1).astype(np.float32)
    check(OpCase(ops.DFT(), [x, ints(1)], [pairs]), device)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("shape", "window"), [((2, 50), 16), ((50,), 11), ((1, 16), 16)])
def test_stft(transpose, shape, window, device):
    op = ops.STFT(transpose_frames=transpose)
    inputs = [floats(*shape), floats(window), np.array(16), np.array(5)]
    check(openvino_case(op, *inputs, constants={2, 3}), device)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("length", [None, 40, 70])
def test_istft(center, normalized, length, device):
    op = ops.ISTFT(center=center, normalized=normalized)
    window = np.hanning(16).astype(np.float32) + 0.1
    inputs = [floats(2, 9, 8, 2), window, np.array(16), np.array(5)]
    inputs += [] if length is None else [np.array(length)]
    check(openvino_case(op, *inputs, constants=range(2, len(inputs))), device)


def test_istft_undoes_stft(device):
    signal, window = floats(64), np.hanning(18)[1:-1].astype(np.float32)
    forward = ops.STFT(transpose_frames=True)
    spectra = openvino_case(forward, signal, window, np.array(16), np.array(4), constants={2, 3})
    (y,) = spectra.answers()
    back = ops.ISTFT(center=False, normalized=False)
    check(
        OpCase(back, [y, window, np.array(16), np.array(4)], [signal], (1e-3, 1e-4), {2, 3}), device
    )


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        (ops.DFT(), [floats(3, 4, 3), ints(0)], "axis of 2"),
        (ops.DFT(), [floats(3, 4, 2), ints(0, -2)], "repeat"),
        (ops.DFT(), [floats(3, 4, 2), ints(2)], "outside"),
        (ops.RDFT(), [floats(3, 4), ints(0), ints(-3)], "not possible"),
        (
            ops.STFT(transpose_frames=True),
            [floats(8), floats(9), np.array(8), np.array(1)],
            "exceeds frames",
        ),
        (
            ops.STFT(transpose_frames=True),
            [floats(8), floats(8), np.array(8), np.array(0)],
            "positive",
        ),
    ],
)
def test_what_does_not_fit_is_refused(op, inputs, message):
    with pytest.raises(NetworkError, match=message):
        network_of(OpCase(op, inputs, [], constants=range(1, len(inputs))))
