"""polydevice: OpenVINO-Inference-Engine-style inference in Python, on every device."""

from __future__ import annotations

from polydevice.blob import Blob
from polydevice.core import Core
from polydevice.dtype import ElementType
from polydevice.errors import PolydeviceError
from polydevice.hookspecs import hookimpl
from polydevice.infer_request import StatusCode
from polydevice.plugin import DeviceReport, Version
from polydevice.shape import Dim, Shape

__version__ = "0.1.0"

__all__ = [
    "Blob",
    "Core",
    "DeviceReport",
    "Dim",
    "ElementType",
    "PolydeviceError",
    "Shape",
    "StatusCode",
    "Version",
    "__version__",
    "hookimpl",
]
