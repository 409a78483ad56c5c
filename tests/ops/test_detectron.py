"""The ExperimentalDetectron operations."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.errors import ShapeError
from polydevice.ops.detectron import (
    ExperimentalDetectronDetectionOutput,
    ExperimentalDetectronGenerateProposalsSingleImage,
    ExperimentalDetectronPriorGridGenerator,
    ExperimentalDetectronROIFeatureExtractor,
    ExperimentalDetectronTopKROIs,
)
from polydevice.tensor import desc_of
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(25)


def regions(number, size=60):
    corner = RNG.uniform(0, size, (number, 2))
    return np.concatenate([corner, corner + RNG.uniform(4, 30, (number, 2))], -1).astype(np.float32)


@pytest.mark.parametrize(("per_class", "limit"), [(100, 20), (3, 20)])
def test_detection_output(device, per_class, limit):
    classes = 4
    op = ExperimentalDetectronDetectionOutput(
        score_threshold=0.3,
        nms_threshold=0.4,
        max_delta_log_wh=2.0,
        num_classes=classes,
        post_nms_count=per_class,
        max_detections_per_image=limit,
        deltas_weights=(10.0, 10.0, 5.0, 5.0),
    )
    rois = regions(limit)
    rois[3, 2:] = rois[3, :2]  # an empty one
    offsets = RNG.normal(0, 1, (limit, classes * 4)).astype(np.float32)
    scores = (RNG.permutation(limit * classes) / (limit * classes)).astype(np.float32)
    inputs = [rois, offsets, scores.reshape(limit, classes), np.float32([[80, 90, 1]])]
    check(openvino_case(op, *inputs), device)


@pytest.mark.parametrize(("pre", "post"), [(100, 30), (20, 10)])
def test_generate_proposals(device, pre, post):
    op = ExperimentalDetectronGenerateProposalsSingleImage(
        min_size=6.0, nms_threshold=0.5, post_nms_count=post, pre_nms_count=pre
    )
    offsets = RNG.normal(0, 0.3, (12, 4, 5)).astype(np.float32)
    scores = (RNG.permutation(60).reshape(3, 4, 5) / 60 + 0.1).astype(np.float32)
    image, rois = np.float32([80, 90, 1]), regions(60)
    others = [image, rois, -offsets, scores[:, ::-1]]
    check(openvino_case(op, image, rois, offsets, scores, others=others), device)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"flatten": False}, {"stride_x": 8.0, "stride_y": 4.0}],
)
def test_prior_grid(device, attributes):
    op = ExperimentalDetectronPriorGridGenerator(**attributes)
    priors = regions(3)
    features = np.zeros((1, 4, 3, 5), np.float32)
    image = np.zeros((1, 3, 48, 100), np.float32)
    check(openvino_case(op, priors, features, image), device)


def test_prior_grid_of_given_size(device):
    # OpenVINO forgets h and w when it infers the shape
    op = ExperimentalDetectronPriorGridGenerator(h=1, w=2)
    image = np.zeros((1, 3, 10, 40), np.float32)
    priors = np.float32([[-1, -2, 1, 2]])
    expected = np.float32([[9, 3, 11, 7], [29, 3, 31, 7]])
    check(OpCase(op, [priors, np.zeros((1, 1, 3, 5), np.float32), image], [expected]), device)


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("aligned", [True, False])
def test_roi_features(device, ratio, aligned):
    op = ExperimentalDetectronROIFeatureExtractor(
        output_size=4, sampling_ratio=ratio, pyramid_scales=(4, 8, 16), aligned=aligned
    )
    levels = [
        RNG.standard_normal((1, 3, 256 // s, 320 // s)).astype(np.float32) for s in (4, 8, 16)
    ]
    rois = regions(8, 150)
    rois[:, 2:] += RNG.uniform(0, 150, (8, 1)).astype(np.float32)
    check(openvino_case(op, rois, *levels), device)


def test_a_region_without_area_has_no_features(device):
    op = ExperimentalDetectronROIFeatureExtractor(
        output_size=2, sampling_ratio=2, pyramid_scales=(4,)
    )
    rois = np.float32([[5, 5, 5, 9]])
    expected = [np.zeros((1, 1, 2, 2), np.float32), rois]
    check(OpCase(op, [rois, np.ones((1, 1, 9, 9), np.float32)], expected), device)


@pytest.mark.parametrize("limit", [3, 7])
def test_top_rois(device, limit):
    probabilities = RNG.permutation(7).astype(np.float32)
    op = ExperimentalDetectronTopKROIs(max_rois=limit)
    check(openvino_case(op, regions(7), probabilities), device)


def test_refuses():
    x = desc_of(np.zeros((1, 4), np.float32))
    op = ExperimentalDetectronROIFeatureExtractor(
        output_size=2, sampling_ratio=2, pyramid_scales=(4,)
    )
    with pytest.raises(ShapeError, match="pyramid_scales"):
        op.infer([x])
