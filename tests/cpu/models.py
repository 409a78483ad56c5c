"""Small ONNX models that exercise plans, and ONNX Runtime's answers to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import helper, numpy_helper

from tests import onnxruntime_answers


def build(
    nodes: Sequence[tuple],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
    opset: int = 17,
    element_type: type = np.float32,
) -> bytes:
    """A model from (op type, inputs, outputs, attributes) tuples."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(element_type))
    made = [helper.make_node(kind, ins, outs, **attrs) for kind, ins, outs, attrs in nodes]
    graph = helper.make_graph(
        made,
        "test",
        [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model.SerializeToString()


def answer(model: bytes, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes, without its own fusions."""
    return onnxruntime_answers.answer(model, inputs, optimises=False)


def residual(
    channels: int = 12, batch: int | str = 2, size: int | str = 14, seed: int = 0
) -> bytes:
    """Convolutions, batch normalisation, a residual block, joined branches, a classifier."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    c = channels
    weights = {
        "w0": normal(c, 3, 3, 3),
        "w1": normal(c, c, 3, 3),
        "w2": normal(c, 1, 3, 3),
        "w3": normal(7, c, 1, 1),
        "gamma": normal(c) + 1,
        "beta": normal(c),
        "mean": normal(c),
        "variance": np.abs(normal(c)) + 0.5,
        "b1": normal(c),
        "slope": np.abs(normal(c, 1, 1)),
        "fc": normal(c + 7, 5),
        "fcb": normal(5),
        "shape": np.array([0, -1], np.int64),
    }
    nodes = [
        ("Conv", ["x", "w0"], ["c0"], {"pads": [1, 1, 1, 1]}),
        ("BatchNormalization", ["c0", "gamma", "beta", "mean", "variance"], ["n0"], {}),
        ("Relu", ["n0"], ["r0"], {}),
        ("Conv", ["r0", "w1", "b1"], ["c1"], {"pads": [1, 1, 1, 1]}),
        ("Add", ["c1", "r0"], ["s1"], {}),
        ("PRelu", ["s1", "slope"], ["p1"], {}),
        ("Conv", ["p1", "w2"], ["c2"], {"pads": [1, 1, 1, 1], "group": c}),
        ("Sigmoid", ["c2"], ["g2"], {}),
        ("Mul", ["c2", "g2"], ["swish"], {}),
        ("Conv", ["p1", "w3"], ["c3"], {}),
        ("Concat", ["swish", "c3"], ["cat"], {"axis": 1}),
        ("MaxPool", ["cat"], ["mp"], {"kernel_shape": [3, 3], "strides": [2, 2]}),
        ("GlobalAveragePool", ["mp"], ["gap"], {}),
        ("Reshape", ["gap", "shape"], ["flat"], {}),
        ("MatMul", ["flat", "fc"], ["mm"], {}),
        ("Add", ["mm", "fcb"], ["logits"], {}),
        ("Softmax", ["logits"], ["y"], {"axis": -1}),
    ]
    return build(nodes, {"x": [batch, 3, size, size]}, ["y", "logits", "p1"], weights)
