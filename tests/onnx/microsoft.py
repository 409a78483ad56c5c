"""What tests of ONNX Runtime's own operators (com.microsoft) share: a node here and there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.models import run
from tests.onnxruntime_answers import answer

MS = "com.microsoft"
Arrays = dict[str, np.ndarray]


def model_of(node: onnx.NodeProto, feeds: Arrays, stored: Arrays, opset: int) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )
        for name, array in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    for output in outputs:  # ONNX Runtime finds the types itself
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    initializers = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def check(
    op_type: str,
    inputs: list[np.ndarray | None],
    outputs: int = 1,
    *,
    stored: tuple[int, ...] = (),
    integers: tuple[int, ...] = (),
    domain: str = MS,
    opset: int = 17,
    atol: float = 2e-5,
    byte_output: bool | None = None,
    **attributes: Any,
) -> None:
    """Run one node here and in ONNX Runtime; `stored` inputs are initializers.

    Outputs are of uint8 where `byte_output`, or else the first input, says so.
    """
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(inputs)]
    made = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, made, domain=domain, **attributes)
    arrays = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    constants = {names[k]: arrays[names[k]] for k in stored}
    feeds = {name: a for name, a in arrays.items() if name not in constants}
    proto = model_of(node, feeds, constants, opset)
    for k in integers:
        proto.graph.output[k].type.tensor_type.elem_type = TensorProto.INT32
    if byte_output is None:
        byte_output = bool(feeds) and next(iter(feeds.values())).dtype == np.uint8
    if byte_output:
        for k in range(outputs):
            proto.graph.output[k].type.tensor_type.elem_type = TensorProto.UINT8
    expected = answer(proto.SerializeToString(), feeds)
    results = run(proto, *feeds.values())
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        np.testing.assert_allclose(
            result.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=atol
        )


def floats(rng: np.random.Generator, *shape: int, scale: float = 0.5) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def codes(rng: np.random.Generator, *shape: int, kind: type = np.uint8) -> np.ndarray:
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)
