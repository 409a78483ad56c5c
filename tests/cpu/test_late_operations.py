"""Operations node by node, on sizes that only data tells; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cpu.loading import load

F, D, WHOLE, SHORT, B, TEXT = (
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL,
    TensorProto.STRING,
)  # fmt: skip


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(" "), outputs.split(), **attributes)


def model(nodes, inputs, outputs, constants, opset=20) -> bytes:
    """A network of which all inputs are of open sizes."""
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    infos = [
        helper.make_tensor_value_info(name, kind, [None] * rank)
        for name, (kind, rank) in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "g", infos, results, stored)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def compare(core, content, feeds):
    """Infer in a random order, each several times; the first ones judge sizes of new ones, too."""
    session = onnxruntime.InferenceSession(content)
    request = load(core, content).create_infer_request()
    order = np.random.default_rng(5).permutation(np.repeat(np.arange(len(feeds)), 3))
    for number in [*range(len(feeds)), *order]:
        feed = feeds[number]
        got = request.infer(feed)
        wanted = session.run(None, feed)
        for output, want in zip(session.get_outputs(), wanted, strict=True):
            found = got[output.name]
            assert (found.shape, found.dtype) == (want.shape, want.dtype), output.name
            if want.dtype.kind == "f":
                np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5, err_msg=output.name)
            else:
                np.testing.assert_array_equal(found, want, err_msg=output.name)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_one_hot(core, axis, kind):
    """Of depths that data tells, small and large, and indices outside."""
    nodes = [
        node("Reshape", "i minus", "flat"),
        node("OneHot", "i depth values", "y", axis=axis),
        node("OneHot", "flat depth values", "z", axis=min(axis, 0)),
        node("EyeLike", "z", "eye", k=1, dtype=SHORT),
    ]
    result = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    content = model(
        nodes,
        {"i": (WHOLE, 2), "depth": (WHOLE, 0)},
        {"y": result, "z": result, "eye": SHORT},
        {"values": np.array([3, -2], kind), "minus": np.int64([-1])},
    )
    rng = np.random.default_rng(0)
    feeds = [
        {"i": rng.integers(-depth - 3, depth + 3, shape), "depth": np.array(depth)}
        for depth in (1, 5, 64, 65)
        for shape in ((0, 4), (1, 1), (3, 2), (20, 7))
    ]
    compare(core, content, feeds)


def test_ranges_and_repetitions(core):
    """Of floats and integers, stretched either way, tiled, padded and cut."""
    nodes = [
        node("Range", "start stop step", "r"),
        node("CumSum", "r none", "s", exclusive=1, reverse=1),
        node("CumSum", "r none", "t", exclusive=1),
        node("Shape", "r", "n"),
        node("Concat", "n one", "column", axis=0),
        node("Expand", "x column", "wide"),
        node("Expand", "x one", "same"),
        node("Tile", "wide times", "tiled"),
        node("Pad", "wide pads value", "padded"),
        node("Pad", "wide pads", "zeros"),
        node("Pad", "wide pads ", "edge", mode="edge"),
        node("Less", "wide value", "less"),
        node("Where", "less wide value", "chosen"),
        node("Where", "less wide wide", "either"),
        node("Split", "zeros two", "left right", axis=1),
    ]
    outputs = ["r", "s", "t", "wide", "same", "tiled", "padded", "zeros", "edge"]
    outputs += ["chosen", "either", "left", "right"]
    content = model(
        nodes,
        {"start": (F, 0), "stop": (F, 0), "step": (F, 0), "x": (F, 2), "times": (WHOLE, 1),
         "pads": (WHOLE, 1), "two": (WHOLE, 1)},
        dict.fromkeys(outputs, F),
        {"none": np.int64(0), "one": np.int64([1]), "value": np.float32(0.25)},
    )  # fmt: skip
    rng, feeds = np.random.default_rng(1), []
    limits = [(0, 5, 1), (1, 2, 0.1), (3, -2, -0.75), (0.5, 0.5, 1), (2, 1, 1), (-1, 6.5, 2.5)]
    for start, stop, step in limits:
        for columns in (1, 3):
            is_none = (stop - start) / step <= 0  # of which no edge can be repeated
            pads = rng.integers(0, 1 if is_none else 3, 4)
            width = columns + pads[1] + pads[3]
            feed = {
                "start": np.array(start, np.float32),
                "stop": np.array(stop, np.float32),
                "step": np.array(step, np.float32),
                "x": rng.normal(size=(1, columns)).astype(np.float32),
                "times": rng.integers(0, 4, 2),
                "pads": pads,
                "two": np.int64([width // 2, width - width // 2]),
            }
            feeds.append(feed)
    compare(core, content, feeds)


@pytest.mark.parametrize("kind", [F, D, WHOLE, SHORT])
def test_reductions(core, kind):
    """Of rows that a mask keeps, of none as well, along one axis and both."""
    names = ["Sum", "L1", "Mean", "Max", "Min"] + ["Prod"] * (kind in (F, SHORT, WHOLE))
    nodes = [
        node("Compress", "x mask", "rows", axis=0),
        node("Size", "rows", "size"),
        node("Concat", "rows row", "whole", axis=0),
    ]
    for name in names:
        nodes.append(node(f"Reduce{name}", "rows one", f"{name}1", keepdims=0))
        nodes.append(node(f"Reduce{name}", "whole both", f"{name}2", keepdims=1))
    outputs = dict.fromkeys([f"{name}{axes}" for name in names for axes in (1, 2)], kind)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    constants = {"one": np.int64([-1]), "both": np.int64([0, -1]), "row": np.ones((1, 3), dtype)}
    content = model(
        nodes, {"x": (kind, 2), "mask": (B, 1)}, {**outputs, "size": WHOLE}, constants, 18
    )
    rng = np.random.default_rng(2)
    feeds = [
        {"x": rng.integers(-9, 9, (n, 3)).astype(dtype), "mask": rng.random(n) < part}
        for n in (1, 2, 9, 200)
        for part in (0, 0.5, 1)
    ]
    compare(core, content, feeds)


def test_parts_of_texts(core):
    """Of as many parts each, of different ones, and of what ends with a delimiter."""
    nodes = [
        node("StringConcat", "x end", "whole"),
        node("StringSplit", "whole", "parts counts", delimiter="."),
        node("StringSplit", "whole", "few few_counts", delimiter=".", maxsplit=1),
        node("StringSplit", "whole", "more more_counts", delimiter=".."),
        node("Equal", "x end", "less"),
    ]
    content = model(
        nodes,
        {"x": (TEXT, 2), "end": (TEXT, 1)},
        {"parts": TEXT, "counts": WHOLE, "few": TEXT, "few_counts": WHOLE, "more": TEXT,
         "more_counts": WHOLE, "less": B},
        {},
    )  # fmt: skip
    lists = (
        ["a", "b"], ["a.b", "cc.d"], ["", "x"], ["..", ".a", "b.", "a..b"], ["日本.語", "ü.x"],
        ["one.two.three"], [],
    )  # fmt: skip
    feeds = [
        {"x": np.array(each, object).reshape(-1, 1), "end": np.array([end], object)}
        for each in lists
        for end in ("", ".png", "z")
    ]
    compare(core, content, feeds)


def test_parts_of_texts_with_the_character_of_ends(core):
    """Which ONNX Runtime takes no text with: worked by hand."""
    content = model(
        [node("StringSplit", "x", "parts counts", delimiter=".")],
        {"x": (TEXT, 1)},
        {"parts": TEXT, "counts": WHOLE},
        {},
    )
    request = load(core, content).create_infer_request()
    for texts, parts, counts in (
        (["a.\0", "b.c"], [["a", "\0"], ["b", "c"]], [2, 2]),
        (["\0", "\0"], [["\0"], ["\0"]], [1, 1]),
        (["a.\0.b", "c"], [["a", "\0", "b"], ["c", "", ""]], [3, 1]),
        (["a", "\0.\0.c"], [["a", "", ""], ["\0", "\0", "c"]], [1, 3]),
    ):
        got = request.infer({"x": np.array(texts, object)})
        assert got["parts"].tolist() == parts
        assert got["counts"].tolist() == counts
