"""Random quantised networks on a GPU: within a step of ONNX Runtime, on integers where that pays.

The networks are those of the CPU device's tests, in which a step is explained.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.dtype import ElementType
from polydevice_gpu.compiler import stages
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.gemm.gemm_bytes_mma import _interleaved
from polydevice_gpu.ops import INTEGER_PRODUCTS, Fused
from polydevice_gpu.passes.fusing.requantise import requantise
from tests.cpu.quantised_graphs import (
    Graph,
    activated,
    bordered,
    convolution,
    exported_quantisers,
    final,
    pick,
    reference,
    resized_or_padded,
    spread,
    zero_points_of_outputs,
)


def _block(g: Graph, x: str, channels: int, shape) -> tuple[str, int, type]:
    """A layer, quantised, in some form; returns the value, its channels and its type."""
    rng, kind = g.rng, final(g.rng)
    form = pick(rng, "convolution", "convolution", "residual", "pool", "concat")
    if form == "pool":
        return g.emit("MaxPool", x, kernel_shape=[2, 2]), channels, None
    if form == "concat":
        other = g.emit("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        return g.emit("Concat", x, other, axis=1), 2 * channels, None
    if form == "residual":
        w = g.weights((channels, channels, 3, 3), 0)
        y = g.emit("Add", g.emit("Conv", x, w, pads=[1, 1, 1, 1]), x)
        outputs = channels
    else:
        y, outputs = convolution(g, x, channels, 2)
    scale, zero = g.parameters(kind, float(rng.uniform(0.1, 0.4)))
    return g.emit("QuantizeLinear", activated(g, y), scale, zero), outputs, (kind, scale, zero)


def _network(seed: int):
    """Two layers behind one another; the first rounds, so that the second's sums differ by more."""
    g = Graph(np.random.default_rng(seed))
    dtype = final(g.rng)
    channels = int(g.rng.integers(1, 40))
    shape = (int(g.rng.integers(1, 3)), channels, 14, 11)
    x, channels, made = _block(g, g.source(dtype), channels, shape)
    if made is not None:
        x = g.emit("DequantizeLinear", x, *made[1:])
    y, _ = convolution(g, x, channels, 2)
    kind = final(g.rng)
    result = g.quantised(activated(g, y), kind, float(g.rng.uniform(0.3, 0.6)))
    model = g.model(shape, dtype, {result: kind})
    return model, {"x": spread(g.rng, shape, dtype)}


def _compare(ours, theirs, steps: int, share: float = 0.01) -> None:
    away = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    assert away.max() <= steps
    assert (away > 0).mean() < share + 2 / away.size, "many halves, or another rounding"


@pytest.mark.parametrize("seed", range(8))
def test_convolutions_behind_one_another(core, opencl, seed) -> None:
    model, feed = _network(seed)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    (theirs,) = reference(model, feed)
    for _ in range(2):
        (ours,) = request.infer(feed).values()
        assert ours.dtype == theirs.dtype
        # A step of the first layer is 0.4 at most, weights 1.3, and scales of results 0.3 at least.
        _compare(ours, theirs, 2)
    nodes = executable.latest_plan().graph.nodes
    if target_of(opencl).byte_product:
        assert any(isinstance(node.op, INTEGER_PRODUCTS) for node in nodes), executable.explain()


@pytest.mark.parametrize("seed", range(6))
def test_matrix_products(core, seed) -> None:
    g = Graph(np.random.default_rng(seed))
    dtype, kind = final(g.rng), final(g.rng)
    inner, columns = (int(n) for n in g.rng.integers(1, 80, 2))
    shape = (
        *g.rng.integers(1, 4, g.rng.integers(0, 2)).tolist(),
        int(g.rng.integers(1, 20)),
        inner,
    )
    y = g.emit("MatMul", g.source(dtype), g.weights((inner, columns), 1))
    result = g.quantised(activated(g, y), kind, float(g.rng.uniform(0.02, 0.4)))
    model = g.model(shape, dtype, {result: kind})
    feed = {"x": spread(g.rng, shape, dtype)}
    (ours,) = core.load_network(core.read_network(model), "GPU").infer(feed).values()
    _compare(ours, reference(model, feed)[0], 1)


