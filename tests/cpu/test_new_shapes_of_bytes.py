"""Layers of 8-bit integers of new shapes: by code for all sizes, in strips and in blocks."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice_cpu.algorithms.by_machine.amx.layer import is_in_tiles
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling import blocks, filled
from polydevice_cpu.plan.filling.by_machine import integers, tiles
from polydevice_cpu.plan.step import CodeStep, PrimitiveStep
from polydevice_cpu.processor import has_int8
from tests.cpu.loading import load, wait_for_settling
from tests.cpu.machine_code import with_tiles_of_bytes
from tests.cpu.proved import unproved
from tests.cpu.quantised_graphs import Graph, activated, reference, spread

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

PLANNED_ANEW = 2
"""Shapes before one has a plan with formulas."""


def model(g: Graph, kind, shape, result: str) -> bytes:
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    outputs = [helper.make_empty_tensor_value_info(result)]
    graph = helper.make_graph(g.nodes, "g", inputs, outputs, g.stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString()


def rows(g: Graph, dtype, width: int) -> bytes:
    """Products of rows with per-column scales, sums, and what leads from one to the next."""
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04))
    for number in range(3):
        bias = g.store(g.rng.normal(size=width).astype(np.float32))
        y = g.emit("Add", g.emit("MatMul", x, g.weights((width, width), 1)), bias)
        y = g.emit("Add", activated(g, y), x) if number else activated(g, y)
        y = g.quantised(y, dtype, 0.2)
        parameters = g.nodes[-1].input[1:]
        x = g.emit("DequantizeLinear", y, *parameters)
    y = g.emit("Add", x, g.emit("Sigmoid", x))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(g, kind, ["n", "k", width], y)


def pictures(g: Graph, dtype, channels: int) -> bytes:
    """Convolutions of one element, with scales per channel."""
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04))
    for _ in range(3):
        bias = g.store(g.rng.normal(size=channels).astype(np.float32))
        w = g.weights((channels, channels, 1, 1), 0)
        y = activated(g, g.emit("Conv", x, w, bias, kernel_shape=[1, 1]))
        y = g.quantised(y, dtype, 0.2)
        x = g.emit("DequantizeLinear", y, *g.nodes[-1].input[1:])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(g, kind, ["n", channels, "h", "v"], y)


def windows(g: Graph, dtype, channels: int, rank: int = 2) -> bytes:
    """Convolutions with borders, dilations and strides, added to what they read, too."""
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04))
    for number, (gap, step) in enumerate([(1, 1), (2, 1), (1, 1), (1, 2)]):
        bias = g.store(g.rng.normal(size=channels).astype(np.float32))
        w = g.weights((channels, channels, *[3] * rank), 0)
        form = {"pads": [gap] * 2 * rank, "dilations": [gap] * rank, "strides": [step] * rank}
        y = activated(g, g.emit("Conv", x, w, bias, kernel_shape=[3] * rank, **form))
        y = g.emit("Add", y, x) if number in (1, 2) else y
        y = g.quantised(y, dtype, 0.2)
        x = g.emit("DequantizeLinear", y, *g.nodes[-1].input[1:])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(g, kind, ["n", channels, *"hv"[:rank]], y)


def pools(g: Graph, dtype, channels: int) -> bytes:
    """The largest of windows of bytes, with borders, between convolutions of one element."""
    parameters = g.parameters(dtype, 0.04)
    x = g.emit("DequantizeLinear", "x", *parameters)
    for step, pads in ((1, [1, 0, 0, 1]), (2, [0, 1, 1, 0])):
        form = {"kernel_shape": [2, 3], "strides": [step, step], "pads": pads}
        x = g.quantised_by(g.emit("MaxPool", x, **form), parameters)
        y = g.emit("Conv", x, g.weights((channels, channels, 1, 1), 0), kernel_shape=[1, 1])
        parameters = g.parameters(dtype, 0.2)
        x = g.quantised_by(y, parameters)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(g, kind, ["n", channels, "h", "v"], x)


def sounds(g: Graph, dtype, channels: int) -> bytes:
    """The same of one axis."""
    return windows(g, dtype, channels, 1)


def enlarged(g: Graph, dtype, channels: int, rank: int = 1) -> bytes:
    """Transposed convolutions of one axis, whose windows overlap or lie side by side."""
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04))
    for step, taps, pad in [(2, 4, 1), (3, 3, 0), (2, 5, 2)]:
        bias = g.store(g.rng.normal(size=channels).astype(np.float32))
        w = g.weights((channels, channels, *[taps] * rank), 1)
        form = {"pads": [pad] * 2 * rank, "strides": [step] * rank, "kernel_shape": [taps] * rank}
        y = activated(g, g.emit("ConvTranspose", x, w, bias, **form))
        y = g.quantised(y, dtype, 0.2)
        x = g.emit("DequantizeLinear", y, *g.nodes[-1].input[1:])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(g, kind, ["n", channels, *"hv"[:rank]], y)


def enlarged_pictures(g: Graph, dtype, channels: int) -> bytes:
    """The same of two axes."""
    return enlarged(g, dtype, channels, 2)


def dynamic(g: Graph, dtype, width: int) -> bytes:
    """A product of rows whose scale is computed; weights without a sign have a zero point, too."""
    is_signed, x = dtype == np.int8, "x"
    lowest = -127 if is_signed else 0
    weights = g.store(g.rng.integers(lowest, 128, (width, width)).astype(dtype))
    for _ in range(2):
        nodes = [f"q{len(g.nodes)}", f"s{len(g.nodes)}", f"z{len(g.nodes)}"]
        g.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], nodes))
        zero = g.store(dtype(0 if is_signed else 60))
        product = g.emit("MatMulInteger", nodes[0], weights, nodes[2], zero)
        scale = g.emit("Mul", nodes[1], g.store(np.float32(0.01)))
        y = g.emit("Mul", g.emit("Cast", product, to=TensorProto.FLOAT), scale)
        x = g.emit("Relu", g.emit("Add", y, g.store(g.rng.normal(size=width).astype(np.float32))))
    return model(g, TensorProto.FLOAT, ["n", "k", width], x)


def heads(g: Graph, dtype, width: int) -> bytes:
    """A product whose columns are taken apart, and functions of what lies in that order."""
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04))
    y = g.emit("MatMul", x, g.weights((width, width), 1))
    y = g.emit("DequantizeLinear", g.quantised(y, dtype, 0.2), *g.nodes[-1].input[1:])
    y = g.emit("Reshape", y, g.store(np.array([0, 0, 2, width // 2], np.int64)))
    y = g.emit("Mul", g.emit("Transpose", y, perm=[0, 2, 1, 3]), g.store(np.float32(0.7)))
    y = g.emit("DequantizeLinear", g.quantised(y, dtype, 0.1), *g.nodes[-1].input[1:])
    y = g.emit("MatMul", y, g.emit("Transpose", y, perm=[0, 1, 3, 2]))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(g, kind, ["n", "k", width], g.emit("Softmax", y))


def in_strips(executable):
    """Steps of the latest plan that multiply integers in strips or blocks."""
    found = [step for step in executable.latest_plan().steps if isinstance(step, PrimitiveStep)]
    return [s for s in found if (s.strips or s.blocks) and "IntegerProduct" in s.type]


SHAPES = {
    rows: [(1, 40), (2, 33), (1, 50), (3, 67), (1, 301), (19, 1), (1, 7), (2, 19)],
    pictures: [(1, 9, 8), (2, 8, 8), (1, 7, 13), (1, 33, 31), (3, 17, 5), (16, 1, 1), (1, 1, 57)],
    windows: [(1, 9, 8), (2, 8, 8), (1, 17, 13), (1, 33, 31), (3, 17, 25), (1, 40, 21)],
    pools: [(1, 9, 8), (2, 8, 8), (1, 17, 13), (1, 33, 31), (3, 17, 25), (1, 40, 21)],
    sounds: [(1, 90), (2, 80), (1, 70), (1, 333), (3, 175), (1, 128), (2, 99)],
    enlarged: [(1, 20), (2, 17), (1, 13), (1, 51), (3, 30), (1, 1)],
    enlarged_pictures: [(1, 5, 4), (2, 4, 3), (1, 6, 7), (1, 3, 9), (3, 4, 4), (1, 1, 2)],
    heads: [(1, 40), (2, 33), (1, 50), (3, 67), (1, 101), (19, 1), (1, 7), (2, 19)],
    dynamic: [(1, 40), (2, 33), (1, 50), (3, 67), (1, 301), (19, 1), (1, 7)],
}


ENLARGED = enlarged, enlarged_pictures
OF_CHANNELS = pictures, windows, pools, sounds, *ENLARGED


def by_code(executable):
    """Steps of the latest plan that multiply integers by code for all sizes."""
    found = [step for step in executable.latest_plan().steps if isinstance(step, CodeStep)]
    return [step for step in found if "IntegerProduct" in step.type]


@pytest.mark.parametrize("by", [by_code, in_strips])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("width", [24, 50])
@pytest.mark.parametrize("graph", SHAPES)
def test_integers_of_new_shapes(core, monkeypatch, graph, width, dtype, threads, by):
    """Answers are ONNX Runtime's, and stay when a plan is settled: sums of bytes to the bit."""
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr(tiles, "has_tiles_of_bytes", lambda: False)
    if by is by_code:  # then oneDNN computes all
        monkeypatch.setattr(integers, "LESS_US", 0.0)
        monkeypatch.setattr(filled, "STAYING_US", 0.0)
    else:
        monkeypatch.setattr(integers, "has_avx512", lambda *_: False)
    if graph is windows:  # however much they take
        monkeypatch.setattr(blocks, "LITTLE", 1e9)
    g = Graph(np.random.default_rng(width + threads))
    made, rng = graph(g, dtype, width), g.rng
    executable = load(core, made, CPU_THREADS_NUM=threads)
    request, seen = executable.create_infer_request(), 0
    for number, (n, *sizes) in enumerate(SHAPES[graph]):
        shape = (n, width, *sizes) if graph in OF_CHANNELS else (n, *sizes, width)
        kind = np.float32 if graph is dynamic else dtype
        x = rng.normal(size=shape).astype(kind) if graph is dynamic else spread(rng, shape, kind)
        (wanted,) = reference(made, {"x": x})
        (got,) = (each.copy() for each in request.infer({"x": x}).values())
        assert_close(got, wanted)
        assert not list(unproved(executable.latest_plan()))
        if number < PLANNED_ANEW:
            continue
        seen += len(by(executable))
        for _ in range(settling.RUNS):
            request.infer({"x": x})
        wait_for_settling()
        (after,) = request.infer({"x": x}).values()
        (np.testing.assert_array_equal if has_int8() else assert_close)(after, got)
        assert not by(executable)
    is_odd = graph in (windows, sounds, *ENLARGED) and width % 4 > 0
    has_code = has_avx512("avx512_vnni") and not is_odd
    has_strips = has_int8() and graph not in ENLARGED
    assert seen or not (has_strips if by is in_strips else has_code)


