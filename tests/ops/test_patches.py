"""ExtractImagePatches and Col2Im."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.patches import Col2Im, ExtractImagePatches
from polydevice.ops.window import PadType
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(13)


@pytest.mark.parametrize("auto_pad", [PadType.VALID, PadType.SAME_UPPER, PadType.SAME_LOWER])
@pytest.mark.parametrize(
    ("sizes", "strides", "rates"),
    [
        ((3, 3), (5, 5), (1, 1)),
        ((2, 3), (1, 2), (2, 1)),
        ((4, 4), (8, 8), (1, 1)),
        ((1, 1), (2, 3), (1, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_extract_image_patches(device, auto_pad, sizes, strides, rates, dtype):
    x = RNG.integers(0, 100, (2, 3, 10, 9)).astype(dtype)
    op = ExtractImagePatches(sizes=sizes, strides=strides, rates=rates, auto_pad=auto_pad)
    check(openvino_case(op, x), device)


def test_extract_image_patches_of_unknown_sizes():
    op = ExtractImagePatches(sizes=(3, 3), strides=(2, 2), rates=(1, 1), auto_pad=PadType.VALID)
    x = TensorDesc(ElementType.f32, Shape([1, 3, Dim(2, 9), None]))
    assert op.infer([x])[0].shape == Shape([1, 27, Dim(0, 4), None])


@pytest.mark.parametrize(
    ("size", "kernel", "attributes"),
    [
        ((5, 6), (2, 3), {}),
        ((7, 6), (3, 2), {"strides": (2, 2), "pads_begin": (1, 0), "pads_end": (1, 2)}),
        ((8, 9), (2, 3), {"dilations": (2, 3)}),
    ],
)
@pytest.mark.parametrize("batch", [(2,), ()])
def test_col2im(device, size, kernel, attributes, batch):
    attributes = {
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads_begin": (0, 0),
        "pads_end": (0, 0),
        **attributes,
    }
    op = Col2Im(**attributes)
    positions = int(np.prod(op.places(size, kernel)))
    x = RNG.standard_normal((*batch, 3 * int(np.prod(kernel)), positions)).astype(np.float32)
    inputs = [x, np.array(size, np.int64), np.array(kernel, np.int64)]
    check(openvino_case(op, *inputs, constants={1, 2}), device)


def test_col2im_of_unknown_sizes():
    image, kernel = desc_of(np.array([3, 3])), desc_of(np.array([2, 2]))
    (made,) = Col2Im().infer([TensorDesc(ElementType.f32, Shape([1, 12, Dim()])), image, kernel])
    assert made.shape == Shape([1, 3, 3, 3])


def test_col2im_refuses():
    x = TensorDesc(ElementType.f32, Shape([1, 12, 5]))
    with pytest.raises(ShapeError, match="positions"):
        Col2Im().infer([x, desc_of(np.array([3, 3])), desc_of(np.array([2, 2]))])
    with pytest.raises(ShapeError, match="multiple"):
        Col2Im().infer([x, desc_of(np.array([3, 3])), desc_of(np.array([5, 1]))])