@pytest.mark.parametrize("seed", range(2))
def test_unsigned_weights(core, opencl, seed) -> None:
    """The sums of what each window reads are a second product of bytes, or of the same kernel."""
    g = Graph(np.random.default_rng(seed))
    shape, kind = (2, 70, 6, 5), final(g.rng)
    w = g.unsigned_weights((12, 70, 3, 3), 0)
    y = g.emit("Conv", g.source(np.uint8), w, pads=[1, 0, 0, 1])
    result = g.quantised(activated(g, y), kind, 0.6)
    model = g.model(shape, np.uint8, {result: kind})
    feed = {"x": spread(g.rng, shape, np.uint8)}
    executable = core.load_network(core.read_network(model), "GPU")
    (ours,) = executable.infer(feed).values()
    _compare(ours, reference(model, feed)[0], 1)
    products = [
        n for n in executable.latest_plan().graph.nodes if isinstance(n.op, INTEGER_PRODUCTS)
    ]
    wanted = 1 if target_of(opencl).sums_byte_vectors else 2
    assert len(products) == wanted or not target_of(opencl).byte_product, executable.explain()


@pytest.mark.parametrize("form", ["resize", "constant"])
def test_resizing_and_padding_move_integers(core, opencl, form) -> None:
    g = Graph(np.random.default_rng(4))
    x = resized_or_padded(g, g.source(np.uint8), form)
    result = g.quantised(g.emit("Conv", x, g.weights((9, 17, 3, 3), 0)), np.uint8, 0.3)
    model = g.model((1, 17, 8, 9), np.uint8, {result: np.uint8})
    feed = {"x": spread(g.rng, (1, 17, 8, 9), np.uint8)}
    executable = core.load_network(core.read_network(model), "GPU")
    (ours,) = executable.infer(feed).values()
    _compare(ours, reference(model, feed)[0], 1)
    nodes = executable.latest_plan().graph.nodes
    assert not target_of(opencl).byte_product or any(
        isinstance(node.op, INTEGER_PRODUCTS) for node in nodes
    ), executable.explain()


@pytest.mark.parametrize(
    "kind", ["matmul", "conv", "padded", "same", "grouped", "depthwise", "unsigned"]
)
def test_products_of_what_is_quantised_at_run_time(core, opencl, kind) -> None:
    """DynamicQuantizeLinear and MatMulInteger or ConvInteger; where all is near the zero point too.

    Numbers all alike but one are quantised to bytes that lie at one end, far from their zero
    point or next to it: then nearly all of a sum comes from the zero point.
    """
    rng = np.random.default_rng(11)
    g = Graph(rng)
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise"))
    sizes = {
        "matmul": ((9, 133), (133, 20)),
        "grouped": ((2, 6, 7, 9), (32, 3, 3, 2)),
        "depthwise": ((2, 16, 7, 9), (16, 1, 3, 2)),
    }
    shape, form = sizes.get(kind, ((1, 5, 9, 9), (8, 5, 3, 3)))
    w, point = g.store(rng.integers(-127, 128, form).astype(np.int8)), g.store(np.int8(0))
    if kind == "unsigned":  # and too far from the zero point for bytes
        w, point = g.store(rng.integers(0, 256, form).astype(np.uint8)), g.store(np.uint8(90))
    if kind == "matmul":
        y = g.emit("MatMulInteger", "q", w, "z", point)
    else:
        how = {
            "padded": {"pads": [1, 0, 0, 1]},
            "unsigned": {"pads": [1, 2, 0, 1]},
            "depthwise": {"group": 16, "pads": [2, 1, 0, 1]},
            "same": {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
            "grouped": {"group": 2, "pads": [2, 1, 0, 1]},
        }
        y = g.emit("ConvInteger", "q", w, "z", point, **how.get(kind, {}))
    scales = g.store(rng.uniform(0.002, 0.02, 20 if kind == "matmul" else 1).astype(np.float32))
    y = g.emit("Mul", g.emit("Cast", y, to=TensorProto.FLOAT), g.emit("Mul", "s", scales))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))]
    outputs = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)]
    graph = helper.make_graph(g.nodes, "g", inputs, outputs, g.stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = made.SerializeToString()
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    for mean, spread_ in ((1, 2), (-7, 0.5), (-7, 1e-3), (0, 0)):
        feed = {"x": rng.normal(mean, spread_, shape).astype(np.float32)}
        (theirs,) = reference(model, feed)
        (ours,) = request.infer(feed).values()
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6 * np.abs(theirs).max())
    nodes, target = executable.latest_plan().graph.nodes, target_of(opencl)
    found = any(isinstance(node.op, INTEGER_PRODUCTS) for node in nodes)
    of_bytes = target.byte_product and (kind != "depthwise" or target.is_throughput)
    assert found is bool(of_bytes), executable.explain()
    if target.sums_byte_vectors and kind != "grouped":  # which gets a border
        launches = [n for n in nodes if not n.is_view and not n.name.endswith("/reorder")]
        assert len(launches) == 2, executable.explain()


