"""ONNX models with loops and branches for tests of the GPU, and ONNX Runtime's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

Info = tuple[str, str, Sequence[int | str] | None]
"""Name, element type and sizes of a value."""

KINDS = {
    "f4": TensorProto.FLOAT, "f2": TensorProto.FLOAT16, "i8": TensorProto.INT64,
    "i4": TensorProto.INT32, "b": TensorProto.BOOL,
}  # fmt: skip


def info(name: str, kind: str, shape: Sequence[int | str] | None) -> Any:
    if shape is None:
        return helper.make_tensor_value_info(name, KINDS[kind], None)
    return helper.make_tensor_value_info(name, KINDS[kind], list(shape))


def op(text: str, **attributes: Any) -> NodeProto:
    """Make a node from a text such as ``y, z = Split(x, n)``."""
    results, call = text.split(" = ")
    kind, arguments = call.rstrip(")").split("(")
    names = [name.strip() for name in arguments.split(",")] if arguments else []
    outputs = [name.strip() for name in results.split(",")]
    return helper.make_node(kind, names, outputs, **attributes)


def body(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Info],
    outputs: Sequence[Info],
    weights: Mapping[str, Any] | None = None,
) -> GraphProto:
    return helper.make_graph(
        nodes, "body", [info(*each) for each in inputs], [info(*each) for each in outputs],
        tensors(weights or {}),
    )  # fmt: skip


def tensors(weights: Mapping[str, Any]) -> list[TensorProto]:
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Info],
    outputs: Sequence[Info | str],
    weights: Mapping[str, Any] | None = None,
) -> bytes:
    results = [
        helper.make_empty_tensor_value_info(each) if isinstance(each, str) else info(*each)
        for each in outputs
    ]
    graph = helper.make_graph(
        nodes, "model", [info(*each) for each in inputs], results, tensors(weights or {})
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def right(content: bytes, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """Return ONNX Runtime's answers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(None, _arrays(feeds))]


def _arrays(feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in feeds.items()}


def nested_layers(executable: Any) -> dict[str, str]:
    """Return layer with bodies that stayed one → where it runs; also those in bodies."""
    found: dict[str, str] = {}

    def add(plan: Any) -> None:
        for node in plan.graph.nodes:
            if node.op.has_bodies:
                found[node.name] = "host" if node.on_host else "device"
        for inner in plan.inner_plans:
            add(inner)

    add(executable.latest_plan())
    return found
