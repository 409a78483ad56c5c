"""GivingWay: several threads give way to one while other programs keep the cores busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from polydevice_cpu.onednn import openmp

WAITING = 0.3
"""The share of an inference that its thread waits for the others, above which they lack a core. It
is 0 to 0.1 where each has one, and 0.4 to 0.9 where another process has taken one."""

STEP_NS = 200_000
"""What has to be lost for each step before a plan for one thread is made: half of what making it
takes (0.3 to 0.9 ms in real networks), since a core that is taken stays so for long."""

LEAST_NS = 8_000_000
"""What has to be lost in any case: first inferences wait for memory and for threads to start."""

SHORT_NS, SHORT_PRICES = 2_000_000, 10
"""Inferences so short may take less in one thread on an idle machine, too: on a virtual machine's
two cores, nearer to one another at times than at others, 0.93 ms became 1.17. One thread is
tried once they have taken so many times what else had to be lost."""

LEAST_PAUSE_NS, MOST_PAUSE_NS = 30_000_000, 250_000_000
LEAST_PAUSE_RUNS, MOST_PAUSE_RUNS = 4, 16
"""How long, and how many inferences, one thread computes at least before all of them are tried
again: at first and at most, twice as long each time. What passes between inferences does not count:
another runtime's threads spin on after its inference, so that the first one after it tells little.
"""

SEEN_NS = 10_000_000
"""For so long one thread has computed before it is told whether this program's other threads do."""

SPINNING, LETTING_GO = 0.5, 0.15
"""The share of that time for which these took a core while they did, and no longer do: ONNX
Runtime's threads spin for 90 ms after an inference. All threads are tried again at once then."""


class Runs(Protocol):
    """A bound plan."""

    def run(self) -> None:
        """Run it."""


R = TypeVar("R", bound=Runs)


class GivingWay(Generic[R]):
    """Chooses for each inference between all threads and one, by what the last ones took.

    OpenMP's threads each have a fixed part of a step, and all wait for the one whose core is taken:
    a network that takes 2.4 ms in one thread, and 2.0 in two on an idle machine, took 5.6 in two
    beside one busy process. How long the threads are waited for is the time that passes and is not
    spent on computing. Once half as much is lost as a plan for one thread takes to make, it is
    made, and for short inferences in any case after a while; from then on the two are compared by
    what they take.

    Attributes:
        alone: what runs in one thread, once it was made.
        is_possible: False once it is known that nothing does.
    """

    def __init__(self, steps: int, make: Callable[[], R | None]) -> None:
        """Begin with all threads.

        Args:
            steps: how many the plan has.
            make: returns what computes the same with one thread; None where there is no such
                thing, which is asked no more.
        """
        self._make = make
        self._price = max(steps * STEP_NS, LEAST_NS)
        self._left = self._runs = self._lost = self._alone_ns = self._short_ns = 0
        self._pause, self._pause_runs = LEAST_PAUSE_NS, LEAST_PAUSE_RUNS
        self._seen_ns = self._others_ns = 0
        self._are_others_busy = self._is_early = False
        self._may_be_early = True
        self.alone: R | None = None
        self.is_possible = True

    def run(self, together: Callable[[], None]) -> None:
        """Run in one thread if that is the turn, else `together`, and measure it."""
        if not self.is_possible:
            together()
            return
        begin = time.perf_counter_ns()
        if self.alone is not None and (self._runs > 0 or self._left > 0):
            used = time.process_time_ns()
            self.alone.run()
            spent = time.perf_counter_ns() - begin
            self._left -= spent
            self._runs -= 1
            self._alone_ns += (spent - self._alone_ns) // 8 if self._alone_ns else spent
            self._look_at_others(spent, time.process_time_ns() - used)
            return
        used = time.thread_time_ns()
        together()
        used = time.thread_time_ns() - used
        spent = time.perf_counter_ns() - begin
        # A sum of gains and losses, so that one good inference among bad ones changes little.
        expected = self._alone_ns or used + int(WAITING * spent)
        self._lost = max(self._lost + spent - expected, 0)
        if not self._lost:
            self._pause, self._pause_runs = LEAST_PAUSE_NS, LEAST_PAUSE_RUNS
            self._is_early = False
        if self.alone is None and spent < SHORT_NS:
            self._short_ns += spent
        if self._lost >= self._price or self._short_ns >= SHORT_PRICES * self._price:
            self._give_way()

    def _look_at_others(self, spent: int, used: int) -> None:
        """End the pause where this program's other threads had taken a core and let go of it.

        Whether it was them is not known where they let go before this was looked at: it is taken to
        be so until that was wrong.

        Args:
            spent: how long one thread has computed.
            used: for how long all of the program's threads did.
        """
        self._seen_ns += spent
        self._others_ns += used - spent
        if self._seen_ns < SEEN_NS:
            return
        share = self._others_ns / self._seen_ns
        self._seen_ns = self._others_ns = 0
        if share > SPINNING:
            self._are_others_busy = self._may_be_early = True
        elif share < LETTING_GO and self._are_others_busy:
            self._are_others_busy, self._is_early = False, True
            self._left = self._runs = 0
            self._pause, self._pause_runs = LEAST_PAUSE_NS, LEAST_PAUSE_RUNS

    def _give_way(self) -> None:
        if self.alone is None:
            self.alone = self._make()
            self.is_possible = self.alone is not None
        openmp.forget_cores()  # they may be taken by other programs
        if self._is_early:
            self._may_be_early = self._is_early = False
        self._are_others_busy = self._may_be_early
        self._seen_ns = self._others_ns = 0
        self._lost = self._price * 7 // 8  # the next trial is over after an eighth
        self._short_ns = 0
        self._left, self._runs = self._pause, self._pause_runs
        self._pause = min(2 * self._pause, MOST_PAUSE_NS)
        self._pause_runs = min(2 * self._pause_runs, MOST_PAUSE_RUNS)
