"""Linear models of ai.onnx.ml and what stands before them, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import polydevice.compat.onnxruntime
from polydevice.errors import UnsupportedOperationError
from tests.onnx.models import ONE_SCORE, onnxruntime_outputs, run

pytestmark = pytest.mark.usefixtures("compiled_sparingly")

Rng = np.random.Generator
ROWS, FEATURES, LABELS = 7, 5, 3
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def _model(
    op_type: str, inputs: dict[str, int], outputs: dict[str, int], **attributes: Any
) -> onnx.ModelProto:
    node = helper.make_node(op_type, [*inputs], [*outputs], domain="ai.onnx.ml", **attributes)
    ins = [helper.make_tensor_value_info(name, t, ["n", None]) for name, t in inputs.items()]
    outs = [helper.make_tensor_value_info(name, t, None) for name, t in outputs.items()]
    graph = helper.make_graph([node], "linear", ins, outs)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _compare(proto: onnx.ModelProto, device: str, *inputs: np.ndarray) -> None:
    wanted = onnxruntime_outputs(proto, *inputs)
    for _ in range(2):
        for here, there in zip(run(proto, *inputs, device=device), wanted, strict=True):
            assert here.dtype == there.dtype
            if here.dtype.kind == "f":
                np.testing.assert_allclose(here, there, 1e-5, 1e-5)
            else:
                np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("labels", [{"classlabels_ints": [4, -2, 9]}, None])
def test_classifier(transform: str, labels: Any, device: str, rng: Rng) -> None:
    labels = labels or {"classlabels_strings": ["ant", "bee", "cat"]}
    proto = _model(
        "LinearClassifier",
        {"x": FLOAT},
        {"label": STRING if "classlabels_strings" in labels else INT64, "scores": FLOAT},
        coefficients=rng.standard_normal(LABELS * FEATURES).tolist(),
        intercepts=rng.standard_normal(LABELS).tolist(),
        post_transform=transform,
        **labels,
    )
    _compare(proto, device, rng.standard_normal((ROWS, FEATURES)).astype(np.float32))


@pytest.mark.parametrize("transform", ["NONE", pytest.param("LOGISTIC", marks=ONE_SCORE)])
def test_one_score_for_two_labels(transform: str, device: str, rng: Rng) -> None:
    proto = _model(
        "LinearClassifier",
        {"x": FLOAT},
        {"label": INT64, "scores": FLOAT},
        coefficients=rng.standard_normal(FEATURES).tolist(),
        intercepts=[0.1],
        classlabels_ints=[3, 8],
        post_transform=transform,
    )
    _compare(proto, device, rng.standard_normal((ROWS, FEATURES)).astype(np.float32))


@pytest.mark.parametrize("intercepts", [True, False])
def test_regressor(intercepts: bool, device: str, rng: Rng) -> None:
    added = {"intercepts": rng.standard_normal(2).tolist()} if intercepts else {}
    proto = _model(
        "LinearRegressor",
        {"x": FLOAT},
        {"y": FLOAT},
        coefficients=rng.standard_normal(2 * FEATURES).tolist(),
        targets=2,
        **added,
    )
    _compare(proto, device, rng.standard_normal((ROWS, FEATURES)).astype(np.float32))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str, device: str, rng: Rng) -> None:
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    x[1] = -np.abs(x[1])
    x[2] = 0
    _compare(_model("Normalizer", {"x": FLOAT}, {"y": FLOAT}, norm=norm), device, x)


def test_one_hot_encoder(device: str, rng: Rng) -> None:
    numbers = _model("OneHotEncoder", {"x": INT64}, {"y": FLOAT}, cats_int64s=[4, 1, 7])
    _compare(numbers, device, rng.integers(0, 8, (ROWS, 2)))
    texts = _model("OneHotEncoder", {"x": STRING}, {"y": FLOAT}, cats_strings=["a", "bc"])
    _compare(texts, device, rng.choice(np.array(["a", "bc", "d"], object), (ROWS, 2)))


@pytest.mark.parametrize("missing", [float("nan"), 2.0])
def test_imputer(missing: float, device: str, rng: Rng) -> None:
    x = rng.integers(0, 4, (ROWS, 3)).astype(np.float32)
    x[rng.random(x.shape) < 0.3] = missing
    values = {"imputed_value_floats": [0.5, 1.5, 2.5], "replaced_value_float": missing}
    _compare(_model("Imputer", {"x": FLOAT}, {"y": FLOAT}, **values), device, x)


def test_feature_vectorizer(device: str, rng: Rng) -> None:
    proto = _model(
        "FeatureVectorizer", {"a": FLOAT, "b": FLOAT}, {"y": FLOAT}, inputdimensions=[2, 3]
    )
    a, b = (rng.standard_normal((ROWS, width)).astype(np.float32) for width in (2, 3))
    _compare(proto, device, a, b)


@pytest.mark.parametrize("known", [False, True])
def test_features_are_cut_or_followed_by_zeros(known: bool, device: str, rng: Rng) -> None:
    """Of each input as many as `inputdimensions` says."""
    dimensions = [2, 3, 1, 0]
    proto = _model(
        "FeatureVectorizer", dict.fromkeys("abcd", FLOAT), {"y": FLOAT}, inputdimensions=dimensions
    )
    inputs = [rng.standard_normal((ROWS, width)).astype(np.float32) for width in (4, 1, 1, 2)]
    if known:
        for given, x in zip(proto.graph.input, inputs, strict=True):
            given.CopyFrom(helper.make_tensor_value_info(given.name, FLOAT, x.shape))
    _compare(proto, device, *inputs)


@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [7, -2]}, {"classlabels_strings": ["ant", "bee"]}]
)
@pytest.mark.parametrize("sizes", [(ROWS, 2), (2,)])
def test_zip_map(labels: Any, sizes: tuple[int, ...], device: str, rng: Rng) -> None:
    """As onnxruntime tells it; the maps are the network's output, beside what others read."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["scores"]),
        helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", **labels),
    ]
    maps = helper.make_map_type_proto(
        INT64 if "classlabels_int64s" in labels else STRING,
        helper.make_tensor_type_proto(FLOAT, []),
    )
    outputs = [
        helper.make_value_info("maps", helper.make_sequence_type_proto(maps)),
        helper.make_tensor_value_info("scores", FLOAT, None),
    ]
    given = helper.make_tensor_value_info("x", FLOAT, [None] * len(sizes))
    graph = helper.make_graph(nodes, "maps", [given], outputs)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    content = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    x = rng.standard_normal(sizes).astype(np.float32)
    providers = ["PolydeviceGPU" if device.startswith("GPU") else "PolydeviceCPU"]
    ours = polydevice.compat.onnxruntime.InferenceSession(content, providers=providers)
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert ours.get_outputs()[0].type == theirs.get_outputs()[0].type
    for _ in range(2):
        (here, scores), (there, right) = ours.run(None, {"x": x}), theirs.run(None, {"x": x})
        np.testing.assert_allclose(scores, right, 1e-5, 1e-6)
        assert [list(row) for row in here] == [list(row) for row in there]
        np.testing.assert_allclose(
            [list(row.values()) for row in here], [list(row.values()) for row in there], 1e-5, 1e-6
        )


@pytest.mark.parametrize(
    ("op_type", "attributes", "words"),
    [
        ("ZipMap", {}, "classlabels_int64s are missing"),
        ("OneHotEncoder", {"cats_int64s": [1], "zeros": 0}, "handle_unknown='ignore'"),
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "targets": 2}, "3 coefficients"),
        ("Normalizer", {"norm": "L3"}, "legal: MAX, L1, L2"),
    ],
)
def test_refused(op_type: str, attributes: dict[str, Any], words: str) -> None:
    proto = _model(op_type, {"x": FLOAT}, {"y": FLOAT}, **attributes)
    with pytest.raises(UnsupportedOperationError, match=words):
        run(proto, np.ones((2, 2), np.float32))
