"""NonMaxSuppression, NMSRotated, MatrixNms and MulticlassNms."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.nms import (
    BoxEncoding,
    DecayFunction,
    MatrixNms,
    MulticlassNms,
    NMSRotated,
    NonMaxSuppression,
    NonMaxSuppressionPadded,
    SortResult,
)
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case


def detections(batches, classes, number, seed=17):
    """Boxes in clusters, so that many overlap, and scores that all differ."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0, 20, (batches, number, 2)).round(1)
    sizes = rng.uniform(2, 8, (batches, number, 2)).round(1)
    boxes = np.concatenate([centres - sizes / 2, centres + sizes / 2], -1).astype(np.float32)
    scores = rng.permutation(batches * classes * number).reshape(batches, classes, number)
    return boxes, (scores / scores.size).astype(np.float32)


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


@pytest.mark.parametrize("encoding", list(BoxEncoding))
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(("limit", "iou", "least"), [(5, 0.5, 0.1), (100, 0.2, 0.0), (2, 0.7, 0.5)])
@pytest.mark.parametrize("kind", [ElementType.i32, ElementType.i64])
def test_non_max_suppression(device, encoding, descending, limit, iou, least, kind):
    boxes, scores = detections(2, 3, 40)
    if encoding is BoxEncoding.CENTER:
        boxes[..., 2:] = np.abs(boxes[..., 2:])
    op = NonMaxSuppression(
        box_encoding=encoding, sort_result_descending=descending, output_type=kind
    )
    limits = [scalar(limit, np.int64), scalar(iou), scalar(least)]
    check(openvino_case(op, boxes, scores, *limits, constants={2, 3, 4}), device)


@pytest.mark.parametrize("limit", [1, 63, 64, 65, 150, 1000])
@pytest.mark.parametrize("iou", [0.05, 0.6])
def test_many_boxes(device, limit, iou):
    """More than are judged at once, with limits around that number."""
    boxes, scores = detections(1, 2, 333)
    limits = [scalar(limit, np.int64), scalar(iou), scalar(0.1)]
    check(openvino_case(NonMaxSuppression(), boxes, scores, *limits, constants={2, 3, 4}), device)


@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_a_limit_that_stands_for_none(device, sigma):
    boxes, scores = detections(1, 2, 5)
    limits = [scalar(2**63 - 1, np.int64), scalar(0.5), scalar(0.1), scalar(sigma)]
    check(
        openvino_case(NonMaxSuppression(), boxes, scores, *limits, constants={2, 3, 4, 5}), device
    )


@pytest.mark.parametrize("limit", [3, 20, 40, 5000])
def test_so_many_boxes_that_only_the_best_are_sorted(device, limit):
    """Of 5,000 in few places about 27 remain: limits of 40 and 5,000 are never reached."""
    boxes, scores = detections(1, 1, 5000)
    limits = [scalar(limit, np.int64), scalar(0.05), scalar(0.1)]
    check(openvino_case(NonMaxSuppression(), boxes, scores, *limits, constants={2, 3, 4}), device)


@pytest.mark.parametrize("spread", [2, 10, 60])
@pytest.mark.parametrize(("limit", "iou"), [(3, 0.1), (400, 0.5), (30, 0.7)])
def test_crowds_of_classes_of_uneven_sizes(device, spread, limit, iou):
    """From almost every box close to all others to a few; one class has none above the least."""
    rng = np.random.default_rng(spread)
    centres = rng.uniform(0, spread, (2, 130, 2))
    sizes = rng.uniform(2, 8, (2, 130, 2))
    boxes = np.concatenate([centres - sizes / 2, centres + sizes / 2], -1).astype(np.float32)
    _, scores = detections(2, 6, 130)
    scores *= np.float32([1, 0.3, 0.05, 0.8, 0.104, 1])[:, None]
    limits = [scalar(limit, np.int64), scalar(iou), scalar(0.1)]
    check(openvino_case(NonMaxSuppression(), boxes, scores, *limits, constants={2, 3, 4}), device)


