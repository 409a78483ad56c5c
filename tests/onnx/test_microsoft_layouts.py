"""ONNX Runtime's operators on channels that lie last, or in blocks, beside ONNX Runtime."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.errors import UnsupportedOperationError
from polydevice.processor.machine_code import processor_flags
from polydevice.readers.onnx.operators import microsoft_nchwc
from tests.onnx.microsoft import MS, check
from tests.onnx.microsoft import codes as _q
from tests.onnx.microsoft import scale as _scale

F = np.float32
BLOCKS = "com.microsoft.nchwc"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def quantised(scale, zero, kind=np.uint8):
    return _scale(scale), np.array(zero, kind)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_convolution_of_integers(rng, last, group, bias):
    shape = (2, 9, 8, 4) if last else (2, 4, 9, 8)
    inputs = [
        *(_q(rng, *shape), *quantised(0.02, 120)),
        *(
            rng.integers(-60, 60, (8, 4 // group, 3, 2)).astype(np.int8),
            *quantised(0.01, 0, np.int8),
        ),
        *quantised(0.05, 100),
        rng.integers(-500, 500, 8).astype(np.int32) if bias else None,
    ]
    check(
        "QLinearConv", inputs, stored=(1, 2, 3, 4, 5, 6, 7, *((8,) if bias else ())), atol=1.0,
        byte_output=True, channels_last=last, group=group, pads=[1, 0, 1, 1], strides=[2, 1],
    )  # fmt: skip


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("dilations", [[1, 1], [2, 1]])
def test_largest_of_windows(rng, kind, dilations):
    x = rng.integers(0, 120, (2, 9, 8, 5)).astype(kind)
    node = helper.make_node(
        "NhwcMaxPool", ["x"], ["y"], domain=MS, kernel_shape=[3, 2], strides=[2, 1],
        pads=[1, 1, 0, 0], dilations=dilations,
    )  # fmt: skip
    compared([node], {"x": x}, kind=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def test_averages(rng):
    x = [_q(rng, 2, 9, 8, 5), *quantised(0.02, 120), *quantised(0.015, 110)]
    given = {"byte_output": True, "stored": (1, 2, 3, 4), "channels_last": 1, "atol": 1.0}
    check("QLinearGlobalAveragePool", x, **given)
    window = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    check("QLinearAveragePool", x, **given, **window)


def compared(nodes, feeds, stored=(), kind=TensorProto.FLOAT):
    """Run nodes with an input x and an output y here and in ONNX Runtime."""
    types = {k: helper.np_dtype_to_tensor_dtype(v.dtype) for k, v in feeds.items()}
    inputs = [helper.make_tensor_value_info(k, types[k], v.shape) for k, v in feeds.items()]
    output = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(nodes, "g", inputs, [output], list(stored))
    imports = [helper.make_opsetid(d, 17 if not d else 1) for d in ("", MS, BLOCKS)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    (want,) = onnxruntime.InferenceSession(model).run(None, feeds)
    (got,) = answers(model, feeds)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def answers(model, feeds):
    with Core() as core, core.load_network(core.read_network(model), "CPU") as network:
        return [each.copy() for each in network.infer(feeds).values()]


def convolutional(rng, channels):
    """A plain network with what ONNX Runtime puts on blocks; channels fill these up or do not."""
    first, second, third = channels
    weights = {
        "w1": rng.normal(0, 0.3, (first, 3, 3, 3)),
        "b1": rng.normal(size=first),
        "w2": rng.normal(0, 0.1, (second, first, 3, 3)),
        "b2": rng.normal(size=second),
        "w3": rng.normal(0, 0.3, (second, 1, 3, 3)),
        "w4": rng.normal(0, 0.3, (third, second, 1, 1)),
    }
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], **pads, strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], **pads),
        helper.make_node("Sigmoid", ["c2"], ["s2"]),
        helper.make_node("Conv", ["s2", "w3"], ["c3"], **pads, group=second),
        helper.make_node("Add", ["c3", "s2"], ["a3"]),
        helper.make_node("Clip", ["a3", "low", "high"], ["k3"]),
        helper.make_node("MaxPool", ["k3"], ["m3"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Conv", ["m3", "w4"], ["c4"]),
        helper.make_node("LeakyRelu", ["c4"], ["l4"], alpha=0.1),
        helper.make_node("AveragePool", ["l4"], ["p4"], kernel_shape=[2, 2]),
        helper.make_node("Resize", ["p4", "", "twice"], ["u4"], mode="nearest",
                         coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        helper.make_node("GlobalAveragePool", ["l4"], ["g4"]),
        helper.make_node("Flatten", ["g4"], ["f4"]),
    ]  # fmt: skip
    numbers = {"low": F(0.25), "high": F(2), "twice": F([1, 1, 2, 2])}
    stored = [numpy_helper.from_array(v.astype(F), k) for k, v in (weights | numbers).items()]
    outputs = [
        helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in ("u4", "f4", "a3")
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 20, 22])]
    graph = helper.make_graph(nodes, "g", given, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("channels", [(16, 32, 16), (20, 24, 12), (12, 40, 8), (4, 64, 100)])
def test_what_onnx_runtime_writes_at_its_highest_level(rng, tmp_path: Path, channels):
    model, file = convolutional(rng, channels), tmp_path / "optimised.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(file)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    written = {node.op_type for node in onnx.load(file).graph.node if node.domain == BLOCKS}
    if processor_flags():  # of x86-64
        assert {"Conv", "ReorderOutput"} <= written
    feeds = {"x": rng.normal(size=(1, 3, 20, 22)).astype(F)}
    for got, want in zip(answers(str(file), feeds), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-5)


def in_blocks(weights, block, *, whole):
    """Weights [O, I, H, W] as ONNX Runtime stores them, filled up with zeros."""
    outputs, inputs = (-(-size // block) * block for size in weights.shape[:2])
    if whole:
        inputs = weights.shape[1]
    filled = np.zeros((outputs, inputs, *weights.shape[2:]), F)
    filled[: weights.shape[0], : weights.shape[1]] = weights
    stored, places = np.empty(filled.size, F), itertools.count()
    kernel = [range(size) for size in weights.shape[2:]]
    steps = range(1 if whole else block)
    for o, i, h, w, inner in itertools.product(
        range(0, outputs, block), range(0, inputs, len(steps)), *kernel, steps
    ):
        for behind in range(block):
            stored[next(places)] = filled[o + behind, i + inner, h, w]
    return stored.reshape(filled.shape)


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("there", [8, 16])
def test_blocks_of_either_size_are_told_by_what_fills_them_up(rng, monkeypatch, block, there):
    """Whatever this processor's are; the answer is ONNX Runtime's for the plain convolutions."""
    monkeypatch.setattr(
        microsoft_nchwc, "processor_flags", lambda: {"avx512f"} if there == 16 else set()
    )
    first, second = (20, 40) if block == 8 else (32, 36)
    w1, w2 = rng.normal(0, 0.3, (first, 3, 3, 3)), rng.normal(0, 0.1, (second, first, 1, 1))
    b2 = rng.normal(size=second).astype(F)
    filled = np.zeros(-(-second // block) * block, F)
    filled[:second] = b2
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], domain=BLOCKS, activation="Relu"),
        helper.make_node("Conv", ["a", "w2", "b2"], ["b"], domain=BLOCKS),
        helper.make_node("ReorderOutput", ["b"], ["y"], domain=BLOCKS, channels=second),
    ]
    stored = [
        numpy_helper.from_array(in_blocks(w1, block, whole=True), "w1"),
        numpy_helper.from_array(in_blocks(w2, block, whole=False), "w2"),
        numpy_helper.from_array(filled, "b2"),
    ]
    info = helper.make_tensor_value_info
    ports = info("x", TensorProto.FLOAT, [1, 3, 7, 6]), info("y", TensorProto.FLOAT, None)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(BLOCKS, 1)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], stored)
    ours = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    plain = [
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w2", "b2"], ["y"]),
    ]
    stored = [
        numpy_helper.from_array(each.astype(F), name)
        for name, each in (("w1", w1), ("w2", w2), ("b2", b2))
    ]
    graph = helper.make_graph(plain, "g", ports[:1], ports[1:], stored)
    theirs = helper.make_model(graph, opset_imports=imports[:1], ir_version=9).SerializeToString()
    feeds = {"x": rng.normal(size=(1, 3, 7, 6)).astype(F)}
    (want,) = onnxruntime.InferenceSession(theirs).run(None, feeds)
    np.testing.assert_allclose(answers(ours, feeds)[0], want, rtol=1e-4, atol=1e-5)


def test_inputs_and_outputs_with_channels_last(rng):
    """By hand: nothing but the order changes."""
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["a"], domain=BLOCKS, channels_last=1),
        helper.make_node("GlobalMaxPool", ["a"], ["b"], domain=BLOCKS),
        helper.make_node(
            "ReorderOutput", ["b"], ["y"], domain=BLOCKS, channels=12, channels_last=1
        ),
    ]
    info = helper.make_tensor_value_info
    ports = info("x", TensorProto.FLOAT, [1, 5, 4, 12]), info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(BLOCKS, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    x = rng.normal(size=(1, 5, 4, 12)).astype(F)
    np.testing.assert_array_equal(answers(model, {"x": x})[0], x.max((1, 2), keepdims=True))


@pytest.mark.parametrize("shape", [(20, 16, 3, 3), (16, 20, 1, 1), (16, 16, 3)])
def test_weights_that_are_no_blocks_are_refused(monkeypatch, shape):
    monkeypatch.setattr(microsoft_nchwc, "processor_flags", lambda: {"avx512f"})
    monkeypatch.setattr(microsoft_nchwc, "_told_blocks", lambda _: iter(()))
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain=BLOCKS)
    info = helper.make_tensor_value_info
    ports = info("x", TensorProto.FLOAT, [1, shape[1], 7, 6]), info("y", TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(np.zeros(shape, F), "w")]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], stored)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(BLOCKS, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    with Core() as core, pytest.raises(UnsupportedOperationError, match="no blocks of 16|4 axes"):
        core.read_network(model)
