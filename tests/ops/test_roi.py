"""ROIPooling, PSROIPooling, DeformablePSROIPooling, ROIAlign and ROIAlignRotated."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import onnx.reference
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, ShapeError
from polydevice.ops.roi import (
    AlignedMode,
    DeformablePSROIPooling,
    PSROIPooling,
    ROIAlign,
    ROIAlignRotated,
    RoiMode,
    ROIPooling,
)
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(26)


def features(channels, height=9, width=11, images=2):
    return RNG.standard_normal((images, channels, height, width)).astype(np.float32)


def regions(number, size, images=2):
    """[number, 5]: image, x1, y1, x2, y2 within `size` (x, y)."""
    first = RNG.uniform(0, 0.6, (number, 2)) * size
    second = first + RNG.uniform(0.1, 0.39, (number, 2)) * size
    image = RNG.integers(0, images, (number, 1))
    return np.concatenate([image, first, second], -1).astype(np.float32)


@pytest.mark.parametrize(("height", "width"), [(2, 3), (6, 6), (1, 1)])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_roi_pooling_max(device, height, width, scale):
    op = ROIPooling(pooled_h=height, pooled_w=width, spatial_scale=scale, method="max")
    rois = regions(5, np.array([11, 9]) / scale)
    check(openvino_case(op, features(3), rois), device)


@pytest.mark.parametrize(("height", "width"), [(2, 3), (6, 6), (1, 1)])
def test_roi_pooling_bilinear(device, height, width):
    op = ROIPooling(pooled_h=height, pooled_w=width, spatial_scale=1.0, method="bilinear")
    check(openvino_case(op, features(3), regions(5, np.array([1, 1]))), device)


def test_roi_pooling_of_many_regions_partly_outside(device):
    op = ROIPooling(pooled_h=4, pooled_w=3, spatial_scale=1.0, method="bilinear")
    rois = regions(70, np.array([1, 1]))
    rois[::3, 1:3] -= 0.3
    rois[1::3, 3:] += 0.55
    rois[2, 1:] = [0, 0, 1, 1]
    check(openvino_case(op, features(3), rois), device)


def test_roi_pooling_outside_the_image_gives_zeros(device):
    op = ROIPooling(pooled_h=1, pooled_w=2, spatial_scale=1.0, method="max")
    rois = np.float32([[0, 20, 20, 30, 30], [0, 0, 0, 1, 0]])
    x = np.float32([[[[-1, -2], [3, 4]]]])
    check(OpCase(op, [x, rois], [np.float32([[[[0, 0]]], [[[-1, -2]]]])]), device)


def test_a_region_of_no_image_is_refused():
    op = ROIPooling(pooled_h=1, pooled_w=2, spatial_scale=1.0)
    for bad in (np.float32([[2, 0, 0, 1, 1]]), np.float32([[-1, 0, 0, 1, 1]])):
        with pytest.raises(InferenceError, match="batch has 2"):
            run(op, [features(1), bad])
    with pytest.raises(InferenceError, match="too large"):
        run(op, [features(1), np.float32([[0, 0, 0, np.inf, 1]])])


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_psroi_pooling_average(device, size, scale):
    op = PSROIPooling(output_dim=2, spatial_scale=scale, group_size=size, mode="average")
    rois = regions(5, np.array([11, 9]) / scale)
    check(openvino_case(op, features(2 * size * size), rois), device)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(("bins_x", "bins_y"), [(2, 3), (1, 1)])
def test_psroi_pooling_bilinear(device, size, bins_x, bins_y):
    op = PSROIPooling(
        output_dim=2,
        spatial_scale=1.0,
        group_size=size,
        spatial_bins_x=bins_x,
        spatial_bins_y=bins_y,
        mode="bilinear",
    )
    check(openvino_case(op, features(2 * bins_x * bins_y), regions(5, np.array([1, 1]))), device)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize(("bins", "part"), [(4, 3), (1, 1)])
def test_deformable_psroi_pooling(device, offsets, bins, part):
    op = DeformablePSROIPooling(
        output_dim=4,
        spatial_scale=0.5,
        group_size=3,
        spatial_bins_x=bins,
        spatial_bins_y=bins,
        trans_std=0.2,
        part_size=part,
    )
    inputs = [features(36), regions(4, np.array([22, 18]))]
    if offsets:
        inputs.append(RNG.uniform(-1, 1, (4, 4, part, part)).astype(np.float32))
    check(openvino_case(op, *inputs), device)


@pytest.mark.parametrize("aligned", list(AlignedMode))
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", list(RoiMode))
@pytest.mark.parametrize(("scale", "channels"), [(1.0, 3), (0.3, 3), (0.7, 150)])
def test_roi_align(device, aligned, ratio, mode, scale, channels):
    op = ROIAlign(
        pooled_h=2,
        pooled_w=3,
        sampling_ratio=ratio,
        spatial_scale=scale,
        mode=mode,
        aligned_mode=aligned,
    )
    rois = regions(5, np.array([11, 9]) / scale)
    x = features(channels)
    inputs = [x, rois[:, 1:], rois[:, 0].astype(np.int32)]
    check(openvino_case(op, *inputs), device)


@pytest.mark.parametrize("mode", list(RoiMode))
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align_of_onnx(device, mode, coordinates, ratio):
    attributes = {
        "mode": mode.value,
        "coordinate_transformation_mode": coordinates,
        "output_height": 2,
        "output_width": 3,
        "sampling_ratio": ratio,
        "spatial_scale": 0.7,
    }
    rois = regions(5, np.array([13, 11]))
    rois[0, 1:] -= 4  # partly outside
    inputs = [features(3), rois[:, 1:].copy(), rois[:, 0].astype(np.int64)]
    node = onnx.helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"], **attributes)
    answers = onnx.reference.ReferenceEvaluator(node).run(
        None, dict(zip(("x", "rois", "batch"), inputs, strict=True))
    )
    check(OpCase(ROIAlign.from_onnx(attributes, 22), inputs, answers), device)


@pytest.mark.parametrize("mode", list(RoiMode))
def test_roi_align_of_a_region_without_area(device, mode):
    """All samples of a bin are one point, where their number is given."""
    op = ROIAlign(
        pooled_h=2,
        pooled_w=3,
        sampling_ratio=2,
        spatial_scale=1.0,
        mode=mode,
        aligned_mode=AlignedMode.HALF_PIXEL_FOR_NN,
    )
    rois = np.float32([[3.25, 4.5, 3.25, 4.5], [3, 4, 3, 6], [20, 4, 20, 4], [-0.5, 0, -0.5, 9]])
    check(openvino_case(op, features(3), rois, np.int32([0, 1, 0, 1])), device)


def test_no_regions(device):
    op = ROIAlign(pooled_h=2, pooled_w=3, sampling_ratio=2, spatial_scale=1.0, mode=RoiMode.AVG)
    inputs = [features(3), np.zeros((0, 4), np.float32), np.zeros(0, np.int64)]
    check(OpCase(op, inputs, [np.zeros((0, 3, 2, 3), np.float32)]), device)


def test_an_aligned_region_of_no_image_is_refused():
    op = ROIAlign(pooled_h=2, pooled_w=3, sampling_ratio=2, spatial_scale=1.0, mode=RoiMode.AVG)
    for bad in (2, -1):
        with pytest.raises(InferenceError, match=f"image {bad}, but the batch has 2"):
            run(op, [features(1), np.ones((2, 4), np.float32), np.array([0, bad])])


def test_roi_align_of_a_huge_region_is_bounded(device):
    op = ROIAlign(pooled_h=1, pooled_w=1, sampling_ratio=0, spatial_scale=1.0, mode=RoiMode.AVG)
    inputs = [
        np.ones((1, 1, 4, 4), np.float32),
        np.float32([[-4e8, -4e8, 4e8, 4e8]]),
        np.array([0]),
    ]
    # nearly all of its samples lie outside the image, where they are 0
    check(OpCase(op, inputs, [np.zeros((1, 1, 1, 1), np.float32)], tolerance=(0, 1e-6)), device)


@pytest.mark.parametrize("ratio", [3, 40])
def test_many_samples_take_little_memory(ratio):
    """Of planes that rise evenly, the average of a bin is what lies in its middle."""
    op = ROIAlign(
        pooled_h=24, pooled_w=20, sampling_ratio=ratio, spatial_scale=1.0, mode=RoiMode.AVG
    )
    down, across = np.mgrid[:50, :60].astype(np.float32)
    x = np.stack([down, across, 2 * down - across])[np.newaxis]
    rois = np.concatenate([RNG.uniform(1, 9, (50, 2)), RNG.uniform(20, 48, (50, 2))], 1)
    tracemalloc.start()
    try:
        (y,) = run(op, [x, rois.astype(np.float32), np.zeros(50, np.int64)])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64 << 20
    left, top, right, bottom = rois.T[:, :, np.newaxis]
    rows = (top + (np.arange(24) + 0.5) * (bottom - top) / 24)[:, :, np.newaxis]
    columns = (left + (np.arange(20) + 0.5) * (right - left) / 20)[:, np.newaxis]
    want = np.stack(np.broadcast_arrays(rows, columns, 2 * rows - columns), 1)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("clockwise", [True, False])
def test_roi_align_rotated(device, ratio, clockwise):
    op = ROIAlignRotated(
        pooled_h=2, pooled_w=3, sampling_ratio=ratio, spatial_scale=0.5, clockwise_mode=clockwise
    )
    rois = np.concatenate(
        [RNG.uniform(4, 16, (5, 2)), RNG.uniform(2, 12, (5, 2)), RNG.uniform(-3, 3, (5, 1))], -1
    ).astype(np.float32)
    inputs = [features(3), rois, RNG.integers(0, 2, 5).astype(np.int32)]
    check(openvino_case(op, *inputs), device)


def test_a_rotated_region_of_many_samples_is_taken(device):
    """130 × 130 of them in one bin: more than the sides of the map suggest, fewer than its area."""
    op = ROIAlignRotated(
        pooled_h=1, pooled_w=1, sampling_ratio=0, spatial_scale=1.0, clockwise_mode=True
    )
    x = RNG.standard_normal((1, 2, 80, 70)).astype(np.float32)
    rois = np.float32([[35, 40, 129.5, 129.5, 0.3]])
    check(openvino_case(op, x, rois, np.zeros(1, np.int32)), device)


def test_unknown_sizes():
    op = ROIAlign(pooled_h=2, pooled_w=3, sampling_ratio=2, spatial_scale=1.0, mode=RoiMode.AVG)
    x = TensorDesc(ElementType.f32, Shape([None, 3, None, None]))
    rois = TensorDesc(ElementType.f32, Shape([Dim(0, 9), 4]))
    batches = TensorDesc(ElementType.i64, Shape([None]))
    assert op.infer([x, rois, batches])[0].shape == Shape([Dim(0, 9), 3, 2, 3])
    with pytest.raises(ShapeError, match="R, 4"):
        op.infer([x, rois.with_shape([3, 5]), batches])
    with pytest.raises(ShapeError, match="channels"):
        PSROIPooling(output_dim=2, spatial_scale=1.0, group_size=3).infer([x, rois])
