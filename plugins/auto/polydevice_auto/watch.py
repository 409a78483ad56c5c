"""Watch: finds inferences that hang, since drivers do; one thread looks at the times of all."""

from __future__ import annotations

import math
import os
import threading
import time
from abc import ABC, abstractmethod

from polydevice.locks import Lock


class Watched(ABC):
    """What runs in a thread that may be left behind."""

    @abstractmethod
    def leave_behind(self) -> None:
        """Go on without it, in a thread of its own: its time is over, and it has not ended."""


class Watch:
    """Calls that have begun, and when each is over.

    The thread sleeps until the first of them is, looks again, and ends when nothing runs; so a call
    that ends in time costs an entry in a dictionary, and wakes nobody.
    """

    def __init__(self) -> None:
        """Begin with nothing, and without a thread."""
        self._reset()

    def _reset(self) -> None:
        self._ends: dict[Watched, float] = {}
        self._lock = Lock()
        self._sooner = threading.Event()
        self._until = math.inf  # when the thread looks again, of time.perf_counter()
        self._thread: threading.Thread | None = None

    @property
    def is_looking(self) -> bool:
        """Whether there is a thread, which looks at what runs."""
        return self._thread is not None

    def begin(self, call: Watched, seconds: float) -> None:
        """Leave a call behind unless it ends within so many seconds."""
        end = time.perf_counter() + seconds
        self._ends[call] = end
        if end < self._until:
            self._look_by(end)

    def end(self, call: Watched) -> bool:
        """Note that a call has ended; False where it was left behind, and others went on."""
        return self._ends.pop(call, None) is not None

    def _look_by(self, end: float) -> None:
        with self._lock:
            self._until = min(self._until, end)
            if self._thread is None:
                thread = threading.Thread(target=self._look, name="watch", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no more: what begins next tries again
                    self._until = math.inf
                else:
                    self._thread = thread
            else:
                self._sooner.set()

    def _look(self) -> None:
        while True:
            wait = self._until - time.perf_counter()
            self._sooner.wait(min(max(wait, 0), threading.TIMEOUT_MAX))
            self._sooner.clear()
            now = time.perf_counter()
            for call, end in list(self._ends.items()):
                if end <= now and self.end(call):
                    name = "left-behind"
                    threading.Thread(target=call.leave_behind, name=name, daemon=True).start()
            with self._lock:
                self._until = math.inf  # what begins now sees this, or is seen below
                ends = list(self._ends.values())
                if not ends:
                    self._thread = None
                    return
                self._until = min(ends)


WATCH = Watch()
"""For all networks of the process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCH._reset)
