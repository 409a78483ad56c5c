"""Activations of what is no number, and of numbers near the largest."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from polydevice import Core


@pytest.mark.usefixtures("needs_gpu")
@pytest.mark.parametrize("kind", ["HardSigmoid", "HardSwish", "Relu", "Clip", "Gelu", "Softplus"])
def test_as_onnxs_reference(kind: str) -> None:
    x = np.array([np.nan, np.inf, 3e38, -3e38, 1e38, 3, -3, 0.5, -0.5, 0], np.float32).repeat(3)
    node = helper.make_node(kind, ["x"], ["y"])
    given, made = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [len(x)]) for n in ("x", "y")
    )
    graph = helper.make_graph([node], "limits", [given], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with np.errstate(all="ignore"):
        (right,) = ReferenceEvaluator(model).run(None, {"x": x})
    with (
        Core() as core,
        core.load_network(core.read_network(model.SerializeToString()), "GPU") as network,
    ):
        for _ in range(2):
            np.testing.assert_allclose(network.infer({"x": x})["y"], right, 1e-4, 1e-6)
