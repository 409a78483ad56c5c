"""Bounds: until when a piece of work may run and what memory it may use; a cancellation token.

An inference has one `Bounds`, whatever number of requests, bodies and host layers take part in it:
they find it with `current_bounds()`, since all of them run in the thread that began it. Whoever
repeats something whose end depends on data (a loop, a search, a row of texts) calls `check` each
time; a device calls it also while it waits, and between the steps of a long plan. Whoever allocates
as much as data says calls `admit` first.

Computing constants ahead of inference, while a model is read or compiled, has bounds too
(`computing_ahead`): what takes longer or more is left to the inference.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from polydevice.errors import DeviceMemoryError, InferCancelledError, InferTimeoutError
from polydevice.memory_budget import MemoryBudget

T = TypeVar("T")

WAIT_SECONDS = 0.01
"""How long `Bounds.acquire` waits before it looks again whether to go on."""


class Bounds:
    """Whether a piece of work may go on."""

    __slots__ = ("_cancelled", "_deadline", "_outer", "_timeout_ms", "memory")

    def __init__(
        self,
        timeout_ms: float = 0,
        start: float | None = None,
        outer: Bounds | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        """Begin a piece of work.

        Args:
            timeout_ms: milliseconds that it may take; 0 for any number.
            start: value of ``time.perf_counter()`` from which they count; None for now.
            outer: bounds of the work that this is a part of.
            memory: what it may use; None for what `outer` may, or the whole machine.
        """
        self.memory: MemoryBudget | None = memory
        if memory is None and outer is not None:
            self.memory = outer.memory
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

    def begin_again(self) -> None:
        """Serve for other work; what cancelled the former does not count."""
        self._cancelled = ""

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

    def admit(self, size_bytes: int, what: str) -> None:
        """Return if that much memory may be allocated; see `MemoryBudget.check`.

        Raises:
            DeviceMemoryError: it is more than the network may use.
        """
        if self.memory is None:
            self.memory = MemoryBudget(0, "this process")
        self.memory.check(size_bytes, what)

    def acquire(
        self, lock: threading.Lock | threading.RLock, held: list[bool] | None = None
    ) -> None:
        """Take a lock that other work holds for long; raises what `check` does while waiting.

        Args:
            lock: what to take.
            held: set to whether it was taken. Ctrl-C may raise behind any call, so that who takes
                a lock with this one may have it when this raises; `held` tells in the same step.
        """
        taken = [False] if held is None else held
        while True:
            taken[:] = map(lock.acquire, (True,), (WAIT_SECONDS,))
            if taken[0]:
                return
            self.check()


class _Thread(threading.local):
    """The work that a thread is at."""

    bounds: Bounds | None = None
    left: float | None = None  # seconds for computing constants ahead


this_thread = _Thread()
"""The calling thread's. Read and written directly by what runs in every inference, where
`enter_bounds` twice would take 0.3 µs instead of 0.15."""
_UNBOUNDED = Bounds()  # nobody has it to cancel it


def current_bounds() -> Bounds:
    """Return the bounds of what the calling thread is at; without an end if it has none."""
    return this_thread.bounds or _UNBOUNDED


def bounded(items: Iterable[T]) -> Iterator[T]:
    """Yield the items as long as the calling thread's work may go on; see `Bounds.check`."""
    check = current_bounds().check
    for item in items:
        check()
        yield item


def inference_bounds(timeout_ms: float, start: float, memory: MemoryBudget) -> Bounds:
    """Return bounds of an inference's own; those of the work that it is a part of hold as well.

    Cancelling them ends this inference alone. `memory` counts where the whole has no budget.
    """
    outer = this_thread.bounds
    inherited = outer is not None and outer.memory is not None
    return Bounds(timeout_ms, start, outer, None if inherited else memory)


def network_budget(limit_bytes: int, whose: str) -> MemoryBudget:
    """Return the budget for a network that is being loaded.

    A part of another network, loaded while that one is, uses that one's.

    Args:
        limit_bytes: MEMORY_LIMIT; 0 for what the machine has.
        whose: for messages.
    """
    outer = this_thread.bounds
    if outer is not None and outer.memory is not None:
        return outer.memory
    return MemoryBudget(limit_bytes, whose)


def enter_bounds(bounds: Bounds | None) -> Bounds | None:
    """Make bounds those of the calling thread and return what they were; see `within`."""
    before = this_thread.bounds
    this_thread.bounds = bounds
    return before


@contextmanager
def within(bounds: Bounds) -> Iterator[Bounds]:
    """Let what the ``with`` block does have these bounds."""
    before = enter_bounds(bounds)
    try:
        yield bounds
    finally:
        enter_bounds(before)


AHEAD_SECONDS = 10.0
"""Time for computing constants ahead, in all, of a model that is read or compiled."""

AHEAD_BYTES = 1 << 30
"""Most that one of their values may take."""

_AHEAD = MemoryBudget(AHEAD_BYTES, "computing constants ahead of inference")


@contextmanager
def computing_ahead() -> Iterator[None]:
    """Let the computations of constants in the ``with`` block share one limit of time."""
    if this_thread.left is not None:  # a part of something larger
        yield
        return
    this_thread.left = AHEAD_SECONDS
    try:
        yield
    finally:
        this_thread.left = None


def compute_ahead(compute: Callable[[], T | None]) -> T | None:
    """Compute a constant within the limits; None where it takes longer or needs more.

    Args:
        compute: raises a PolydeviceError, or returns None, when `Bounds.check` or `admit` ends it.
    """
    left = AHEAD_SECONDS if this_thread.left is None else this_thread.left
    if left <= 0:
        return None
    start = time.perf_counter()
    try:
        with within(Bounds(left * 1e3, start, this_thread.bounds, _AHEAD)):
            return compute()
    except (InferTimeoutError, DeviceMemoryError):
        return None
    finally:
        if this_thread.left is not None:
            this_thread.left = left - (time.perf_counter() - start)
