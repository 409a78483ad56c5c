"""Event: a point in a queue that can be waited for, with a time limit."""

from __future__ import annotations

import ctypes
import time

from polydevice_gpu.cl import library
from polydevice_gpu.cl.status import check

_EXECUTION_STATUS = 0x11D3
_COMPLETE = 0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 20e-6, 1e-3


class Event:
    """Takes over OpenCL's event; made by ``Queue.mark``.

    Attributes:
        kept: what the commands before it use. If the event goes before they end, it waits first,
            so that none of it is freed under a running kernel.
    """

    def __init__(self, pointer: int, name: str) -> None:
        self.kept: object = None
        self._cl = library.library()
        self._pointer = pointer
        self._name = name

    def __del__(self) -> None:
        # Not weakref.finalize: for objects of a cycle that comes before the memory's users end.
        if self.kept is not None:
            self._cl.clWaitForEvents(1, (ctypes.c_void_p * 1)(self._pointer))
        self._cl.clReleaseEvent(self._pointer)

    @property
    def has_ended(self) -> bool:
        """Whether the queue got there, or a command before failed."""
        return self._status() <= _COMPLETE

    @property
    def is_done(self) -> bool:
        """Whether the queue got there.

        Raises:
            DeviceLostError: (or another DeviceError) when a command before it failed.
        """
        status = self._status()
        check(min(status, 0), f"running on {self._name}")
        return status == _COMPLETE

    def _status(self) -> int:
        status, size = ctypes.c_int(), ctypes.sizeof(ctypes.c_int)
        query = self._cl.clGetEventInfo
        answer = query(self._pointer, _EXECUTION_STATUS, size, ctypes.byref(status), None)
        check(answer, f"asking for the state of a queue of {self._name}")
        return status.value

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the queue got there; False when the time is over before.

        Raises:
            DeviceLostError: (or another DeviceError) when a command before it failed.
        """
        if timeout_s is None:
            events = (ctypes.c_void_p * 1)(self._pointer)
            code = self._cl.clWaitForEvents(1, events)
            self.kept = None
            check(code, f"waiting for {self._name}")
            return True
        # OpenCL has no wait with a limit.
        end, pause = time.monotonic() + timeout_s, _FIRST_PAUSE_S
        while not self.is_done:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        self.kept = None
        return True
