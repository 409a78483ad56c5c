"""ONNX's messages, without the rest of the package `onnx`.

To import that takes 3 MB more, and twice as long. Its classes are the same ones: protobuf has one
for each message, whoever asks for it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        SparseTensorProto,
        TensorProto,
        TensorShapeProto,
        TypeProto,
        ValueInfoProto,
    )
else:

    def _messages() -> Any:
        """The module that protobuf's compiler made, which needs nothing else of the package.

        It gets no place in `sys.modules`: who imports `onnx` later shall find all of it.
        """
        package = importlib.util.find_spec("onnx")
        folders = [] if package is None else package.submodule_search_locations or []
        for folder in folders:
            path = Path(folder, "onnx_ml_pb2.py")
            if path.is_file():
                spec = importlib.util.spec_from_file_location("onnx.onnx_ml_pb2", path)
                made = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(made)
                return made
        import onnx  # laid out in another way

        return onnx

    _made = _messages()
    AttributeProto, FunctionProto = _made.AttributeProto, _made.FunctionProto
    GraphProto, ModelProto, NodeProto = _made.GraphProto, _made.ModelProto, _made.NodeProto
    SparseTensorProto, TensorProto = _made.SparseTensorProto, _made.TensorProto
    TensorShapeProto, TypeProto = _made.TensorShapeProto, _made.TypeProto
    ValueInfoProto = _made.ValueInfoProto

__all__ = [
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "SparseTensorProto",
    "TensorProto",
    "TensorShapeProto",
    "TypeProto",
    "ValueInfoProto",
]
