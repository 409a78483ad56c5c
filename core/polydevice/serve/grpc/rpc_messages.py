"""The messages of the Open Inference Protocol over gRPC, described in Python.

Source: "Inference Protocol, GRPC" of the Open Inference Protocol (V2): package ``inference``,
service ``GRPCInferenceService``, with the statistics and repository extensions. They live in a pool
of their own, so that a client library with its own copy of them can be in the same process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "inference.GRPCInferenceService"

_Fields = Mapping[str, tuple[int, str]]

MESSAGES: dict[str, _Fields] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {
        "name": (1, "string"),
        "version": (2, "string"),
        "extensions": (3, "repeated string"),
    },
    "ModelMetadataRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelMetadataResponse.TensorMetadata": {
        "name": (1, "string"),
        "datatype": (2, "string"),
        "shape": (3, "repeated int64"),
    },
    "ModelMetadataResponse": {
        "name": (1, "string"),
        "versions": (2, "repeated string"),
        "platform": (3, "string"),
        "inputs": (4, "repeated ModelMetadataResponse.TensorMetadata"),
        "outputs": (5, "repeated ModelMetadataResponse.TensorMetadata"),
    },
    "InferParameter": {
        "bool_param": (1, "oneof bool"),
        "int64_param": (2, "oneof int64"),
        "string_param": (3, "oneof string"),
        "double_param": (4, "oneof double"),
        "uint64_param": (5, "oneof uint64"),
    },
    "InferTensorContents": {
        "bool_contents": (1, "repeated bool"),
        "int_contents": (2, "repeated int32"),
        "int64_contents": (3, "repeated int64"),
        "uint_contents": (4, "repeated uint32"),
        "uint64_contents": (5, "repeated uint64"),
        "fp32_contents": (6, "repeated float"),
        "fp64_contents": (7, "repeated double"),
        "bytes_contents": (8, "repeated bytes"),
    },
    "ModelInferRequest.InferInputTensor": {
        "name": (1, "string"),
        "datatype": (2, "string"),
        "shape": (3, "repeated int64"),
        "parameters": (4, "map InferParameter"),
        "contents": (5, "InferTensorContents"),
    },
    "ModelInferRequest.InferRequestedOutputTensor": {
        "name": (1, "string"),
        "parameters": (2, "map InferParameter"),
    },
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, "map InferParameter"),
        "inputs": (5, "repeated ModelInferRequest.InferInputTensor"),
        "outputs": (6, "repeated ModelInferRequest.InferRequestedOutputTensor"),
        "raw_input_contents": (7, "repeated bytes"),
    },
    "ModelInferResponse.InferOutputTensor": {
        "name": (1, "string"),
        "datatype": (2, "string"),
        "shape": (3, "repeated int64"),
        "parameters": (4, "map InferParameter"),
        "contents": (5, "InferTensorContents"),
    },
    "ModelInferResponse": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, "map InferParameter"),
        "outputs": (5, "repeated ModelInferResponse.InferOutputTensor"),
        "raw_output_contents": (6, "repeated bytes"),
    },
    "StatisticDuration": {"count": (1, "uint64"), "ns": (2, "uint64")},
    "InferStatistics": {
        name: (number, "StatisticDuration")
        for number, name in enumerate(
            (
                *("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"),
                *("cache_hit", "cache_miss"),
            ),
            1,
        )
    },
    "InferBatchStatistics": {
        "batch_size": (1, "uint64"),
        "compute_input": (2, "StatisticDuration"),
        "compute_infer": (3, "StatisticDuration"),
        "compute_output": (4, "StatisticDuration"),
    },
    "ModelStatistics": {
        "name": (1, "string"),
        "version": (2, "string"),
        "last_inference": (3, "uint64"),
        "inference_count": (4, "uint64"),
        "execution_count": (5, "uint64"),
        "inference_stats": (6, "InferStatistics"),
        "batch_stats": (7, "repeated InferBatchStatistics"),
    },
    "ModelStatisticsRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelStatisticsResponse": {"model_stats": (1, "repeated ModelStatistics")},
    "RepositoryIndexRequest": {"repository_name": (1, "string"), "ready": (2, "bool")},
    "RepositoryIndexResponse.ModelIndex": {
        "name": (1, "string"),
        "version": (2, "string"),
        "state": (3, "string"),
        "reason": (4, "string"),
    },
    "RepositoryIndexResponse": {"models": (1, "repeated RepositoryIndexResponse.ModelIndex")},
}
"""Message → field → number and type."""

METHODS = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
    "ModelStatistics",
    "RepositoryIndex",
)
"""Each takes the message ``<name>Request`` and returns ``<name>Response``."""

_Field = descriptor_pb2.FieldDescriptorProto


def _add_field(
    message: descriptor_pb2.DescriptorProto, path: str, name: str, number: int, kind: str
) -> None:
    *how, of = kind.split()
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if how == ["repeated"]:
        field.label = _Field.LABEL_REPEATED
    elif how == ["oneof"]:
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    elif how == ["map"]:
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        _add_field(entry, path, "key", 1, "string")
        _add_field(entry, path, "value", 2, of)
        field.label, of = _Field.LABEL_REPEATED, f"{path}.ParametersEntry"
    if of[0].isupper():
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".inference.{of}"
    else:
        field.type = getattr(_Field, f"TYPE_{of.upper()}")


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="polydevice/serve/inference.proto", package="inference", syntax="proto3"
    )
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path in sorted(MESSAGES, key=lambda path: path.count(".")):
        outer, _, name = path.rpartition(".")
        made[path] = (made[outer].nested_type if outer else file.message_type).add(name=name)
        for field, (number, kind) in MESSAGES[path].items():
            _add_field(made[path], path, field, number, kind)
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_described())


def message(name: str) -> Any:
    """Return the class of a message."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"inference.{name}"))
