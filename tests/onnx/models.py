"""Small ONNX models for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.absent import wants
from tests.onnxruntime_answers import session

ONE_SCORE = wants("onnxruntime", "1.24", "takes no LOGISTIC of one score for two labels")
FLOAT = TensorProto.FLOAT
Shape = Sequence["int | str | None"]


def value(name: str, shape: Shape | None = (2, 3), kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, None if shape is None else list(shape))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    *,
    initializers: Sequence[TensorProto] = (),
    opset: int = 21,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
    **graph: Any,
) -> onnx.ModelProto:
    made = helper.make_graph(
        list(nodes),
        "test",
        [value("x")] if inputs is None else list(inputs),
        [value("y", None)] if outputs is None else list(outputs),
        list(initializers),
        **graph,
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(made, opset_imports=imports, functions=list(functions), ir_version=10)


def tensor(name: str, array: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def external(name: str, entries: dict[str, str], shape: Sequence[int] = (2, 3)) -> TensorProto:
    """A float tensor whose data is said to be in another file."""
    proto = TensorProto(name=name, data_type=FLOAT, dims=list(shape))
    proto.data_location = TensorProto.EXTERNAL
    for key, text in entries.items():
        proto.external_data.add(key=key, value=text)
    return proto


def run(proto: onnx.ModelProto, *inputs: Any, device: str = "CPU") -> list[np.ndarray]:
    """Run a model on a device; inputs in the model's order. The last model stays loaded."""
    return list(_loaded(proto.SerializeToString(), device).run(list(inputs)))


@lru_cache(maxsize=1)
def _loaded(content: bytes, device: str) -> Any:
    import polydevice.onnx_backend as backend

    return backend.prepare(onnx.load_model_from_string(content), device)


def onnxruntime_outputs(proto: onnx.ModelProto, *inputs: Any) -> list[np.ndarray]:
    """Run a model in ONNX Runtime, which knows the older opsets better than onnx.reference."""
    theirs = session(proto.SerializeToString())
    names = [i.name for i in theirs.get_inputs()]
    return list(theirs.run(None, dict(zip(names, inputs, strict=True))))
