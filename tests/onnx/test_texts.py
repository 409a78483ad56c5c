"""Texts through operators that only move elements; ONNX Runtime is the judge."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core


@pytest.mark.parametrize("index", [0, -6, [2], [[1, -1], [3, 0]], []])
def test_gather_of_texts(index):
    value = helper.make_tensor_value_info
    indices = numpy_helper.from_array(np.array(index, np.int64), "i")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"])], "texts",
        [value("x", TensorProto.STRING, [7])], [value("y", TensorProto.STRING, None)], [indices],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content)
    with Core() as core, core.load_network(core.read_network(content), "CPU") as network:
        for texts in (["", "a", "bb", "äöü", "5", "six", "7"], list("gfedcba")):
            x = np.array(texts, object)
            (want,) = session.run(None, {"x": x})
            got = network.infer({"x": x})["y"]
            assert got.dtype == object and got.shape == np.shape(want)
            np.testing.assert_array_equal(got, want)


def on_both(node, inputs, initializers, feed, kind=TensorProto.STRING) -> np.ndarray:
    """Run one operator on texts here and in ONNX Runtime; return what both answer."""
    info = helper.make_tensor_value_info
    given = [info(name, TensorProto.STRING, shape) for name, shape in inputs.items()]
    outputs = [info("y", kind, None)]
    graph = helper.make_graph([node], "texts", given, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    content = model.SerializeToString()
    (want,) = onnxruntime.InferenceSession(content).run(None, feed)
    with Core() as core, core.load_network(core.read_network(content), "CPU") as network:
        np.testing.assert_array_equal(network.infer(feed)["y"], want)
    return want


def test_scattered_texts():
    node = helper.make_node("ScatterElements", ["x", "i", "new"], ["y"], axis=0)
    indices = numpy_helper.from_array(np.array([2, -4]), "i")
    feed = {"x": np.array(list("abcd"), object), "new": np.array(["", "äöü"], object)}
    found = on_both(node, {"x": [4], "new": [2]}, [indices], feed)
    assert found.tolist() == ["äöü", "b", "", "d"]


def test_transposed_texts():
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    found = on_both(node, {"x": [2, 2]}, [], {"x": np.array([["a", "äöü"], ["", "d"]], object)})
    assert found.tolist() == [["a", ""], ["äöü", "d"]]


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?i)[^a-z]", r"(?i)[^\W]", r"(?i)s", r"(?i)\w", r"(?i)\W", r"(?i)σ", r"(?i)[^σ]",
        r"(?i)[ß-ö]", r"(?i)[[:^alpha:]]", r"(?i:k)|å", r"(?i)ǆ", r"(?i)ı", r"(?i)[^İi]",
        r"\101", r"\0", r"[\07\60-\071]", r"\C", r"\C\C", r"(?i)\C{2}|s", r"a\C*", r"\C*\b",
    ],
)  # fmt: skip
def test_regular_expressions(pattern):
    texts = ["", "a\0é", "ss", "aß", *"AakKåÅ1_SsſéÉßẞöÖσςΣıiIİǄǅǆﬁ\0\7\u212a\u212b日😀"]
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)
    on_both(node, {"x": [len(texts)]}, [], {"x": np.array(texts, object)}, TensorProto.BOOL)


@pytest.mark.parametrize("given", [{}, {"default_int64": 5, "default_float": 1.5}, {"tensor": 7}])
@pytest.mark.parametrize("kind", ["i8", "i4", "i2", "f4", "f8", "O"])
def test_what_unknown_labels_become(kind, given):
    """-1, -0.0 or "_Unused", unless an attribute says otherwise, a tensor before others."""
    known = np.array(["nine"] if kind == "O" else [9], kind)
    wanted = {"f": -0.0, "O": "_Unused"}.get(known.dtype.kind, -1)
    wanted = {"i8": 5, "f4": 1.5}.get(kind, wanted) if "default_float" in given else wanted
    if "tensor" in given:
        wanted = "seven" if kind == "O" else known.dtype.type(7).item()
        given = {"default_tensor": numpy_helper.from_array(np.array([wanted], kind), "d")}
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_int64s=[4],
        values_tensor=numpy_helper.from_array(known, "v"), **given,
    )  # fmt: skip
    numbers = helper.make_tensor_value_info("x", TensorProto.INT64, [3])
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(known.dtype), [3])
    graph = helper.make_graph([node], "labels", [numbers], [result])
    imports = [helper.make_opsetid("ai.onnx.ml", 4)]
    content = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    with Core() as core, core.load_network(core.read_network(content), "CPU") as network:
        found = network.infer({"x": np.array([4, 3, 5])})["y"]
    assert found.dtype == known.dtype
    assert list(map(repr, found.tolist())) == list(map(repr, [*known.tolist(), wanted, wanted]))
    if kind in ("i8", "f4", "O"):  # which ONNX Runtime has
        session = onnxruntime.InferenceSession(content)
        assert session.run(None, {"x": np.array([4, 3, 5])})[0].tolist() == found.tolist()
