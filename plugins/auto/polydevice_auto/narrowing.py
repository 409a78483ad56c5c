"""Narrowing: whether devices do more inferences a second with one request for each stream."""

from __future__ import annotations

import time
from collections.abc import Callable

BEFORE = 64
"""Inferences before the first turn: the first ones prepare much."""

SETTLING, COUNTED = 8, 32
"""Inferences of a turn that still began in the one before, and those whose time counts."""

TURNS = 3
"""Of each way, in turn; the quickest of them counts, as nothing else makes a device quicker."""

GAIN = 0.95
"""What one request for each stream has to take of the time: below it, what is timed is noise."""

REST = 10_000
"""Inferences until it is tried again: a GPU may run a network as one launch by then, which changes
what is better. Trying takes 240, half of them in the slower way."""


class Narrowing:
    """Of the devices of a network together, since they take turns at Python's lock.

    A GPU is given two requests at a time, of which one is enqueued while the other computes. Where
    enqueuing takes most of the time they only keep each other from it: EfficientNet-Lite0 in f32 on
    two H200s did 1.09 times what one did so, and 1.35 times with one request for each. So both are
    timed by turns while the devices have enough to do; a device that ran out of requests would be
    timed by those who ask, so that the trial begins anew then.

    Attributes:
        is_on: whether devices now run one request for each stream.
        was_faster: what was found last; False before.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin with as many requests as the devices ask for."""
        self.is_on = self.was_faster = False
        self._clock = clock
        self._left = BEFORE
        self._times: tuple[list[float], list[float]] = ([], [])
        self._since = 0.0
        self._is_trying = False

    def ended(self, *, ran_out: bool) -> None:
        """Take notice of the end of an inference.

        Args:
            ran_out: whether its device has nothing to do now.
        """
        if self._is_trying and ran_out:
            self._rest(BEFORE)
            return
        self._left -= 1
        if self._left == COUNTED and self._is_trying:
            self._since = self._clock()
        if self._left > 0:
            return
        if self._is_trying:
            self._times[self.is_on].append(self._clock() - self._since)
        if len(self._times[True]) < TURNS:
            self.is_on = self._is_trying and not self.is_on
            self._is_trying, self._left = True, SETTLING + COUNTED
            return
        wide, narrow = map(min, self._times)
        self.was_faster = narrow < GAIN * wide
        self._rest(REST)

    def _rest(self, inferences: int) -> None:
        self.is_on, self._is_trying, self._left = self.was_faster, False, inferences
        for times in self._times:
            times.clear()
