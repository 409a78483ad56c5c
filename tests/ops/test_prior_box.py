"""PriorBox and PriorBoxClustered."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.interval import Interval
from polydevice.ops.prior_box import PriorBox, PriorBoxClustered
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

LAYER, IMAGE = np.array([3, 5], np.int64), np.array([60, 110], np.int64)


@pytest.mark.parametrize(
    "attributes",
    [
        {"min_size": (8.0,), "aspect_ratio": (2.0,), "flip": True, "step": 16.0},
        {
            "min_size": (8.0, 12.0),
            "max_size": (16.0, 20.0),
            "aspect_ratio": (2.0, 3.0),
            "flip": True,
            "clip": True,
            "variance": (0.1, 0.1, 0.2, 0.2),
            "offset": 0.5,
        },
        {
            "min_size": (8.0,),
            "max_size": (16.0,),
            "aspect_ratio": (1.0, 2.0, 0.5),
            "step": 10.0,
            "variance": (0.3,),
        },
        {
            "min_size": (0.2, 0.3),
            "aspect_ratio": (2.0,),
            "scale_all_sizes": False,
            "step": 0.25,
            "offset": 0.5,
        },
        {"min_size": (0.2, 0.3), "aspect_ratio": (2.0,), "scale_all_sizes": False, "step": -1.0},
        {"fixed_size": (32.0, 64.0), "density": (2.0, 1.0), "fixed_ratio": (2.0,)},
        {"fixed_size": (31.0,), "density": (3.0,), "aspect_ratio": (2.0,), "flip": True},
        {
            "min_size": (8.0,),
            "max_size": (16.0,),
            "aspect_ratio": (2.0,),
            "min_max_aspect_ratios_order": False,
        },
    ],
)
def test_prior_box(device, attributes):
    op = PriorBox(**attributes)
    opset = 8 if "min_max_aspect_ratios_order" in attributes else 1
    check(openvino_case(op, LAYER, IMAGE, opset=opset, constants=True), device)


@pytest.mark.parametrize(
    "attributes",
    [
        {"width": (8.0, 20.0), "height": (12.0, 30.0)},
        {"width": (8.0,), "height": (12.0,), "step": 16.0, "offset": 0.5, "clip": False},
        {
            "width": (80.0, 2.0, 3.0),
            "height": (120.0, 3.0, 2.0),
            "step_w": 20.0,
            "step_h": 18.0,
            "offset": 0.5,
            "variance": (0.1, 0.1, 0.2, 0.2),
        },
    ],
)
def test_prior_box_clustered(device, attributes):
    op = PriorBoxClustered(**attributes)
    check(openvino_case(op, LAYER, IMAGE, constants=True), device)


def test_unknown_sizes():
    op = PriorBox(min_size=(8.0,), aspect_ratio=(2.0,), flip=True)
    layer = TensorDesc(ElementType.i64, Shape([2]), np.array([Interval(2, 4), 5], object))
    assert op.infer([layer, desc_of(IMAGE)])[0].shape == Shape([2, Dim(120, 240)])
    assert op.infer([layer.without_value(), desc_of(IMAGE)])[0].shape == Shape([2, None])
    with pytest.raises(ShapeError, match="variance"):
        PriorBox(variance=(1.0, 2.0)).infer([layer, layer])
