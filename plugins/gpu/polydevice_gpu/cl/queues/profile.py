"""Times of launches, from OpenCL events."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polydevice_gpu.cl import library
from polydevice_gpu.cl.status import check

_QUEUED, _STARTED, _ENDED = 0x1280, 0x1282, 0x1283


@dataclass(frozen=True)
class LaunchTime:
    """When a launch was queued, started and ended on the device's clock.

    `enqueuing_ns` is how long the host took to enqueue it. (The time at which drivers say that a
    launch was submitted is of no use: PoCL's waits until the launch before has ended.)
    """

    name: str
    queued_ns: int
    started_ns: int
    ended_ns: int
    enqueuing_ns: int = 0

    @property
    def duration_ns(self) -> int:
        """Time on the device."""
        return self.ended_ns - self.started_ns


class LaunchEvents:
    """One event for each launch of a list."""

    def __init__(self, count: int) -> None:
        """Make room for the events of `count` launches."""
        self._events = (ctypes.c_void_p * count)()
        self.begun_ns = [0] * count
        """When the host began to enqueue each, set by whoever enqueues."""
        self.enqueuing_ns = [0] * count
        """How long the host took for each, likewise."""
        library.release_with(self, _release, self._events)

    def slot(self, number: int) -> Any:
        """Return where an enqueue call stores the event of a launch."""
        return ctypes.byref(self._events, number * ctypes.sizeof(ctypes.c_void_p))

    def take(self, slots: ctypes.Array[Any], marks: Sequence[int]) -> None:
        """Own the events that calls have stored elsewhere, and leave nothing there.

        Args:
            slots: where; as many as there are events here.
            marks: when the host began to enqueue the first, and when it had enqueued each; or only
                when all, which is then known of each.
        """
        size = ctypes.sizeof(slots)
        ctypes.memmove(self._events, slots, size)
        ctypes.memset(slots, 0, size)
        if len(marks) == 2:
            self.begun_ns = [marks[0]] * len(self.begun_ns)
            self.enqueuing_ns = [marks[1] - marks[0]] * len(self.begun_ns)
            return
        self.begun_ns[: len(marks) - 1] = marks[:-1]
        self.enqueuing_ns[: len(marks) - 1] = [b - a for a, b in itertools.pairwise(marks)]

    def times(self, names: Sequence[str]) -> list[LaunchTime]:
        """Wait for all launches and return their times.

        Raises:
            DeviceLostError: if a launch failed.
        """
        if not len(self._events):
            return []
        cl = library.library()
        check(cl.clWaitForEvents(len(self._events), self._events), "waiting for timed launches")
        return [
            LaunchTime(
                name, _time(event, _QUEUED), _time(event, _STARTED), _time(event, _ENDED), host
            )
            for name, event, host in zip(names, self._events, self.enqueuing_ns, strict=True)
        ]


def _time(event: int, what: int) -> int:
    value = ctypes.c_ulonglong()
    size = ctypes.sizeof(value)
    query = library.library().clGetEventProfilingInfo
    check(query(event, what, size, ctypes.byref(value), None), "reading the time of a launch")
    return value.value


def _release(events: Any) -> None:
    for event in events:
        if event:
            library.library().clReleaseEvent(event)
