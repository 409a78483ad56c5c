"""Backlog: keeps loops from enqueuing far more than the device has done."""

from __future__ import annotations

from polydevice_gpu import cl

ITERATIONS = 1024
"""Iterations between two marks in the queue; drivers keep memory of every launch not yet done."""


class Backlog:
    """Counts the iterations of all loops of one request, those in loops included."""

    def __init__(self) -> None:
        self._count = 0
        self._mark: cl.Event | None = None

    def add(self, queue: cl.Queue) -> None:
        """Count an iteration; waits where one more than 1024 before has not ended yet."""
        self._count += 1
        if self._count % ITERATIONS:
            return
        before, self._mark = self._mark, queue.mark()
        if before is not None:
            before.wait()

    def forget(self) -> None:
        """Begin another run."""
        self._count, self._mark = 0, None
