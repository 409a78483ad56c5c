"""Quantised layers are computed on integers, within one step of ONNX Runtime's answers.

A step is 1 in the result's integers. Both round the same number to an integer; it is a sum of
products of integers times a scale, of which each has a rounding or two in f32. So a result differs
by one step where that number lies at a half as good as exactly, and by more nowhere.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice_cpu.algorithms.by_machine import byte_table
from polydevice_cpu.onednn.library import library
from polydevice_cpu.processor import has_int8
from tests.cpu.loading import assert_integers, steps
from tests.cpu.machine_code import missing_avx512
from tests.cpu.quantised_graphs import (
    Graph,
    activated,
    bordered,
    check,
    convolution,
    exported_quantisers,
    final,
    pick,
    reference,
    resized_or_padded,
    spread,
)

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN")


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
def test_transposed_convolutions_side_by_side_are_within_a_step(core, seed):
    """To few channels, as products of rows, with the functions of one number behind them."""
    g = Graph(np.random.default_rng(seed))
    rng = g.rng
    dtype, kind = final(rng), final(rng)
    channels, outputs = (int(n) for n in rng.integers((1, 1), (20, 6)))
    kernel = pick(rng, [2, 2], [1, 3], [3, 2], [4])
    shape = (int(rng.integers(1, 3)), channels, *rng.integers(3, 8, len(kernel)).tolist())
    w = g.weights((channels, outputs, *kernel), 1)
    bias = [g.store(rng.normal(size=outputs).astype(np.float32))] if rng.random() < 0.6 else []
    y = g.emit("ConvTranspose", g.source(dtype), w, *bias, strides=kernel)
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
def test_unsigned_weights_are_integers_and_within_a_step(core, seed):
    """Products with i8, and with ones for what all weights of an output lack."""
    g = Graph(np.random.default_rng(seed))
    rng, dtype, kind = g.rng, final(g.rng), final(g.rng)
    form = ("plain", "transposed", "matrix")[seed % 3]
    channels, outputs, size = (int(n) for n in rng.integers((64, 1, 1), (80, 20, 4)))
    x, pads = g.source(dtype), rng.integers(0, 2, 4).tolist()
    shape = (2, 5, channels) if form == "matrix" else (2, channels, 7, 6)
    if form == "matrix":
        y = g.emit("MatMul", x, g.unsigned_weights((channels, outputs), 1))
    elif form == "transposed":
        w = g.unsigned_weights((channels, outputs, size, size), 1)
        y = g.emit("ConvTranspose", x, w, pads=pads if size > 1 else [0] * 4)
    else:
        y = g.emit("Conv", x, g.unsigned_weights((outputs, channels, size, size), 0), pads=pads)
    result = g.quantised(activated(g, y), kind, 0.6)
    model = g.model(shape, dtype, {result: kind})
    check(core, model, {"x": spread(rng, shape, dtype)}, {result: 1})


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


@pytest.mark.parametrize("form", ["resize", "constant", "edge", "reflect"])
@pytest.mark.parametrize("seed", range(2))
def test_resizing_and_padding_move_integers(core, form, seed):
    """Dequantised as much after as before: a border of 0 is one of zero points."""
    g = Graph(np.random.default_rng(seed))
    rng, dtype, kind = g.rng, final(g.rng), final(g.rng)
    parameters = g.parameters(dtype, 0.04)
    x = resized_or_padded(g, g.emit("DequantizeLinear", "x", *parameters), form)
    if seed:
        x = g.emit("DequantizeLinear", g.emit("QuantizeLinear", x, *parameters), *parameters)
    y = g.emit("Conv", x, g.weights((9, 17, 3, 3), 0))
    result = g.quantised(y, kind, 0.3)
    model = g.model((1, 17, 8, 9), dtype, {result: kind})
    found = check(core, model, {"x": spread(rng, (1, 17, 8, 9), dtype)}, {result: 1})
    assert not has_int8() or not [step for step in found if "DequantizeLinear" in step], found


@pytest.mark.parametrize("seed", range(6))
def test_borders_of_zeros_become_padding(core, seed):
    """A Pad between two roundings, its number quantised, too, in half of the networks."""
    g = Graph(np.random.default_rng(seed))
    model, feed, results = bordered(g, of_floats=seed % 2 == 1)
    check(core, model, feed, results)
    executable = core.load_network(core.read_network(model), "CPU")
    kinds = [node.type for node in executable.compiled.network.nodes()]
    assert not has_int8() or "Pad" not in kinds, kinds


def test_a_border_that_is_no_integer_is_padded_in_floating_point(core):
    g = Graph(np.random.default_rng(2))
    border = [g.store(np.array([0, 0, 1, 1] * 2, np.int64)), g.store(np.float32(0.05))]
    y = g.emit("Conv", g.emit("Pad", g.source(np.uint8), *border), g.weights((9, 17, 3, 3), 0))
    model = g.model((1, 17, 8, 9), np.uint8, {y: np.float32})
    feed = {"x": spread(g.rng, (1, 17, 8, 9), np.uint8)}
    executable = core.load_network(core.read_network(model), "CPU")
    (ours,) = executable.create_infer_request().infer(feed).values()
    (theirs,) = reference(model, feed)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert not any("IntegerProduct" in step for step in steps(executable))


@pytest.fixture(params=["a table", "no table"])
def table(request, monkeypatch):
    """Whether functions of bytes are looked up where they have few roundings."""
    if request.param == "no table":
        monkeypatch.setattr(byte_table, "is_there", lambda: False)
    elif reason := missing_avx512("avx512vbmi"):
        pytest.skip(reason)
    return request.param == "a table"


@pytest.mark.parametrize("seed", range(12))
def test_pointwise_operations_read_and_write_integers(core, table, seed):
    """x * tanh(x) with a rounding between, as quantising tools write it, and sums.

    Where nothing looks it up, roundings on the way that nobody sees much of are left out.
    """
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
    least, others = ("ByteFunction", 0.01) if table else ("QuantizeLinear", 0.2)
    check(core, model, {"x": spread(rng, shape, dtype)}, {result: 2}, least=least, others=others)


@pytest.mark.parametrize("levels", [256, 13])
@pytest.mark.parametrize("seed", range(6))
def test_a_rounded_sigmoid_is_left_out_where_it_is_a_step_at_most(core, table, seed, levels):
    """Where nothing looks it up, in which case not one result is another."""
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
    assert is_smooth == (levels == 256 and not table), executable.explain()
    assert away.max() <= is_smooth


@pytest.mark.parametrize("again", ["the same", "another scale", "another zero", "read twice"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_rounded_the_same_behind_limits_is_rounded_once(core, seed, again):
    """As ONNX Runtime's tools write it where zero points are 0; the limits lie on no step."""
    g = Graph(np.random.default_rng(seed))
    rng, dtype, scale = g.rng, final(g.rng), float(g.rng.uniform(0.02, 0.5))
    zero = int(rng.integers(np.iinfo(dtype).min + 2, np.iinfo(dtype).max))
    first = g.parameters(dtype, scale, zero)
    other = {"another scale": (scale * 1.01, zero), "another zero": (scale, zero - 1)}
    second = g.parameters(dtype, *other.get(again, (scale, zero)))
    rounded = g.emit("QuantizeLinear", "x", *first)
    y = g.emit("DequantizeLinear", rounded, *first)
    if seed % 2:
        y = g.emit("Relu", y)
    else:
        y = g.emit("Clip", y, *map(g.store, np.sort(rng.normal(size=2).astype(np.float32)) * 5))
    result = g.emit("QuantizeLinear", y, *second)
    results = {result: dtype} | ({rounded: dtype} if again == "read twice" else {})
    shape = (3, 7, 10)
    x = (rng.normal(size=shape) * 20).astype(np.float32)
    x[0, 0, :4] = np.inf, -np.inf, 1e30, -0.0
    model = g.model(shape, np.float32, results)
    executable = core.load_network(core.read_network(model), "CPU")
    for feed in ({"x": x}, {"x": x[::-1].copy()}):
        for ours, theirs in zip(
            executable.infer(feed).values(), reference(model, feed), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
    kinds = "Quantize", "ByteFunction"
    roundings = [step.count(kind) for step in steps(executable) for kind in kinds]
    assert sum(roundings) == (1 if again == "the same" else 2), executable.explain()


@pytest.mark.parametrize("levels", [256, 255, 16])
@pytest.mark.parametrize("signed", [False, True])
def test_fake_quantize_becomes_integers(core, tmp_path, levels, signed):
    """Against the definition in f64, and OpenVINO, whose integers for 255 levels are others."""
    import openvino

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
    # OpenVINO's sums of pairs saturate without VNNI, which oneDNN may be told not to use.
    if levels != 255 and has_int8() and "ONEDNN_MAX_CPU_ISA" not in os.environ:
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


@pytest.mark.parametrize("seed", range(8))
def test_chains_of_functions_of_bytes_are_looked_up(core, seed):
    """GELU as tools quantise it, a rounding behind every step; an odd number of elements."""
    g = Graph(np.random.default_rng(seed))
    rng, dtype, kinds = g.rng, final(g.rng), []
    x = g.source(dtype)

    def rounded(y: str, scale: float) -> str:
        kinds.append(final(rng))
        middle = 128 + np.iinfo(kinds[-1]).min
        parameters = g.parameters(kinds[-1], scale, middle)
        return g.emit("DequantizeLinear", g.emit("QuantizeLinear", y, *parameters), *parameters)

    root, one, half = (g.store(np.float32(n)) for n in (2**0.5, 1, 0.5))
    if seed % 4 > 1:  # numbers, too, are quantised
        number = g.store(np.uint8(255)), *g.parameters(np.uint8, 1 / 255, 0)
        one = g.emit("DequantizeLinear", *number)
    inside = rounded(g.emit("Erf", rounded(g.emit("Div", x, root), 0.06)), 1 / 127)
    early = g.nodes[-2].output[0]
    gate = rounded(g.emit("Add", inside, one), 1 / 60)
    product = g.emit("Mul", rounded(g.emit("Mul", *pick(rng, (x, gate), (gate, x))), 0.1), half)
    result = g.quantised(product, dtype, 0.05)
    # Erf's last bit may make another integer: 10.2 / 127 of the product at most, half of it, over
    # 0.05, is a step, and where 0.1 rounds to another integer there, that is one more.
    steps_away = {result: 2, **({early: 1} if seed % 2 else {})}
    shape = pick(rng, (3, 5, 7), (1, 3, 151, 149))
    model = g.model(shape, dtype, dict(zip(steps_away, (dtype, kinds[1]))))
    feed = {"x": spread(rng, shape, dtype)}
    check(core, model, feed, steps_away, least="ByteFunction")


def test_functions_of_two_values_are_not_looked_up(core):
    g = Graph(np.random.default_rng(9))
    x = g.source(np.uint8)
    y, _ = convolution(g, x, 6, 2)
    parameters = g.parameters(np.int8, 0.2)
    for _ in range(4):
        rounded = g.emit("DequantizeLinear", g.emit("QuantizeLinear", y, *parameters), *parameters)
        y = g.emit("Add", rounded, g.emit("ReduceMax", rounded, axes=[2, 3]))
    result = g.quantised(y, np.int8, 0.4)
    model = g.model((1, 6, 9, 9), np.uint8, {result: np.int8})
    executable = core.load_network(core.read_network(model), "CPU")
    assert "ByteFunction" not in steps(executable)
    feed = {"x": spread(g.rng, (1, 6, 9, 9), np.uint8)}
    check(core, model, feed, {result: 8}, least="")


def test_scales_that_a_cast_makes_of_constants(core, rng):
    model, feed = exported_quantisers(rng)
    (theirs,) = reference(model, feed)
    executable = core.load_network(core.read_network(model), "CPU")
    for _ in range(2):
        (ours,) = executable.infer(feed).values()
        # A step of the first layer is 0.06, of which 9 weights of at most 0.7 meet.
        assert np.abs(ours - theirs).max() <= 0.061
        assert (ours != theirs).mean() < 0.02
    found = steps(executable)
    assert_integers(executable, found)
    assert "+".join(found).count("IntegerProduct") == 2 or not has_int8(), found
