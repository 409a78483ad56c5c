"""onnxruntime.capi.onnxruntime_validation: what stands for the package's check of itself."""

from __future__ import annotations

from polydevice.compat.onnxruntime.surface import missing

__all__ = ["check_distro_info", "cuda_version", "package_name"]

package_name = "onnxruntime"
cuda_version = ""


def check_distro_info() -> None:
    """Do nothing: polydevice runs on whatever Python runs on."""


def __getattr__(name: str) -> object:
    raise missing(name, "capi.onnxruntime_validation")
