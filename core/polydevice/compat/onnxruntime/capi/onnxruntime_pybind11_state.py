"""onnxruntime.capi.onnxruntime_pybind11_state: the exceptions, and the names of its C++ part."""

from __future__ import annotations

from polydevice.compat.onnxruntime.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtExecutionProviderDevicePolicy,
    OrtMemType,
    OrtSparseFormat,
)
from polydevice.compat.onnxruntime.errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,  # noqa: A004 - its name
    RuntimeException,
)
from polydevice.compat.onnxruntime.model import (
    ModelMetadata,
    NodeArg,
    set_global_thread_pool_sizes,
)
from polydevice.compat.onnxruntime.options import RunOptions, SessionOptions
from polydevice.compat.onnxruntime.providers import (
    get_all_providers,
    get_available_providers,
    get_device,
)
from polydevice.compat.onnxruntime.session import InferenceSession
from polydevice.compat.onnxruntime.values import OrtDevice, OrtMemoryInfo, OrtValue

__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtExecutionProviderDevicePolicy",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtSparseFormat",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_global_thread_pool_sizes",
]


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"polydevice's stand-in for onnxruntime.capi.onnxruntime_pybind11_state has no {name!r}"
    )
