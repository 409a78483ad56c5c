"""Comparisons of two inputs."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.ops import comparison as ops
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(3)
COMPARISONS = [ops.Equal, ops.NotEqual, ops.Less, ops.LessEqual, ops.Greater, ops.GreaterEqual]


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 5), (3, 5)), ((2, 1, 4), (3, 1)), ((), (6,)), ((2, 3, 4, 5), (1, 3, 1, 1)),
     ((9, 5, 7, 8), (1, 1, 8)), ((1, 16), (70, 16))],
)  # fmt: skip
def test_against_openvino(op, dtype, a, b, device):
    x, y = (RANDOM.integers(0, 3, shape).astype(dtype) for shape in (a, b))
    check(openvino_case(op(), x, y), device)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_large_integers_are_not_rounded(dtype, device):
    x, y = np.array([2**53 + 1, 2**53], dtype), np.array([2**53, 2**53], dtype)
    check(OpCase(ops.Equal(), [x, y], [[False, True]]), device)
    check(OpCase(ops.Greater(), [x, y], [[True, False]]), device)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ops.Equal(), [False, False, True, True]),
        (ops.NotEqual(), [True, True, False, False]),
        (ops.Less(), [False, False, False, False]),
        (ops.GreaterEqual(), [False, False, True, True]),
    ],
    ids=repr,
)
def test_nan_infinities_and_signed_zero(op, expected, device):
    x = np.array([np.nan, np.nan, np.inf, 0.0], np.float32)
    y = np.array([np.nan, 1.0, np.inf, -0.0], np.float32)
    check(OpCase(op, [x, y], [expected]), device)


@pytest.mark.parametrize("op", [ops.Equal, ops.NotEqual])
def test_booleans(op, device):
    x, y = np.array([[True], [False]]), np.array([True, False])
    check(
        OpCase(op(), [x, y], [getattr(np, {"Equal": "equal"}.get(op.__name__, "not_equal"))(x, y)]),
        device,
    )
