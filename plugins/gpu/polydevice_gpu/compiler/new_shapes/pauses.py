"""Pauses: lets inferences get on while a thread beside them computes in Python."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_SECONDS = 0.5e-3
"""Python hands its lock over after 5 ms otherwise, at each of the calls of an inference that had
given it away: 20 to 30 ms an inference."""

PAUSE_SECONDS = 20e-6
"""Long enough for another thread to take the lock."""


class Pauses:
    """To be called again and again; sleeps for a moment where the last time is long ago."""

    def __init__(self, check: Callable[[], None]) -> None:
        """Begin to count; `check` raises where nobody waits for it any longer."""
        self._check = check
        self._last = time.perf_counter()

    def __call__(self) -> None:
        """Give Python's lock away if it was held for long."""
        if time.perf_counter() - self._last > EVERY_SECONDS:
            self._check()
            time.sleep(PAUSE_SECONDS)
            self._last = time.perf_counter()
