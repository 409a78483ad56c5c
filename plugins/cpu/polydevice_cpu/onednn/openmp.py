"""The number of OpenMP threads that the calling thread's oneDNN calls use, and fork safety.

OpenMP keeps this number, and a pool of worker threads, per calling thread. oneDNN reads the number
when it creates a primitive and again when it executes one, and sizes scratchpads by the first, so
both must happen under the same number.
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Callable
from functools import lru_cache

from polydevice_cpu.onednn.library import library

_RUNTIMES = ("libgomp.so.1", "libiomp5.so", "libomp.so", "libomp.dylib")
_PAUSE_SOFT = 1


@lru_cache(maxsize=1)
def _runtime() -> c.CDLL | None:
    loaded = library()
    if loaded is None:
        return None
    # The names are resolved through the library itself first: its own dependency is what counts.
    for path in (loaded.path, *_RUNTIMES):
        try:
            runtime = c.CDLL(path)
            runtime.omp_set_num_threads.restype = None
            runtime.omp_get_max_threads.restype = c.c_int
        except (OSError, AttributeError):
            continue
        os.register_at_fork(before=stop_workers)
        return runtime
    return None


def stop_workers() -> None:
    """End the calling thread's OpenMP workers; they start again when next needed.

    Before a fork, because the child has none of them, and libgomp would wait for them for ever at
    its first parallel region. And when another thread is to compute: with more workers than cores,
    idle ones included, libgomp lets threads sleep at every barrier instead of spinning, which made
    EfficientNet-Lite0 on two threads take 6 to 8 ms instead of 3.5.
    """
    pause = getattr(_runtime(), "omp_pause_resource_all", None)
    if pause is not None:
        pause(_PAUSE_SOFT)


def _one() -> int:
    return 1


def _ignore(count: int) -> None:
    del count


@lru_cache(maxsize=1)
def functions() -> tuple[Callable[[], int], Callable[[int], None]]:
    """Return OpenMP's (get, set) of the calling thread's number of threads.

    A build of oneDNN without OpenMP has one thread always; then the pair does nothing.
    """
    runtime = _runtime()
    if runtime is None:
        return _one, _ignore
    # They take no time: to let go of Python's lock for them would take as much again.
    quick = c.PyDLL(runtime._name)
    quick.omp_set_num_threads.restype = None
    return quick.omp_get_max_threads, quick.omp_set_num_threads


class threads:  # noqa: N801 - used like a function; a plan enters some hundred, a generator is slow
    """Let oneDNN calls of this thread use `count` threads inside the ``with`` block."""

    __slots__ = ("_before", "_count", "_set")

    def __init__(self, count: int) -> None:
        self._count = self._before = count

    def __enter__(self) -> None:
        get, self._set = functions()
        self._before = get()
        if self._before != self._count:
            self._set(self._count)

    def __exit__(self, *_: object) -> None:
        if self._before != self._count:
            self._set(self._before)
