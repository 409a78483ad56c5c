"""Constants that are infinite, or no numbers: read, compiled and computed without a word."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core


@pytest.mark.parametrize("sizes", [[2, 3, 4, 5], ["n", 3, "h", "w"]])
@pytest.mark.parametrize(
    ("variance", "scale"),
    [([1, -2, 4], [1, 1, 1]), ([1, 0, 4], [np.inf, 1, 0]), ([1, np.nan, np.inf], [1, 1, 3e38])],
)
def test_a_batch_normalisation(device: str, sizes, variance, scale) -> None:
    values = {"scale": scale, "bias": [0, 1, 2], "mean": [1, 0, -1], "variance": variance}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *values], ["y"], epsilon=1e-5),
    ]
    weights = {"w": np.eye(3).reshape(3, 3, 1, 1)} | values
    graph = helper.make_graph(
        nodes,
        "unlimited",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    x = np.random.default_rng(5).uniform(2, 3, (2, 3, 4, 5)).astype(np.float32)
    scale_, bias, mean, variance_ = (
        np.asarray(v, np.float32).reshape(3, 1, 1) for v in values.values()
    )
    with np.errstate(all="ignore"):
        right = (x - mean) / np.sqrt(variance_ + np.float32(1e-5)) * scale_ + bias
    with Core() as core, core.load_network(core.read_network(model), device) as executable:
        for _ in range(2):
            y = executable.infer({"x": x})["y"]
            exact = np.isfinite(right)
            np.testing.assert_allclose(y[exact], right[exact], 1e-3, 1e-3)
            assert not np.isfinite(y[~exact]).any()
