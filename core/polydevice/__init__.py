"""polydevice: OpenVINO-Inference-Engine-style inference in Python, on every device."""

from __future__ import annotations

from polydevice.blob import Blob, RoiBlob
from polydevice.comparison import Comparison, compare
from polydevice.compound_blob import BatchedBlob, NV12Blob
from polydevice.core import Core
from polydevice.dtype import ElementType
from polydevice.errors import PolydeviceError
from polydevice.hookspecs import hookimpl
from polydevice.infer_request import StatusCode
from polydevice.ops.custom_operation import operation
from polydevice.plugin import DeviceReport, Version
from polydevice.remote import (
    Copies,
    RemoteBlob,
    RemoteContext,
    make_shared_blob,
    make_shared_blob_nv12,
    make_shared_context,
)
from polydevice.runtime.follower import Follower
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.trace import Trace
from polydevice.validation import Validation, validate
from polydevice.version import __version__

__all__ = [
    "BatchedBlob",
    "Blob",
    "Comparison",
    "Copies",
    "Core",
    "DeviceReport",
    "Dim",
    "ElementType",
    "Follower",
    "NV12Blob",
    "PolydeviceError",
    "RemoteBlob",
    "RemoteContext",
    "RoiBlob",
    "Shape",
    "StatusCode",
    "TensorDesc",
    "Trace",
    "Validation",
    "Version",
    "__version__",
    "compare",
    "hookimpl",
    "make_shared_blob",
    "make_shared_blob_nv12",
    "make_shared_context",
    "operation",
    "validate",
]
