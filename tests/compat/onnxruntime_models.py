"""Small models for sessions of onnxruntime's stand-in."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

F32 = TensorProto.FLOAT


def model(*nodes: Any, inputs: Any = None, outputs: Any = None, stored: Any = ()) -> bytes:
    inputs = inputs or [helper.make_tensor_value_info("x", F32, [2, 3])]
    outputs = outputs or [helper.make_tensor_value_info("y", F32, [2, 3])]
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, list(stored))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


TWICE = model(helper.make_node("Add", ["x", "x"], ["y"]))
X = np.arange(6, dtype=np.float32).reshape(2, 3)
WITH_WEIGHTS = model(
    helper.make_node("Mul", ["x", "w"], ["y"]),
    stored=[helper.make_tensor("w", F32, [3], [1, 2, 3])],
)
