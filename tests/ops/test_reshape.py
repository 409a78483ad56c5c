"""Reshape, Squeeze, Unsqueeze, ShapeOf."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.interval import Interval
from polydevice.node import constant
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(1)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("shape", "pattern", "special_zero"),
    [
        ((2, 3, 5), (5, 6), False),
        ((2, 3, 5), (-1,), True),
        ((2, 3, 5), (0, -1), True),
        ((2, 3, 5), (0, 0, 1, -1), True),
        ((1,), (), False),
        ((), (1, 1), False),
        ((0, 3), (3, 0), False),
        ((3, 0), (0, 0), True),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64, np.bool_])
def test_reshape(device, shape, pattern, special_zero, dtype):
    x = RNG.integers(0, 100, shape).astype(dtype)
    op = Reshape(special_zero=special_zero)
    if 0 in shape or shape == ():
        expected = x.reshape(
            [shape[i] if n == 0 and special_zero else n for i, n in enumerate(pattern)]
        )
        check(OpCase(op, [x, ints(*pattern)], [expected], constants={1}), device)
    else:
        check(openvino_case(op, x, ints(*pattern), constants={1}), device)


@pytest.mark.parametrize(
    ("shape", "pattern"), [((2, 3), (4,)), ((2, 3), (-1, 4)), ((2, 3), (-1, -1)), ((2,), (2, 0))]
)
def test_reshape_refuses(shape, pattern):
    x = TensorDesc(ElementType.f32, Shape(shape))
    with pytest.raises(ShapeError):
        Reshape().infer([x, desc_of(ints(*pattern))])


@pytest.mark.parametrize(
    ("shape", "pattern", "expected"),
    [
        ((None, 3, 4), (0, -1), (None, 12)),
        ((Dim(2, 4), 6), (-1, 3), (Dim(4, 8), 3)),
        ((None, 3, 4), (-1, 6), (Dim(), 6)),
        ((2, None), (0, 0), (2, None)),
    ],
)
def test_reshape_of_unknown_sizes(shape, pattern, expected):
    x = TensorDesc(ElementType.f32, Shape(shape))
    (y,) = Reshape().infer([x, desc_of(ints(*pattern))])
    assert y.shape == Shape(expected)


@pytest.mark.parametrize("axes", [None, (0,), (-1,), (0, 3), (1,), ()])
def test_squeeze(device, axes):
    x = RNG.standard_normal((1, 5, 2, 1)).astype(np.float32)
    if axes is None:
        check(openvino_case(Squeeze(), x), device)
    else:
        # an axis whose size is not 1 stays; with unknown sizes it counts as 1
        known = 1 not in axes
        check(openvino_case(Squeeze(), x, ints(*axes), constants={1}, dynamic=known), device)


def test_squeeze_with_unknown_sizes():
    x = TensorDesc(ElementType.f32, Shape([None, 1, 7]))
    axes = desc_of(ints(0))
    assert Squeeze().infer([x, axes])[0].shape == Shape([1, 7])
    assert Squeeze(allow_axis_skip=True).infer([x, axes])[0].shape is None
    assert Squeeze().infer([x])[0].shape is None


@pytest.mark.parametrize("axes", [(0,), (-1,), (0, -1), (2, 1), (3, 0, 1)])
def test_unsqueeze(device, axes):
    x = RNG.standard_normal((2, 5)).astype(np.float32)
    check(openvino_case(Unsqueeze(), x, ints(*axes), constants={1}), device)


def test_unsqueeze_refuses_a_position_twice():
    with pytest.raises(ShapeError):
        Unsqueeze().infer([TensorDesc(ElementType.f32, Shape([2])), desc_of(ints(0, -3))])


@pytest.mark.parametrize("kind", [ElementType.i32, ElementType.i64])
@pytest.mark.parametrize("shape", [(), (0, 4), (2, 3, 1, 7)])
def test_shape_of(device, kind, shape):
    x = np.zeros(shape, np.float32)
    check(OpCase(ShapeOf(output_type=kind), [x], [np.array(shape, kind.dtype)]), device)


def test_shape_of_unknown_sizes_is_partly_known():
    (y,) = ShapeOf().infer([TensorDesc(ElementType.f32, Shape([Dim(1, 8), 3]))])
    assert y.ints == [Interval(1, 8), 3]
    assert y.sizes == [Dim(1, 8), 3]
    assert y.constant is None
    assert constant("c", [1, 2]).output.desc.static_ints == [1, 2]
