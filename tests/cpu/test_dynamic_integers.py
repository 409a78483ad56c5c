"""Layers whose scales or zero points are found at run time, and what of them stays in f32."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.convert import Convert
from polydevice.ops.io import Parameter, Result
from polydevice.ops.matmul import MatMul
from polydevice.shape import Shape
from polydevice_cpu.onednn.library import library
from polydevice_cpu.processor import has_int8
from tests.cpu.loading import assert_integers, steps
from tests.cpu.proved import unproved
from tests.cpu.quantised_graphs import Graph, reference, zero_points_of_outputs

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN")


@pytest.mark.parametrize("kind", ["matmul", "batched", "conv", "padded"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.uint8, 127), (np.uint8, 90)])
def test_dynamically_quantised_products(core, kind, dtype, zero, has_bias):
    """DynamicQuantizeLinear and a product of integers, as quantize_dynamic writes them.

    Both sum the same integers; the scales are f32 products of the same numbers in another order.
    Weights of u8 less 90 are no bytes with a sign.
    """
    rng = np.random.default_rng(11)
    g = Graph(rng)
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise"))
    shape, form = {
        "matmul": ((9, 33), (33, 20)),
        "batched": ((2, 3, 7, 33), (33, 20)),
        "conv": ((1, 5, 9, 9), (8, 5, 3, 3)),
        "padded": ((1, 5, 9, 9), (8, 5, 3, 3)),
    }[kind]
    whole = rng.integers(-127, 128, form) if zero != 90 else rng.integers(-90, 166, form)
    w, point = g.store((whole + zero).clip(0 if zero else -127).astype(dtype)), g.store(dtype(zero))
    if len(form) == 2:
        y = g.emit("MatMulInteger", "q", w, "z", point)
    else:
        y = g.emit(
            "ConvInteger", "q", w, "z", point, pads=[1, 0, 0, 1] if kind == "padded" else [0] * 4
        )
    if has_bias:
        size = form[1] if len(form) == 2 else (1, 8, 1, 1)
        y = g.emit("Add", y, g.store(rng.integers(-9999, 9999, size).astype(np.int32)))
    y = g.emit("Cast", y, to=TensorProto.FLOAT)
    columns = form[1] if len(form) == 2 else (8, 1, 1) if kind == "conv" else 1
    scales = g.emit("Mul", "s", g.store(rng.uniform(0.002, 0.02, columns).astype(np.float32)))
    y = g.emit("Relu", g.emit("Add", g.emit("Mul", y, scales), g.store(np.float32(0.3))))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))]
    outputs = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)]
    graph = helper.make_graph(g.nodes, "g", inputs, outputs, g.stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = made.SerializeToString()
    executable = core.load_network(core.read_network(model), "CPU")
    request = executable.create_infer_request()
    for mean, spread in ((1, 2), (-1, 2), (7, 0.5), (-7, 0.5), (0, 0)):
        feed = {"x": rng.normal(mean, spread, shape).astype(np.float32)}
        (theirs,) = reference(model, feed)
        (ours,) = request.infer(feed).values()
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6 * np.abs(theirs).max())
    found = steps(executable)
    assert_integers(executable, found)
    assert ("DynamicRange" if has_int8() or has_bias else "RoundedToRange") in found
    if has_int8() and zero != 90 and not has_bias:
        assert not any("Multiply" in step for step in found), "scales are the product's"
    assert not list(unproved(executable.latest_plan()))


@pytest.mark.parametrize("kind", ["matmul", "batched"])
@pytest.mark.parametrize("scales", ["one", "for each output"])
def test_zero_points_for_each_output(core, kind, scales):
    """Weights of u8 less a zero point of their output, which together span more than 255."""
    model, shape = zero_points_of_outputs(kind, scales)
    executable = core.load_network(core.read_network(model), "CPU")
    request = executable.create_infer_request()
    rng = np.random.default_rng(5)
    for mean, spread in ((1, 2), (-7, 0.5), (0, 0)):
        feed = {"x": rng.normal(mean, spread, shape).astype(np.float32)}
        (theirs,) = reference(model, feed)
        (ours,) = request.infer(feed).values()
        np.testing.assert_allclose(ours, theirs, rtol=3e-6, atol=3e-6 * np.abs(theirs).max())
    assert_integers(executable, steps(executable))
    assert not list(unproved(executable.latest_plan()))


@pytest.mark.parametrize("transposed", [False, True])
def test_sums_that_f32_cannot_hold_stay_exact(core, rng, transposed):
    """A thousand products to an element, of which there is one a row: 2^24 < sum < 2^25."""
    x = rng.integers(200, 256, (8, 1001)).astype(np.uint8)
    w = rng.integers(100, 128, (1001, 1)).astype(np.int8)
    a, b = (
        Node("x", Parameter(ElementType.u8, Shape(x.shape))),
        constant("w", w.T if transposed else w),
    )
    wide = [Node(n, Convert(ElementType.i32), [p.output]) for n, p in (("a", a), ("b", b))]
    product = Node("y", MatMul(transpose_b=transposed), [node.output for node in wide])
    network = Network("sums", [a], [Node("out", Result(), [product.output])])
    (y,) = core.load_network(network, "CPU").infer({"x": x}).values()
    right = x.astype(np.int64) @ w
    assert right.min() > 1 << 24 and (right % 2).any()
    np.testing.assert_array_equal(y, right)


def test_recurrent_weights(core) -> None:
    """Weights of 8 bits whose input is quantised at run time are computed in f32; it is said."""
    rng = np.random.default_rng(2)
    size, hidden = 5, 4
    stored = {
        "w": rng.integers(-128, 128, (1, size, 4 * hidden)).astype(np.int8),
        "r": rng.integers(-128, 128, (1, hidden, 4 * hidden)).astype(np.int8),
        "s": rng.uniform(0.002, 0.004, 1).astype(np.float32),
        "z": np.zeros(1, np.int8),
    }
    names = ["x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y"], name="lstm", domain="com.microsoft", hidden_size=hidden
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 1, 2, hidden])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    x = rng.standard_normal((3, 2, size)).astype(np.float32)
    network = core.load_network(core.read_network(model), "CPU")
    (answer,) = network.infer({"x": x}).values()
    # ONNX Runtime rounds x and what is carried to 8 bits.
    np.testing.assert_allclose(answer, reference(model, {"x": x})[0], atol=2e-2)
    assert "computed in floating point, no constant scale is given" in network.explain()
