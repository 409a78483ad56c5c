"""Pauses: lets inferences get on while a thread beside them computes in Python."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_SECONDS = 0.5e-3
"""Python hands its lock over after 5 ms otherwise, at each of the calls of an inference that had
given it away: 20 to 30 ms an inference."""

PAUSE_SECONDS = 20e-6
"""Long enough for another thread to take the lock."""


POLL_SECONDS, MOST_SECONDS = 1e-3, 10e-3
"""How often to look whether an inference is still under way, and how long to wait for its end: a
new shape took 8 to 15 ms more beside a thread that only gave the lock away (H200)."""


class Pauses:
    """To be called again and again; lets inferences go first where the last time is long ago."""

    def __init__(self, check: Callable[[], None], is_busy: Callable[[], bool]) -> None:
        """Begin to count.

        Args:
            check: raises where nobody waits any longer for what is computed.
            is_busy: whether an inference is under way.
        """
        self._check = check
        self._is_busy = is_busy
        self._last = time.perf_counter()

    def __call__(self) -> None:
        """Give Python's lock away if it was held for long."""
        now = time.perf_counter()
        if now - self._last > EVERY_SECONDS:
            self._check()
            time.sleep(PAUSE_SECONDS)
            while self._is_busy() and time.perf_counter() - now < MOST_SECONDS:
                time.sleep(POLL_SECONDS)
            self._last = time.perf_counter()
