"""RecordingRate: how often inferences are recorded, by what that costs the driver at hand."""

from __future__ import annotations

import math
import statistics

from polydevice.locks import Lock

SHARE = 0.005
"""Of the time of all inferences, for recording some of them."""

PAIRS = 3
"""Comparisons of an inference that was recorded with the one beside it that was not."""

UNKNOWN_EVERY = 32
"""Where no two inferences in a row ran the same plan. NVIDIA's driver (580.159) takes 6 to 9 µs
more for each command on a queue that keeps times than the 6.5 without: 60 to 75 % of small
networks."""


class RecordingRate:
    """Says of each inference whether to record it.

    The first is, since a trace may see no other; every second one, until what recording takes is
    known; then one in so many that all of it takes `SHARE` of the time. May be used by several
    threads.
    """

    def __init__(self, every: int = 0) -> None:
        """Begin.

        Args:
            every: of how many inferences one is recorded; 0 to find that out.
        """
        self._lock = Lock()
        self._every = every
        self._turn = self._next = 0
        self._last: tuple[object, bool, float] | None = None
        self._ratios: list[float] = []
        self._is_new = True

    def restart(self) -> None:
        """Record the next inference: somebody new looks."""
        with self._lock:
            self._next = self._turn

    def next(self) -> bool:
        """Whether the inference that begins now is recorded."""
        with self._lock:
            turn, self._turn = self._turn, self._turn + 1
            if turn < self._next:
                return False
            self._next = turn + (self._every or 2)
            return True

    def note(self, plan: object, recorded: bool, seconds: float) -> None:
        """Take notice of what an inference took.

        Args:
            plan: what ran; times of different plans say nothing of each other.
            recorded: whether it was recorded.
            seconds: from its beginning to its end.
        """
        if self._every:
            return
        with self._lock:
            if recorded and self._is_new:  # much is prepared for the first one
                self._is_new = False
                return
            last, self._last = self._last, (plan, recorded, seconds)
            if last is not None and last[0] is plan and last[1] != recorded:
                pair = (seconds, last[2]) if recorded else (last[2], seconds)
                self._ratios.append(pair[0] / pair[1])
            if len(self._ratios) == PAIRS:
                more = statistics.median(self._ratios) - 1
                self._every = max(1, math.ceil(more / SHARE))
            elif self._turn == UNKNOWN_EVERY:
                self._every = UNKNOWN_EVERY
            if self._every > 1:
                self._next = self._turn + self._every
