"""``onnxruntime.backend``: ONNX's backend interface, of sessions."""

from __future__ import annotations

from polydevice.compat.onnxruntime.backend.backend import OnnxRuntimeBackend
from polydevice.compat.onnxruntime.surface import missing

__all__ = ["is_compatible", "prepare", "run", "supports_device"]

is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device


def __getattr__(name: str) -> object:
    raise missing(name, "backend")
