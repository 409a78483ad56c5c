"""Watch: runs inferences in threads that may be left behind, since drivers hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from polydevice.bounds import current_bounds, enter_bounds
from polydevice.errors import DeviceLostError, InferCancelledError
from polydevice.runtime.executor import Executor

T = TypeVar("T")

TIMES = 100
"""A device counts as hanging when an inference takes so many times as long as it did on average."""

FIRST = 10
"""How many time limits the first inference may take, which prepares much."""

LEFT_SECONDS = 1.0
"""How long closing waits for a thread that was left behind."""


class _Call(Generic[T]):
    """A call in another thread, and what became of it."""

    def __init__(self, call: Callable[[int], T]) -> None:
        self._call = call
        self._bounds = current_bounds()
        self.running = threading.Lock()  # an event takes three times as long
        self.running.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self, stream: int) -> None:
        before = enter_bounds(self._bounds)
        try:
            self.result = self._call(stream)
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self.error = error
        finally:
            enter_bounds(before)
            self.running.release()

    def dropped(self) -> None:
        self.error = InferCancelledError("the network was closed")
        self.running.release()


class Watch:
    """The threads of one device, and how long they may take.

    Attributes:
        left: calls that were waited for in vain, and whose threads hang.
    """

    def __init__(self, device: str, threads: int, limit_s: float) -> None:
        """Make threads for one device, which start when needed.

        Args:
            device: its name.
            threads: how many.
            limit_s: seconds that any call may take.
        """
        self.left = 0
        self._device = device
        self._limit_s = limit_s
        self._threads = Executor(f"{device}-watched", threads)

    def run(self, call: Callable[[int], T], usual_s: float) -> T:
        """Call with the number of the thread, and wait for the end.

        Args:
            call: what may hang; it must not write what others may use when it was left behind.
            usual_s: seconds that it takes on average; 0 before that is known.

        Raises:
            DeviceLostError: it has not ended within the limit; the thread is left behind.
            Exception: what `call` raises.
        """
        made = _Call(call)
        self._threads.submit(made.run, made.dropped)
        limit = max(self._limit_s, TIMES * usual_s) if usual_s else FIRST * self._limit_s
        if not made.running.acquire(timeout=min(limit, threading.TIMEOUT_MAX)):
            self.left += 1
            raise DeviceLostError(f"{self._device} has not ended an inference within {limit:.3g} s")
        if made.error is not None:
            raise made.error
        return made.result  # type: ignore[return-value]

    def close(self, end: float) -> None:
        """End the threads; waits until `end`, of ``time.monotonic()``, less where some hang."""
        self._threads.close(min(end, time.monotonic() + LEFT_SECONDS) if self.left else end)
