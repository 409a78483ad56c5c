"""The GPU device: OpenCL kernels, readable and specialised at load time, on any vendor's device."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from polydevice.hookspecs import hookimpl

if TYPE_CHECKING:
    from polydevice.plugin import Plugin, Services


@hookimpl
def register_devices(register: Callable[[str, Callable[[str, Services], Plugin]], None]) -> None:
    """Offer the device family GPU."""
    register("GPU", _plugin)


def _plugin(name: str, services: Services) -> Plugin:
    from polydevice_gpu.plugin import GpuPlugin

    return GpuPlugin(name, services)


@hookimpl
def will_load_network() -> None:
    """Start the drivers and import the compiler, while the plugin itself is imported."""
    _begin()


_FORK_WAITS_S = 10.0


@functools.cache
def _begin() -> None:
    from polydevice_gpu.cl import runtime

    importing = threading.Thread(target=_import_compiler, name="polydevice-import")
    threads = [runtime.start_ahead(), importing]
    importing.start()

    def end() -> None:
        """Let no process be forked while they hold locks, which would stay taken there."""
        for thread in threads:
            thread.join(_FORK_WAITS_S)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=end)


def _import_compiler() -> None:
    with suppress(ImportError):  # without pyopencl, which whoever asks for devices is told
        from polydevice_gpu.plugin import import_compiler

        import_compiler()
