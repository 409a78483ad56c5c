"""DetectionOutput."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.detection_output import CODE_TYPES, DetectionOutput
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

PRIORS, CLASSES, IMAGES = 24, 4, 2


def network_outputs(rng, *, share, normalized, variances=True, batches=1):
    of_location = 1 if share else CLASSES
    location = rng.normal(0, 0.3, (IMAGES, PRIORS * of_location * 4)).astype(np.float32)
    scores = rng.permutation(IMAGES * PRIORS * CLASSES) / (IMAGES * PRIORS * CLASSES)
    centre = rng.uniform(0.1, 0.9, (batches, PRIORS, 2))
    size = rng.uniform(0.1, 0.4, (batches, PRIORS, 2))
    boxes = np.concatenate([centre - size / 2, centre + size / 2], -1)
    if not normalized:
        boxes = np.concatenate([np.zeros((batches, PRIORS, 1)), boxes * 100], -1)
    rows = [boxes.reshape(batches, -1)]
    if variances:
        row = np.zeros_like(rows[0])
        row[:, : PRIORS * 4] = np.tile([0.1, 0.1, 0.2, 0.2], PRIORS)
        rows.append(row)
    priors = np.stack(rows, 1).astype(np.float32)
    return location, scores.reshape(IMAGES, -1).astype(np.float32), priors


@pytest.mark.parametrize(
    ("code", "share", "normalized", "decrease"),
    list(itertools.product(CODE_TYPES, [True, False], [True, False], [True, False])),
)
@pytest.mark.parametrize(("top", "keep"), [(-1, 10), (6, -1), (8, 3)])
def test_detection_output(device, code, share, normalized, decrease, top, keep):
    rng = np.random.default_rng(19)
    inputs = network_outputs(rng, share=share, normalized=normalized)
    op = DetectionOutput(
        num_classes=CLASSES,
        background_label_id=0,
        top_k=top,
        keep_top_k=(keep,),
        code_type=code,
        share_location=share,
        nms_threshold=0.3,
        confidence_threshold=0.2,
        normalized=normalized,
        decrease_label_id=decrease,
        input_height=1 if normalized else 100,
        input_width=1 if normalized else 100,
    )
    check(openvino_case(op, *inputs, opset=1), device)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("batches", [1, IMAGES])
def test_clipping_and_encoded_variances(device, before, after, batches):
    rng = np.random.default_rng(20)
    inputs = network_outputs(rng, share=True, normalized=True, variances=False, batches=batches)
    op = DetectionOutput(
        background_label_id=-1,
        top_k=20,
        keep_top_k=(15,),
        code_type=CODE_TYPES[1],
        nms_threshold=0.45,
        confidence_threshold=0.1,
        clip_before_nms=before,
        clip_after_nms=after,
        normalized=True,
        variance_encoded_in_target=True,
    )
    check(openvino_case(op, *inputs), device)


@pytest.mark.parametrize("decrease", [True, False])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("spread", [0.05, 0.9])
@pytest.mark.parametrize(
    ("threshold", "top", "keep", "background"),
    [(0.01, 40, 100, 0), (0.9, 100, 100, 0), (0.3, -1, 7, 2), (0.98, 3, -1, 20), (0.0, 1, 20, -1)],
)
def test_many_classes(device, spread, share, decrease, threshold, top, keep, background):
    """In crowds and apart, of one class more than others, and few above the threshold."""
    rng = np.random.default_rng(23)
    images, number, classes = 2, 150, 21
    centre = rng.uniform(0.5 - spread / 2, 0.5 + spread / 2, (1, number, 2))
    size = rng.uniform(0.05, 0.3, (1, number, 2))
    boxes = np.concatenate([centre - size / 2, centre + size / 2], -1).reshape(1, -1)
    priors = np.stack([boxes, np.tile([0.1, 0.1, 0.2, 0.2], (1, number))], 1).astype(np.float32)
    offsets = number * (1 if share else classes) * 4
    location = rng.normal(0, 0.3, (images, offsets)).astype(np.float32)
    scores = rng.permutation(images * number * classes) / (images * number * classes)
    scores[5::classes] **= 0.2
    scores = scores.astype(np.float32).reshape(images, -1)
    op = DetectionOutput(
        background_label_id=0 if decrease else background,  # OpenVINO knows no others
        top_k=top,
        keep_top_k=(keep,),
        code_type=CODE_TYPES[1],
        share_location=share,
        nms_threshold=0.45,
        confidence_threshold=threshold,
        normalized=True,
        decrease_label_id=decrease,
    )
    check(openvino_case(op, location, scores, priors), device)


def test_of_equal_scores_the_first_priors_stay(device):
    """Worked by hand: boxes apart, of which the best three are kept, then listed by class."""
    corners = np.arange(6)[:, None] / 10 + np.array([0, 0, 0.05, 0.05])
    scores = np.array(
        [[0, 0.5, 0.7], [0, 0.5, 0], [0, np.nan, 0.5], [0, 0, 0], [0, 0.5, 0.5], [9, 0, 0.2]]
    )
    op = DetectionOutput(
        num_classes=3,
        keep_top_k=(3,),
        code_type=CODE_TYPES[0],
        nms_threshold=0.5,
        confidence_threshold=0.3,
        normalized=True,
        variance_encoded_in_target=True,
    )
    inputs = np.zeros((1, 24)), scores.reshape(1, -1), corners.reshape(1, 1, -1)
    want = [[0, 1, 0.5, *corners[0]], [0, 1, 0.5, *corners[1]], [0, 2, 0.7, *corners[0]]]
    arrays = [np.asarray(each, np.float32) for each in inputs]
    check(OpCase(op, arrays, [np.array(want, np.float32).reshape(1, 1, 3, 7)]), device)


@pytest.mark.parametrize("share", [True])
def test_two_stages(device, share):
    rng = np.random.default_rng(21)
    inputs = network_outputs(rng, share=share, normalized=True, batches=IMAGES)
    arm_scores = rng.uniform(0, 1, (IMAGES, PRIORS * 2)).astype(np.float32)
    arm_location = rng.normal(0, 0.3, (IMAGES, PRIORS * 4)).astype(np.float32)
    op = DetectionOutput(
        background_label_id=0,
        top_k=-1,
        keep_top_k=(12,),
        code_type=CODE_TYPES[1],
        nms_threshold=0.4,
        confidence_threshold=0.1,
        normalized=True,
        objectness_score=0.3,
    )
    check(openvino_case(op, *inputs, arm_scores, arm_location), device)


def test_unknown_sizes():
    op = DetectionOutput(nms_threshold=0.5, keep_top_k=(7,))
    descs = [TensorDesc(ElementType.f32, Shape(s)) for s in ([None, 96], [None, 96], [1, 2, None])]
    assert op.infer(descs)[0].shape == Shape([1, 1, None, 7])
    descs[0] = descs[0].with_shape([Dim(1, 2), 96])
    assert op.infer(descs)[0].shape == Shape([1, 1, Dim(7, 14), 7])
    with pytest.raises(ShapeError, match="takes 3 or 5"):
        op.infer(descs[:2])
    with pytest.raises(ShapeError, match="code_type"):
        op.replace(code_type="x").infer(descs)
