"""Plans for one set of sizes serve others that might be planned in another way."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto

from polydevice.ops.matmul import MatMul
from polydevice_cpu.implement import evaluate
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.compiler.stages import build_graph
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.tuning.candidates import launches_of
from tests.cpu import models
from tests.cpu.loading import image
from tests.gpu.graphs import Sketch

INT = np.int64


def ranked(sizes):
    """Rows sorted as a whole, for which long ones have their own kernel, and shares of them."""
    weights = {"one": np.array([1], INT), "two": np.array([2], INT), "w": image(1, 6, 6)}
    nodes = [
        ("MatMul", ["x", "w"], ["scores"], {}),
        ("ReduceSum", ["scores", "two"], ["rows"], {"keepdims": 0}),
        ("Shape", ["rows"], ["sizes"], {}),
        ("Gather", ["sizes", "one"], ["all"], {"axis": 0}),
        ("TopK", ["rows", "all"], ["sorted", "places"], {"axis": 1}),
        ("Softmax", ["sorted"], ["y"], {"axis": 1}),
        ("Cast", ["places"], ["order"], {"to": TensorProto.FLOAT}),
    ]
    model = models.build(nodes, {"x": ["rows", "length", 6]}, ["y", "order"], weights)
    return model, [{"x": image(k, *size, 6)} for k, size in enumerate(sizes)]


def products(sizes):
    """Batches of products, whose factors would be stretched where a batch is one."""
    nodes = [("Einsum", ["x", "z"], ["y"], {"equation": "bij,bjk->bik"})]
    model = models.build(nodes, {"x": ["n", "i", 5], "z": ["n", 5, "k"]}, ["y"], {})
    return model, [
        {"x": image(k, n, i, 5), "z": image(k + 9, n, 5, j)} for k, (n, i, j) in enumerate(sizes)
    ]


def joined(sizes):
    """Columns before rows, or the other way round: a result may lie as the larger of both does."""
    nodes = [
        ("Tanh", ["x"], ["one"], {}),
        ("Transpose", ["one"], ["turned"], {"perm": [1, 0]}),
        ("Concat", ["turned", "z"], ["both"], {"axis": 1}),
        ("Relu", ["both"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 6], "z": [6, "m"]}, ["y"], {})
    return model, [{"x": image(k, n, 6), "z": image(k + 9, 6, m)} for k, (n, m) in enumerate(sizes)]


def beside_views(sizes):
    """A product with what is broadcast, seen before a transposition."""
    weights = {"w": image(1, 6, 6), "axes": np.array([2], INT)}
    nodes = [
        ("MatMul", ["x", "w"], ["made"], {}),
        ("Transpose", ["made"], ["turned"], {"perm": [0, 2, 1]}),
        ("ReduceMean", ["turned"], ["mean"], {"axes": [2]}),
        ("Mul", ["turned", "mean"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", "length", 6]}, ["y"], weights)
    return model, [{"x": image(k, *size, 6)} for k, size in enumerate(sizes)]


def behind_parts(sizes):
    """A product with a number for each row, seen before rows of two products are joined."""
    nodes = [
        ("MatMul", ["x", "w"], ["made"], {}),
        ("MatMul", ["z", "w"], ["more"], {}),
        ("Concat", ["made", "more"], ["both"], {"axis": 1}),
        ("Concat", ["x", "z"], ["given"], {"axis": 1}),
        ("ReduceMean", ["given"], ["mean"], {"axes": [2]}),
        ("Mul", ["both", "mean"], ["y"], {}),
    ]
    given = {"x": ["n", "length", 6], "z": ["n", "width", 6]}
    model = models.build(nodes, given, ["y"], {"w": image(1, 6, 6)})
    return model, [
        {"x": image(k, n, a, 6), "z": image(k + 9, n, b, 6)} for k, (n, a, b) in enumerate(sizes)
    ]


def parted(sizes):
    """Columns shown as two axes; where there are as many items as rows, that says nothing."""
    weights = {"w": image(1, 6, 6), "parts": np.array([-1, 0, 2, 3], INT)}
    nodes = [
        ("MatMul", ["x", "w"], ["made"], {}),
        ("Reshape", ["made", "parts"], ["parted"], {}),
        ("ReduceMax", ["parted"], ["y"], {"axes": [3]}),
    ]
    model = models.build(nodes, {"x": ["n", "length", 6]}, ["y"], weights)
    return model, [{"x": image(k, *size, 6)} for k, size in enumerate(sizes)]


def bytes_of_lines(sizes):
    """A convolution of bytes along lines, of which work-items compute one block or several."""
    weights = {
        "w": (image(1, 96, 6, 3) * 100 - 50).astype(np.int8),
        "scale": np.float32(0.01), "zero": np.uint8(3), "none": np.int8(0), "wide": np.float32(0.2),
    }  # fmt: skip
    nodes = [
        ("QuantizeLinear", ["x", "scale", "zero"], ["q"], {}),
        ("QLinearConv", ["q", "scale", "zero", "w", "scale", "none", "wide", "zero"], ["c"], {}),
        ("DequantizeLinear", ["c", "wide", "zero"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 6, "length"]}, ["y"], weights)
    return model, [{"x": image(k, n, 6, length)} for k, (n, length) in enumerate(sizes)]


def biased(sizes):
    """Biases by distance, in bytes: places follow from sizes, and blocks are wider than rows."""
    weights = {
        "none": np.array(0, INT), "one": np.array(1, INT), "length": np.array(1, INT),
        "column": np.array([1], INT), "table": (image(1, 40, 5) * 200 - 100).astype(np.int8),
        "steps": image(2, 40, 1),
    }  # fmt: skip
    nodes = [
        ("Shape", ["x"], ["sizes"], {}),
        ("Gather", ["sizes", "length"], ["end"], {"axis": 0}),
        ("Range", ["none", "end", "one"], ["places"], {}),
        ("Unsqueeze", ["places", "column"], ["below"], {}),
        ("Sub", ["below", "places"], ["signed"], {}),
        ("Abs", ["signed"], ["apart"], {}),
        ("Gather", ["table", "apart"], ["bytes"], {"axis": 0}),
        ("Gather", ["steps", "apart"], ["by"], {"axis": 0}),
        ("DequantizeLinear", ["bytes", "by"], ["bias"], {"axis": 2, "block_size": 8}),
        ("ReduceSum", ["bias", "column"], ["row"], {"keepdims": 0}),
        ("Add", ["x", "row"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", "length", 5]}, ["y"], weights, opset=21)
    return model, [{"x": image(k, *size, 5)} for k, size in enumerate(sizes)]


def means(sizes):
    """Sums that are divided by a length, and places of rows that are counted up to one."""
    weights = {"one": np.array(1, INT), "axis": np.array([1], INT), "two": np.array(2, np.int32)}
    nodes = [
        ("Shape", ["x"], ["sizes"], {}),
        ("Gather", ["sizes", "one"], ["length"], {"axis": 0}),
        ("Cast", ["length"], ["as float"], {"to": TensorProto.FLOAT}),
        ("ReduceSum", ["x", "axis"], ["sum"], {"keepdims": 1}),
        ("Div", ["sum", "as float"], ["mean"], {}),
        ("Sub", ["x", "mean"], ["y"], {}),
        ("Cast", ["length"], ["as int"], {"to": TensorProto.INT32}),
        ("Mul", ["x", "x"], ["square"], {}),
        ("Cast", ["square"], ["whole"], {"to": TensorProto.INT32}),
        ("Mul", ["whole", "as int"], ["many"], {}),
        ("Div", ["many", "two"], ["z"], {}),
    ]
    model = models.build(nodes, {"x": ["n", "length", 6]}, ["y", "z"], weights)
    return model, [{"x": image(k, *size, 6) * 9} for k, size in enumerate(sizes)]


def padded(sizes):
    """Rows in windows of four, and zeros behind the last ones."""
    weights = {
        "one": np.array([1], INT), "four": np.array([4], INT), "none": np.array([0], INT),
        "window": np.array([-1, 4, 6], INT), "by": image(1, 4, 6), "zero": np.float32(0),
    }  # fmt: skip
    nodes = [
        ("Relu", ["x"], ["before"], {}),
        ("Shape", ["x"], ["sizes"], {}),
        ("Gather", ["sizes", "one"], ["length"], {"axis": 0}),
        ("Mod", ["length", "four"], ["over"], {}),
        ("Sub", ["four", "over"], ["short"], {}),
        ("Mod", ["short", "four"], ["more"], {}),
        ("Concat", ["none", "none", "none", "none", "more", "none"], ["pads"], {"axis": 0}),
        ("Pad", ["before", "pads", "zero"], ["whole"], {}),
        ("Reshape", ["whole", "window"], ["windows"], {}),
        ("Add", ["windows", "by"], ["moved"], {}),
        ("Softmax", ["moved"], ["shares"], {"axis": 1}),
        ("Shape", ["whole"], ["whole sizes"], {}),
        ("Reshape", ["shares", "whole sizes"], ["rows"], {}),
        ("Slice", ["rows", "none", "length", "one"], ["cut"], {}),
        ("Add", ["cut", "x"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", "length", 6]}, ["y"], weights)
    return model, [{"x": image(k, *size, 6)} for k, size in enumerate(sizes)]


def some_axes_padded(sizes):
    """Zeros behind rows, which have 20 elements then."""
    weights = {
        "one": np.array([1], INT), "last": np.array([-1], INT), "none": np.array([0], INT),
        "most": np.array([20], INT), "zero": np.float32(0), "w": image(1, 6, 6),
    }  # fmt: skip
    nodes = [
        ("MatMul", ["x", "w"], ["scores"], {}),
        ("Shape", ["scores"], ["sizes"], {}),
        ("Gather", ["sizes", "one"], ["length"], {"axis": 0}),
        ("Sub", ["most", "length"], ["short"], {}),
        ("Concat", ["none", "short"], ["pads"], {"axis": 0}),
        ("Transpose", ["scores"], ["turned"], {"perm": [0, 2, 1]}),
        ("Pad", ["turned", "pads", "zero", "last"], ["whole"], {}),
        ("Softmax", ["whole"], ["y"], {"axis": -1}),
    ]
    model = models.build(nodes, {"x": ["n", "length", 6]}, ["y"], weights, 18)
    return model, [{"x": image(k, *size, 6)} for k, size in enumerate(sizes)]


def read_both_ways(sizes):
    """A recurrent layer of as many steps as the inputs say, from one on, and lengths of that."""
    weights = {
        "w": image(1, 2, 32, 6), "r": image(2, 2, 32, 8), "b": image(3, 2, 64),
        "first": np.array([0], INT), "second": np.array([1], INT),
    }  # fmt: skip
    nodes = [
        ("Shape", ["x"], ["sizes"], {}),
        ("Gather", ["sizes", "first"], ["steps"], {"axis": 0}),
        ("Gather", ["sizes", "second"], ["batch"], {"axis": 0}),
        ("Expand", ["steps", "batch"], ["wide"], {}),
        ("Cast", ["wide"], ["lengths"], {"to": TensorProto.INT32}),
        ("LSTM", ["x", "w", "r", "b", "lengths"], ["y", "", ""], {
            "hidden_size": 8, "direction": "bidirectional"}),
    ]  # fmt: skip
    model = models.build(nodes, {"x": ["steps", "n", 6]}, ["y"], weights)
    return model, [{"x": image(k, *size, 6)} for k, size in enumerate(sizes)]


def turned(sizes):
    """Rows from the last to the first, every second one of them, and a root of their number."""
    weights = {
        "last": np.array([-1], INT), "end": np.array([-(1 << 31)], INT), "axis": np.array([1], INT),
        "back": np.array([-1], INT), "two": np.array([-2], INT), "w": image(1, 6, 6),
    }  # fmt: skip
    nodes = [
        ("MatMul", ["x", "w"], ["made"], {}),
        ("Slice", ["made", "last", "end", "axis", "back"], ["turned"], {}),
        ("Slice", ["made", "last", "end", "axis", "two"], ["half"], {}),
        ("Shape", ["x"], ["sizes"], {}),
        ("Gather", ["sizes", "axis"], ["length"], {"axis": 0}),
        ("Cast", ["length"], ["as float"], {"to": TensorProto.FLOAT}),
        ("Sqrt", ["as float"], ["root"], {}),
        ("Div", ["turned", "root"], ["y"], {}),
        ("Tanh", ["half"], ["z"], {}),
    ]
    model = models.build(nodes, {"x": ["n", "length", 6]}, ["y", "z"], weights)
    return model, [{"x": image(k, *size, 6)} for k, size in enumerate(sizes)]


def framed(sizes):
    """Padding up to whole frames of four, of which floats tell how many there are."""
    weights = {
        "one": np.array(1, INT), "first": np.array([0], INT), "four": np.array(4, np.float32),
        "before": np.array([0, 0, 0, 0], INT), "behind": np.array([0], INT),
        "w": image(1, 6, 6),
    }  # fmt: skip
    nodes = [
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "one"], ["length"], {"axis": 0}),
        ("Cast", ["length"], ["float"], {"to": TensorProto.FLOAT}),
        ("Div", ["float", "four"], ["frames"], {}),
        ("Ceil", ["frames"], ["up"], {}),
        ("Mul", ["up", "four"], ["whole"], {}),
        ("Sub", ["whole", "float"], ["lacking"], {}),
        ("Cast", ["lacking"], ["number"], {"to": TensorProto.INT64}),
        ("Unsqueeze", ["number", "first"], ["numbers"], {}),
        ("Concat", ["before", "numbers", "behind"], ["pads"], {"axis": 0}),
        ("Pad", ["x", "pads"], ["wide"], {}),
        ("MatMul", ["wide", "w"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", "length", 6]}, ["y"], weights)
    return model, [{"x": image(k, *size, 6)} for k, size in enumerate(sizes)]


CASES = {
    "turned": (turned, [(2, 9), (1, 4), (3, 17), (2, 6), (1, 33)]),
    "means": (means, [(2, 9), (3, 17), (1, 6), (4, 1), (2, 33)]),
    "padded": (padded, [(1, 8), (2, 9), (3, 4), (1, 17), (4, 1)]),
    "some axes padded": (some_axes_padded, [(1, 8), (2, 9), (3, 4), (1, 17), (4, 1)]),
    "padded, squares first": (padded, [(6, 6), (2, 12), (3, 7), (1, 8)]),
    "read both ways": (read_both_ways, [(7, 1), (3, 2), (1, 3), (12, 2), (2, 1)]),
    "beside views, one first": (beside_views, [(1, 9), (3, 4), (2, 6), (1, 17), (4, 5)]),
    "biased": (biased, [(3, 9), (2, 17), (1, 6), (4, 1), (2, 33)]),
    "ranked": (ranked, [(3, 37), (2, 70), (4, 3), (1, 12), (5, 64), (2, 1)]),
    "parted": (parted, [(3, 3), (2, 9), (4, 4), (1, 6)]),
    "behind parts": (behind_parts, [(2, 9, 3), (3, 4, 7), (1, 6, 1), (2, 3, 3)]),
    "products of few columns": (products, [(3, 4, 7), (2, 9, 3), (4, 2, 2), (2, 6, 1)]),
    "products": (products, [(3, 4, 7), (2, 9, 5), (1, 6, 6), (1, 3, 8), (4, 2, 17)]),
    "joined": (joined, [(9, 2), (7, 4), (3, 8), (2, 11), (6, 5)]),
    "beside views": (beside_views, [(2, 9), (3, 4), (1, 6), (1, 17), (4, 5)]),
    "framed": (framed, [(2, 9), (3, 17), (1, 6), (4, 3), (2, 33)]),
    "bytes of lines": (bytes_of_lines, [(2, 40), (1, 30), (4, 317), (3, 135), (1, 9)]),
}


def cached(sizes):
    """Attention to what came before, of which there may be nothing."""
    weights = {name: image(k, 6, 6) for k, name in enumerate("qkv")}
    nodes = [("MatMul", ["x", name], [f"{name}x"], {}) for name in "qkv"]
    nodes += [
        ("Concat", ["past", "kx"], ["keys"], {"axis": 1}),
        ("Transpose", ["keys"], ["turned"], {"perm": [0, 2, 1]}),
        ("MatMul", ["qx", "turned"], ["scores"], {}),
        ("Softmax", ["scores"], ["shares"], {"axis": -1}),
        ("Concat", ["past", "vx"], ["values"], {"axis": 1}),
        ("MatMul", ["shares", "values"], ["y"], {}),
    ]
    given = {"x": ["n", "length", 6], "past": ["n", "before", 6]}
    model = models.build(nodes, given, ["y", "keys"], weights)
    return model, [
        {"x": image(k, n, length, 6), "past": image(k, n, before, 6)}
        for k, (n, length, before) in enumerate(sizes)
    ]


def check_filled(executable, count, opencl):
    """Compare with how many plans were to be filled in.

    In lockstep loading makes some ahead, and a thread behind others when it gets to it: how many
    sizes they serve is told in test_sizes_on_matrix_units.py.
    """
    if not opencl.capabilities.local_memory_is_dedicated:
        filled = executable._prepared.templates.filled
        assert filled == count, executable.explain()


def test_nothing_that_came_before_is_filled_in_as_something_is(core, opencl):
    model, inputs = cached([(2, 9, 0), (1, 4, 9), (3, 4, 0), (2, 1, 5), (1, 12, 0), (1, 3, 1)])
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    for given in inputs:
        got = request.infer(given)
        executable._specialiser.wait(time.monotonic() + 60)
        for ours, theirs in zip(got.values(), models.answer(model, given), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    check_filled(executable, len(inputs) - 2, opencl)


@pytest.mark.parametrize("case", CASES)
def test_other_sizes_are_filled_in(case, core, opencl):
    make, sizes = CASES[case]
    model, inputs = make(sizes)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    for given in inputs:
        got = request.infer(given)
        for ours, theirs in zip(got.values(), models.answer(model, given), strict=True):
            scale = np.abs(theirs).max(initial=0)
            step = 0.2 if case == "bytes of lines" else 0  # halves may be rounded otherwise
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale + 1.01 * step)
    check_filled(executable, len(inputs) - 1, opencl)
    assert "is not known before inference" not in executable.explain()


@pytest.mark.parametrize("columns", [40, 48])
def test_one_program_multiplies_any_number_of_rows(core, columns) -> None:
    """Of a processor's tiles the last one has one row, few, or all but one.

    Where there is one tile alone, work-groups are smaller, and else it is the same program.
    """
    texts = set()
    for rows in (1, 2, 5, 17, 64):
        s = Sketch()
        y = s.add("y", MatMul(), s.input("x", rows, 61), s.weights("w", 61, columns))
        target = Target(sizes_vary=True, vector_width=16)
        graph = build_graph(s.network(y=y), target, evaluate, CompileSettings())
        (node,) = (each for each in graph.nodes if isinstance(each.op, MatMul))
        texts |= {each.text for each in launches_of(node.choice, node, target)}
    assert len(texts) == 2
    w = image(1, 61, columns)
    nodes = [("MatMul", ["x", "w"], ["made"], {}), ("Tanh", ["made"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", 61]}, ["y"], {"w": w})
    executable = core.load_network(core.read_network(model), "GPU")
    for rows in (17, 1, 2, 4, 5, 7, 8, 9, 31):
        x = image(rows, rows, 61)
        (got,) = executable.infer({"x": x}).values()
        np.testing.assert_allclose(got, np.tanh(x.astype(float) @ w), rtol=2e-5, atol=2e-5)
