"""Operations on the bits of integers."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.ops import bitwise as ops
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(13)


@pytest.mark.parametrize("op", [ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int8, np.bool_])
def test_against_openvino(op, dtype, device):
    x, y = (RANDOM.integers(0, 100, s).astype(dtype) for s in ((2, 3, 4), (3, 1)))
    check(openvino_case(op(), x, y), device)


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.uint16, np.int16])
def test_wider_types(dtype, device):
    x, y = (RANDOM.integers(0, 30000, (5, 7)).astype(dtype) for _ in range(2))
    check(OpCase(ops.BitwiseAnd(), [x, y], [x & y]), device)
    check(OpCase(ops.BitwiseXor(), [x, y], [x ^ y]), device)
    check(OpCase(ops.BitwiseNot(), [x], [~x]), device)


def test_not(device):
    check(OpCase(ops.BitwiseNot(), [np.array([True, False])], [[False, True]]), device)
    check(openvino_case(ops.BitwiseNot(), np.array([0, 1, -1, 77], np.int32)), device)


def test_shifts(device):
    x = np.array([1, 5, 1, 0x40], np.uint8)
    n = np.array([1, 2, 7, 2], np.uint8)
    check(OpCase(ops.BitwiseLeftShift(), [x, n], [np.array([2, 20, 128, 0], np.uint8)]), device)
    check(OpCase(ops.BitwiseRightShift(), [x, n], [np.array([0, 1, 0, 16], np.uint8)]), device)
    check(
        openvino_case(
            ops.BitwiseRightShift(), np.array([-8, -7, 9], np.int32), np.array([1], np.int32)
        ),
        device,
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_counts_that_leave_nothing(dtype, device):
    """ONNX's cases have negative counts, for which C has no answer."""
    width = 8 * np.dtype(dtype).itemsize
    x = np.array([-8, 4, -1, 7, -5, 5], dtype)
    n = np.array([-1, -32, -64, width, 100, 1], dtype)
    check(OpCase(ops.BitwiseLeftShift(), [x, n], [np.array([0, 0, 0, 0, 0, 10], dtype)]), device)
    right = np.array([-1, 0, -1, 0, -1, 2], dtype)
    check(OpCase(ops.BitwiseRightShift(), [x, n], [right]), device)


def test_floats_are_refused():
    with pytest.raises(NetworkError, match="needs integers"):
        network_of(OpCase(ops.BitwiseAnd(), [np.zeros(2), np.zeros(2)], []))
