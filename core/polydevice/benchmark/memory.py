"""Peak memory of the process, and of the device where it counts its own."""

from __future__ import annotations

import sys

from polydevice.errors import PolydeviceError
from polydevice.executable_network import ExecutableNetwork


def peak_host_bytes() -> int | None:
    """Return the most memory this process ever held, in bytes; None where it is not known."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_device_bytes(executable: ExecutableNetwork) -> int | None:
    """Return the most device memory the network held, in bytes; None for host devices."""
    try:
        return int(executable.get_metric("DEVICE_MEMORY_PEAK_BYTES"))
    except PolydeviceError:
        return None