@pytest.mark.parametrize("kind", ["matmul", "batched"])
@pytest.mark.parametrize("scales", ["one", "for each output"])
def test_zero_points_for_each_output(core, opencl, kind, scales) -> None:
    model, shape = zero_points_of_outputs(kind, scales)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    rng = np.random.default_rng(5)
    for mean, spread_ in ((1, 2), (-7, 0.5), (0, 0)):
        feed = {"x": rng.normal(mean, spread_, shape).astype(np.float32)}
        (theirs,) = reference(model, feed)
        (ours,) = request.infer(feed).values()
        np.testing.assert_allclose(ours, theirs, rtol=3e-6, atol=3e-6 * np.abs(theirs).max())
    nodes = executable.latest_plan().graph.nodes
    found = any(isinstance(node.op, INTEGER_PRODUCTS) for node in nodes)
    assert found is bool(target_of(opencl).byte_product), executable.explain()


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_depthwise_products_in_i32(core, rng, precision) -> None:
    """Exact in f32, which they are computed in unless values are stored as f16."""
    g = Graph(rng)
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise"))
    weights = g.store(rng.integers(0, 256, (24, 1, 3, 3)).astype(np.uint8))
    how = {"group": 24, "pads": [1] * 4}
    sums = g.emit("ConvInteger", "q", weights, "z", g.store(np.uint8(7)), **how)
    y = g.emit("Cast", sums, to=TensorProto.FLOAT)
    model = g.model((1, 24, 9, 13), np.float32, {y: np.float32})
    config = {"INFERENCE_PRECISION_HINT": precision}
    executable = core.load_network(core.read_network(model), "GPU", config)
    feed = {"x": rng.normal(-1, 0.3, (1, 24, 9, 13)).astype(np.float32)}
    (theirs,) = reference(model, feed)
    for _ in range(2):
        (ours,) = executable.infer(feed).values()
        if precision == "f32":
            np.testing.assert_array_equal(ours, theirs)
        else:  # bytes are made of rounded numbers
            np.testing.assert_allclose(ours, theirs, rtol=0.02, atol=500)