@with_tiles_of_bytes
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("width", [24, 50, 70])
@pytest.mark.parametrize("graph", [each for each in SHAPES if each not in ENLARGED])
def test_integers_of_new_shapes_in_tiles(core, monkeypatch, graph, width, dtype, threads):
    """Answers are ONNX Runtime's, and to the bit those without tiles, before and when settled."""
    monkeypatch.setattr(settling, "RUNS", 3)
    g = Graph(np.random.default_rng(width + threads))
    made, rng = graph(g, dtype, width), g.rng
    executable = load(core, made, CPU_THREADS_NUM=threads)
    request, seen, found = executable.create_infer_request(), 0, []
    for n, *sizes in SHAPES[graph]:
        shape = (n, width, *sizes) if graph in OF_CHANNELS else (n, *sizes, width)
        kind = np.float32 if graph is dynamic else dtype
        x = rng.normal(size=shape).astype(kind) if graph is dynamic else spread(rng, shape, kind)
        (got,) = (each.copy() for each in request.infer({"x": x}).values())
        assert_close(got, reference(made, {"x": x})[0])
        found.append((x, got))
        seen += sum(is_in_tiles(step.code) for step in by_code(executable))
        for _ in range(settling.RUNS):
            request.infer({"x": x})
        wait_for_settling()
        (after,) = request.infer({"x": x}).values()
        np.testing.assert_array_equal(after, got)
    assert seen or (width < 64 and width % 4 and graph not in (windows, sounds))
    monkeypatch.setattr(tiles, "has_tiles_of_bytes", lambda: False)
    other = load(core, made, CPU_THREADS_NUM=threads).create_infer_request()
    for x, got in found:
        (wanted,) = other.infer({"x": x}).values()
        np.testing.assert_array_equal(got, wanted)


