"""One value that is several outputs of a network, computed where only the data tells its sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core

RANDOM = np.random.default_rng(29)


@pytest.fixture(scope="module")
def model() -> bytes:
    """Products of rows that a mask keeps, twice under other names, and a sum of them."""
    nodes = [
        helper.make_node("Compress", ["x", "mask"], ["kept"], axis=0),
        helper.make_node("MatMul", ["kept", "w"], ["y"]),
        helper.make_node("Identity", ["y"], ["again"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 7])
        for name in ("y", "again", "z")
    ]
    graph = helper.make_graph(
        nodes,
        "twice",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 5]),
            helper.make_tensor_value_info("mask", TensorProto.BOOL, [None]),
        ],
        outputs,
        [numpy_helper.from_array(RANDOM.standard_normal((5, 7)).astype("f4"), "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


@pytest.mark.parametrize("through", ["", "HETERO:", "AUTO:"])
def test_each_output_has_the_value(device: str, through: str, model: bytes) -> None:
    if through and ":" in device:
        pytest.skip("is a combination itself")
    target = f"{through}{device}" + (",CPU" if through == "HETERO:" and device != "CPU" else "")
    w = numpy_helper.to_array(onnx.load_model_from_string(model).graph.initializer[0])
    with Core() as core, core.load_network(core.read_network(model), target) as executable:
        request = executable.create_infer_request()
        for rows, kept in ((6, 3), (4, 4), (6, 3)):
            x = RANDOM.standard_normal((rows, 5)).astype("f4")
            mask = RANDOM.permutation(np.arange(rows) < kept)
            right = x[mask] @ w
            found = request.infer({"x": x, "mask": mask})
            np.testing.assert_allclose(found["y"], right, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(found["again"], found["y"])
            np.testing.assert_array_equal(found["z"], np.maximum(found["y"], 0))