def test_scales_that_a_cast_makes_of_constants(core, opencl, rng) -> None:
    model, feed = exported_quantisers(rng)
    (theirs,) = reference(model, feed)
    executable = core.load_network(core.read_network(model), "GPU")
    for _ in range(2):
        (ours,) = executable.infer(feed).values()
        assert np.abs(ours - theirs).max() <= 0.061
        assert (ours != theirs).mean() < 0.02
    nodes = executable.latest_plan().graph.nodes
    count = sum(isinstance(node.op, INTEGER_PRODUCTS) for node in nodes)
    assert count == (2 if target_of(opencl).byte_product else 0), executable.explain()


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
def test_roundings_to_16_bits(core, opencl, rng, dtype, precision) -> None:
    """Behind a product and a function, between two layers, and handed to several."""
    g, middle = Graph(rng), 0x8000 + np.iinfo(dtype).min
    x = g.quantised_by("x", g.parameters(dtype, 1e-4, middle + 77))
    first = g.store((rng.normal(size=(48, 33)) * 0.2).astype(np.float32))
    y = g.emit("Gelu", g.emit("MatMul", x, g.emit("Transpose", first, perm=[1, 0])))
    y = g.quantised_by(y, g.parameters(dtype, 5e-4, middle - 9))
    other = g.quantised_by(g.emit("Tanh", y), g.parameters(dtype, 1e-4, middle))
    total = g.quantised_by(g.emit("Add", y, other), g.parameters(dtype, 1e-3, middle))
    model = g.model((7, 33), np.float32, {y: np.float32, total: np.float32}, opset=21)
    feed = {"x": rng.normal(size=(7, 33)).astype(np.float32)}
    wanted = reference(model, feed)
    config = {"INFERENCE_PRECISION_HINT": precision}
    executable = core.load_network(core.read_network(model), "GPU", config)
    # A step more or less of the product, of which the sum holds two; f16 has 11 bits.
    steps = [5.01e-4, 2.02e-3] if precision == "f32" else [2e-2, 4e-2]
    for _ in range(2):
        for ours, theirs, step in zip(executable.infer(feed).values(), wanted, steps, strict=True):
            assert np.abs(ours - theirs).max() <= step
    if precision == "f32":
        fused = [node.op for node in executable.latest_plan().graph.nodes]
        kinds = {kind for op in fused if isinstance(op, Fused) for kind in op.fragment.inputs}
        assert not {ElementType.u16, ElementType.i16} & kinds, "whole numbers stay floats"


@pytest.mark.parametrize("allowed", ["YES", "NO"])
def test_integers_may_be_forbidden(core, opencl, allowed) -> None:
    g = Graph(np.random.default_rng(3))
    y = g.emit("Conv", g.source(np.uint8), g.weights((6, 5, 3, 3), 0))
    result = g.quantised(y, np.uint8, 0.3)
    model = g.model((1, 5, 7, 7), np.uint8, {result: np.uint8})
    executable = core.load_network(core.read_network(model), "GPU", {"LP_TRANSFORMS_MODE": allowed})
    assert executable.get_config("LP_TRANSFORMS_MODE") == allowed
    graph = executable.latest_plan().graph
    found = any(isinstance(node.op, INTEGER_PRODUCTS) for node in graph.nodes)
    assert found is (allowed == "YES" and bool(target_of(opencl).byte_product))
    feed = {"x": spread(g.rng, (1, 5, 7, 7), np.uint8)}
    _compare(executable.infer(feed)[result], reference(model, feed)[0], 1)


@pytest.mark.parametrize("seed", range(6))
def test_borders_of_zeros_become_padding(core, opencl, seed) -> None:
    """A Pad between two roundings, of integers or of floats."""
    g = Graph(np.random.default_rng(seed))
    model, feed, results = bordered(g, of_floats=seed % 2 == 1)
    executable = core.load_network(core.read_network(model), "GPU")
    for _ in range(2):
        _compare(executable.infer(feed)[next(iter(results))], reference(model, feed)[0], 1, 0.02)
    assert not target_of(opencl).byte_product or "Pad" not in [
        node.op.type for node in executable.latest_plan().graph.nodes
    ]


