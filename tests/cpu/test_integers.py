"""Quantised layers are computed on integers, within one step of ONNX Runtime's answers.

A step is 1 in the result's integers. Both round the same number to an integer; it is a sum of
products of integers times a scale, of which each has a rounding or two in f32. So a result differs
by one step where that number lies at a half as good as exactly, and by more nowhere.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import onnxruntime
import openvino
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedThere

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

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN")

TYPES = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


@dataclasses.dataclass
class Graph:
    """An ONNX graph in the making; every method returns the name of a tensor."""

    rng: np.random.Generator
    nodes: list = dataclasses.field(default_factory=list)
    stored: list = dataclasses.field(default_factory=list)

    def name(self) -> str:
        return f"t{len(self.nodes) + len(self.stored)}"

    def store(self, array) -> str:
        name = self.name()
        self.stored.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def emit(self, kind: str, *inputs: str, **attributes) -> str:
        name = self.name()
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def parameters(self, dtype, scale: float, zero: int | None = None) -> tuple[str, str]:
        info = np.iinfo(dtype)
        if zero is None:
            usual = [0, 0, 128 if dtype is np.uint8 else -128]
            zero = int(self.rng.choice([*usual, self.rng.integers(info.min, info.max + 1)]))
        return self.store(np.float32(scale)), self.store(dtype(zero))

    def source(self, dtype) -> tuple[str, str]:
        """Dequantise the input of the network; returns the value and the integers' name."""
        return self.emit("DequantizeLinear", "x", *self.parameters(dtype, 0.04))

    def weights(self, shape, outputs_axis: int) -> str:
        """Weights of 8 bits, symmetric, with one scale or one per output channel."""
        whole = self.store(self.rng.integers(-127, 128, shape).astype(np.int8))
        count = shape[outputs_axis]
        if self.rng.random() < 0.3:
            return self.emit("DequantizeLinear", whole, *self.parameters(np.int8, 0.01, 0))
        scales = self.store(self.rng.uniform(0.002, 0.02, count).astype(np.float32))
        zeros = self.store(np.zeros(count, np.int8))
        if self.rng.random() < 0.3:  # quantised by the runtime
            whole = self.store(self.rng.normal(size=shape).astype(np.float32))
            whole = self.emit("QuantizeLinear", whole, scales, zeros, axis=outputs_axis)
        return self.emit("DequantizeLinear", whole, scales, zeros, axis=outputs_axis)

    def quantised(self, value: str, dtype, scale: float) -> str:
        return self.emit("QuantizeLinear", value, *self.parameters(dtype, scale))

    def model(self, shape, dtype, results) -> bytes:
        inputs = [helper.make_tensor_value_info("x", TYPES[dtype], list(shape))]
        outputs = [
            helper.make_tensor_value_info(name, TYPES.get(kind, TensorProto.FLOAT), None)
            for name, kind in results.items()
        ]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.stored)
        imports = [helper.make_opsetid("", 17)]
        made = helper.make_model(graph, opset_imports=imports, ir_version=9)
        return made.SerializeToString()


def pick(rng, *choices):
    return choices[rng.integers(len(choices))]


