"""Products of what is rounded to 16 bits: of integers on processors, rounded where they read it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.rounded_ops import ROUNDED_PRODUCTS, RoundedMatMul
from tests.cpu.quantised_graphs import Graph, reference

KINDS = [np.uint16, np.int16]


def _types(executable) -> list[str]:
    return [node.op.type for node in executable.latest_plan().graph.nodes]


def _products(executable) -> list:
    nodes = executable.latest_plan().graph.nodes
    return [node for node in nodes if isinstance(node.op, ROUNDED_PRODUCTS)]


def _middle(dtype) -> int:
    return 0x8000 + np.iinfo(dtype).min


def _check(executable, model, feed, step: float) -> None:
    (theirs,) = reference(model, feed)
    for _ in range(2):
        (ours,) = executable.infer(feed).values()
        assert np.abs(ours - theirs).max() <= step


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("zero", [0, 77, -20000])
def test_layers_behind_one_another(core, opencl, dtype, zero) -> None:
    """What is rounded, moved and multiplied is rounded by the product alone."""
    g = Graph(np.random.default_rng(3 + zero % 5))
    x = g.quantised_by("x", g.parameters(dtype, 1e-4, _middle(dtype) + zero))
    w = g.weights((19, 9, 3, 3), 0)
    bias = g.store(g.rng.normal(size=19).astype(np.float32))
    y = g.emit("Relu", g.emit("Conv", x, w, bias, pads=[1, 0, 2, 1], strides=[1, 2]))
    y = g.quantised_by(y, g.parameters(dtype, 1e-3, _middle(dtype)))
    y = g.emit("Transpose", y, perm=[0, 2, 3, 1])
    y = g.emit("MatMul", y, g.weights((19, 23), 1))
    model = g.model((2, 9, 7, 11), np.float32, {y: np.float32}, opset=21)
    executable = core.load_network(core.read_network(model), "GPU")
    feed = {"x": g.rng.normal(size=(2, 9, 7, 11)).astype(np.float32)}
    # A step of the first layer is 1e-3, of which weights of at most 2.6 meet.
    _check(executable, model, feed, 5e-3)
    if target_of(opencl).sums_byte_vectors:
        assert len(_products(executable)) == 2, executable.explain()
        assert "QuantizeLinear" not in _types(executable)


@pytest.mark.parametrize("dtype", KINDS)
def test_beyond_the_limits_and_no_numbers(core, dtype) -> None:
    """Infinities are the limits, and halves go to even, as QuantizeLinear says."""
    g = Graph(np.random.default_rng(6))
    x = g.quantised_by("x", g.parameters(dtype, 0.25, _middle(dtype) + 5))
    y = g.emit("MatMul", x, g.weights((8, 3), 1))
    model = g.model((4, 8), np.float32, {y: np.float32}, opset=21)
    feed = {"x": np.arange(-16, 16, dtype=np.float32).reshape(4, 8) * 0.125}
    feed["x"][0, 2], feed["x"][3, 1] = np.inf, -np.inf
    executable = core.load_network(core.read_network(model), "GPU")
    (theirs,), (ours,) = reference(model, feed), executable.infer(feed).values()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_other_readers_get_rounded_numbers(core, opencl) -> None:
    """A residual sum reads the same value as a product."""
    g = Graph(np.random.default_rng(2))
    x = g.quantised_by("x", g.parameters(np.uint16, 0.5, 300))
    y = g.emit("Add", g.emit("MatMul", x, g.weights((16, 16), 1)), x)
    model = g.model((5, 16), np.float32, {y: np.float32}, opset=21)
    executable = core.load_network(core.read_network(model), "GPU")
    feed = {"x": g.rng.normal(size=(5, 16)).astype(np.float32)}
    _check(executable, model, feed, 1e-5)
    if target_of(opencl).sums_byte_vectors:
        assert len(_products(executable)) == 1, executable.explain()


def test_sums_that_i32_does_not_hold_stay_floats(core) -> None:
    g = Graph(np.random.default_rng(8))
    x = g.quantised_by("x", g.parameters(np.uint16, 1e-4, 3))
    whole = g.store(np.full((520, 2), 127, np.int8))
    w = g.emit("DequantizeLinear", whole, *g.parameters(np.int8, 0.01, 0))
    y = g.emit("MatMul", x, w)
    model = g.model((3, 520), np.float32, {y: np.float32}, opset=21)
    executable = core.load_network(core.read_network(model), "GPU")
    assert not _products(executable)
    feed = {"x": g.rng.uniform(0, 6, (3, 520)).astype(np.float32)}
    _check(executable, model, feed, 0.05)


@pytest.mark.parametrize("key", ["LP_TRANSFORMS_MODE", "INFERENCE_PRECISION_HINT"])
def test_products_may_stay_floats(core, key) -> None:
    g = Graph(np.random.default_rng(5))
    x = g.quantised_by("x", g.parameters(np.int16, 1e-4, 0))
    y = g.emit("MatMul", x, g.weights((16, 8), 1))
    model = g.model((3, 16), np.float32, {y: np.float32}, opset=21)
    value = {"LP_TRANSFORMS_MODE": "NO", "INFERENCE_PRECISION_HINT": "f16"}[key]
    config = {key: value, "CLDNN_ENABLE_FP16_FOR_QUANTIZED_MODELS": "YES"}
    executable = core.load_network(core.read_network(model), "GPU", config)
    assert not _products(executable)
    feed = {"x": g.rng.normal(size=(3, 16)).astype(np.float32)}
    _check(executable, model, feed, 1e-4 if key == "LP_TRANSFORMS_MODE" else 0.1)


def test_sizes_that_vary(core, opencl) -> None:
    """Weights are taken apart before they become floats."""
    g = Graph(np.random.default_rng(7))
    x = g.quantised_by("x", g.parameters(np.uint16, 1e-4, 30000))
    y = g.emit("MatMul", x, g.weights((12, 20), 1))
    model = g.model(("n", 12), np.float32, {y: np.float32}, opset=21)
    executable = core.load_network(core.read_network(model), "GPU")
    for rows in (3, 14, 1):
        feed = {"x": g.rng.normal(size=(rows, 12)).astype(np.float32)}
        _check(executable, model, feed, 1e-4)
    if target_of(opencl).sums_byte_vectors:
        (product,) = _products(executable)
        assert isinstance(product.op, RoundedMatMul)


@pytest.mark.parametrize("shape", [(3, 5), (2, 33, 41), (3, 111, 211)])
def test_bytes_by_their_range(core, opencl, shape) -> None:
    """One operation finds the range and rounds; results are ONNX Runtime's, halves too."""
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise")]
    kinds = {"q": TensorProto.UINT8, "s": TensorProto.FLOAT, "z": TensorProto.UINT8}
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = made.SerializeToString()
    executable = core.load_network(core.read_network(model), "GPU")
    rng = np.random.default_rng(9)
    halves = np.resize(np.arange(-128, 383, dtype=np.float32) / 2, shape)
    for x in (halves, rng.normal(1, 2, shape).astype(np.float32), np.full(shape, -3, np.float32)):
        wanted = reference(model, {"x": x})
        for ours, theirs in zip(executable.infer({"x": x}).values(), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    target = target_of(opencl)
    at_once = target.byte_product and not target.is_throughput
    assert ("DynamicQuantize" in _types(executable)) is bool(at_once), executable.explain()
