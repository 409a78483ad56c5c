"""RegionYolo and ReorgYolo."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.yolo import RegionYolo, ReorgYolo
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(27)


@pytest.mark.parametrize(("axis", "end_axis"), [(1, 3), (0, 3), (2, 3), (-3, -1)])
def test_region_with_softmax(device, axis, end_axis):
    op = RegionYolo(
        coords=4, classes=5, num=3, axis=axis, end_axis=end_axis, do_softmax=True, mask=(0, 1, 2)
    )
    check(openvino_case(op, RNG.standard_normal((2, 30, 4, 5)).astype(np.float32)), device)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_region_with_sigmoid(device, dtype):
    op = RegionYolo(coords=4, classes=5, num=9, do_softmax=False, mask=(3, 4, 5))
    check(openvino_case(op, (RNG.standard_normal((2, 30, 4, 5)) * 3).astype(dtype)), device)


def test_region_of_unknown_sizes():
    op = RegionYolo(coords=4, classes=5, num=3, do_softmax=True)
    x = TensorDesc(ElementType.f32, Shape([None, 30, None, 5]))
    assert op.infer([x])[0].shape == Shape([None, None])
    with pytest.raises(ShapeError, match="channels"):
        op.infer([x.with_shape([1, 31, 4, 5])])


@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 8, 4, 6), 2), ((1, 9, 3, 6), 3), ((1, 64, 2, 2), 2)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_reorg(device, shape, stride, dtype):
    x = RNG.integers(0, 1000, shape).astype(dtype)
    check(openvino_case(ReorgYolo(stride=stride), x), device)


def test_reorg_refuses():
    with pytest.raises(ShapeError, match="multiple of 4"):
        ReorgYolo(stride=2).infer([TensorDesc(ElementType.f32, Shape([1, 6, 4, 4]))])
