"""StreamQueues: the queues of a network's streams, and those that record for followers."""

from __future__ import annotations

from typing import Any

from polydevice_gpu import cl
from polydevice_gpu.blobs.context import GpuContext
from polydevice_gpu.cl.queues.turn_lock import TurnLock
from polydevice_gpu.options import GpuOptions
from polydevice_gpu.runtime.recording_rate import RecordingRate


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
        self._rate: RecordingRate | None = None
        self._measured = RecordingRate()

    def of(self, stream: int) -> tuple[cl.Queue, TurnLock]:
        """Return a stream's queue for an inference and the lock to hold while using it."""
        index = stream % len(self._locks)
        rate = self._rate  # another thread may set it to None
        records = rate is not None and self._recording and rate.next()
        return (self._recording if records else self._plain)[index], self._locks[index]

    def record(self, wanted: bool, every: int) -> None:
        """Let some inferences use queues that record from now on.

        Both kinds stay as long as the network: what is prepared for a queue is known by its
        address.

        Args:
            wanted: whether anybody follows.
            every: of how many inferences one; 0 for as many as cost little.
        """
        if wanted and not self._recording and not self._context.has_queue:
            name, make = self._context.device_name, self._context.device.queue
            lanes = [f"{name}, queue {stream}" for stream in range(len(self._plain))]
            self._recording = [make(**self._wanted, lane=lane) for lane in lanes]
        self._measured.restart()
        usual = RecordingRate(every) if every else self._measured
        self._rate = usual if wanted else None

    def note_time(self, plan: object, queue: cl.Queue, seconds: float) -> None:
        """Take notice of what an inference with a plan took on a queue."""
        if (rate := self._rate) is not None:
            rate.note(plan, queue in self._recording, seconds)

    def finish(self) -> None:
        """Wait for everything that was enqueued."""
        for queue in (*self._plain, *self._recording):
            queue.finish()
