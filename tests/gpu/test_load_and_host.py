"""What is computed once at load, and what the host computes; OpenVINO is the judge."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.concat import Concat
from polydevice.ops.detection_output import DetectionOutput
from polydevice.ops.math import Exp
from polydevice.ops.nms import NonMaxSuppression
from polydevice.ops.prior_box import PriorBox, PriorBoxClustered
from polydevice.ops.proposal import Proposal
from polydevice.ops.reshape import Reshape, ShapeOf, Unsqueeze
from polydevice.ops.slice import StridedSlice
from polydevice.ops.softmax import SoftMax
from polydevice_gpu import cl
from tests.gpu.graphs import Sketch, check_answers, compiled, openvino_answers, random_inputs

I32, I64 = ElementType.i32, ElementType.i64


@pytest.fixture(scope="module")
def builder(opencl):
    return cl.ProgramBuilder(opencl)


def _sizes(s: Sketch, x, name: str):
    """Height and width of an image, as exporters ask for them."""
    shape = s.add(f"{name}/shape", ShapeOf(output_type=I64), x)
    begin, end = s.const(f"{name}/b", np.array([2])), s.const(f"{name}/e", np.array([4]))
    return s.add(f"{name}/sizes", StridedSlice(begin_mask=(0,), end_mask=(0,)), shape, begin, end)


def _anchors(s: Sketch, image, features):
    sizes = [_sizes(s, port, name) for port, name in ((features, "features"), (image, "image"))]
    one = PriorBox(
        min_size=(4.0,), max_size=(8.0,), aspect_ratio=(2.0,), flip=True, variance=(0.1,)
    )
    two = PriorBoxClustered(width=(3.0, 5.0), height=(4.0, 2.0), variance=(0.1, 0.1, 0.2, 0.2))
    boxes = [s.add("prior", one, *sizes), s.add("clustered", two, *sizes)]
    return s.add("anchors", Concat(axis=1), *boxes)


def _detector(s: Sketch):
    image = s.input("image", 1, 3, 16, 16)
    features = s.add("relu", Relu(), s.conv("conv", image, 8))
    # 16 × 16 cells with 4 + 2 anchors each.
    number = 16 * 16 * 6
    heads = []
    for name, width in (("places", 4), ("classes", 3)):
        head = s.conv(name, features, 6 * width)
        shape = s.const(f"{name}/all", np.array([1, number, width]))
        heads.append(s.add(f"{name}/rows", Reshape(), head, shape))
    flat = s.const("flat", np.array([1, -1]))
    scores = s.add("scores", Reshape(), s.add("soft", SoftMax(axis=2), heads[1]), flat)
    places = s.add("flat places", Reshape(), heads[0], flat)
    anchors = _anchors(s, image, features)
    axis = s.const("axis", np.array([0]))
    op = DetectionOutput(
        nms_threshold=0.45,
        num_classes=3,
        keep_top_k=(20,),
        top_k=40,
        code_type="caffe.PriorBoxParameter.CENTER_SIZE",
        confidence_threshold=0.3,
        normalized=True,
    )
    return s.add("detections", op, places, scores, s.add("priors", Unsqueeze(), anchors, axis))


@pytest.mark.usefixtures("needs_gpu")
def test_anchors_of_a_detector_are_computed_at_load():
    s = Sketch()
    network = s.network(y=_detector(s))
    inputs = random_inputs(network)
    with Core() as core:
        executable = core.load_network(network, "GPU")
        found = executable.infer(inputs)["y"]
        lines = {line.split()[0]: line for line in executable.explain().splitlines()}
    for name in ("features/shape", "image/sizes", "prior", "clustered", "anchors", "priors"):
        assert "computed at load" in lines[name], name
    assert "on the host" in lines["detections"]
    (wanted,) = openvino_answers(network, inputs).values()
    count = int(np.argmax(wanted[0, 0, :, 0] < 0)) if (wanted[0, 0, :, 0] < 0).any() else 20
    assert count > 5
    found, wanted = found[0, 0, :count], wanted[0, 0, :count]
    np.testing.assert_allclose(found[:, 2], wanted[:, 2], 1e-4, 1e-5)  # scores, the best first
    found, wanted = (each[np.argsort(each[:, 3])] for each in (found, wanted))
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)  # those of alike scores in any order


@pytest.mark.usefixtures("needs_gpu")
def test_anchors_of_sizes_that_are_an_input_are_computed_on_the_host():
    s = Sketch()
    sizes = [s.input(name, 2, kind=I64) for name in ("cells", "pixels")]
    op = PriorBox(min_size=(4.0,), aspect_ratio=(2.0,), flip=True, variance=(0.1,))
    y = s.add("twice", Multiply(), s.add("prior", op, *sizes), s.const("two", np.float32(2)))
    network = s.network(y=y)
    with Core() as core:
        executable = core.load_network(network, "GPU")
        for cells in (3, 5):
            inputs = {"cells": np.array([cells, 4]), "pixels": np.array([60, 50])}
            found = executable.infer(inputs)["y"]
            np.testing.assert_allclose(found, openvino_answers(network, inputs)["y"], 1e-5, 1e-6)
        assert "on the host" in executable.explain()


def test_whatever_depends_on_constants_alone_is_computed_once(opencl, builder):
    s = Sketch()
    x = s.input("x", 1, 8, 5, 5)
    image = s.weights("image", 1, 3, 5, 5)
    known = s.add("exp", Exp(), s.conv("hidden", s.conv("first", image, 64), 8))
    shift = s.add("ones", Add(), known, s.const("one", np.float32(1)))
    network = s.network(y=s.add("sum", Add(), s.conv("conv", x, 8), shift), known=known)
    graph = compiled(network)
    names = {node.name for node in graph.nodes}
    assert not {"hidden", "first", "exp", "ones", "sum"} & names
    constants = {
        value.name for node in graph.nodes for value in node.inputs if value.constant is not None
    }
    assert not {"image", "first/w", "hidden/w", "one"} & constants
    check_answers(network, opencl, builder)


@pytest.mark.usefixtures("needs_gpu")
def test_proposals_and_suppression_run_on_the_host():
    s = Sketch()
    features = s.add("relu", Relu(), s.conv("conv", s.input("x", 1, 4, 8, 8), 8))
    scores = s.add("soft", SoftMax(axis=1), s.conv("scores", features, 6))
    info = s.const("info", np.array([128, 128, 1], np.float32))
    op = Proposal(
        base_size=16,
        pre_nms_topn=50,
        post_nms_topn=10,
        nms_thresh=0.7,
        feat_stride=16,
        min_size=4,
        ratio=(0.5, 1.0, 2.0),
        scale=(2.0,),
    )
    rois = s.node("rois", op, scores, s.conv("offsets", features, 12), info)
    doubled = s.add("doubled", Multiply(), rois.outputs[0], s.const("two", np.float32(2)))
    boxes = s.add("boxes", Relu(), s.input("b", 1, 30, 4))
    limits = [s.const(n, np.array(v)) for n, v in (("most", 5), ("iou", np.float32(0.5)))]
    threshold = s.const("threshold", np.float32(0.2))
    kept = s.node("kept", NonMaxSuppression(), boxes, s.input("s", 1, 2, 30), *limits, threshold)
    network = s.network(rois=doubled, kept=kept.outputs[0])
    random = np.random.default_rng(4)
    corners = random.uniform(0, 0.5, (1, 30, 2))
    inputs = {
        "x": random.standard_normal((1, 4, 8, 8)).astype("f4"),
        "b": np.concatenate([corners, corners + random.uniform(0.1, 0.5, (1, 30, 2))], 2).astype(
            "f4"
        ),
        "s": random.uniform(0, 1, (1, 2, 30)).astype("f4"),
    }
    with Core() as core:
        executable = core.load_network(network, "GPU")
        found = executable.infer(inputs)
        text = executable.explain()
    host = [line.split()[0] for line in text.splitlines() if "on the host" in line]
    assert {"rois", "kept"} <= set(host)
    wanted = openvino_answers(network, inputs)
    np.testing.assert_array_equal(found["kept"], wanted["kept"])
    np.testing.assert_allclose(found["rois"], wanted["rois"], 1e-4, 1e-3)
