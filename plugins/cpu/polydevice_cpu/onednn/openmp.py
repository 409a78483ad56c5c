"""The number of OpenMP threads that the calling thread's oneDNN calls use, and fork safety.

OpenMP keeps this number, and a pool of worker threads, per calling thread. oneDNN reads the number
when it creates a primitive and again when it executes one, and sizes scratchpads by the first, so
both must happen under the same number.
"""

from __future__ import annotations

import ctypes as c
import os
import threading
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
    forget_cores()


_BINDINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""With these in the environment the user says where threads run."""

_BODY = c.CFUNCTYPE(None, c.c_void_p)


class _Cores(threading.local):
    """Where the calling thread's workers are not, and how many of them were told."""

    core = -1
    count = 1


_cores = _Cores()


def forget_cores() -> None:
    """Choose anew where the calling thread and its workers run, when they compute next."""
    _cores.core, _cores.count = -1, 1


def keep_apart(count: int) -> None:
    """See to it that the calling thread and the `count` - 1 others run on different cores.

    Takes 0.3 us but for the first time. Nothing is forced upon the calling thread: it is moved back
    where it was, and may be moved again.
    """
    find = _core_function()
    if count > _cores.count:
        _cores.core, _cores.count = _send_workers(count), count
    elif find is not None and _cores.core >= 0 and find() != _cores.core:
        allowed = os.sched_getaffinity(0)
        if _cores.core not in allowed:
            forget_cores()
        elif _allow({_cores.core}):
            _allow(allowed)
        else:
            _cores.core = -1


def _send_workers(count: int) -> int:
    """Keep the workers off the core of the calling thread and return it; -1 where they stay."""
    parallel = getattr(_runtime(), "GOMP_parallel", None)
    find = _core_function()
    if parallel is None or find is None or any(name in os.environ for name in _BINDINGS):
        return -1
    caller, core = threading.get_ident(), find()
    others = os.sched_getaffinity(0) - {core}
    if not others:
        return -1

    def send(_: int | None) -> None:
        if threading.get_ident() != caller:
            _allow(others)

    parallel.argtypes, parallel.restype = [_BODY, c.c_void_p, c.c_uint, c.c_uint], None
    parallel(_BODY(send), None, count, 0)
    return core


@lru_cache(maxsize=1)
def parallel_address() -> int | None:
    """Return where OpenMP's function begins that calls another one in several threads.

    It takes that function's address, what that is told, how many threads, and 0.
    """
    try:
        parallel = None if (runtime := _runtime()) is None else runtime["GOMP_parallel"]
    except AttributeError:
        return None
    return None if parallel is None else c.cast(parallel, c.c_void_p).value


def _allow(cores: set[int]) -> bool:
    """Let the calling thread run on these cores alone; False where the system does not."""
    try:
        os.sched_setaffinity(0, cores)
    except OSError:  # a container may forbid it
        return False
    return True


@lru_cache(maxsize=1)
def _core_function() -> Callable[[], int] | None:
    """What tells the core that the calling thread runs on; None where nothing does."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(c.PyDLL(None), "sched_getcpu", None)


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


def thread_count() -> int:
    """Return how many threads oneDNN calls of this thread use."""
    get, _ = functions()
    return get()


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
