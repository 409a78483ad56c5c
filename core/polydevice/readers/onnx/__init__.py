"""ONNX models → Network. No other module but `polydevice.onnx_backend` imports onnx."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Union

from polydevice.errors import ModelFormatError, ModelLimitError, NetworkError
from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.readers.limits import ReadLimits
from polydevice.readers.onnx.budget import Budget
from polydevice.readers.onnx.graph import FunctionKey, GraphReader
from polydevice.readers.onnx.metadata import metadata_of
from polydevice.readers.onnx.protos.external_data import ExternalData
from polydevice.readers.onnx.protos.messages import FunctionProto, ModelProto
from polydevice.readers.onnx.protos.protobuf import (
    default_domain,
    opsets_of,
    parse,
    read_apart,
)
from polydevice.readers.onnx.protos.tensors import TensorReader
from polydevice.readers.onnx.signatures import installed_opset, newest_opset
from polydevice.readers.onnx.unsupported import check_supported

__all__ = ["read_onnx"]

_log = logging.getLogger(__name__)

Model = Union[str, "os.PathLike[str]", bytes]


def read_onnx(
    model: Model, *, evaluate: Evaluate | None = None, limits: ReadLimits | None = None
) -> Network:
    """Read an ONNX model.

    Args:
        model: a path, or the bytes of the file. External data is read from the folder of the
            path; with bytes there is none. What the file says about itself becomes `rt_info`
            (`polydevice.readers.onnx.metadata`).
        evaluate: computes operations on known values, so that shapes are inferred through
            Shape, Gather, Concat and the like; see `polydevice.node.Evaluate`.
        limits: bounds on what an untrusted model may ask for.

    Raises:
        ModelFileError: the file, or one it refers to, is missing, empty or not allowed.
        ModelFormatError: the content is not a well-formed ONNX model.
        WeightsError: external data lies outside its file.
        UnsupportedOperationError: operators are not supported; all of them are listed.
        ModelLimitError: the model exceeds the limits.
        NetworkError: shapes or types do not fit an operation; names the node.
    """
    limits = limits or ReadLimits()
    try:
        if isinstance(model, bytes):
            tensors = TensorReader(ExternalData(None), budget := Budget(limits))
            return _read(parse(model, limits), tensors, budget, evaluate)
        path = Path(model)
        with read_apart(path, limits) as (message, large):
            tensors = TensorReader(ExternalData(path.parent), budget := Budget(limits), large)
            return _read(parse(message, limits), tensors, budget, evaluate)
    except RecursionError:
        raise ModelLimitError("the model is nested too deeply") from None
    except MemoryError:
        raise ModelLimitError("the model needs more memory than there is") from None


def _read(
    proto: ModelProto, tensors: TensorReader, budget: Budget, evaluate: Evaluate | None
) -> Network:
    opsets = opsets_of(proto.opset_import)
    if not opsets:
        raise ModelFormatError("the model does not import any operator set")
    newest = newest_opset()
    if opsets.get("", 0) > newest:
        newest = max(newest, installed_opset())
    if opsets.get("", 0) > newest:
        _log.warning(
            "the model is of ONNX's opset %d, which is newer than opset %d, the newest that the "
            "installed onnx defines; operators that changed since are computed as they were",
            *(opsets[""], newest),
        )
    functions: dict[FunctionKey, FunctionProto] = {}
    for function in proto.functions:
        key = (default_domain(function.domain), function.name, function.overload)
        if key in functions:
            raise ModelFormatError(f"function {function.name!r} is defined twice")
        functions[key] = function
    check_supported(proto.graph, opsets, functions, budget)
    reader = GraphReader(functions, tensors, budget, evaluate)
    network = reader.model_graph(proto.graph, opsets)
    if not network.results:
        raise NetworkError("the model has no outputs")
    network.rt_info = metadata_of(proto)
    return network
