"""Regions of a map, upright, rotated and deformed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.op import Op
from polydevice.ops.roi import (
    AlignedMode,
    DeformablePSROIPooling,
    PSROIPooling,
    ROIAlign,
    ROIAlignRotated,
    RoiMode,
    ROIPooling,
)
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data
from tests.ops.openvino_oracle import openvino_case


def _regions(data: Data, *image: float) -> Array:
    """Return regions of a 9 by 11 map, the second partly outside it."""
    boxes = np.array([[1, 2, 7.5, 6], [-3, 4, 5, 12], [4, 4, 4.5, 5]], data.dtype)
    return np.concatenate([np.array(image, data.dtype).reshape(-1, 1), boxes], axis=1)


def roi_align(data: Data) -> Iterator[OpCase]:
    boxes, images = _regions(data, 0, 1, 0)[:, 1:], np.array([0, 1, 0], np.int32)
    for mode, ratio in ((RoiMode.AVG, 2), (RoiMode.AVG, 0), (RoiMode.MAX, 3)):
        op = ROIAlign(
            pooled_h=3, pooled_w=2, sampling_ratio=ratio, spatial_scale=0.5, mode=mode,
            aligned_mode=AlignedMode.HALF_PIXEL_FOR_NN,
        )  # fmt: skip
        yield openvino_case(op, data(2, 3, 9, 11), boxes, images)


def roi_pooling(data: Data) -> Iterator[OpCase]:
    x = data(2, 3, 9, 11)
    op = ROIPooling(pooled_h=3, pooled_w=2, spatial_scale=0.5)
    yield openvino_case(op, x, np.abs(_regions(data, 0, 1, 0)))
    boxes = np.array([[0, 0, 0.25, 0.75, 1], [1, 0.5, 0.5, 1, 1]], data.dtype)
    yield openvino_case(op.replace(method="bilinear", spatial_scale=1.0), x, boxes)


def ps_roi_pooling(data: Data) -> Iterator[OpCase]:
    x = data(2, 18, 9, 11)
    op = PSROIPooling(output_dim=2, spatial_scale=0.5, group_size=3)
    yield openvino_case(op, x, np.abs(_regions(data, 0, 1, 0)))


def deformable(data: Data) -> Iterator[OpCase]:
    x = data(2, 18, 9, 11)
    op = DeformablePSROIPooling(
        output_dim=2, spatial_scale=0.5, group_size=3, mode="bilinear_deformable",
        spatial_bins_x=2, spatial_bins_y=3, trans_std=0.1, part_size=3,
    )  # fmt: skip
    rois = np.abs(_regions(data, 0, 1, 0))
    yield openvino_case(op, x, rois)
    yield openvino_case(op, x, rois, data(3, 2, 3, 3))


def rotated(data: Data) -> Iterator[OpCase]:
    sizes = data.random.uniform((4, 4, 2, 2, -3), (16, 16, 12, 12, 3), (5, 5)).astype(data.dtype)
    for ratio, clockwise in ((0, True), (2, False)):
        op = ROIAlignRotated(
            pooled_h=2, pooled_w=3, sampling_ratio=ratio, spatial_scale=0.5,
            clockwise_mode=clockwise,
        )  # fmt: skip
        yield openvino_case(op, data(2, 3, 9, 11), sizes, np.int32([0, 1, 0, 1, 1]))


CASES: dict[type[Op], Cases] = {
    ROIAlign: roi_align,
    ROIPooling: roi_pooling,
    PSROIPooling: ps_roi_pooling,
    DeformablePSROIPooling: deformable,
    ROIAlignRotated: rotated,
}
