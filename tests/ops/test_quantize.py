"""Simulated quantisation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import NetworkError
from polydevice.ops.quantize import FakeConvert, FakeQuantize
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(37)


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("levels", [2, 16, 255, 256])
@pytest.mark.parametrize(
    "limits",
    [
        (f32(-1), f32(1), f32(-1), f32(1)),
        (np.float32(0).reshape(()), f32(2), f32(0), f32(5)),
        (f32(-1, -2, -0.5).reshape(1, 3, 1, 1), f32(1, 2, 3).reshape(3, 1, 1), f32(-1), f32(1)),
        (f32(0), f32(2.5), f32(10), f32(-10)),
    ],
)
def test_against_openvino(levels, limits, device):
    x = RANDOM.uniform(-2.5, 2.5, (2, 3, 4, 5)).astype(np.float32)
    # A value that lies half-way between two levels may go to either side.
    steps = [(limits[1] - limits[0]) / (levels - 1), limits[0]]
    distance = np.abs(((x - steps[1]) / steps[0]) % 1 - 0.5)
    x = np.where(distance < 0.01, x + steps[0] * 0.1, x).astype(np.float32)
    check(openvino_case(FakeQuantize(levels), x, *limits, constants={1, 2, 3, 4}), device)


def test_by_hand(device):
    x = f32(-5, 0, 0.4, 0.6, 1.5, 2.5, 3, 9)
    op = FakeQuantize(levels=4)
    inputs = [x, f32(0), f32(3), f32(0), f32(30)]
    check(OpCase(op, inputs, [[0, 0, 0, 10, 20, 20, 30, 30]], constants={1, 2, 3, 4}), device)
    check(OpCase(op, inputs, [[0, 0, 0, 10, 20, 20, 30, 30]]), device)


@pytest.mark.parametrize("levels", [2, 16, 256])
def test_limits_that_are_one_number(levels, device):
    """What is above it is the upper one, the next number too; for all elements or by channel."""
    tiny = np.finfo(np.float32).smallest_normal
    for limit in (0.0, 1.5, -3e-20, 1e30, -tiny):
        number = np.float32(limit)
        above, below = (np.nextafter(number, np.float32(end)) for end in (np.inf, -np.inf))
        x = np.array([-np.inf, -1e38, below, number, above, 1e38, np.inf], np.float32)
        if abs(limit) <= tiny:  # differences that are no normal numbers may be none
            x[2], x[4] = number - 2 * tiny, number + 2 * tiny
        inputs = [x.reshape(1, 1, 7), number, number, f32(-1), f32(3)]
        wanted = f32(-1, -1, -1, -1, 3, 3, 3).reshape(1, 1, 7)
        check(OpCase(FakeQuantize(levels), inputs, [wanted], constants={1, 2, 3, 4}), device)
    x = RANDOM.normal(size=(2, 5, 4, 3)).astype(np.float32)
    limit, low, high = RANDOM.normal(size=(3, 1, 5, 1, 1)).astype(np.float32)
    wanted = np.where(x > limit, high, low)
    inputs = [x, limit, limit, low, high]
    check(OpCase(FakeQuantize(levels), inputs, [wanted], constants={1, 2, 3, 4}), device)
    inputs = [x, limit[:, :1], limit[:, :1], low, f32(7)]
    wanted = np.where(x > limit[:, :1], np.float32(7), low)
    check(OpCase(FakeQuantize(levels), inputs, [wanted], constants={1, 2, 3, 4}), device)


def test_what_is_refused():
    with pytest.raises(NetworkError, match="at least 2"):
        network_of(OpCase(FakeQuantize(levels=1), [f32(1)] * 5, []))
    with pytest.raises(NetworkError, match="f8e4m3 or f8e5m2"):
        network_of(OpCase(FakeConvert(ElementType.f16), [f32(1), f32(1)], []))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (ElementType.f8e4m3, ml_dtypes.float8_e4m3fn),
        (ElementType.f8e5m2, ml_dtypes.float8_e5m2),
    ],
)
def test_fake_convert(kind, dtype, device):
    x = RANDOM.uniform(-300, 300, (2, 3, 8)).astype(np.float32)
    scale, shift = f32(1.5, 0.25, 0.5).reshape(3, 1), f32(2, -1, 0).reshape(3, 1)
    rounded = (x * scale - shift).astype(dtype).astype(np.float32)
    expected = (rounded + shift) / scale
    check(OpCase(FakeConvert(kind), [x, scale, shift], [expected], constants={1, 2}), device)
    plain = (x * scale).astype(dtype).astype(np.float32) / scale
    check(OpCase(FakeConvert(kind), [x, scale], [plain], constants={1}), device)
    largest = float(ml_dtypes.finfo(dtype).max)
    check(OpCase(FakeConvert(kind), [f32(1e6, -1e6), f32(1)], [[largest, -largest]]), device)
    # OpenVINO goes to f8e5m2 by way of f16 and rounds twice: numbers that f16 holds exactly.
    halves = np.round(2 * x) / 2
    check(openvino_case(FakeConvert(kind), halves, scale, shift, constants={1, 2}), device)
