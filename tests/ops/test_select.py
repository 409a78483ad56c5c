"""Select: one of two inputs by a condition."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.ops.pointwise import AutoBroadcast
from polydevice.ops.select import Select
from polydevice.testing.op_case import OpCase, network_of
from polydevice_cpu.ops import select
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(17)


@pytest.mark.parametrize(
    ("c", "a", "b"),
    [
        ((3, 4), (3, 4), (3, 4)),
        ((1, 4), (3, 1), ()),
        ((), (2, 3), (3,)),
        ((2, 1, 1, 5), (1, 3, 1, 1), (4, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8])
def test_against_openvino(c, a, b, dtype, device):
    condition = RANDOM.random(c) < 0.5
    x, y = (RANDOM.integers(-50, 50, s).astype(dtype) for s in (a, b))
    check(openvino_case(Select(), condition, x, y), device)


def test_the_branch_not_taken_does_not_matter(device):
    condition = np.array([True, False])
    x, y = np.array([1.0, np.nan], np.float32), np.array([np.inf, 2.0], np.float32)
    check(OpCase(Select(), [condition, x, y], [[1.0, 2.0]]), device)


def test_none_needs_equal_shapes(device):
    op = Select(AutoBroadcast.NONE)
    condition = np.array([[True], [False]])
    x, y = np.ones((2, 1), np.int64), np.zeros((2, 1), np.int64)
    check(OpCase(op, [condition, x, y], [[[1], [0]]]), device)
    with pytest.raises(NetworkError, match="do not agree"):
        network_of(OpCase(op, [condition, x, np.zeros((1, 1), np.int64)], []))


def test_the_condition_must_be_boolean():
    with pytest.raises(NetworkError, match="must be boolean"):
        network_of(OpCase(Select(), [np.zeros(2), np.zeros(2), np.zeros(2)], []))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize(
    "shapes",
    [((3, 1, 40, 40), (3, 2, 40, 40), ()), ((40, 1), (50,), (40, 1)), ((), (50, 60), (60,))],
)
def test_many_are_selected_bit_by_bit(device, dtype, shapes):
    """NaN, infinities and zeros of both signs come out as they went in."""
    condition = RANDOM.random(shapes[0]) < 0.5
    x, y = (RANDOM.integers(-3, 4, shape).astype(dtype) for shape in shapes[1:])
    if np.issubdtype(dtype, np.floating):
        x.reshape(-1)[::7], x.reshape(-1)[::11], y.reshape(-1)[:1] = np.nan, -0.0, -np.inf
    expected = np.where(condition, x, y)
    check(OpCase(Select(), [condition, x, y], [expected]), device)
    if np.issubdtype(dtype, np.floating) and device == "CPU":
        result = np.empty_like(expected)
        select.write(Select(), condition, x, y, result)
        for found in (result, select.select(Select(), condition, x, y)):
            np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_any_byte_that_is_not_zero_is_true():
    condition = RANDOM.integers(0, 4, 5000).astype(np.uint8).view(np.bool_)
    x, y = RANDOM.standard_normal((2, 5000)).astype(np.float32)
    found = select.select(Select(), condition, x, y)
    np.testing.assert_array_equal(found, np.where(condition.view(np.uint8) != 0, x, y))