@pytest.mark.parametrize("spread", [2, 200])
def test_boxes_without_area_or_that_are_no_number_remove_none(spread):
    boxes, scores = detections(1, 2, 90)
    boxes *= np.float32(spread / 20)
    boxes[0, ::9, 1] = np.nan
    boxes[0, 1::9, 2] = boxes[0, 1::9, 0]
    limits = [scalar(100, np.int64), scalar(0.3), scalar(0.1)]
    outcome = run(NonMaxSuppression(), [boxes, scores, *limits])
    kept = {(c, b) for _, c, b in outcome[0].tolist()}
    whole = np.delete(np.arange(90), np.r_[0:90:9, 1:90:9])
    others = run(NonMaxSuppression(), [boxes[:, whole], scores[:, :, whole], *limits])
    expected = {(c, int(whole[b])) for _, c, b in others[0].tolist()}
    above = {(c, b) for c, b in np.argwhere(scores[0] > np.float32(0.1)).tolist() if b % 9 < 2}
    assert kept == expected | above


def test_a_limit_of_no_boxes(device):
    """By hand: OpenVINO leaves the number of boxes unwritten, so that it answers what lay there."""
    boxes, scores = detections(2, 2, 40)
    limits = [scalar(0, np.int64), scalar(0.05), scalar(0.1)]
    expected = [np.zeros((0, 3), np.int64), np.zeros((0, 3), np.float32), np.array([0])]
    op = NonMaxSuppression()
    check(OpCase(op, [boxes, scores, *limits], expected, constants={2, 3, 4}), device)


def test_corners_in_any_order(device):
    boxes, scores = detections(1, 2, 20)
    boxes = boxes[..., [2, 1, 0, 3]]
    limits = [scalar(20, np.int64), scalar(0.4), scalar(0.0)]
    check(openvino_case(NonMaxSuppression(), boxes, scores, *limits, constants={2, 3, 4}), device)


@pytest.mark.parametrize("sigma", [0.5, 0.1])
def test_soft_suppression(device, sigma):
    boxes, scores = detections(2, 2, 15)
    limits = [scalar(8, np.int64), scalar(1.0), scalar(0.05), scalar(sigma)]
    op = NonMaxSuppression()
    check(openvino_case(op, boxes, scores, *limits, constants={2, 3, 4, 5}), device)


def test_soft_suppression_by_hand(device):
    # two boxes that overlap by a third, and one apart
    boxes = np.float32([[[0, 0, 1, 2], [0, 1, 1, 3], [5, 5, 6, 6]]])
    scores = np.float32([[[0.9, 0.8, 0.3]]])
    decayed = 0.8 * np.exp(-0.5 / 0.5 / 9)
    limits = [scalar(3, np.int64), scalar(0.1), scalar(0.0), scalar(0.5)]
    expected = [
        np.array([[0, 0, 0], [0, 0, 1], [0, 0, 2]]),
        np.float32([[0, 0, 0.9], [0, 0, decayed], [0, 0, 0.3]]),
        np.array([3]),
    ]
    case = OpCase(NonMaxSuppression(), [boxes, scores, *limits], expected, constants={2, 3, 4, 5})
    check(case, device)


def test_the_old_versions_fill_up(device):
    boxes = np.float32([[[0, 0, 1, 1], [0, 0, 1, 1.1], [4, 4, 5, 5]]])
    scores = np.float32([[[0.9, 0.8, 0.7]]])
    limits = [scalar(3, np.int64), scalar(0.5), scalar(0.0)]
    expected = np.array([[0, 0, 0], [0, 0, 2], [-1, -1, -1]])
    for op in (
        NonMaxSuppressionPadded(),
        NonMaxSuppressionPadded.from_ir({"box_encoding": "corner"}, 1),
    ):
        case = OpCase(op, [boxes, scores, *limits], [expected], constants={2, 3, 4})
        check(case, device)


def test_without_a_limit_nothing_is_selected(device):
    boxes, scores = detections(1, 2, 4)
    expected = [np.zeros((0, 3), np.int64), np.zeros((0, 3), np.float32), np.array([0])]
    check(OpCase(NonMaxSuppression(), [boxes, scores], expected), device)


