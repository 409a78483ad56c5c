"""onnxruntime's Python interface, on polydevice: ``import polydevice.compat.onnxruntime as ort``.

docs/coming-from-onnxruntime.md lists every name, what stands behind it, and what is not
there and why.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import platform
from pathlib import Path

import polydevice
from polydevice.compat.onnxruntime import backend, capi
from polydevice.compat.onnxruntime.capi import onnxruntime_validation
from polydevice.compat.onnxruntime.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtExecutionProviderDevicePolicy,
    OrtMemType,
    OrtSparseFormat,
)
from polydevice.compat.onnxruntime.io_binding import IOBinding
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
from polydevice.compat.onnxruntime.surface import INSTALLED, missing
from polydevice.compat.onnxruntime.values import OrtDevice, OrtMemoryInfo, OrtValue, copy_tensors

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtExecutionProviderDevicePolicy",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtSparseFormat",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "backend",
    "capi",
    "copy_tensors",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "onnxruntime_validation",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]

__version__ = version = "1.32.0"
"""The release of onnxruntime whose interface this is."""

__author__ = "polydevice"
package_name = "onnxruntime"
cuda_version = ""

_log = logging.getLogger("polydevice.compat.onnxruntime")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_version_string() -> str:
    """Return the release of onnxruntime whose interface this is."""
    return __version__


def get_build_info() -> str:
    """Say what this is."""
    return f"polydevice {polydevice.__version__} with the interface of ONNX Runtime {__version__}"


def set_default_logger_severity(arg0: int) -> None:
    """Show messages of this level and above: 0 all, 1 info, 2 warnings, 3 errors, 4 fatal ones."""
    if not 0 <= arg0 < len(_LEVELS):
        raise RuntimeError(f"Invalid logging severity {arg0}; legal: 0 to {len(_LEVELS) - 1}")
    _log.setLevel(_LEVELS[arg0])


def set_default_logger_verbosity(arg0: int) -> None:
    """Do nothing: messages have levels alone."""


def disable_telemetry_events() -> None:
    """Do nothing: polydevice has no telemetry."""


def enable_telemetry_events() -> None:
    """Do nothing: polydevice has no telemetry."""


def set_seed(arg0: int) -> None:
    """Say that random operators take the seeds in the model."""
    _log.warning("set_seed(%d) has no effect: random operators take the seeds in the model", arg0)


def has_collective_ops() -> bool:
    """Return False: there are none."""
    return False


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None
) -> None:
    """Do nothing: no such libraries are needed."""


def print_debug_info() -> None:
    """Log versions and providers."""
    _log.warning(
        "%s; Python %s on %s; providers: %s",
        get_build_info(),
        platform.python_version(),
        platform.platform(),
        ", ".join(get_available_providers()),
    )


def _installed() -> list[str]:
    """Return the folder of an onnxruntime that is installed, of which `INSTALLED` are Python."""
    try:
        folder = importlib.metadata.distribution("onnxruntime").locate_file("onnxruntime")
    except importlib.metadata.PackageNotFoundError:
        return []
    return [str(folder)] if Path(str(folder)).is_dir() else []


__path__ += _installed()


def __getattr__(name: str) -> object:
    if name in INSTALLED:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError:
            raise missing(name) from None
    raise missing(name)
