"""StepTimes: how long the steps of a plan take."""

from __future__ import annotations

import threading
from collections.abc import Sequence


class StepTimes:
    """Averages over all inferences of a plan, by whatever request; for several threads.

    It keeps one sum for each step, however many inferences there are.
    """

    def __init__(self) -> None:
        """Start without inferences."""
        self._lock = threading.Lock()
        self._inferences = 0
        self._sums_us: list[float] = []

    def add(self, times_us: Sequence[float]) -> None:
        """Count one inference: the microseconds of each step."""
        with self._lock:
            sums = self._sums_us or [0.0] * len(times_us)
            self._sums_us = [a + b for a, b in zip(sums, times_us, strict=True)]
            self._inferences += 1

    def averages_us(self) -> list[float]:
        """Return the mean microseconds of each step; nothing before the first inference."""
        with self._lock:
            return [time / self._inferences for time in self._sums_us]