def curved(g: Graph, dtype, width: int, rank: int) -> bytes:
    """Windows that Tanh follows, GELU and a difference; products of rows where there is no rank."""
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04))
    half, root, one = (g.store(np.float32(n)) for n in (0.5, 2**0.5, 1))
    for kind in ("tanh", "gelu", "difference"):
        if rank:
            weights = g.weights((width, width, *[3] * rank), 0)
            y = g.emit("Conv", x, weights, kernel_shape=[3] * rank, pads=[1] * 2 * rank)
        else:
            y = g.emit("MatMul", x, g.weights((width, width), 1))
        if kind == "tanh":
            y = g.emit("Tanh", g.emit("Mul", y, half))
        elif kind == "gelu":
            share = g.emit("Add", g.emit("Erf", g.emit("Div", y, root)), one)
            y = g.emit("Mul", g.emit("Mul", y, share), half)
        else:
            y = g.emit("Sub", y, x)
        y = g.quantised(y, dtype, 0.02 if kind == "tanh" else 0.2)
        x = g.emit("DequantizeLinear", y, *g.nodes[-1].input[1:])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    sizes = [width, *"hv"[:rank]] if rank else ["k", width]
    return model(g, kind, ["n", *sizes], x)


@with_tiles_of_bytes
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("width", [24, 68])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_tanh_and_gelu_in_tiles(core, monkeypatch, rank, width, dtype):
    """All sizes are computed so, and without tiles none."""
    monkeypatch.setattr(settling, "RUNS", 3)
    g = Graph(np.random.default_rng(width + rank))
    made, rng = curved(g, dtype, width, rank), g.rng
    for is_in_tiles_ in (True, False):
        if not is_in_tiles_:
            monkeypatch.setattr(tiles, "has_tiles_of_bytes", lambda: False)
        executable = load(core, made, CPU_THREADS_NUM=1)
        request, found = executable.create_infer_request(), []
        for n, *sizes in SHAPES[(rows, sounds, pictures)[rank]]:
            shape = (n, width, *sizes) if rank else (n, *sizes, width)
            x = spread(rng, shape, dtype)
            (got,) = (each.copy() for each in request.infer({"x": x}).values())
            assert_close(got, reference(made, {"x": x})[0])
            in_tiles = [step.type for step in by_code(executable) if is_in_tiles(step.code)]
            found.append([any(map(kind.count, ("Tanh", "Gelu"))) for kind in in_tiles])
            for _ in range(settling.RUNS):
                request.infer({"x": x})
            wait_for_settling()
            (after,) = request.infer({"x": x}).values()
            np.testing.assert_array_equal(after, got)
        assert sum(found[-1]) == 2 * is_in_tiles_


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_the_largest_bytes_of_new_shapes_are_found_by_code(core, dtype):
    """Once there is a plan with formulas."""
    g = Graph(np.random.default_rng(3))
    executable = load(core, pools(g, dtype, 20), CPU_THREADS_NUM=1)
    request, found = executable.create_infer_request(), []
    for n, *sizes in SHAPES[pools]:
        request.infer({"x": spread(g.rng, (n, 20, *sizes), dtype)})
        steps = [step for step in executable.latest_plan().steps if step.type == "MaxPool"]
        assert len(steps) == 2
        found.append(all(isinstance(step, CodeStep) for step in steps))
    assert any(found) or not has_avx512("avx512_vnni")


