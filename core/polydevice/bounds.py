"""Bounds: until when a piece of work may run; the token that cancels an inference.

An inference has one `Bounds`, whatever number of requests, bodies and host layers take part in it:
they find it with `current_bounds()`, since all of them run in the thread that began it. Whoever
repeats something whose end depends on data (a loop, a search, a row of texts) calls `check` each
time; a device calls it also while it waits, and between the steps of a long plan.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from polydevice.errors import InferCancelledError, InferTimeoutError

T = TypeVar("T")

WAIT_SECONDS = 0.01
"""How long `Bounds.acquire` waits before it looks again whether to go on."""


class Bounds:
    """Whether a piece of work may go on."""

    __slots__ = ("_cancelled", "_deadline", "_outer", "_timeout_ms")

    def __init__(
        self, timeout_ms: float = 0, start: float | None = None, outer: Bounds | None = None
    ) -> None:
        """Begin a piece of work.

        Args:
            timeout_ms: milliseconds that it may take; 0 for any number.
            start: value of ``time.perf_counter()`` from which they count; None for now.
            outer: bounds of the work that this is a part of.
        """
        self._cancelled = ""
        self._outer = outer
        self._timeout_ms = timeout_ms
        self._deadline: float | None = None
        if timeout_ms:
            begin = time.perf_counter() if start is None else start
            self._deadline = begin + timeout_ms / 1e3

    def cancel(self, reason: str) -> None:
        """Have the next `check` raise InferCancelledError; from any thread."""
        self._cancelled = self._cancelled or reason

    def check(self) -> None:
        """Return if the work may go on; takes less than 0.1 µs.

        Raises:
            InferCancelledError: somebody cancelled it.
            InferTimeoutError: its time is over.
        """
        if self._cancelled:
            raise InferCancelledError(self._cancelled)
        if self._deadline is not None and time.perf_counter() > self._deadline:
            raise InferTimeoutError(
                f"the inference has not ended within {self._timeout_ms:g} ms (INFER_TIMEOUT_MS). "
                "Give it more time, or look for a loop in the model that does not end"
            )
        if self._outer is not None:
            self._outer.check()

    def acquire(self, lock: threading.Lock) -> None:
        """Take a lock that other work holds for long; raises what `check` does while waiting."""
        while not lock.acquire(timeout=WAIT_SECONDS):
            self.check()


class _Thread(threading.local):
    """The work that a thread is at."""

    bounds: Bounds | None = None


_thread = _Thread()
_UNBOUNDED = Bounds()  # nobody has it to cancel it


def current_bounds() -> Bounds:
    """Return the bounds of what the calling thread is at; without an end if it has none."""
    return _thread.bounds or _UNBOUNDED


def bounded(items: Iterable[T]) -> Iterator[T]:
    """Yield the items as long as the calling thread's work may go on; see `Bounds.check`."""
    check = current_bounds().check
    for item in items:
        check()
        yield item


def inference_bounds(timeout_ms: float, start: float) -> Bounds:
    """Return bounds for an inference; those of the one that it is a part of hold as well."""
    outer = _thread.bounds
    return outer if outer is not None and not timeout_ms else Bounds(timeout_ms, start, outer)


def enter_bounds(bounds: Bounds | None) -> Bounds | None:
    """Make bounds those of the calling thread and return what they were; see `within`."""
    before = _thread.bounds
    _thread.bounds = bounds
    return before


@contextmanager
def within(bounds: Bounds) -> Iterator[Bounds]:
    """Let what the ``with`` block does have these bounds."""
    before = enter_bounds(bounds)
    try:
        yield bounds
    finally:
        enter_bounds(before)
