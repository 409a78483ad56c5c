"""Backlog: keeps loops from having the device, and its queue, for themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polydevice.bounds import current_bounds
from polydevice.remote import Copies
from polydevice_gpu import cl
from polydevice_gpu.cl.queues.turn_lock import TurnLock

ITERATIONS = 1024
"""Iterations between two marks in the queue; drivers keep memory of every launch not yet done."""


class Backlog:
    """Counts the iterations of all loops of one request, those in loops included.

    Attributes:
        copies_of_others: what other requests copied on the queue while this one gave way.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mark: cl.Event | None = None
        self._turns: TurnLock | None = None
        self.copies_of_others = Copies()

    def begin(self, turns: TurnLock | None) -> None:
        """Begin another run.

        Args:
            turns: lock of the queue, which this thread holds; None to keep it to the end.
        """
        self._count, self._mark, self._turns = 0, None, turns
        self.copies_of_others = Copies()

    def add(self, queue: cl.Queue) -> None:
        """Count an iteration; waits where one more than 1024 before has not ended yet.

        Requests that wait for the queue go first: a loop may have no end.

        Raises:
            InferCancelledError: (or InferTimeoutError) the inference may not go on.
        """
        current_bounds().check()
        if self._turns is not None and self._turns.is_wanted:
            with self.lent(queue):
                pass
        self._count += 1
        if self._count % ITERATIONS:
            return
        before, self._mark = self._mark, queue.mark()
        if before is not None:
            before.wait()

    @contextmanager
    def lent(self, queue: cl.Queue) -> Iterator[None]:
        """Let others use the queue in the ``with`` block."""
        if self._turns is None:
            yield
            return
        before = queue.copies.copy()
        self._turns.release()
        try:
            yield
        finally:
            # Also where the inference ends here: what cleans up after it uses the queue alone.
            self._turns.take_back()
            self.copies_of_others += queue.copies.since(before)
