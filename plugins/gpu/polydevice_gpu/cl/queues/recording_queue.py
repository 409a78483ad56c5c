"""RecordingQueue: a queue that keeps the events of everything that is enqueued on it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy.typing as npt

from polydevice.runtime.follower import Batch, Command
from polydevice_gpu.cl.memory.allocator import Buffer
from polydevice_gpu.cl.queues.profile import LaunchEvents
from polydevice_gpu.cl.queues.queue import Queue


class _Part(NamedTuple):
    """Launches of one list, or one transfer."""

    kind: str
    events: LaunchEvents
    names: Sequence[str]
    size_bytes: int


class Recorded(Batch):
    """Events of commands.

    The device's clock is not the host's. When the host began and ended to enqueue a command is
    known on its clock, and when the command was queued, which is in between, on the device's: what
    lies within the bounds of all commands is the difference of the clocks.
    """

    def __init__(self, lane: str, parts: Sequence[_Part]) -> None:
        """Take over events of commands that were enqueued on a lane."""
        self.lane = lane
        self.enqueued = [
            (e.begun_ns[0], e.begun_ns[-1] + e.enqueuing_ns[-1], len(names))
            for _, e, names, _ in parts
            if names
        ]
        self._parts = parts

    def commands(self) -> list[Command]:
        """Wait for the commands and return their times on the host's clock."""
        found: list[Command] = []
        bounds: list[tuple[int, int, int]] = []
        for kind, events, names, size in self._parts:
            for launch, begun in zip(events.times(names), events.begun_ns):
                bounds.append((begun, begun + launch.enqueuing_ns, launch.queued_ns))
                found.append(Command(launch.name, kind, launch.started_ns, launch.ended_ns, size))
        if not found:
            return []
        least = max(begun - queued for begun, _, queued in bounds)
        most = min(ended - queued for _, ended, queued in bounds)
        shift = (least + most) // 2
        return [
            each._replace(start_ns=each.start_ns + shift, end_ns=each.end_ns + shift)
            for each in found
        ]


class RecordingQueue(Queue):
    """Like a profiling queue, and transfers have events too.

    Attributes:
        lane: what followers are told that it is.
    """

    times_calls = False  # when a list began and ended says enough

    def __init__(self, *args: Any, lane: str, **settings: Any) -> None:
        """Wrap a queue that was made for profiling; see `Queue`."""
        super().__init__(*args, **settings)
        self.lane = lane
        self._parts: list[_Part] = []

    def take(self) -> Recorded:
        """Return what was recorded since the last call."""
        taken, self._parts = self._parts, []
        return Recorded(self.lane, taken)

    def timed(self, events: LaunchEvents, names: Sequence[str]) -> None:
        """Keep the events of launches."""
        self._parts.append(_Part("kernel", events, names, 0))

    def upload(self, buffer: Buffer, array: npt.NDArray[Any], *, wait: bool = True) -> None:
        """Copy an array to the device."""
        with self._recorded("upload", buffer.name, array.nbytes):
            super().upload(buffer, array, wait=wait)

    def download(self, buffer: Buffer, array: npt.NDArray[Any], *, wait: bool = True) -> None:
        """Copy a buffer to the host."""
        with self._recorded("download", buffer.name, array.nbytes):
            super().download(buffer, array, wait=wait)

    def copy(self, source: Buffer, target: Buffer, size_bytes: int | None = None) -> None:
        """Copy within the device."""
        size = source.size_bytes if size_bytes is None else size_bytes
        with self._recorded("copy", target.name, size):
            super().copy(source, target, size_bytes)

    @contextmanager
    def _recorded(self, kind: str, name: str, size: int) -> Iterator[None]:
        """Give the transfer in the ``with`` block an event; one of no bytes reaches no driver."""
        if not size:
            yield
            return
        events = LaunchEvents(1)
        self._event = events.slot(0)
        events.begun_ns[0] = time.perf_counter_ns()
        try:
            yield
        finally:
            self._event = None
        events.enqueuing_ns[0] = time.perf_counter_ns() - events.begun_ns[0]
        self._parts.append(_Part(kind, events, [name], size))