def test_scores_that_are_no_number_are_ignored(device):
    boxes = np.float32([[[0, 0, 1, 1], [4, 4, 5, 5]]])
    scores = np.float32([[[np.nan, 0.5]]])
    limits = [scalar(3, np.int64), scalar(0.5), scalar(0.0)]
    expected = [np.array([[0, 0, 1]]), np.float32([[0, 0, 0.5]]), np.array([1])]
    case = OpCase(NonMaxSuppression(), [boxes, scores, *limits], expected, constants={2, 3, 4})
    check(case, device)


def test_unknown_sizes():
    boxes = TensorDesc(ElementType.f32, Shape([1, Dim(0, 50), 4]))
    scores = TensorDesc(ElementType.f32, Shape([None, 3, None]))
    limit = desc_of(scalar(10, np.int64))
    shapes = [y.shape for y in NonMaxSuppression().infer([boxes, scores, limit])]
    assert shapes == [Shape([Dim(0, 30), 3])] * 2 + [Shape([1])]
    with pytest.raises(ShapeError, match="boxes"):
        NonMaxSuppression().infer([boxes.with_shape([1, 7, 5]), scores])
    with pytest.raises(ShapeError, match="scores"):
        NonMaxSuppression().infer([boxes, scores.with_shape([1, 7])])


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("clockwise", [True, False])
@pytest.mark.parametrize(("limit", "iou", "least"), [(50, 0.3, 0.1), (3, 0.6, 0.0)])
def test_nms_rotated(device, descending, clockwise, limit, iou, least):
    rng = np.random.default_rng(18)
    boxes, scores = detections(2, 2, 25)
    size = boxes[..., 2:] - boxes[..., :2]
    turned = np.concatenate(
        [boxes[..., :2] + size / 2, size, rng.uniform(-2, 2, (2, 25, 1))], -1
    ).astype(np.float32)
    op = NMSRotated(sort_result_descending=descending, clockwise=clockwise)
    limits = [scalar(limit, np.int64), scalar(iou), scalar(least)]
    check(openvino_case(op, turned, scores, *limits, constants={2, 3, 4}), device)


@pytest.mark.parametrize("sort", [SortResult.SCORE, SortResult.CLASSID])
@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("decay", list(DecayFunction))
@pytest.mark.parametrize(
    ("top", "keep", "background", "normalized"),
    [(-1, -1, -1, True), (8, 12, 0, True), (20, 5, 1, False)],
)
def test_matrix_nms(device, sort, across, decay, top, keep, background, normalized):
    boxes, scores = detections(2, 3, 30)
    op = MatrixNms(
        sort_result_type=sort,
        sort_result_across_batch=across,
        decay_function=decay,
        nms_top_k=top,
        keep_top_k=keep,
        background_class=background,
        normalized=normalized,
        score_threshold=0.1,
        post_threshold=0.05,
        output_type=ElementType.i32,
    )
    case = openvino_case(op, boxes, scores)
    if sort is SortResult.CLASSID and not across:
        # OpenVINO leaves them sorted by score here
        return
    check(case, device)


@pytest.mark.parametrize("sort", [SortResult.SCORE, SortResult.CLASSID])
@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("eta", [1.0, 0.8])
@pytest.mark.parametrize(
    ("top", "keep", "background", "normalized"),
    [(-1, -1, -1, True), (8, 12, 0, True), (20, 5, 1, False)],
)
def test_multiclass_nms(device, sort, across, eta, top, keep, background, normalized):
    boxes, scores = detections(2, 3, 30)
    op = MulticlassNms(
        sort_result_type=sort,
        sort_result_across_batch=across,
        nms_eta=eta,
        nms_top_k=top,
        keep_top_k=keep,
        background_class=background,
        normalized=normalized,
        score_threshold=0.1,
        iou_threshold=0.6,
        output_type=ElementType.i32,
    )
    check(openvino_case(op, boxes, scores), device)


@pytest.mark.parametrize("keep", [-1, 6])
def test_multiclass_nms_with_counts(device, keep):
    boxes, scores = detections(3, 3, 30)
    counts = np.array([12, 0, 18], np.int32)
    op = MulticlassNms(
        sort_result_type=SortResult.SCORE,
        keep_top_k=keep,
        iou_threshold=0.3,
        score_threshold=0.2,
        output_type=ElementType.i64,
    )
    check(openvino_case(op, boxes, scores[:, 0], counts), device)
