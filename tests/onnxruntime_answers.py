"""ONNX Runtime's answers, with sums of products of bytes that are exact on every processor.

Without instructions that add four such products up in 32 bits (VNNI), it clips sums of two to 16
bits where bytes without a sign meet bytes with one. So weights are given to it without a sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Array = np.ndarray[Any, Any]

_WEIGHTS = {
    "ConvInteger": [(1, 3)],
    "MatMulInteger": [(1, 3)],
    "QLinearConv": [(3, 5)],
    "QLinearMatMul": [(3, 5)],
    "QAttention": [(1, 7)],
    "DynamicQuantizeLSTM": [(1, 9), (2, 11)],
}
"""Operator → which inputs have weights, and which their zero points."""


def session(model: bytes, *, optimises: bool = True) -> Any:
    """Return a session of a model, on one thread.

    Args:
        model: the file's content.
        optimises: whether the network may be rewritten.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # The same for what its own passes make of a network.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimises:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = _without_signs(model)
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def answer(model: bytes, inputs: Mapping[str, Array], *, optimises: bool = True) -> list[Array]:
    """Return what a model computes; see `session`."""
    return list(session(model, optimises=optimises).run(None, dict(inputs)))


def _without_signs(model: bytes) -> bytes:
    """The same network with 128 added to weights of i8 and their zero points, as u8."""
    proto = onnx.load_model_from_string(model)
    graph = proto.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    has_signs = {name for name, t in constants.items() if t.data_type == onnx.TensorProto.INT8}
    moved = dict[str, str]()

    def shifted(name: str) -> str:
        if name not in moved:
            moved[name] = f"{name} + 128"
            values = np.full((), 128, np.uint8)
            if name:
                values = (numpy_helper.to_array(constants[name]) ^ np.int8(-128)).view(np.uint8)
            graph.initializer.append(numpy_helper.from_array(values, moved[name]))
        return moved[name]

    for node in graph.node:
        for weights, zero in _WEIGHTS.get(node.op_type, ()):
            if node.input[weights] not in has_signs:
                continue
            names = [*node.input, *[""] * (zero + 1 - len(node.input))]
            if names[zero] and names[zero] not in has_signs:
                continue
            names[weights], names[zero] = shifted(names[weights]), shifted(names[zero])
            node.input[:] = names
    return proto.SerializeToString() if moved else model
