"""Sizes that no memory can hold are refused at load, at once, also where no element exists."""

from __future__ import annotations

import resource
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.errors import DeviceMemoryError, ModelLimitError, UnsupportedNetworkError
from polydevice.memory_budget import host_memory_bytes

HUGE = 1 << 40

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def model(op, shapes, constants=(), types=None, **attributes) -> bytes:
    """One node; `constants` (None: an input left out) come behind the inputs."""
    types = types or [F32] * len(shapes)
    inputs = [
        helper.make_tensor_value_info(f"x{i}", kind, shape)
        for i, (kind, shape) in enumerate(zip(types, shapes, strict=True))
    ]
    names = [f"x{i}" for i in range(len(shapes))]
    names += ["" if c is None else f"c{i}" for i, c in enumerate(constants)]
    held = [numpy_helper.from_array(np.asarray(c), f"c{i}")
            for i, c in enumerate(constants) if c is not None]  # fmt: skip
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "hostile", inputs, [onnx.ValueInfoProto(name="y")], held)
    opset = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()


VALUES = np.array([0, 1], np.float32)

HOSTILE = {
    "Resize, no batch": lambda: model(
        "Resize", [[0, 3, 4, 4]], [None, None, ints(0, 3, HUGE, HUGE)], mode="linear"
    ),
    "Resize, no batch, nearest": lambda: model(
        "Resize", [[0, 3, 4, 4]], [None, None, ints(0, 3, HUGE, 4)], mode="nearest"
    ),
    "Resize, no batch, scales": lambda: model(
        "Resize", [[0, 3, 4, 4]], [None, np.array([1, 1, 1e9, 1e9], np.float32)], mode="cubic"
    ),
    "Resize": lambda: model("Resize", [[1, 1, 4, 4]], [None, None, ints(1, 1, HUGE, 4)]),
    "Resize of a constant": lambda: model(
        "Resize", [], [np.zeros((0, 1, 4), np.float32), None, None, ints(0, 1, HUGE)]
    ),
    "Tile, empty": lambda: model("Tile", [[0, 4]], [ints(1, HUGE)]),
    "Tile": lambda: model("Tile", [[4, 4]], [ints(HUGE, HUGE)]),
    "Expand, empty": lambda: model("Expand", [[0, 1]], [ints(0, HUGE)]),
    "Expand": lambda: model("Expand", [[1, 1]], [ints(1 << 20, 1 << 20)]),
    "Expand of a constant": lambda: model(
        "Expand", [], [np.zeros((1, 1), np.float32), ints(1 << 20, 1 << 20)]
    ),
    "Range": lambda: model("Range", [], [np.int64(0), np.int64(HUGE), np.int64(1)]),
    "ConstantOfShape, empty": lambda: model("ConstantOfShape", [], [ints(0, HUGE)]),
    "ConstantOfShape": lambda: model("ConstantOfShape", [], [ints(1 << 20, 1 << 20)]),
    "Pad, empty": lambda: model("Pad", [[0, 4]], [ints(0, 0, 0, HUGE)], mode="wrap"),
    "Pad": lambda: model("Pad", [[1, 4]], [ints(0, 0, 0, HUGE)]),
    "OneHot, empty": lambda: model("OneHot", [[0]], [ints(HUGE), VALUES], [I64]),
    "OneHot": lambda: model("OneHot", [[4]], [ints(HUGE), VALUES], [I64]),
    "MatMul of nothing": lambda: model("MatMul", [[1 << 31, 0], [0, 1 << 31]]),
    "Conv with pads": lambda: model(
        "Conv", [[1, 1, 4, 4]], [np.ones((1, 1, 1, 1), np.float32)], pads=[1 << 30] * 4
    ),
    "Add, broadcast": lambda: model("Add", [[1 << 20, 1], [1, 1 << 20]]),
    "DFT": lambda: model("DFT", [[1, 4, 1]], [np.int64(HUGE), np.int64(1)]),
    "HannWindow": lambda: model("HannWindow", [], [np.int64(HUGE)]),
    "RoiAlign of no region": lambda: model(
        "RoiAlign", [[1, 1, 4, 4], [0, 4]], [ints()], output_height=1 << 30, output_width=1 << 30
    ),
    "an input": lambda: model("Relu", [[1 << 20, 1 << 20]]),
    "an empty input": lambda: model("Relu", [[0, HUGE, HUGE]]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_at_load(device, name):
    with Core() as core:
        content = HOSTILE[name]()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        network = core.read_network(content)
        with pytest.raises(ModelLimitError, match=r"makes a value .*has memory for \d+"):
            core.load_network(network, device)
        assert time.process_time() - start < 5  # about 0.1 s; kernels of probes come on top
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 256 << 10  # KiB


def test_refused_when_a_request_brings_the_sizes(device):
    content = model(
        "Resize", [["n", 3, 4, 4]], [None, np.array([1, 1, 1e6, 1e6], np.float32)], mode="linear"
    )
    with Core() as core:
        request = core.load_network(core.read_network(content), device).create_infer_request()
        for batch in (0, 1):
            with pytest.raises(ModelLimitError, match="makes a value"):
                request.infer({"x0": np.zeros((batch, 3, 4, 4), np.float32)})


def test_an_empty_result_costs_nothing(device):
    """2^30 steps of a recurrence over no sequences: nothing is computed."""
    weights = [np.ones((1, 2, 1), np.float32), np.ones((1, 2, 2), np.float32)]
    content = model("RNN", [[1 << 30, 0, 1]], weights, hidden_size=2)
    with Core() as core:
        request = core.load_network(core.read_network(content), device).create_infer_request()
        start = time.process_time()
        y = request.infer({"x0": np.zeros((1 << 30, 0, 1), np.float32)})["y"]
        assert y.shape == (1 << 30, 1, 0, 2)
        assert time.process_time() - start < 5


def test_many_values_that_fit_one_by_one(device):
    """No single value is too large; all of them together are, and folding makes none of them."""
    each = 240 << 20  # elements of f32: 0.94 GiB
    count = max(64, 2 * host_memory_bytes() // (4 * each))
    nodes, names = [], []
    held = [numpy_helper.from_array(ints(each), "size")]
    for i in range(count):
        value = numpy_helper.from_array(np.full(1, i, np.float32))
        nodes.append(helper.make_node("ConstantOfShape", ["size"], [f"y{i}"], value=value))
        names.append(f"y{i}")
    nodes.append(helper.make_node("Concat", names, ["all"], axis=0))
    graph = helper.make_graph(
        nodes, "hostile", [], [helper.make_tensor_value_info("all", F32, [count * each])], held
    )
    content = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    ).SerializeToString()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        Core() as core,
        pytest.raises((ModelLimitError, DeviceMemoryError, UnsupportedNetworkError)),
    ):
        core.load_network(core.read_network(content), device)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 3 << 20  # KiB
