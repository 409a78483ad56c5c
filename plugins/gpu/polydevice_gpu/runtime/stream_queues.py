"""StreamQueues: the queues of a network's streams, and those that record for followers."""

from __future__ import annotations

import itertools
from typing import Any

from polydevice_gpu import cl
from polydevice_gpu.blobs.context import GpuContext
from polydevice_gpu.cl.queues.turn_lock import TurnLock
from polydevice_gpu.options import GpuOptions


class StreamQueues:
    """A queue and a lock for each stream; with a user's queue, that one for all."""

    def __init__(self, context: GpuContext, options: GpuOptions, streams: int) -> None:
        """Make the queues.

        Raises:
            OptionValueError: for a priority or throttle that the device does not have, or for
                what a user's queue makes impossible.
        """
        self._context = context
        self._wanted: dict[str, Any] = {
            "profiling": options.perf_count,
            "priority": options.plugin_priority,
            "throttle": options.plugin_throttle,
        }
        self._plain: list[cl.Queue]
        if context.has_queue:
            self._plain, self._locks = [context.user_queue(**self._wanted)], [context.lock]
        else:
            self._plain = [context.device.queue(**self._wanted) for _ in range(streams)]
            self._locks = [TurnLock() for _ in self._plain]
        self._recording: list[cl.Queue] = []
        self._every, self._turn = 0, itertools.count()

    def of(self, stream: int) -> tuple[cl.Queue, TurnLock]:
        """Return a stream's queue for an inference and the lock to hold while using it."""
        index = stream % len(self._locks)
        every = self._every  # another thread may set it to 0
        records = every and self._recording and next(self._turn) % every == 0
        return (self._recording if records else self._plain)[index], self._locks[index]

    def record(self, every: int) -> None:
        """Let one inference in so many use queues that record from now on; 0 for none.

        Both stay as long as the network: what is prepared for a queue is known by its address.
        """
        if every and not self._recording and not self._context.has_queue:
            name, make = self._context.device_name, self._context.device.queue
            lanes = [f"{name}, queue {stream}" for stream in range(len(self._plain))]
            self._recording = [make(**self._wanted, lane=lane) for lane in lanes]
        self._every = every

    def finish(self) -> None:
        """Wait for everything that was enqueued."""
        for queue in (*self._plain, *self._recording):
            queue.finish()
