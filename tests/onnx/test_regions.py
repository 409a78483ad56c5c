"""RoiAlign and MaxRoiPool of many regions, as ONNX Runtime computes them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.onnx.models import model, onnxruntime_outputs, run, value


def corners(rng, number, width, height):
    """[number, 4]: some partly and wholly outside, and one of no size."""
    first = rng.uniform(0, 0.6, (number, 2)) * (width, height)
    boxes = np.concatenate([first, first + rng.uniform(0.1, 0.4, (number, 2)) * (width, height)], 1)
    boxes[0] -= 9
    boxes[1] += 1000
    boxes[2, 2:] = boxes[2, :2]
    return boxes.astype(np.float32)


def compare(proto, inputs, device):
    (expected,) = onnxruntime_outputs(proto, *inputs)
    for _ in range(2):
        (answer,) = run(proto, *inputs, device=device)
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(70, 5, 9, 11), (3, 17, 40, 31)])
@pytest.mark.parametrize(("pooled", "ratio"), [((3, 5), 0), ((5, 2), 3)])
@pytest.mark.parametrize("mode", ["output_half_pixel", "half_pixel"])
def test_roi_align(device, rng, sizes, pooled, ratio, mode):
    """More regions than are computed at once, and a few of maps of which they read little."""
    number, channels, height, width = sizes
    node = helper.make_node(
        "RoiAlign",
        ["x", "rois", "batches"],
        ["y"],
        coordinate_transformation_mode=mode,
        output_height=pooled[0],
        output_width=pooled[1],
        sampling_ratio=ratio,
        spatial_scale=0.5,
    )
    x = rng.standard_normal((2, channels, height, width)).astype(np.float32)
    rois = corners(rng, number, 2 * width, 2 * height)
    inputs = [
        value("x", x.shape),
        value("rois", rois.shape),
        value("batches", [number], TensorProto.INT64),
    ]
    compare(model([node], inputs), [x, rois, rng.integers(0, 2, number)], device)


@pytest.mark.parametrize("pooled", [(7, 7), (3, 20)])
def test_max_roi_pool(device, rng, pooled):
    node = helper.make_node(
        "MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=pooled, spatial_scale=0.5
    )
    x = rng.standard_normal((2, 5, 13, 17)).astype(np.float32)
    images = rng.integers(0, 2, (20, 1)).astype(np.float32)
    rois = np.concatenate([images, np.round(corners(rng, 20, 34, 26))], 1)
    compare(model([node], [value("x", x.shape), value("rois", rois.shape)]), [x, rois], device)
