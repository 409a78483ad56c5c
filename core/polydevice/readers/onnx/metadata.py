"""What an ONNX file says about itself, beside its graph, as a network's `rt_info`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polydevice.readers.onnx.protos.messages import ModelProto, TensorShapeProto, ValueInfoProto


def metadata_of(model: ModelProto) -> dict[str, Any]:
    """Return the notes of a model: nested dictionaries of text, without what it leaves empty.

    Returns:
        "framework": the model's `metadata_props`, as OpenVINO keeps them. "onnx": producer_name,
        producer_version, domain, model_version, doc_string, graph_name, graph_doc_string,
        ir_version and, by tensor name and then number of the axis, "dimensions" (`dim_param`) and
        "denotations"; "overridable" are initialisers that are inputs too, by number.
    """
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    ports = [*graph.input, *graph.output]
    own: dict[str, Any] = {
        "producer_name": model.producer_name,
        "producer_version": model.producer_version,
        "domain": model.domain,
        "model_version": str(model.model_version) if model.HasField("model_version") else "",
        "doc_string": model.doc_string,
        "graph_name": graph.name,
        "graph_doc_string": graph.doc_string,
        "ir_version": str(model.ir_version),
        "dimensions": _of_axes(ports, "dim_param"),
        "denotations": _of_axes(ports, "denotation"),
        "overridable": {
            str(number): name
            for number, name in enumerate(v.name for v in graph.input if v.name in stored)
        },
    }
    notes = {
        "framework": {prop.key: prop.value for prop in model.metadata_props},
        "onnx": {key: value for key, value in own.items() if value},
    }
    return {key: value for key, value in notes.items() if value}


def _of_axes(values: Iterable[ValueInfoProto], field: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for value in values:
        axes: Iterable[TensorShapeProto.Dimension] = value.type.tensor_type.shape.dim
        texts = {str(i): getattr(d, field) for i, d in enumerate(axes) if getattr(d, field)}
        if texts:
            found[value.name] = texts
    return found
