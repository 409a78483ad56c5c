"""Loops of as many iterations as sizes or values tell, in plans that serve other sizes."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice_gpu.runtime.plan import HostStep
from tests.cpu import models
from tests.cpu.loading import image

INT = np.int64


def searched(state: int):
    """A loop that a value ends, which each iteration computes, over as many rows as there are."""
    inner = [
        helper.make_node("MatMul", ["row", "w"], ["made"]),
        helper.make_node("Tanh", ["made"], ["next"]),
        helper.make_node("ReduceMean", ["next"], ["mean"], keepdims=0),
        helper.make_node("Less", ["mean", "limit"], ["on"]),
    ]
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        inner,
        "body",
        [
            info("number", TensorProto.INT64, []),
            info("going", TensorProto.BOOL, []),
            info("row", TensorProto.FLOAT, ["rows", state]),
        ],
        [
            info("on", TensorProto.BOOL, []),
            info("next", TensorProto.FLOAT, ["rows", state]),
            info("mean", TensorProto.FLOAT, []),
        ],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["begin"]),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "first"], ["count"], axis=0),
        helper.make_node("Loop", ["count", "yes", "begin"], ["end", "means"], body=body),
        helper.make_node("Tanh", ["end"], ["y"]),
        helper.make_node("Neg", ["means"], ["z"]),
    ]
    weights = {
        "w": (image(1, state, state) - np.float32(0.5)) / np.float32(state**0.5),
        "first": np.array(0, INT), "yes": np.array(True), "limit": np.float32(0.4),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "search",
        [info("x", TensorProto.FLOAT, ["rows", state])],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "z")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("state", [8, 272])
def test_loops_whose_end_values_tell_are_the_hosts_where_sizes_vary(core, opencl, state):
    """Also with more data than 65,536 elements: the processor is the host's."""
    model = searched(state)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    inputs = [image(k, n, state) for k, n in enumerate([6, 9, 2, 17])]
    for x in inputs:
        check(model, request, x)
    if not opencl.capabilities.local_memory_is_dedicated:
        assert executable._prepared.templates.filled == len(inputs) - 1, executable.explain()
    network = core.read_network(model)
    network.reshape({"x": [5, state]})
    check(model, core.load_network(network, "GPU").create_infer_request(), image(7, 5, state))


def decayed(*, ends: bool = False, starts: int = 0):
    """A sum that decays from row to row, of which each row is appended to those before.

    Args:
        ends: whether a value ends the loop before the last row.
        starts: rows that the result has before the first.
    """
    inner = [
        helper.make_node("Gather", ["rows", "number"], ["row"], axis=0),
        helper.make_node("Mul", ["sum", "w"], ["less"]),
        helper.make_node("Add", ["less", "row"], ["next"]),
        helper.make_node("Unsqueeze", ["next", "zero"], ["part"]),
        helper.make_node("Concat", ["out", "part"], ["longer"], axis=0),
        helper.make_node("ReduceMax", ["next"], ["most"], keepdims=0),
        helper.make_node("Less", ["most", "limit"], ["on"]),
    ]
    state = [TensorProto.FLOAT, [8]], [TensorProto.FLOAT, None]
    body = helper.make_graph(
        inner,
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("out", TensorProto.FLOAT, ["k", 8]),
            helper.make_tensor_value_info("sum", *state[0]),
        ],
        [
            helper.make_tensor_value_info("on" if ends else "going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("longer", TensorProto.FLOAT, ["k", 8]),
            helper.make_tensor_value_info("next", *state[0]),
        ],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["rows"]),
        helper.make_node("Shape", ["rows"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "first"], ["count"], axis=0),
        helper.make_node("Loop", ["count", "yes", "none", "begin"], ["all", "end"], body=body),
        helper.make_node("MatMul", ["all", "a"], ["seen"]),
        helper.make_node("Tanh", ["seen"], ["y"]),
    ]
    weights = {
        "a": image(1, 8, 8) - np.float32(0.5), "w": image(2, 8), "begin": image(3, 8),
        "none": image(4, starts, 8), "first": np.array(0, INT), "zero": np.array([0], INT),
        "yes": np.array(True), "limit": np.float32(1.2),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 8])],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "end")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def check(model, request, x):
    got = request.infer({"x": x})
    for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("ends", "starts"), [(False, 0), (False, 3), (True, 0)])
def test_loops_of_as_many_iterations_as_there_are_rows(core, opencl, ends, starts):
    """The host runs them for new sizes; on GPUs, for those that come back, they are written out."""
    model = decayed(ends=ends, starts=starts)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    inputs = [image(k, n, 8) for k, n in enumerate([6, 9, 2, 17, 5, 12])]
    for x in inputs:
        check(model, request, x)
    in_lockstep = opencl.capabilities.local_memory_is_dedicated  # of which tiles are classes
    if not ends and not in_lockstep:
        assert executable._prepared.templates.filled == len(inputs) - 1, executable.explain()
    if ends or not in_lockstep:
        assert any(isinstance(step, HostStep) for step in executable.latest_plan().steps)
    for _ in range(2):
        check(model, request, inputs[-1])
        executable._specialiser.wait(time.monotonic() + 60)
    if not ends:
        steps = executable.latest_plan().steps
        is_on_host = any(isinstance(step, HostStep) for step in steps)
        assert is_on_host == (not in_lockstep), executable.explain()
    check(model, request, inputs[-1])
    for rows in (1, 0):
        check(model, request, image(rows, rows, 8))
