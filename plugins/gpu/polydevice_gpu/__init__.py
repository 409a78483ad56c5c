"""The GPU device: OpenCL kernels, readable and specialised at load time, on any vendor's device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polydevice.hookspecs import hookimpl

if TYPE_CHECKING:
    from polydevice.plugin import Plugin, Services


@hookimpl
def register_devices(register: Callable[[str, Callable[[str, Services], Plugin]], None]) -> None:
    """Offer the device family GPU."""
    from polydevice_gpu.plugin import GpuPlugin

    register("GPU", GpuPlugin)
