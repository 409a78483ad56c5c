"""onnxruntime.capi.onnxruntime_inference_collection: where the classes are defined there."""

from __future__ import annotations

from polydevice.compat.onnxruntime.enums import OrtDeviceVendorId
from polydevice.compat.onnxruntime.io_binding import IOBinding
from polydevice.compat.onnxruntime.session import InferenceSession
from polydevice.compat.onnxruntime.values import (
    OrtDevice,
    OrtValue,
    copy_tensors,
    get_ort_device_type,
)

Session = InferenceSession  # there a base class, which is named in annotations

__all__ = [
    "IOBinding",
    "InferenceSession",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "Session",
    "copy_tensors",
    "get_ort_device_type",
]
