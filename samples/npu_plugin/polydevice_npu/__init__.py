"""The NPU sample plugin: hooks only, so that importing it is quick."""

from __future__ import annotations

from collections.abc import Callable

from polydevice import hookimpl
from polydevice.plugin import Plugin, Services

polydevice_api = 2
"""The version of polydevice's plugin interface that this was written for."""


@hookimpl
def register_devices(register: Callable[[str, Callable[[str, Services], Plugin]], None]) -> None:
    """Register the device under the name of the entry point."""
    from polydevice_npu.device import NpuPlugin  # a real device imports its library here

    register("NPU", NpuPlugin)