def assert_close(got, wanted):
    """A rounding to the other side now and then is multiplied by weights that follow, up to 2.5.

    Of scores it may change a row's largest one. In floats, whose sums are in another order, two of
    them meet now and then.
    """
    away = np.abs(got.astype(np.float64) - wanted)
    if wanted.dtype.kind in "iu":
        assert away.max() <= (16 if has_int8() else 20)
        assert (away > 0).mean() < 0.05 + 2 / away.size
    else:
        assert (away > 1e-3 * np.abs(wanted).max()).mean() < 0.05
        assert (away >= 0.1 * np.abs(wanted).max()).mean() < 2e-4


@pytest.mark.skipif(not has_int8(), reason="all of them are parts of the product in f32")
def test_functions_of_what_lies_in_another_order_in_strips(core, monkeypatch):
    """Or in one row, and integers that become floating-point numbers where they lie."""
    monkeypatch.setattr("polydevice_cpu.plan.filling.with_numpy.copies.MOST_NS", 0.0)
    monkeypatch.setattr(
        "polydevice_cpu.plan.filling.plan_sizes.pointwise_by_machine", lambda _: None
    )
    g = Graph(np.random.default_rng(3))
    executable = load(core, heads(g, np.uint8, 64), CPU_THREADS_NUM=1)
    request, found = executable.create_infer_request(), set()
    for number, shape in enumerate([(1, 40, 64), (2, 33, 64), (1, 50, 64), (3, 70, 64)]):
        request.infer({"x": spread(g.rng, shape, np.uint8)})
        steps = executable.latest_plan().steps if number >= PLANNED_ANEW else []
        for step in steps:
            if isinstance(step, PrimitiveStep) and step.strips:
                found.add((step.primitive.kind, step.arguments[Arg.DST].descriptor.layout))
    assert {("reorder", "acbd"), ("binary", "acbd")} <= found
