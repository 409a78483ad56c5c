"""Quantised networks as ONNX graphs in the making, random ones too, and their right answers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import onnxruntime_answers
from tests.cpu.loading import assert_integers, steps
from tests.cpu.proved import unproved

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

    def unsigned_weights(self, shape, outputs_axis: int) -> str:
        """Weights of u8 that are no i8 less their zero points, of which there are one or many."""
        whole = self.store(self.rng.integers(0, 256, shape).astype(np.uint8))
        if self.rng.random() < 0.5:
            zero = pick(self.rng, 0, 255, int(self.rng.integers(256)))
            return self.emit("DequantizeLinear", whole, *self.parameters(np.uint8, 0.01, zero))
        count = shape[outputs_axis]
        scales = self.store(self.rng.uniform(0.002, 0.02, count).astype(np.float32))
        zeros = self.store(self.rng.integers(0, 256, count).astype(np.uint8))
        return self.emit("DequantizeLinear", whole, scales, zeros, axis=outputs_axis)

    def quantised_by(self, value: str, parameters: tuple[str, str]) -> str:
        """The value, rounded by a scale and a zero point."""
        made = self.emit("QuantizeLinear", value, *parameters)
        return self.emit("DequantizeLinear", made, *parameters)

    def quantised(self, value: str, dtype, scale: float) -> str:
        return self.emit("QuantizeLinear", value, *self.parameters(dtype, scale))

    def model(self, shape, dtype, results, opset: int = 17) -> bytes:
        kind = TYPES.get(dtype, TensorProto.FLOAT)
        inputs = [helper.make_tensor_value_info("x", kind, list(shape))]
        outputs = [
            helper.make_tensor_value_info(name, TYPES.get(kind, TensorProto.FLOAT), None)
            for name, kind in results.items()
        ]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.stored)
        imports = [helper.make_opsetid("", opset)]
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
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedThere

    try:
        return onnxruntime_answers.answer(model, feed, optimises=False)
    except NotImplementedThere as error:  # ConvInteger of i8 in 1.23, Python 3.10's last release
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__}: {error}")


def zero_points_of_outputs(kind: str, scales: str) -> tuple[bytes, tuple[int, ...]]:
    """MatMulInteger by u8 weights with a zero point for each output.

    Returns:
        the model, and the shape of its input `x`, which it quantises itself.
    """
    g = Graph(np.random.default_rng(12))
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise"))
    shape, terms = ((9, 133), 133) if kind == "matmul" else ((2, 3, 7, 70), 70)
    zeros = g.store(np.linspace(0, 255, 20).astype(np.uint8))
    weights = g.store(g.rng.integers(0, 256, (terms, 20)).astype(np.uint8))
    y = g.emit("MatMulInteger", "q", weights, "z", zeros)
    numbers = g.rng.uniform(0.002, 0.02, 20 if scales == "for each output" else ())
    factor = g.emit("Mul", "s", g.store(np.asarray(numbers, np.float32)))
    y = g.emit("Mul", g.emit("Cast", y, to=TensorProto.FLOAT), factor)
    return g.model(shape, np.float32, {y: np.float32}), shape


def exported_quantisers(rng) -> tuple[bytes, dict[str, np.ndarray]]:
    """Convolutions quantised as PyTorch writes them: scales and zero points through a Cast."""
    g = Graph(rng)

    def parameters(scale: float, zero: int) -> tuple[str, str]:
        wide = g.store(np.float64(scale)), g.store(np.int64(zero))
        kinds = TensorProto.FLOAT, TensorProto.UINT8
        one, other = (g.emit("Cast", name, to=to) for name, to in zip(wide, kinds, strict=True))
        return one, other

    x = g.quantised_by("x", parameters(0.02, 117))
    channels = 5
    for outputs in (8, 6):
        shape = (outputs, channels, 3, 3)
        weights = g.store((rng.normal(size=shape) * 0.2).astype(np.float32))
        scale = g.store(rng.uniform(0.004, 0.006, outputs).astype(np.float32))
        zeros = g.store(np.zeros(outputs, np.int32))
        of = scale, g.emit("Cast", zeros, to=TensorProto.INT8)
        whole = g.emit("QuantizeLinear", weights, *of, axis=0)
        whole = g.emit("DequantizeLinear", whole, *of, axis=0)
        bias = g.store(rng.normal(size=outputs).astype(np.float32))
        x = g.emit("Relu", g.emit("Conv", x, whole, bias, pads=[1, 1, 1, 1]))
        x, channels = g.quantised_by(x, parameters(0.06, 0)), outputs
    given = {"x": rng.normal(size=(1, 5, 11, 9)).astype(np.float32)}
    return g.model((1, 5, 11, 9), np.float32, {x: np.float32}), given


def check(
    core, model: bytes, feed, results, *, least: str = "IntegerProduct", others: float = 0.01
) -> list[str]:
    """Run here twice and in ONNX Runtime.

    Args:
        core: with the device.
        model: the network.
        feed: its input.
        results: by how much each of its results may differ.
        least: what is computed on integers.
        others: share of the integers that may be others.

    Returns:
        The types of the steps.
    """
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
                assert (away > 0).mean() < others + 2 / away.size, "many halves, or other roundings"
    assert not list(unproved(executable.latest_plan()))
    found = steps(executable)
    assert_integers(executable, found, least)
    return found


def resized_or_padded(g: Graph, x: str, form: str) -> str:
    """An image twice as large in both axes, or with a border of 1."""
    if form == "resize":
        scales = g.store(np.array([1, 1, 2, 2], np.float32))
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return g.emit("Resize", x, "", scales, mode="nearest", **modes)
    return g.emit("Pad", x, g.store(np.array([0, 0, 1, 1] * 2, np.int64)), mode=form)


def bordered(g: Graph, *, of_floats: bool) -> tuple[bytes, dict[str, np.ndarray], dict[str, int]]:
    """A convolution behind zeros around integers, or around floats that are quantised then.

    Returns:
        The model, its inputs, and by how many steps each result may differ.
    """
    kind = final(g.rng)
    x, parameters = g.source(np.uint8), g.parameters(kind, 0.06)
    if of_floats:
        x = g.emit("PRelu", x, g.store(np.full((6, 1, 1), 0.3, np.float32)))
    pads = g.store(np.array([0, 0, 2, 0, 0, 0, 1, 3], np.int64))
    zero = g.emit("DequantizeLinear", g.store(np.uint8(7)), *g.parameters(np.uint8, 0.5, 7))
    y = g.quantised_by(
        g.emit("Pad", x, pads, *([zero] if g.rng.random() < 0.5 else [])), parameters
    )
    y = g.emit("Conv", y, g.weights((18, 6, 3, 3), 0), strides=[2, 1], pads=[0, 1, 1, 0])
    result = g.quantised(y, kind, 0.3)
    shape = (2, 6, 8, 9)
    return (
        g.model(shape, np.uint8, {result: kind}),
        {"x": spread(g.rng, shape, np.uint8)},
        {result: 1},
    )


def final(rng):
    return pick(rng, np.uint8, np.int8)