@pytest.mark.parametrize("channels", [5, 8, 19, 32])
def test_gates_are_made_bytes_in_few_instructions(core, opencl, channels) -> None:
    """Squeeze and excitation: a product by itself, of bytes, without a quotient."""
    g = Graph(np.random.default_rng(channels))
    x = g.source(np.uint8)

    def quantised(value: str, scale: float) -> str:
        return g.quantised_by(value, g.parameters(np.uint8, scale))

    y = quantised(g.emit("Conv", x, g.weights((channels, 6, 1, 1), 0)), 0.2)
    pooled = quantised(g.emit("GlobalAveragePool", y), 0.1)
    gate = g.emit("Conv", pooled, g.weights((channels, channels, 1, 1), 0))
    gate = quantised(g.emit("HardSigmoid", quantised(gate, 0.05), alpha=0.17), 0.004)
    result = g.quantised(g.emit("Mul", y, gate), np.uint8, 0.1)
    model = g.model((2, 6, 7, 9), np.uint8, {result: np.uint8})
    executable = core.load_network(core.read_network(model), "GPU")
    feed = {"x": spread(g.rng, (2, 6, 7, 9), np.uint8)}
    for _ in range(2):
        # A step of a factor is 51 * 0.004 or 1.02 * 0.2: two of the result's each, and its own.
        # A gate that goes the other way moves its channel, a thirty-second of all.
        _compare(executable.infer(feed)[result], reference(model, feed)[0], 5, 0.07)
    if target_of(opencl).byte_product:
        nodes = executable.latest_plan().graph.nodes
        fragments = [node.op.fragment for node in nodes if isinstance(node.op, Fused)]
        (product,) = [f for f in fragments if any(s.op.type == "Multiply" for s in f.steps)]
        assert not {s.op.type for s in product.steps} & {"Divide", "Round", "Clamp"}, product


def test_steps_beside_quantised_layers_fall_where_they_did(core) -> None:
    """41 / 41 is 1, whatever becomes of quotients elsewhere, and no product overflows."""
    g = Graph(np.random.default_rng(4))
    y = g.emit("Conv", g.source(np.uint8), g.weights((4, 4, 1, 1), 0))
    x = g.emit("Cast", "x", to=TensorProto.FLOAT)
    quotient = g.emit("Div", x, g.store(np.float32(41)))
    floor = g.emit("Floor", quotient)
    alike = g.emit("Equal", quotient, g.store(np.float32(1)))
    alike = g.emit("Cast", alike, to=TensorProto.FLOAT)
    left, right = (
        g.emit("Mul", g.emit("Exp", g.emit("Mul", x, g.store(np.float32(0.3)))), g.store(small))
        for small in (np.float32(1e-15), np.float32(2e-15))
    )
    large = g.quantised(g.emit("Mul", left, right), np.uint8, 1e32)
    results = {y: np.float32, floor: np.float32, alike: np.float32, large: np.uint8}
    model = g.model((1, 4, 8, 8), np.uint8, results)
    feed = {"x": np.arange(256, dtype=np.uint8).reshape(1, 4, 8, 8)}
    ours = core.load_network(core.read_network(model), "GPU").infer(feed)
    _, *exact, rounded = reference(model, feed)
    for name, theirs in zip((floor, alike), exact, strict=True):
        np.testing.assert_array_equal(ours[name], theirs, err_msg=name)
    _compare(ours[large], rounded, 1)


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("shortcut", ["as it is", "by a convolution"])
def test_residual_sums_read_bytes(core, opencl, shortcut, precision) -> None:
    """What a convolution reads as bytes and a sum as floats is in memory once, and made briefly."""
    g = Graph(np.random.default_rng(5))
    x = g.source(np.uint8)

    def convolved(value: str) -> str:
        made = g.quantised(g.emit("Conv", value, g.weights((8, 8, 1, 1), 0)), np.uint8, 0.2)
        return g.emit("DequantizeLinear", made, *g.nodes[-1].input[1:])

    y = convolved(x)
    short = y if shortcut == "as it is" else convolved(x)
    z = g.emit("Relu", g.emit("Add", g.emit("Conv", y, g.weights((8, 8, 1, 1), 0)), short))
    result = g.quantised(z, np.uint8, 0.4)
    model = g.model((1, 8, 9, 7), np.uint8, {result: np.uint8})
    config = {"INFERENCE_PRECISION_HINT": precision}
    executable = core.load_network(core.read_network(model), "GPU", config)
    feed = {"x": spread(g.rng, (1, 8, 9, 7), np.uint8)}
    # f16 holds sums from 64 to 102 in parts of 1/16, of which half is 8 % of a step of 0.4.
    share = 0.08 if precision == "f16" else 0.01
    _compare(executable.infer(feed)[result], reference(model, feed)[0], 2, share)
    nodes = [node for node in executable.latest_plan().graph.nodes if node.choice]
    if target_of(opencl).byte_product:
        values = [value for node in nodes for value in node.outputs]
        assert not any(value.storage.is_float for value in values), executable.explain()
        steps = {step.op.type for n in nodes if n.epilogue for step in n.epilogue.steps}
        assert not steps & {"Divide", "Round", "Clamp"}, steps


