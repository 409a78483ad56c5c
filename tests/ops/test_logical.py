"""Logical operations: every combination of truth values."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.ops import logical as ops
from polydevice.ops.op import find_operation
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

A = np.array([[False], [True]])
B = np.array([False, True])


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ops.LogicalAnd(), [[False, False], [False, True]]),
        (ops.LogicalOr(), [[False, True], [True, True]]),
        (ops.LogicalXor(), [[False, True], [True, False]]),
        (ops.Xor(), [[False, True], [True, False]]),
    ],
    ids=repr,
)
def test_truth_tables(op, expected, device):
    check(OpCase(op, [A, B], [expected]), device)


@pytest.mark.parametrize("op", [ops.LogicalAnd(), ops.LogicalOr(), ops.LogicalXor()], ids=repr)
def test_against_openvino(op, device):
    random = np.random.default_rng(2)
    x, y = random.random((2, 3, 4, 5)) < 0.5, random.random((3, 1, 5)) < 0.5
    check(openvino_case(op, x, y), device)


def test_not(device):
    check(OpCase(ops.LogicalNot(), [B], [[True, False]]), device)
    check(openvino_case(ops.LogicalNot(), A), device)


def test_xor_is_opset1_only_but_found_later_too():
    assert find_operation("Xor", "opset1") is ops.Xor
