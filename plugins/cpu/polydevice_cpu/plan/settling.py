"""Settling: in the background, plans that ran often get primitives for their own sizes."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from polydevice.locks import Lock
from polydevice.runtime.plan_cache import Shapes
from polydevice_cpu.onednn.ahead import start_thread
from polydevice_cpu.plan.plan import Plan

_log = logging.getLogger(__name__)

RUNS = 3
"""Inferences with a plan in strips and blocks after which it gets primitives for its sizes: they
take 3 to 10 % longer so, small layers up to 2.4 times as long, and to make the other plan takes
60 to 80 % of one."""

EVERY_SECONDS, PAUSE_SECONDS = 0.5e-3, 20e-6
"""How often, and for how long, a thread that takes notes of sizes gives Python's lock away, which
would go to who waits for it after 5 ms otherwise."""

Replace = Callable[[Shapes, Plan, Plan], None]
"""Takes shapes, the plan for them, and the one that shall take its place."""


class Settling:
    """Of one network and all its parts, which are closed together.

    One thread works at a time, and ends when there is nothing to do.
    """

    def __init__(self) -> None:
        """Begin without anything to do."""
        self._lock = Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def note(self, shapes: Shapes, plan: Plan, replace: Replace, runs: int = 1) -> None:
        """Take notice of so many inferences with a plan that is not final."""
        plan.runs += runs
        if plan.runs < RUNS:
            return
        with self._lock:
            whole, plan.whole = plan.whole, None
            if whole is None or self._is_stopped:
                return
            self._jobs.append(partial(_settle, shapes, plan, whole, replace))
            if not self._has_begun():  # strips stay
                plan.is_final = True

    def learn(self, work: Callable[[], None]) -> None:
        """Do what helps the next shapes, before plans are settled; not where there is no thread.

        Args:
            work: it; where it raises something, nothing becomes of it.
        """
        with self._lock:
            if not self._is_stopped:
                self._jobs.appendleft(work)
                self._has_begun()

    def stop(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        with self._lock:
            self._is_stopped = True
            self._jobs.clear()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _has_begun(self) -> bool:
        """Whether a thread does what there is to do; None can where the system has no more."""
        if self._thread is None:
            self._thread = start_thread(self._work, "polydevice-cpu-settling")
            if self._thread is None:
                self._jobs.clear()
        return self._thread is not None

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            try:
                job()
            except Exception as error:  # noqa: BLE001 - what there is stays, which is right
                _log.info("a plan or table for other sizes was not made: %s", error)


def _settle(shapes: Shapes, plan: Plan, whole: Callable[[], Plan | None], replace: Replace) -> None:
    try:
        made = whole()
        if made is not None:
            made.compile()
            replace(shapes, plan, made)
            return  # requests ask again as long as theirs is not final, and get it
    except Exception as error:  # noqa: BLE001 - strips stay, which are right
        _log.info("the plan for inputs of shapes %s stays in strips: %s", shapes, error)
    plan.is_final = True


class Pauses:
    """To be called again and again by such a thread: lets inferences get on in between."""

    def __init__(self) -> None:
        """Begin to count."""
        self._last = time.perf_counter()

    def __call__(self) -> None:
        """Give Python's lock away if it was held for long."""
        if time.perf_counter() - self._last > EVERY_SECONDS:
            time.sleep(PAUSE_SECONDS)
            self._last = time.perf_counter()
