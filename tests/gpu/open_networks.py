"""Networks whose sizes are not known, and sizes that come one after the other."""

from __future__ import annotations

import numpy as np
import onnx

from tests.cpu import models
from tests.cpu.loading import image


def residual(sizes, batches=None):
    """A residual network, depthwise convolution and all, of any batch, height and width."""
    read = onnx.load_from_string(models.residual(16, "n", "s"))
    for axis, name in ((2, "height"), (3, "width")):
        read.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    batches = batches or [1] * len(sizes)
    inputs = [image(k, n, 3, *size) for k, (n, size) in enumerate(zip(batches, sizes, strict=True))]
    return read.SerializeToString(), inputs


def of_any_batch(batches):
    """The same, one picture or several of a size."""
    return residual([(66, 70)] * len(batches), batches)


def attention(lengths):
    """Rows times matrices, softmax and sums of rows, for sequences of any length."""
    weights = {name: image(k, 24, 24) * np.float32(0.2) for k, name in enumerate("qkvo")}
    nodes = [("MatMul", ["x", name], [f"{name}x"], {}) for name in "qkv"]
    nodes += [
        ("Transpose", ["kx"], ["kt"], {"perm": [0, 2, 1]}),
        ("MatMul", ["qx", "kt"], ["s"], {}),
        ("Softmax", ["s"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "vx"], ["a"], {}),
        ("MatMul", ["a", "o"], ["ao"], {}),
        ("Add", ["ao", "x"], ["r"], {}),
        ("Tanh", ["r"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [1, "length", 24]}, ["y"], weights)
    return model, [image(k, 1, length, 24) for k, length in enumerate(lengths)]


def pieces(lengths):
    """Parts of rows and of constants, of computed sizes: reshaped, repeated and put together."""
    weights = {
        "table": image(9, 512, 6),
        "ids": np.arange(512, dtype=np.int64)[None],
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "ends": np.array([-1, 6], np.int64),
        "far": np.array([1 << 40], np.int64),
        "scales": np.array([1, 2, 1], np.float32),
        "minus": np.array(-1, np.int64),
    }
    nodes = [
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "one"], ["length"], {"axis": 0}),
        ("Slice", ["ids", "zero", "length", "one"], ["places"], {}),
        ("Gather", ["table", "places"], ["embedded"], {"axis": 0}),
        ("Concat", ["two", "length", "ends"], ["pattern"], {"axis": 0}),
        ("Add", ["x", "embedded"], ["sum"], {}),
        ("Div", ["length", "two"], ["half"], {}),
        ("Slice", ["sum", "zero", "half", "one"], ["first"], {}),
        ("Slice", ["sum", "half", "far", "one"], ["second"], {}),
        ("Concat", ["second", "first", "sum"], ["turned"], {"axis": 1}),
        ("Resize", ["turned", "", "scales"], ["wide"], {
            "mode": "nearest", "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor"}),
        ("Equal", ["pattern", "minus"], ["free"], {}),
        ("Where", ["free", "one", "pattern"], ["sizes"], {}),
        ("Slice", ["sizes", "zero", "two", "zero"], ["two sizes"], {}),
        ("Concat", ["two sizes", "one"], ["tall"], {"axis": 0}),
        ("ReduceMax", ["x"], ["most"], {"axes": [2], "keepdims": 1}),
        ("Expand", ["most", "tall"], ["spread"], {}),
        ("ReduceMean", ["wide"], ["mean"], {"axes": [1], "keepdims": 1}),
        ("Mul", ["spread", "mean"], ["y"], {}),
    ]  # fmt: skip
    model = models.build(nodes, {"x": [1, "length", 6]}, ["y", "wide"], weights)
    return model, [image(k, 1, length, 6) for k, length in enumerate(lengths)]


