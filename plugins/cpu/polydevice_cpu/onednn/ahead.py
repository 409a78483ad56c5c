"""Generating code in a thread of its own, while the plan that will run it is still being made."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue

from polydevice.errors import PolydeviceError
from polydevice_cpu.onednn.primitive import Primitive

PAYS = 32
"""For how many primitives a thread is started: code of 0.08 ms each. It takes 0.1 ms to start, and
where two threads want Python's lock by turns, they compute 1 to 1.5 ms more."""

HEAVY = 6
"""For so many counts one for a convolution with windows of several elements: 0.5 ms."""

_HEAVY_CODE = "brgconv:"

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start_thread(work: Callable[[], None], name: str) -> threading.Thread | None:
    """Start a thread that works with oneDNN, for which the end of the process and a fork wait.

    Returns:
        None where the system has no more threads, or the interpreter ends.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    _threads.add(thread)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class Ahead:
    """Primitives whose code is generated in the order in which they were added.

    Who needs one sooner asks it to `compile`. oneDNN takes 0.05 to 1 ms for each, without Python's
    lock, so that the caller can ask oneDNN for the next ones, and run the first ones, meanwhile.
    Few primitives, and all where the process has one core, are compiled by the caller at the end:
    between steps that compute, it takes half as long again.

    Where a step takes all cores, it would wait for the thread of it that shares one with this.
    There the caller generates code too, from the last primitive on, until all have theirs.
    """

    def __init__(self) -> None:
        self._added: list[Primitive] = []
        self._waiting: list[Primitive] | None = []
        self._work = 0
        self._queue: SimpleQueue[Primitive | None] = SimpleQueue()

    def add(self, primitive: Primitive) -> None:
        """Have the code of a primitive generated."""
        self._added.append(primitive)
        if self._waiting is None:
            self._queue.put(primitive)
        elif not primitive.is_compiled:
            self._waiting.append(primitive)
            is_heavy = primitive.implementation.startswith(_HEAVY_CODE)
            self._work += HEAVY if is_heavy else 1
            if self._work >= PAYS and _cores() > 1 and self._start():
                for each in self._waiting:
                    self._queue.put(each)
                self._waiting = None

    def _start(self) -> bool:
        """Start the thread, unless the system has no more of them, or the interpreter ends."""
        return start_thread(partial(_generate, self._queue), "polydevice-cpu-code") is not None

    def end(self) -> None:
        """Let the thread end after what was added; without one, generate all code."""
        for primitive in self._waiting or ():
            primitive.compile()
        if self._waiting is None:
            self._queue.put(None)
            if any(primitive.threads >= _cores() for primitive in self._added):
                for primitive in reversed(self._added):
                    primitive.compile()

    @property
    def is_done(self) -> bool:
        """Whether the code of all that was added is there, behind `end`."""
        return self._waiting is not None

    def stop(self) -> None:
        """Let the thread end, if there is one."""
        if self._waiting is None:
            self._queue.put(None)


@contextlib.contextmanager
def ahead() -> Iterator[Ahead]:
    """Generate code ahead of the thread that makes a plan in the block."""
    made = Ahead()
    try:
        yield made
    except BaseException:
        made.stop()
        raise
    made.end()


def _generate(queue: SimpleQueue[Primitive | None]) -> None:
    while (primitive := queue.get()) is not None:
        with contextlib.suppress(PolydeviceError):  # who needs it meets the error itself
            primitive.compile()


def _cores() -> int:
    """How many threads of the process may run at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _wait_for_all() -> None:
    """Wait until nothing is generated: a fork would leave locks behind that nobody releases.

    The end of the process would take away what oneDNN is working with.
    """
    for thread in list(_threads):
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join()


atexit.register(_wait_for_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_all)
