"""copy_onnx: an ONNX model in a file again, with sizes of one's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto, ValueInfoProto, save_model
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from polydevice.errors import WeightsError
from polydevice.readers.limits import ReadLimits
from polydevice.readers.onnx.protos.protobuf import parse, read_file

_LARGEST_MESSAGE = 2**31 - 1
"""Bytes; a file of protobuf's holds no more, so that tensors go into a file beside it."""


def copy_onnx(
    model: str | bytes,
    target: str | os.PathLike[str],
    dimensions: Mapping[str, int],
    denotations: Mapping[str, int],
) -> None:
    """Write a model as it is, but for what is given; its external data becomes part of the file.

    Args:
        model: path or content of an ONNX model.
        target: the file; one of more than 2 GiB has its tensors in `target`.data beside it.
        dimensions: name of axes (`dim_param`) → size.
        denotations: meaning of axes → size.

    Raises:
        ModelFileError, ModelFormatError, ModelLimitError: see `read_onnx`.
        WeightsError: external data is missing, or outside the model's folder.
        OSError: the file cannot be written.
    """
    limits = ReadLimits()
    proto = parse(model if isinstance(model, bytes) else read_file(Path(model), limits), limits)
    if not isinstance(model, bytes):
        _take_in(proto, Path(model).parent)
    graph = proto.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        _fix(value, dimensions, denotations)
    large = proto.ByteSize() > _LARGEST_MESSAGE
    save_model(
        proto,
        os.fspath(target),
        save_as_external_data=large,
        location=f"{Path(target).name}.data" if large else None,
    )


def _take_in(proto: ModelProto, folder: Path) -> None:
    if any(uses_external_data(tensor) for tensor in proto.graph.initializer):
        try:
            load_external_data_for_model(proto, str(folder))
        except (OSError, ValueError) as error:
            raise WeightsError(f"external data of the model: {error}") from error


def _fix(
    value: ValueInfoProto, dimensions: Mapping[str, int], denotations: Mapping[str, int]
) -> None:
    for axis in value.type.tensor_type.shape.dim:
        size = dimensions.get(axis.dim_param, denotations.get(axis.denotation))
        if size is not None:
            axis.dim_value = size
