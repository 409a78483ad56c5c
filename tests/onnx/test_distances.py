"""SVMRegressor and CDist beside ONNX Runtime, and against what NumPy makes of their formulas."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from polydevice import Core
from polydevice.errors import PolydeviceError

VECTORS = {"n_supports": 3, "support_vectors": [float(i) for i in range(9)]}
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def model(kind, domain, inputs, **attributes):
    """One operator on matrices whose rows are of any number."""
    node = helper.make_node(kind, list(inputs), ["y"], "node", domain=domain, **attributes)
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}_rows", features])
        for name, features in inputs.items()
    ]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", ports, result)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def compared(given, feeds, *, atol=2e-5):
    """Answers to each of the feeds, which are ONNX Runtime's as well."""
    session = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
    answers = []
    with Core() as core:
        request = core.load_network(core.read_network(given), "CPU").create_infer_request()
        for feed in feeds:
            (ours,), (theirs,) = request.infer(feed).values(), session.run(None, feed)
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=atol)
            answers.append(ours.copy())
    return answers


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_sums_over_support_vectors(kernel, one_class):
    rng = np.random.default_rng(KERNELS.index(kernel))
    vectors, features = 13, 5
    given = model(
        "SVMRegressor", "ai.onnx.ml", {"x": features},
        kernel_type=kernel,
        kernel_params=[0.11, 0.4, 3.0],
        support_vectors=rng.normal(1, 1, vectors * features).astype(np.float32).tolist(),
        coefficients=rng.normal(size=vectors).astype(np.float32).tolist(),
        rho=[0.3],
        n_supports=vectors,
        one_class=one_class,
    )  # fmt: skip
    rows = [rng.normal(1, 2, (n, features)).astype(np.float32) for n in (1, 7, 40, 2)]
    answers = compared(given, [{"x": x} for x in rows])
    if one_class:
        assert {-1.0, 1.0} >= set(np.concatenate(answers).reshape(-1).tolist())


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_support_vectors_the_coefficients_are_one(kernel):
    rng = np.random.default_rng(8)
    given = model(
        "SVMRegressor", "ai.onnx.ml", {"x": 6},
        kernel_type=kernel,
        kernel_params=[0.2, 1.5, 2.0],
        coefficients=rng.normal(size=6).astype(np.float32).tolist(),
        rho=[-0.7],
    )  # fmt: skip
    compared(given, [{"x": rng.normal(size=(n, 6)).astype(np.float32)} for n in (3, 1)])


def test_rows_far_from_zero_keep_their_digits():
    """exp(-gamma d^2), d in f64 by NumPy: differences of 0.1 between numbers of 1000."""
    rng = np.random.default_rng(4)
    vectors = (1000 + rng.normal(size=(9, 4))).astype(np.float32)
    coefficients = rng.normal(size=9).astype(np.float32)
    given = model(
        "SVMRegressor", "ai.onnx.ml", {"x": 4},
        kernel_type="RBF",
        kernel_params=[0.5, 0.0, 0.0],
        support_vectors=vectors.reshape(-1).tolist(),
        coefficients=coefficients.tolist(),
        rho=[0.0],
        n_supports=9,
    )  # fmt: skip
    x = (1000 + rng.normal(size=(6, 4))).astype(np.float32)
    (ours,) = compared(given, [{"x": x}], atol=1e-4)
    apart = (x[:, None].astype(np.float64) - vectors) ** 2
    expected = np.exp(-0.5 * apart.sum(-1)) @ coefficients
    np.testing.assert_allclose(ours[:, 0], expected, atol=1e-4)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric):
    rng = np.random.default_rng(2)
    given = model("CDist", "com.microsoft", {"a": 7, "b": 7}, metric=metric)
    feeds = [
        {
            "a": rng.normal(size=(n, 7)).astype(np.float32),
            "b": rng.normal(size=(m, 7)).astype(np.float32),
        }
        for n, m in ((1, 5), (4, 1), (30, 17))
    ]
    for feed, ours in zip(feeds, compared(given, feeds), strict=True):
        apart = np.linalg.norm(feed["a"][:, None].astype(np.float64) - feed["b"], axis=-1)
        expected = apart if metric == "euclidean" else apart**2
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


def test_no_distance_is_less_than_none():
    x = np.random.default_rng(1).normal(100, 1, (50, 33)).astype(np.float32)
    given = model("CDist", "com.microsoft", {"a": 33, "b": 33}, metric="euclidean")
    with Core() as core:
        request = core.load_network(core.read_network(given), "CPU").create_infer_request()
        (ours,) = request.infer({"a": x, "b": x}).values()
    assert np.isfinite(ours).all()
    assert ours.min() >= 0


def test_distances_far_from_zero_keep_their_digits():
    """Rows of 1000 that are about 1 apart; NumPy's in f64."""
    rng = np.random.default_rng(3)
    a, b = ((1000 + rng.normal(size=(n, 5))).astype(np.float32) for n in (6, 4))
    given = model("CDist", "com.microsoft", {"a": 5, "b": 5}, metric="euclidean")
    with Core() as core:
        request = core.load_network(core.read_network(given), "CPU").create_infer_request()
        (ours,) = request.infer({"a": a, "b": b}).values()
    apart = np.linalg.norm(a[:, None].astype(np.float64) - b, axis=-1)
    np.testing.assert_allclose(ours, apart, rtol=1e-4)


def test_what_is_no_number_has_no_distance():
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=(n, 4)).astype(np.float32) for n in (3, 5))
    a[1, 2] = np.nan
    given = model("CDist", "com.microsoft", {"a": 4, "b": 4}, metric="sqeuclidean")
    (ours,) = compared(given, [{"a": a, "b": b}])
    assert np.isnan(ours[1]).all()
    given = model(
        "SVMRegressor", "ai.onnx.ml", {"x": 4},
        kernel_type="RBF",
        kernel_params=[0.3, 0.0, 0.0],
        support_vectors=b.reshape(-1).tolist(),
        coefficients=[1.0, -0.5, 0.7, 0.2, 0.4],
        rho=[0.1],
        n_supports=5,
    )  # fmt: skip
    (ours,) = compared(given, [{"x": a}])
    assert np.isnan(ours[:, 0]).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"kernel_type": "COSINE", "n_supports": 3, "support_vectors": [1.0] * 9}, "COSINE"),
        ({"n_supports": 4}, "4 support vectors"),
        ({"n_supports": 3}, "0 numbers of 3 support vectors"),
        ({"post_transform": "LOGISTIC"}, "LOGISTIC"),
        ({"rho": [1.0, 2.0]}, "rho of 2 numbers; legal: 1"),
        ({"kernel_type": "RBF", "kernel_params": [0.5], **VECTORS}, "kernel_params of 1 numbers"),
        ({"kernel_type": "POLY", **VECTORS}, "kernel_params of 0 numbers"),
    ],
)
def test_what_is_not_known_is_said(form, told):
    given = {"coefficients": [1.0, 2.0, 3.0], "rho": [0.0], **form}
    with Core() as core, pytest.raises(PolydeviceError, match=told):
        core.read_network(model("SVMRegressor", "ai.onnx.ml", {"x": 3}, **given))