def positions(lengths):
    """Ranges, running sums, the last row, and masks of what is padded, as exported texts have."""
    weights = {
        "table": image(9, 512, 6),
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "axis": np.array([1], np.int64),
        "far": np.array(-1e4, np.float32),
        "none": np.array(0, np.float32),
        "last": np.array(-1, np.int64),
        "last two": np.array([-2, -1], np.int64),
    }
    nodes = [
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "one"], ["length"], {"axis": 0}),
        ("Range", ["zero", "length", "one"], ["places"], {}),
        ("Unsqueeze", ["places", "axis"], ["rows"], {}),
        ("LessOrEqual", ["places", "rows"], ["before"], {}),
        ("Where", ["before", "none", "far"], ["mask"], {}),
        ("Gather", ["table", "places"], ["embedded"], {"axis": 0}),
        ("Add", ["x", "embedded"], ["sum"], {}),
        ("Transpose", ["sum"], ["turned"], {"perm": [0, 2, 1]}),
        ("MatMul", ["sum", "turned"], ["scores"], {}),
        ("Add", ["scores", "mask"], ["masked"], {}),
        ("Softmax", ["masked"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "sum"], ["mixed"], {}),
        ("CumSum", ["mixed", "axis"], ["running"], {}),
        ("Gather", ["running", "last"], ["y"], {"axis": 1}),
        ("Gather", ["mixed", "last two"], ["z"], {"axis": 1}),
    ]
    model = models.build(nodes, {"x": [1, "length", 6]}, ["y", "z", "running"], weights)
    return model, [image(k, 1, length, 6) for k, length in enumerate(lengths)]


def recurrent(lengths):
    """Steps of known lengths, which are those of the input."""
    weights = {"w": image(1, 2, 32, 6), "r": image(2, 2, 32, 8), "b": image(3, 2, 64)}
    nodes = [("LSTM", ["x", "w", "r", "b"], ["y", "", ""], {
        "hidden_size": 8, "direction": "bidirectional"})]  # fmt: skip
    model = models.build(nodes, {"x": ["length", 1, 6]}, ["y"], weights)
    return model, [image(k, length, 1, 6) for k, length in enumerate(lengths)]


def pyramid(sizes):
    """Linear interpolation by scales, and to the size of another value."""
    weights = {
        "a": image(1, 8, 3, 3, 3) - np.float32(0.5),
        "b": image(2, 8, 8, 3, 3) - np.float32(0.5),
        "double": np.array([1, 1, 2, 2], np.float32),
        "two": np.array([2], np.int64),
        "four": np.array([4], np.int64),
        "channels": np.array([1, 8], np.int64),
    }
    nodes = [
        ("Conv", ["x", "a"], ["wide"], {"pads": [1] * 4}),
        ("Conv", ["wide", "b"], ["small"], {"pads": [1] * 4, "strides": [2, 2]}),
        ("Resize", ["small", "", "double"], ["up"], {"mode": "linear"}),
        ("Shape", ["wide"], ["shape"], {}),
        ("Slice", ["shape", "two", "four"], ["plane"], {}),
        ("Concat", ["channels", "plane"], ["sizes"], {"axis": 0}),
        ("Resize", ["small", "", "", "sizes"], ["same"], {
            "mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        ("Add", ["same", "wide"], ["sum"], {}),
        ("Relu", ["sum"], ["y"], {}),
        ("Relu", ["up"], ["z"], {}),
    ]  # fmt: skip
    model = models.build(nodes, {"x": [1, 3, "height", "width"]}, ["y", "z"], weights)
    return model, [image(k, 1, 3, *size) for k, size in enumerate(sizes)]


CASES = {
    "positions": (positions, [40, 42, 9, 100, 33]),
    "recurrent": (recurrent, [40, 41, 64, 100, 33]),
    "pyramid": (pyramid, [(34, 50), (35, 49), (64, 40), (41, 96), (33, 51)]),
    "residual": (residual, [(66, 70), (67, 93), (81, 64), (96, 130), (129, 65)]),
    "one after several": (of_any_batch, [3, 4, 1, 2]),
    "attention": (attention, [40, 41, 64, 100, 33]),
    "pieces": (pieces, [40, 42, 41, 100, 33]),
}
