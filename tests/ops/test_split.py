"""Split and VariadicSplit."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.split import Split, VariadicSplit
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(4)


@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((6,), 0, 3), ((2, 6, 5), 1, 2), ((2, 6, 5), -1, 5), ((4, 1, 3), 0, 1)],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8])
def test_split(device, shape, axis, count, dtype):
    x = RNG.integers(0, 100, shape).astype(dtype)
    op = Split(num_splits=count)
    check(openvino_case(op, x, np.array(axis, np.int64), constants={1}), device)


@pytest.mark.parametrize(
    ("shape", "axis", "lengths"),
    [((6,), 0, (1, 2, 3)), ((2, 7, 5), 1, (3, -1)), ((2, 7, 5), -1, (1, 1, 3)), ((3, 4), 0, (3,))],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_variadic_split(device, shape, axis, lengths, dtype):
    x = RNG.integers(0, 100, shape).astype(dtype)
    inputs = [x, np.array(axis, np.int32), np.array(lengths, np.int32)]
    check(openvino_case(VariadicSplit(), *inputs, constants={1, 2}), device)


def test_split_of_unknown_sizes():
    x = TensorDesc(ElementType.f32, Shape([Dim(3, 9), 2]))
    axis = desc_of(np.array(0))
    assert [y.shape for y in Split(num_splits=2).infer([x, axis])] == [Shape([Dim(2, 4), 2])] * 2
    lengths = desc_of(np.array([2, -1]))
    shapes = [y.shape for y in VariadicSplit().infer([x, axis, lengths])]
    assert shapes == [Shape([2, 2]), Shape([Dim(1, 7), 2])]


def test_split_refuses():
    x = TensorDesc(ElementType.f32, Shape([5]))
    axis = desc_of(np.array(0))
    with pytest.raises(ShapeError, match="equal parts"):
        Split(num_splits=2).infer([x, axis])
    with pytest.raises(ShapeError, match="add up"):
        VariadicSplit().infer([x, axis, desc_of(np.array([2, 2]))])
    with pytest.raises(ShapeError, match="negative"):
        VariadicSplit().infer([x, axis, desc_of(np.array([-1, -1]))])
