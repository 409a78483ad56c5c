"""Proposal and GenerateProposals."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.proposal import GenerateProposals, Proposal
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case


def proposal(**attributes):
    return Proposal(
        **{
            "base_size": 16,
            "pre_nms_topn": 60,
            "post_nms_topn": 12,
            "nms_thresh": 0.6,
            "feat_stride": 16,
            "min_size": 8,
            "ratio": (0.5, 1.0, 2.0),
            "scale": (2.0, 4.0),
            **attributes,
        }
    )


def outputs(rng, images=2, anchors=6, height=4, width=5):
    count = images * anchors * height * width
    scores = rng.permutation(2 * count).reshape(images, 2 * anchors, height, width) / (2 * count)
    offsets = rng.normal(0, 0.3, (images, 4 * anchors, height, width))
    return scores.astype(np.float32), offsets.astype(np.float32)


@pytest.mark.parametrize("framework", ["", "tensorflow"])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("opset", [1, 4])
def test_proposal(device, framework, before, after, normalize, opset):
    rng = np.random.default_rng(22)
    op = proposal(
        framework=framework,
        clip_before_nms=before,
        clip_after_nms=after,
        normalize=normalize,
        with_scores=opset == 4,
    )
    image = np.float32([70, 90, 1.0])
    inputs, others = [*outputs(rng), image], [*outputs(rng), image]
    check(openvino_case(op, *inputs, others=others, opset=opset), device)


@pytest.mark.parametrize("image", [(70, 90, 1.5), (70, 90, 1.5, 2.0)])
def test_proposal_scales_and_runs_out(device, image):
    rng = np.random.default_rng(23)
    op = proposal(
        box_size_scale=2.0, box_coordinate_scale=3.0, nms_thresh=0.05, min_size=20, post_nms_topn=40
    )
    scores, offsets = outputs(rng, images=1)
    inputs = [scores, offsets, np.float32(image)]
    others = [*outputs(rng, images=1), np.float32(image)]

    def expected(values):
        rois, best = openvino_case(op, *values).answers()
        end = int(np.argmax(rois[:, 0] == -1))
        best[end:] = 0  # OpenVINO leaves these as they are in memory
        return rois, best

    check(OpCase(op, inputs, expected, others=others), device)


def test_proposal_refuses():
    x = TensorDesc(ElementType.f32, Shape([1, 12, 4, 5]))
    image = TensorDesc(ElementType.f32, Shape([3]))
    with pytest.raises(ShapeError, match="24 channels"):
        proposal().infer([x, x, image])
    with pytest.raises(ShapeError, match="three or four"):
        proposal().infer([x, x, x])


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("nms", "pre", "post"), [(0.5, 40, 10), (0.2, 100, 100), (0.8, 15, 20)])
@pytest.mark.parametrize("kind", [ElementType.i32, ElementType.i64])
def test_generate_proposals(device, normalized, nms, pre, post, kind):
    rng = np.random.default_rng(24)
    corner = rng.uniform(0, 60, (4, 5, 3, 2))
    anchors = np.concatenate([corner, corner + rng.uniform(8, 40, (4, 5, 3, 2))], -1)
    offsets = rng.normal(0, 0.3, (2, 12, 4, 5)).astype(np.float32)
    scores = (rng.permutation(120).reshape(2, 3, 4, 5) / 120).astype(np.float32)
    op = GenerateProposals(
        min_size=5.0,
        nms_threshold=nms,
        pre_nms_count=pre,
        post_nms_count=post,
        normalized=normalized,
        roi_num_type=kind,
    )
    info = np.float32([[80, 90, 1, 1], [70, 100, 1, 2]])
    check(openvino_case(op, info, anchors.astype(np.float32), offsets, scores), device)


def test_generate_proposals_of_unknown_sizes():
    op = GenerateProposals(min_size=1.0, nms_threshold=0.5, pre_nms_count=9, post_nms_count=5)
    shapes = [[Dim(1, 3), 3], [4, 5, 3, 4], [None, 12, 4, 5], [None, 3, 4, 5]]
    found = op.infer([TensorDesc(ElementType.f32, Shape(s)) for s in shapes])
    assert [y.shape for y in found] == [
        Shape([Dim(0, 15), 4]),
        Shape([Dim(0, 15)]),
        Shape([Dim(1, 3)]),
    ]
