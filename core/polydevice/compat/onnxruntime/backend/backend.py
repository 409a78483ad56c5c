"""OnnxRuntimeBackend: models as ONNX's backend interface prepares and runs them."""

from __future__ import annotations

from typing import Any

from polydevice.compat.onnxruntime.backend.backend_rep import OnnxRuntimeBackendRep
from polydevice.compat.onnxruntime.options import SessionOptions
from polydevice.compat.onnxruntime.providers import get_available_providers, get_device
from polydevice.compat.onnxruntime.session import InferenceSession
from polydevice.compat.onnxruntime.surface import Surface


class OnnxRuntimeBackend(Surface):
    """ONNX's backend interface."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there is such a device: "CPU", and "GPU" or "CUDA" where there is a GPU."""
        return device == "CPU" or (device in ("GPU", "CUDA") and get_device() == "GPU")

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **_: Any) -> bool:
        """Whether there is such a device; None is the first of all."""
        return device is None or cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> OnnxRuntimeBackendRep:
        """Load a model.

        Args:
            model: path, content, ONNX ModelProto, InferenceSession, or what was prepared before.
            device: see `supports_device`; None for the first of all providers.
            kwargs: attributes of SessionOptions.

        Raises:
            RuntimeError: there is no such device.
            NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented, Fail: see `InferenceSession`.
        """
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"Incompatible device expected {device!r}, got {get_device()!r}")
        if not isinstance(model, (str, bytes)):
            model = model.SerializeToString()
        options = SessionOptions()
        for name, value in kwargs.items():
            if isinstance(getattr(SessionOptions, name, None), property) or hasattr(options, name):
                setattr(options, name, value)
        providers = ["PolydeviceCPU"] if device == "CPU" else get_available_providers()
        return OnnxRuntimeBackendRep(InferenceSession(model, options, providers))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **kwargs: Any) -> Any:
        """Load a model and run it; see `prepare` and `OnnxRuntimeBackendRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)
