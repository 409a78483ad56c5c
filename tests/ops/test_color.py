"""NV12toRGB, NV12toBGR, I420toRGB and I420toBGR."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.color import I420toBGR, I420toRGB, NV12toBGR, NV12toRGB
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(29)


@pytest.mark.parametrize("op", [NV12toRGB(), NV12toBGR(), I420toRGB(), I420toBGR()])
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_from_yuv(device, op, single, dtype):
    height, width = 6, 10
    planes = [(2, height, width, 1)]
    if single:
        planes = [(2, height * 3 // 2, width, 1)]
    elif op.planes == 2:
        planes.append((2, height // 2, width // 2, 2))
    else:
        planes += [(2, height // 2, width // 2, 1)] * 2
    inputs = [RNG.integers(0, 256, shape).astype(dtype) for shape in planes]
    tolerance = (0, 1) if dtype is np.uint8 else None  # f32 sums fall on either side of a half
    check(openvino_case(op, *inputs, tolerance=tolerance), device)


def test_unknown_sizes():
    x = TensorDesc(ElementType.u8, Shape([None, Dim(3, 9), 4, 1]))
    assert NV12toRGB().infer([x])[0].shape == Shape([None, Dim(2, 6), 4, 3])
    with pytest.raises(ShapeError, match="odd"):
        NV12toRGB().infer([x.with_shape([1, 6, 5, 1])])
    with pytest.raises(ShapeError, match="planes"):
        I420toRGB().infer([x, x])
