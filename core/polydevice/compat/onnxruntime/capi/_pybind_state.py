"""onnxruntime.capi._pybind_state: another name for onnxruntime_pybind11_state."""

from __future__ import annotations

from polydevice.compat.onnxruntime.capi import onnxruntime_pybind11_state as _state
from polydevice.compat.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403

__all__ = _state.__all__


def __getattr__(name: str) -> object:
    return getattr(_state, name)
