"""Executor: the worker threads behind asynchronous requests, one per stream."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from polydevice.errors import InferCancelledError, InferenceError
from polydevice.locks import Condition

Task = Callable[[int], None]
"""A unit of work; it receives the number of the stream whose thread runs it."""

_log = logging.getLogger(__name__)
_local = threading.local()
_all: weakref.WeakSet[Executor] = weakref.WeakSet()


def is_stream_thread() -> bool:
    """Whether the calling thread belongs to an executor (it runs a callback, say)."""
    return getattr(_local, "is_stream_thread", False)


CLOSE_SECONDS = 10.0
"""How long closing waits for what runs. Loops and host layers that were cancelled end within
milliseconds; nothing ends a launch that a driver runs, nor a thread that waits for it."""

IDLE_SECONDS = 0.02
"""How long a thread waits for work before it does what is to be done when idle."""


def closing_time() -> float:
    """Return until when what is closed now is waited for, of ``time.monotonic()``."""
    return time.monotonic() + CLOSE_SECONDS


class Executor:
    """Runs tasks in submission order on a fixed number of daemon threads.

    Threads start with the first task. `close` drops what is still queued, waits for what runs
    (`CLOSE_SECONDS` at most), and is called for every executor when the interpreter exits.

    Attributes:
        when_idle: what each thread does once when it runs out of work, to free what it holds.
    """

    def __init__(self, name: str, streams: int) -> None:
        """Make an executor of `streams` threads whose names start with `name`."""
        self.name = name
        self.streams = streams
        self.when_idle: Callable[[], None] | None = None
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._wake = Condition()
        self._queue: deque[tuple[Task, Callable[[], None]]] = deque()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(
        self, task: Task, cancelled: Callable[[], None], queued: list[bool] | None = None
    ) -> None:
        """Queue a task.

        Args:
            task: what one of the threads calls.
            cancelled: called instead when it is dropped by `close`.
            queued: its first item becomes True in the same step, whatever Ctrl-C does behind it.

        Raises:
            InferCancelledError: when the executor is closed.
            InferenceError: no thread can be started, and there is none.
        """
        with self._wake:
            if self._closed:
                raise InferCancelledError(f"{self.name} is closed; load the network again")
            if len(self._threads) < self.streams:
                self._start_thread()
            self._queue += ((task, cancelled),)  # no call, behind which Ctrl-C could raise
            if queued is not None:
                queued[0] = True
            self._wake.notify()

    def _start_thread(self) -> None:
        stream = len(self._threads)
        name = f"{self.name}-stream{stream}"
        # The thread holds only the parts it needs, so that an executor can be collected.
        args = (self._wake, self._queue, weakref.ref(self), stream)
        thread = threading.Thread(target=_work, args=args, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more, or the interpreter ends
            if not self._threads:
                raise InferenceError(
                    f"{self.name} cannot run: {error}. Let the process have more threads; on one "
                    "device infer() needs none"
                ) from error
        else:
            self._threads.append(thread)

    def remove(self, task: Task) -> bool:
        """Drop a queued task; False when it runs already or is not there."""
        with self._wake:
            for item in self._queue:
                if item[0] is task:
                    self._queue.remove(item)
                    return True
        return False

    def close(self, end: float | None = None) -> None:
        """Drop queued tasks, wait for running ones, end the threads; not for ever.

        Args:
            end: until when to wait, of ``time.monotonic()``; by default `CLOSE_SECONDS` from now.
        """
        self._stop()
        end = closing_time() if end is None else end
        for thread in self._threads:
            if thread is threading.current_thread():
                continue
            thread.join(max(end - time.monotonic(), 0))
            if thread.is_alive():
                _log.warning("%s has not ended within %g s of closing", thread.name, CLOSE_SECONDS)
        self._threads.clear()

    def _stop(self) -> None:
        """Drop queued tasks and let the threads end when what they run does."""
        with self._wake:
            self._closed = True
            dropped = list(self._queue)
            self._queue.clear()
            self._wake.notify_all()
        for _, cancelled in dropped:
            cancelled()

    def __del__(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify_all()


def _work(
    wake: Condition,
    queue: deque[tuple[Task, Callable[[], None]]],
    owner: weakref.ref[Executor],
    stream: int,
) -> None:
    _local.is_stream_thread = True
    is_idle = True  # nothing to free yet
    while True:
        with wake:
            while not queue:
                executor = owner()
                if executor is None or executor._closed:
                    return
                when_idle = executor.when_idle
                del executor
                if wake.wait(None if is_idle else IDLE_SECONDS) or is_idle:
                    continue
                is_idle = True
                if when_idle is not None:
                    when_idle()
            is_idle = False
            task, cancelled = queue.popleft()
        try:
            task(stream)
        except BaseException:  # noqa: BLE001 - a task reports its own errors; the thread lives on
            _log.exception("a task of stream %d failed outside of its request", stream)
        del task, cancelled  # they hold the request, which must not outlive its users


def _close_all() -> None:
    executors, end = list(_all), closing_time()
    for executor in executors:
        executor._stop()  # all at once, to wait for them once
    for executor in executors:
        executor.close(end)


def _after_fork() -> None:
    for executor in list(_all):
        executor._reset()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