def convolution(g: Graph, x: str, channels: int, rank: int) -> tuple[str, int]:
    """A convolution of random form; returns the result and its channels."""
    rng = g.rng
    form = pick(rng, "plain", "plain", "pointwise", "depthwise", "grouped")
    outputs = int(rng.integers(1, 40))
    groups = {"depthwise": channels, "grouped": pick(rng, 2, channels)}.get(form, 1)
    groups = groups if channels % groups == 0 else 1
    outputs = groups * max(1, outputs // groups) if form != "depthwise" else channels
    size = 1 if form == "pointwise" else int(rng.integers(1, 4))
    kernel = [size] * rank
    w = g.weights((outputs, channels // groups, *kernel), 0)
    bias = g.store(rng.normal(size=outputs).astype(np.float32))
    y = g.emit(
        "Conv",
        *(x, w, bias)[: pick(rng, 2, 3, 3)],
        group=groups,
        kernel_shape=kernel,
        strides=[int(rng.integers(1, 3))] * rank,
        dilations=[int(rng.integers(1, 3)) if size > 1 else 1] * rank,
        pads=[0 if form == "pointwise" else int(rng.integers(0, 2)) for _ in range(2 * rank)],
    )
    return y, outputs


def activated(g: Graph, y: str) -> str:
    match pick(g.rng, "none", "relu", "relu", "clip", "leaky", "sigmoid"):
        case "relu":
            return g.emit("Relu", y)
        case "clip":
            return g.emit("Clip", y, g.store(np.float32(0)), g.store(np.float32(6)))
        case "leaky":
            return g.emit("LeakyRelu", y, alpha=0.1)
        case "sigmoid":
            return g.emit("Sigmoid", y)
    return y


def spread(rng, shape, dtype):
    """Integers of the whole range, the ends of it more often."""
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max + 1, shape)
    values[rng.random(shape) < 0.05] = info.max
    return values.astype(dtype)


def reference(model: bytes, feed) -> list:
    """ONNX Runtime's answers, in f32 as the model is written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except NotImplementedThere as error:  # ConvInteger of i8 in 1.23, Python 3.10's last release
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__}: {error}")
    return session.run(None, feed)


def check(core, model: bytes, feed, results, *, least: str = "IntegerProduct") -> list[str]:
    """Run here twice and in ONNX Runtime; returns the types of the steps."""
    executable = core.load_network(core.read_network(model), "CPU")
    request = executable.create_infer_request()
    wanted = reference(model, feed)
    for _ in range(2):
        got = list(request.infer(feed).values())
        for name, ours, theirs in zip(results, got, wanted, strict=True):
            assert ours.dtype == theirs.dtype
            away = np.abs(ours.astype(np.float64) - theirs)
            assert away.max() <= results[name], executable.explain()
            if theirs.dtype != np.float32:
                assert (away > 0).mean() < 0.01 + 2 / away.size, "many halves, or another rounding"
    assert not list(unproved(executable.latest_plan()))
    found = steps(executable)
    assert_integers(executable, found, least)
    return found


def final(rng):
    return pick(rng, np.uint8, np.int8)


@pytest.mark.parametrize("seed", range(24))
def test_convolutions_are_within_a_step(core, seed):
    g = Graph(np.random.default_rng(seed))
    rng = g.rng
    rank, dtype = pick(rng, 1, 2, 2, 2), final(rng)
    channels = int(rng.integers(1, 36))
    shape = (int(rng.integers(1, 3)), channels, *rng.integers(7, 15, rank).tolist())
    y, _ = convolution(g, g.source(dtype), channels, rank)
    kind = final(rng)
    result = g.quantised(activated(g, y), kind, float(rng.uniform(0.02, 0.4)))
    model = g.model(shape, dtype, {result: kind})
    check(core, model, {"x": spread(rng, shape, dtype)}, {result: 1})


@pytest.mark.parametrize("seed", range(12))
def test_matrix_products_are_within_a_step(core, seed):
    g = Graph(np.random.default_rng(seed))
    rng = g.rng
    dtype, kind = final(rng), final(rng)
    inner, columns = (int(n) for n in rng.integers(1, 80, 2))
    shape = (*rng.integers(1, 4, rng.integers(0, 2)).tolist(), int(rng.integers(1, 20)), inner)
    x = g.source(dtype)
    if len(shape) == 2 and rng.random() < 0.5:
        w = g.weights((columns, inner), 0)
        bias = g.store(rng.normal(size=columns).astype(np.float32))
        y = g.emit("Gemm", x, w, bias, transB=1)
    else:
        y = g.emit("MatMul", x, g.weights((inner, columns), 1))
    result = g.quantised(activated(g, y), kind, float(rng.uniform(0.02, 0.4)))
    model = g.model(shape, dtype, {result: kind})
    check(core, model, {"x": spread(rng, shape, dtype)}, {result: 1})


@pytest.mark.parametrize("seed", range(8))
def test_transposed_convolutions_are_within_a_step(core, seed):
    g = Graph(np.random.default_rng(seed))
    rng = g.rng
    dtype, kind = final(rng), final(rng)
    channels, outputs, stride = (int(n) for n in rng.integers((1, 1, 1), (20, 20, 3)))
    shape = (1, channels, *rng.integers(4, 8, 2).tolist())
    w = g.weights((channels, outputs, 3, 3), 1)
    y = g.emit("ConvTranspose", g.source(dtype), w, strides=[stride] * 2, pads=[1, 0, 0, 1])
    result = g.quantised(activated(g, y), kind, 0.2)
    model = g.model(shape, dtype, {result: kind})
    check(core, model, {"x": spread(rng, shape, dtype)}, {result: 1}, least="")


@pytest.mark.parametrize("seed", range(8))
def test_windows_of_one_channel_are_seen_as_blocks_and_within_a_step(core, seed):
    g = Graph(np.random.default_rng(seed))
    rng = g.rng
    dtype, kind = final(rng), final(rng)
    stride, times = int(rng.integers(2, 70)), int(rng.integers(1, 4))
    shape = (pick(rng, 1, 3), 1, stride * times + int(rng.integers(0, 5 * stride)))
    w = g.weights((int(rng.integers(1, 40)), 1, stride * times), 0)
    pads = pick(rng, [0, 0], [0, 0], [1, 0], [0, stride])
    y = g.emit("Conv", g.source(dtype), w, strides=[stride], pads=pads)
    result = g.quantised(activated(g, y), kind, float(rng.uniform(0.02, 0.4)))
    model = g.model(shape, dtype, {result: kind})
    check(core, model, {"x": spread(rng, shape, dtype)}, {result: 1}, least="")


@pytest.mark.parametrize("seed", range(12))
def test_residual_sums_are_fused_and_within_a_step(core, seed):
    """Conv, quantised and back, plus the block's input, ReLU, quantised."""
    g = Graph(np.random.default_rng(seed))
    rng = g.rng
    dtype, kind = final(rng), final(rng)
    channels = int(rng.integers(1, 36))
    shape = (1, channels, 9, 11)
    x = g.source(dtype)
    w = g.weights((channels, channels, 3, 3), 0)
    y = g.emit("Conv", x, w, pads=[1, 1, 1, 1])
    if rng.random() < 0.7:
        inner = final(rng)
        scale, zero = g.parameters(inner, 0.3)
        y = g.emit("DequantizeLinear", g.emit("QuantizeLinear", y, scale, zero), scale, zero)
    y = g.emit("Add", *((y, x) if rng.random() < 0.5 else (x, y)))
    result = g.quantised(g.emit("Relu", y), kind, 0.3)
    model = g.model(shape, dtype, {result: kind})
    # An inner result at a half may become another integer, which is one step of 0.3 more.
    found = check(core, model, {"x": spread(rng, shape, dtype)}, {result: 1})
    assert not has_int8() or len([step for step in found if step != "Reorder"]) == 1, found


@pytest.mark.parametrize("seed", range(12))
def test_what_moves_elements_moves_integers(core, seed):
    """Pools, concatenations, reshapes and slices between two convolutions."""
    g = Graph(np.random.default_rng(seed))
    rng = g.rng
    dtype, kind = final(rng), final(rng)
    channels = int(rng.integers(2, 20))
    shape = (1, channels, 12, 12)
    x = g.source(dtype)
    match pick(rng, "pool", "concat", "transpose", "split"):
        case "pool":
            x = g.emit("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        case "concat":
            other = g.emit("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            x = g.emit("Concat", x, other, axis=1)
            channels *= 2
        case "transpose":
            x = g.emit("Transpose", x, perm=[0, 1, 3, 2])
        case "split":
            bounds = [g.store(np.array([n], np.int64)) for n in (1, channels, 1)]
            x = g.emit("Slice", x, *bounds)
            channels -= 1
    y = g.emit("Conv", x, g.weights((7, channels, 3, 3), 0))
    result = g.quantised(y, kind, 0.3)
    model = g.model(shape, dtype, {result: kind})
    found = check(core, model, {"x": spread(rng, shape, dtype)}, {result: 1})
    assert not has_int8() or not [step for step in found if "DequantizeLinear" in step], found


@pytest.mark.parametrize("seed", range(12))
def test_pointwise_operations_read_and_write_integers(core, seed):
    """x * tanh(x) with a rounding between, as quantising tools write it, and sums."""
    g = Graph(np.random.default_rng(seed))
    rng = g.rng
    dtype, kind = final(rng), final(rng)
    shape = (1, int(rng.integers(1, 20)), 9, 7)
    x = g.source(dtype)
    inner = final(rng)
    scale, zero = g.parameters(inner, 1 / 256, np.iinfo(inner).min)
    kinds = pick(rng, ("Tanh", "Mul"), ("Sigmoid", "Add"))  # x * sigmoid(x) is one function
    rounded = g.emit("QuantizeLinear", g.emit(kinds[0], x), scale, zero)
    y = g.emit(kinds[1], x, g.emit("DequantizeLinear", rounded, scale, zero))
    result = g.quantised(y, kind, float(rng.uniform(0.02, 0.1)))
    model = g.model(shape, dtype, {result: kind})
    # An inner result at a half may become another integer: 1/256 of at most 10.2, over 0.02.
    check(core, model, {"x": spread(rng, shape, dtype)}, {result: 2}, least="QuantizeLinear")


@pytest.mark.parametrize("levels", [256, 13])
@pytest.mark.parametrize("seed", range(6))
def test_a_rounded_sigmoid_is_left_out_where_it_is_a_step_at_most(core, seed, levels):
    g = Graph(np.random.default_rng(seed))
    rng, dtype, kind = g.rng, final(g.rng), final(g.rng)
    x = g.source(dtype)
    again = g.emit("DequantizeLinear", *g.nodes[-1].input)
    rounding = g.parameters(np.uint8, 1 / (levels - 1), 0)
    gate = g.emit(
        "DequantizeLinear", g.emit("QuantizeLinear", g.emit("Sigmoid", x), *rounding), *rounding
    )
    product = g.emit("Mul", *pick(rng, (again, gate), (gate, again)))
    result = g.quantised(product, kind, float(rng.uniform(0.03, 0.05)))
    shape = (2, 5, 11)
    model = g.model(shape, dtype, {result: kind})
    feed = {"x": spread(rng, shape, dtype)}
    executable = core.load_network(core.read_network(model), "CPU")
    (ours,) = executable.infer(feed).values()
    (theirs,) = reference(model, feed)
    away = np.abs(ours.astype(np.int32) - theirs)
    is_smooth = any("Swish" in step for step in steps(executable))
    assert is_smooth == (levels == 256), executable.explain()
    assert away.max() <= is_smooth


@pytest.mark.parametrize("levels", [256, 255, 16])
@pytest.mark.parametrize("signed", [False, True])
def test_fake_quantize_becomes_integers(core, tmp_path, levels, signed):
    """Against the definition in f64, and OpenVINO, whose integers for 255 levels are others."""
    rng = np.random.default_rng(levels)
    high = 0.05 * (levels - 1)
    low, high = (-0.05 * (levels // 2), high - 0.05 * (levels // 2)) if signed else (0.0, high)
    whole = rng.integers(-127, 128, (6, 5, 1, 1)).astype(np.int8)
    scale = rng.uniform(0.002, 0.01, (6, 1, 1, 1)).astype(np.float32)
    feed = rng.uniform(low * 1.2 - 0.1, high * 1.2, (1, 5, 9, 9)).astype(np.float32)
    ops = openvino.opset8
    x = ops.parameter([1, 5, 9, 9], np.float32, name="x")
    y = ops.fake_quantize(x, *(np.float32(n) for n in (low, high, low, high)), levels)
    w = ops.multiply(ops.convert(ops.constant(whole), np.float32), ops.constant(scale))
    y = ops.convolution(y, w, [1, 1], [0, 0], [0, 0], [1, 1])
    y = ops.fake_quantize(ops.relu(y), *(np.float32(n) for n in (0, 12.75, 0, 12.75)), 256)
    model = openvino.Model([y], [x], "m")
    openvino.save_model(model, tmp_path / "m.xml", compress_to_fp16=False)
    integers = np.rint((np.clip(feed, low, high) - low) / (high - low) * (levels - 1))
    values = integers / (levels - 1) * (high - low) + low
    sums = np.einsum("nchw,oc->nohw", values, (whole.astype(np.float64) * scale)[..., 0, 0])
    wanted = [np.rint(np.clip(sums, 0, 12.75) / 0.05) * 0.05]
    # OpenVINO's own oneDNN heeds the variable too, and its sums of pairs saturate without VNNI.
    if levels != 255 and "ONEDNN_MAX_CPU_ISA" not in os.environ:
        wanted += openvino.compile_model(model, "CPU")({"x": feed}).values()
    executable = core.load_network(core.read_network(tmp_path / "m.xml"), "CPU")
    request = executable.create_infer_request()
    for theirs in wanted * 2:
        (ours,) = request.infer({"x": feed}).values()
        away = np.abs(ours - theirs) / 0.05
        assert away.max() < 1.01
        assert (away > 0.01).mean() < 0.01
    assert_integers(executable, steps(executable))


@pytest.mark.skipif(not has_int8(), reason="computes in f32 on this processor")
def test_weights_are_held_as_integers_once(core):
    g = Graph(np.random.default_rng(3))
    x = g.source(np.uint8)
    w = g.weights((256, 256, 3, 3), 0)
    result = g.quantised(g.emit("Conv", x, w), np.uint8, 0.4)
    model = g.model((1, 256, 8, 8), np.uint8, {result: np.uint8})
    executable = core.load_network(core.read_network(model), "CPU")
    assert executable.get_metric("WEIGHTS_BYTES") < 1.2 * 256 * 256 * 9
    executable.create_infer_request()


def test_why_a_quantised_layer_stays_in_floating_point_is_said(core):
    g = Graph(np.random.default_rng(5))
    w = g.weights((4, 3, 3, 3), 0)
    y = g.emit("Conv", g.emit("Relu", "x"), w)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])]
    outputs = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)]
    graph = helper.make_graph(g.nodes, "g", inputs, outputs, g.stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    executable = core.load_network(core.read_network(made.SerializeToString()), "CPU")
    assert "its input is not quantised" in executable.explain()


def test_floating_point_can_be_asked_for(core):
    g = Graph(np.random.default_rng(7))
    y, _ = convolution(g, g.source(np.uint8), 5, 2)
    result = g.quantised(y, np.uint8, 0.3)
    model = g.model((1, 5, 9, 9), np.uint8, {result: np.uint8})
    executable = core.load_network(core.read_network(model), "CPU", {"LP_TRANSFORMS_MODE": "NO"})
    assert executable.get_config("LP_TRANSFORMS_MODE") == "NO"
    assert not any("IntegerProduct" in step for step in steps(executable))


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
    assert "DynamicRange" in found
    if has_int8() and zero != 90 and not has_bias:
        assert not any("Multiply" in step for step in found), "scales are the product's"
    assert not list(unproved(executable.latest_plan()))


@pytest.mark.parametrize("zeros", [[0.5], [np.inf], [[1.0], [2.0]]])
def test_weights_with_odd_zero_points_stay_in_floating_point(core, zeros):
    """Halves, infinities, and more of them than weights: none is a zero point of i8 weights."""
    rng = np.random.default_rng(4)
    g = Graph(rng)
    x = g.source(np.uint8)
    whole = g.emit("Cast", g.store(rng.integers(-9, 9, (1, 3)).astype(np.int8)), to=1)
    less = g.emit("Sub", whole, g.store(np.array(zeros, np.float32)))
    w = g.emit("Transpose", g.emit("Mul", less, g.store(np.float32(0.1))), perm=[1, 0])
    y = g.emit("MatMul", x, w)
    model = g.model((4, 3), np.uint8, {y: np.float32})
    feed = {"x": spread(rng, (4, 3), np.uint8)}
    executable = core.load_network(core.read_network(model), "CPU")
    (ours,) = executable.create_infer_request().infer(feed).values()
    (theirs,) = reference(model, feed)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)
    assert not any("IntegerProduct" in step for step in steps(executable))


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
