"""Select: one of two inputs by a condition."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.ops.pointwise import AutoBroadcast
from polydevice.ops.select import Select
from polydevice.testing.op_case import OpCase, network_of
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
