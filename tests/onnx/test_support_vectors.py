"""SVMClassifier beside ONNX Runtime: of classes, of pairs of them, with probabilities or none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice import Core
from polydevice.errors import UnsupportedOperationError
from tests.onnx.models import onnxruntime_outputs, run, value

pytestmark = pytest.mark.usefixtures("compiled_sparingly")

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
FEATURES = 3


def settings(rng, classes, kernel="RBF", *, likely=False, whole=False, positive=False):
    """Attributes of a classifier; `whole` for one without support vectors."""

    def numbers(*shape):
        return rng.normal(size=shape).astype(np.float32)

    pairs, counts = classes * (classes - 1) // 2, rng.integers(2, 6, classes)
    made = {"kernel_type": kernel, "kernel_params": [0.3, 0.1, 2.0]}
    if whole:
        coefficients, made["rho"] = numbers(classes * FEATURES), numbers(1).tolist()
    else:
        made["vectors_per_class"] = counts.tolist()
        made["support_vectors"] = numbers(counts.sum() * FEATURES).tolist()
        coefficients, made["rho"] = numbers((classes - 1) * counts.sum()), numbers(pairs).tolist()
    made["coefficients"] = (abs(coefficients) if positive else coefficients).tolist()
    if likely:
        made["prob_a"], made["prob_b"] = (-abs(numbers(pairs))).tolist(), numbers(pairs).tolist()
    return made


def model(labels, rows="n", **attributes):
    kind = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_ints"
    given = {kind: labels, **attributes}
    node = helper.make_node("SVMClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", **given)
    label = TensorProto.STRING if isinstance(labels[0], str) else TensorProto.INT64
    outputs = [value("label", [None], label), value("y", None)]
    graph = helper.make_graph([node], "svm", [value("x", [rows, FEATURES])], outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def compared(proto, device, *feeds):
    for x in feeds:
        label, scores = onnxruntime_outputs(proto, x)
        for _ in range(2):
            ours = run(proto, x, device=device)
            np.testing.assert_array_equal(ours[0], label)
            assert ours[1].dtype == scores.dtype
            np.testing.assert_allclose(ours[1], scores, 1e-4, 2e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("likely", [False, True])
def test_pairs_vote(device, kernel, classes, likely):
    rng = np.random.default_rng(classes)
    labels = [f"class {n}" for n in range(classes)] if likely else [*range(7, 7 + classes)]
    proto = model(labels, **settings(rng, classes, kernel, likely=likely))
    compared(proto, device, *(rng.normal(size=(n, FEATURES)).astype(np.float32) for n in (1, 9)))


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(
    ("classes", "likely", "whole"),
    [(2, False, False), (2, True, False), (4, False, False), (4, True, False), (3, False, True)],
)
def test_transforms(device, transform, classes, likely, whole):
    rng = np.random.default_rng(3)
    given = settings(rng, classes, likely=likely, whole=whole)
    proto = model([*range(classes)], 6, post_transform=transform, **given)
    compared(proto, device, rng.normal(size=(6, FEATURES)).astype(np.float32))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("more", [0, 1])
def test_without_support_vectors_each_class_has_a_sum(device, classes, positive, more):
    rng = np.random.default_rng(classes)
    given = settings(rng, classes, whole=True, positive=positive)
    given["rho"] = given["rho"] * (1 + more)
    proto = model([*range(10, 10 + classes)], **given)
    compared(proto, device, rng.normal(size=(20, FEATURES)).astype(np.float32))


def test_a_cycle_of_votes_goes_to_the_first_class(device):
    """Of three classes each beats the next one, and so all of them have one vote."""
    given = {
        "kernel_type": "LINEAR",
        "kernel_params": [0.0, 0.0, 0.0],
        "vectors_per_class": [1, 1, 1],
        "support_vectors": [0.0] * 9,
        "coefficients": [0.0] * 6,
        "rho": [1.0, -1.0, 1.0],
    }
    proto = model([5, 6, 7], **given)
    label, scores = run(proto, np.zeros((2, FEATURES), np.float32), device=device)
    np.testing.assert_array_equal(label, [5, 5])
    np.testing.assert_array_equal(scores, [[1, -1, 1]] * 2)
    compared(proto, device, np.zeros((2, FEATURES), np.float32))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"coefficients": [1.0] * 5}, "5 coefficients"),
        ({"support_vectors": []}, "0 numbers of"),
        ({"rho": [1.0, 2.0]}, "rho of 2 numbers; legal: 3"),
        ({"prob_a": [1.0]}, "prob_a and prob_b of 1 and 3"),
        ({"vectors_per_class": [4, 4]}, "vectors_per_class"),
        ({"vectors_per_class": [-1, 4, 4]}, "vectors_per_class"),
        ({"kernel_type": "COSINE"}, "kernel_type 'COSINE'"),
        ({"classlabels_ints": [3]}, "1 labels"),
    ],
)
def test_what_does_not_fit_is_refused(changes, reason):
    given = settings(np.random.default_rng(0), 3, likely=True)
    kept = {name: item for name, item in {**given, **changes}.items() if item != []}
    labels = kept.pop("classlabels_ints", [1, 2, 3])
    with Core() as core, pytest.raises(UnsupportedOperationError, match=reason):
        core.read_network(model(labels, **kept).SerializeToString())


def test_one_score_of_two_classes_has_no_probit():
    given = settings(np.random.default_rng(0), 2)
    proto = model([1, 2], post_transform="PROBIT", **given)
    with Core() as core, pytest.raises(UnsupportedOperationError, match="PROBIT"):
        core.read_network(proto.SerializeToString())


def test_probabilities_near_the_end_of_their_iteration(device):
    """Many rows, which end after different numbers of iterations."""
    rng = np.random.default_rng(11)
    for classes in (2, 6):
        given = settings(rng, classes, "LINEAR", likely=True)
        proto = model([*range(classes)], **given)
        x = rng.normal(0, 2, (200, FEATURES)).astype(np.float32)
        _, theirs = onnxruntime_outputs(proto, x)
        _, ours = run(proto, x, device=device)
        # Where rounding lets one end an iteration sooner, it is as near as the other had to be.
        is_same = np.isclose(ours, theirs, 1e-4, 2e-5).all(1)
        assert is_same.mean() > 0.97
        np.testing.assert_allclose(ours, theirs, atol=0.05)
    assert len(list(itertools.combinations(range(6), 2))) == len(given["prob_a"])
