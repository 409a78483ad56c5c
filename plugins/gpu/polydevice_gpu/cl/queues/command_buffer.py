"""`cl_khr_command_buffer`: record launches once, replay all of them with one call.

Standard library only, because the probe process uses it too. Drivers implement several drafts of
the extension, so `capabilities.command_buffer` is true only where a recording gave right results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polydevice_gpu.cl import library

EXTENSION = "cl_khr_command_buffer"
_handle = ctypes.c_void_p
_FLAGS = 0x1293
_SIMULTANEOUS_USE = 1


@dataclass(frozen=True)
class NDRangeCommand:
    """One kernel launch, ready for clEnqueueNDRangeKernel or a recording."""

    kernel: int
    dimensions: int
    global_size: Any
    local_size: Any


class CommandBufferError(Exception):
    """A call of the extension failed; `code` is what it returned."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {code}")
        self.code = code


class CommandBufferFunctions:
    """Entry points of the extension on one platform."""

    def __init__(self, platform: int) -> None:
        """Look them up.

        Raises:
            CommandBufferError: if the platform lacks one.
        """
        error = ctypes.POINTER(ctypes.c_int)
        uint, any_ = ctypes.c_uint, ctypes.c_void_p
        self.create = self._find(
            platform, "clCreateCommandBufferKHR", _handle, uint, any_, any_, error
        )
        self.finalize = self._find(platform, "clFinalizeCommandBufferKHR", ctypes.c_int, _handle)
        self.release = self._find(platform, "clReleaseCommandBufferKHR", ctypes.c_int, _handle)
        self.enqueue = self._find(
            platform,
            "clEnqueueCommandBufferKHR",
            ctypes.c_int,
            uint,
            any_,
            _handle,
            uint,
            any_,
            any_,
        )
        self.record = self._find(
            platform,
            "clCommandNDRangeKernelKHR",
            ctypes.c_int,
            *(_handle, any_, any_, _handle, uint, any_, any_, any_, uint, any_, any_, any_),
        )

    @staticmethod
    def _find(platform: int, name: str, result: Any, *arguments: Any) -> Any:
        lookup = library.library().clGetExtensionFunctionAddressForPlatform
        address = lookup(platform, name.encode())
        if not address:
            raise CommandBufferError(name, library.PLATFORM_NOT_FOUND)
        return ctypes.CFUNCTYPE(result, *arguments)(address)


class CommandBuffer:
    """Launches recorded for one queue. Kernel arguments are those set when it was recorded."""

    def __init__(
        self, functions: CommandBufferFunctions, queue: int, launches: Sequence[NDRangeCommand]
    ) -> None:
        """Record; the queue is in order, so each launch waits for the one before.

        Raises:
            CommandBufferError: naming the call that failed.
        """
        self._functions = functions
        queues = (ctypes.c_void_p * 1)(queue)
        # The same recording may be enqueued again before its last run has ended.
        properties = (ctypes.c_ulonglong * 3)(_FLAGS, _SIMULTANEOUS_USE, 0)
        status = ctypes.c_int()
        handle = functions.create(1, queues, properties, ctypes.byref(status))
        if status.value or not handle:
            raise CommandBufferError("clCreateCommandBufferKHR", status.value)
        self._handle = handle
        # The driver keeps what it runs until its last run has ended.
        self._release = library.release_with(self, functions.release, handle)
        # A sync point per command orders them also where a driver runs a recording out of order.
        previous = ctypes.c_uint()
        for position, launch in enumerate(launches):
            current = ctypes.c_uint()
            code = functions.record(
                handle,
                None,
                None,
                launch.kernel,
                launch.dimensions,
                None,
                launch.global_size,
                launch.local_size,
                1 if position else 0,
                ctypes.byref(previous) if position else None,
                ctypes.byref(current),
                None,
            )
            self._check("clCommandNDRangeKernelKHR", code)
            previous = current
        self._check("clFinalizeCommandBufferKHR", functions.finalize(handle))

    def enqueue(self) -> None:
        """Run the recording on its queue; returns at once."""
        code = self._functions.enqueue(0, None, self._handle, 0, None, None)
        self._check("clEnqueueCommandBufferKHR", code)

    def close(self) -> None:
        """Release the recording."""
        self._release()

    def _check(self, call: str, code: int) -> None:
        if code:
            self.close()
            raise CommandBufferError(call, code)