def test_columns_are_ordered_so_that_a_lanes_results_are_neighbours() -> None:
    """By PTX's picture of m16n8k32: lane t has columns 2 t and 2 t + 1 of each tile of 8."""
    order = _interleaved(np.arange(48)[:, None])[:, 0].reshape(3, 2, 8)
    for lane in range(4):
        held = order[:, :, 2 * lane : 2 * lane + 2].reshape(3, 4)
        assert held.tolist() == [[16 * n + 4 * lane + i for i in range(4)] for n in range(3)]


@pytest.mark.parametrize("by_256", [True, False])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_halves_go_to_the_even_level(core, opencl, monkeypatch, kind, by_256) -> None:
    """Scales of powers of two: no sum is rounded, and a third of the quotients are halves."""

    def shorter(graph, target) -> None:
        requantise(
            graph, dataclasses.replace(target, byte_product="ptx" if by_256 else "x86 words")
        )

    passes = tuple(shorter if each is requantise else each for each in stages.GRAPH)
    monkeypatch.setattr(stages, "GRAPH", passes)
    rng = np.random.default_rng(by_256)
    stored: dict[str, np.ndarray] = {}
    nodes = []

    def emit(kind_of: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind_of}{len(nodes)}"
        nodes.append(helper.make_node(kind_of, inputs, [name], **attributes))
        return name

    def keep(name: str, value: object, dtype: type) -> str:
        stored[name] = np.asarray(value, dtype)
        return name

    def quantised(value: str, scale: float, zero: int, of: type) -> tuple[str, str]:
        number = len(nodes)
        pair = keep(f"s{number}", scale, np.float32), keep(f"z{number}", zero, of)
        made = emit("QuantizeLinear", value, *pair)
        return made, emit("DequantizeLinear", made, *pair)

    x = emit("DequantizeLinear", "x", keep("s", 0.25, np.float32), keep("z", 3, np.uint8))
    keep("w", rng.integers(-9, 9, (16, 16, 1, 1)), np.int8)
    w = emit("DequantizeLinear", "w", keep("sw", 0.5, np.float32), keep("zw", 0, np.int8))
    keep("b", rng.integers(-64, 64, 16) / 8, np.float32)
    y = quantised(emit("Conv", x, w, "b"), 4.0, 7, np.int8)[1]
    result, _ = quantised(
        emit("Relu", emit("Add", y, x)), 0.5, -100 if kind is np.int8 else 9, kind
    )
    to_onnx = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 16, 5, 9])],
        [helper.make_tensor_value_info(result, to_onnx(np.dtype(kind)), [2, 16, 5, 9])],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    feed = {"x": rng.integers(0, 256, (2, 16, 5, 9)).astype(np.uint8)}
    executable = core.load_network(core.read_network(model), "GPU")
    steps = [
        s.op for n in executable.latest_plan().graph.nodes if n.epilogue for s in n.epilogue.steps
    ]
    if target_of(opencl).byte_product:
        assert {s.by_256 for s in steps if hasattr(s, "by_256")} == {by_256}
    np.testing.assert_array_equal(executable.infer(feed)[result], reference(model, feed)[0])
