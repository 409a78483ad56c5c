"""Concat."""

from __future__ import annotations

import time

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.concat import Concat
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        ([(2, 3), (2, 5)], 1),
        ([(2, 3), (2, 5), (2, 1)], -1),
        ([(1, 7, 5, 3), (4, 7, 5, 3)], 0),
        ([(3, 16, 4, 4), (3, 3, 4, 4), (3, 1, 4, 4)], 1),
        ([(5,), (3,)], 0),
        ([(2, 3, 1)], 2),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_concat(device, shapes, axis, dtype):
    arrays = [RNG.integers(0, 100, shape).astype(dtype) for shape in shapes]
    check(openvino_case(Concat(axis=axis), *arrays), device)


def test_concat_of_unknown_sizes():
    a = TensorDesc(ElementType.f32, Shape([None, 3]))
    b = TensorDesc(ElementType.f32, Shape([2, Dim(1, 4)]))
    c = TensorDesc(ElementType.f32, None)
    assert Concat(axis=1).infer([a, b])[0].shape == Shape([2, Dim(4, 7)])
    assert Concat(axis=1).infer([a, b, c])[0].shape == Shape([2, Dim(4, None)])


def test_concat_refuses():
    a = TensorDesc(ElementType.f32, Shape([2, 3]))
    with pytest.raises(ShapeError, match="other than axis 0"):
        Concat(axis=0).infer([a, TensorDesc(ElementType.f32, Shape([2, 4]))])
    with pytest.raises(ShapeError, match="rank"):
        Concat(axis=0).infer([a, TensorDesc(ElementType.f32, Shape([2]))])
    with pytest.raises(ElementTypeError):
        Concat(axis=0).infer([a, TensorDesc(ElementType.i32, Shape([2, 3]))])


def test_thousands_of_inputs_take_no_time() -> None:
    """The message about shapes was once written for every input: 5,000 took a minute."""
    inputs = [TensorDesc(ElementType.f32, Shape([2, Dim(), 3]))] * 5000
    begin = time.process_time()
    (joined,) = Concat(axis=2).infer(inputs)
    assert joined.shape == (2, Dim(), 15000)
    assert time.process_time() - begin < 5
