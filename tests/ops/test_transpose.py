"""Transpose."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.transpose import Transpose
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(2)


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((3, 5), (1, 0)),
        ((2, 3, 5, 7), (0, 2, 3, 1)),
        ((2, 3, 5, 7), (0, 3, 1, 2)),
        ((2, 3, 5, 7), ()),
        ((1, 1, 9), (2, 0, 1)),
        ((2, 1, 3, 1, 4, 5), (5, 0, 4, 2, 1, 3)),
        ((7,), (0,)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int64])
def test_transpose(device, shape, order, dtype):
    x = RNG.integers(0, 200, shape).astype(dtype)
    check(openvino_case(Transpose(), x, np.array(order, np.int64), constants={1}), device)


def test_transpose_of_nothing(device):
    x = np.zeros((2, 0, 3), np.float32)
    order = np.array([2, 1, 0], np.int64)
    check(OpCase(Transpose(), [x, order], [np.zeros((3, 0, 2), np.float32)], constants={1}), device)


@pytest.mark.parametrize("order", [(0, 0), (0,), (0, 2), (-1, 0)])
def test_transpose_refuses_what_is_no_permutation(order):
    x = TensorDesc(ElementType.f32, Shape([2, 3]))
    with pytest.raises(ShapeError, match="permutation"):
        Transpose().infer([x, desc_of(np.array(order))])
