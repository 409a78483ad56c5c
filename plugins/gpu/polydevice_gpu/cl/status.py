"""OpenCL's error codes: their names, and the exception each one becomes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from polydevice.errors import (
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    PolydeviceError,
)

_NAMES = {
    -1: "CL_DEVICE_NOT_FOUND",
    -2: "CL_DEVICE_NOT_AVAILABLE",
    -3: "CL_COMPILER_NOT_AVAILABLE",
    -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    -5: "CL_OUT_OF_RESOURCES",
    -6: "CL_OUT_OF_HOST_MEMORY",
    -7: "CL_PROFILING_INFO_NOT_AVAILABLE",
    -11: "CL_BUILD_PROGRAM_FAILURE",
    -12: "CL_MAP_FAILURE",
    -13: "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    -14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    -30: "CL_INVALID_VALUE",
    -33: "CL_INVALID_DEVICE",
    -34: "CL_INVALID_CONTEXT",
    -35: "CL_INVALID_QUEUE_PROPERTIES",
    -36: "CL_INVALID_COMMAND_QUEUE",
    -37: "CL_INVALID_HOST_PTR",
    -38: "CL_INVALID_MEM_OBJECT",
    -42: "CL_INVALID_BINARY",
    -43: "CL_INVALID_BUILD_OPTIONS",
    -44: "CL_INVALID_PROGRAM",
    -45: "CL_INVALID_PROGRAM_EXECUTABLE",
    -46: "CL_INVALID_KERNEL_NAME",
    -48: "CL_INVALID_KERNEL",
    -49: "CL_INVALID_ARG_INDEX",
    -50: "CL_INVALID_ARG_VALUE",
    -51: "CL_INVALID_ARG_SIZE",
    -52: "CL_INVALID_KERNEL_ARGS",
    -53: "CL_INVALID_WORK_DIMENSION",
    -54: "CL_INVALID_WORK_GROUP_SIZE",
    -55: "CL_INVALID_WORK_ITEM_SIZE",
    -56: "CL_INVALID_GLOBAL_OFFSET",
    -58: "CL_INVALID_EVENT",
    -59: "CL_INVALID_OPERATION",
    -61: "CL_INVALID_BUFFER_SIZE",
    -63: "CL_INVALID_GLOBAL_WORK_SIZE",
    -9999: "NVIDIA: a kernel accessed memory it may not access",
}

# NVIDIA answers -5 both for too little memory and after a kernel left its buffers.
_MEMORY = {-4, -5, -6, -61}
_LOST = {-2, -14, -34, -36, -9999}


def name_of(code: int) -> str:
    """Return a code as text, such as ``CL_OUT_OF_RESOURCES (-5)``."""
    return f"{_NAMES.get(code, 'OpenCL error')} ({code})"


def exception_for(code: int, doing: str) -> PolydeviceError:
    """Return the exception that a failed call becomes.

    Args:
        code: what OpenCL returned.
        doing: what was tried, with names and sizes; it starts the message.
    """
    if code in _MEMORY:
        return DeviceMemoryError(
            f"{doing}: {name_of(code)}. Use a smaller batch or fewer streams and requests, or "
            "close other networks"
        )
    if code in _LOST:
        return DeviceLostError(f"{doing}: {name_of(code)}. Load the network again")
    return DeviceError(f"{doing}: {name_of(code)}")


def check(code: int, doing: str) -> None:
    """Raise the exception of a code; nothing for success."""
    if code:
        raise exception_for(code, doing)


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn pyopencl's exceptions into ours.

    Args:
        doing: what is tried, with names and sizes.
    """
    import pyopencl

    try:
        yield
    except pyopencl.Error as error:
        code: object = error.code
        # A dead context's objects raise plain LogicErrors without a code.
        raise exception_for(code if isinstance(code, int) else -34, doing) from error
