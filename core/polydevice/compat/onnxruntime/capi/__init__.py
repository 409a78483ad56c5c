"""The modules under onnxruntime.capi that programs import from."""

from __future__ import annotations

from polydevice.compat.onnxruntime.capi import (
    _pybind_state,
    onnxruntime_inference_collection,
    onnxruntime_pybind11_state,
    onnxruntime_validation,
)

__all__ = [
    "_pybind_state",
    "onnxruntime_inference_collection",
    "onnxruntime_pybind11_state",
    "onnxruntime_validation",
]
