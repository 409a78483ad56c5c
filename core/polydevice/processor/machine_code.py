"""Machine code as a function of this process, for x86-64 with the calling convention of Linux.

And with it a list of calls of C functions as one call: from Python each costs 0.4 µs and gives
Python's lock away and asks for it again. Elsewhere, and where a system refuses memory that holds
code, there is no such function, and things are called one by one.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

# size_t loop(call* rdi, size_t count rsi)
_CALLS = bytes.fromhex(
    "f30f1efa"  # endbr64
    "53554883ec08"  # push rbx, rbp; rsp -= 8: the stack is aligned now
    "4889fb4889f531c0"  # rbx = call, rbp = count; eax = 0
    "4885ed741f"  # next: if rbp == 0 goto end
    "488b7b08488b7310488b5318488b4b20"  # rdi, rsi, rdx, rcx = call's arguments
    "ff13"  # call its function
    "85c07509"  # if eax != 0 goto end
    "4883c32848ffcdebdc"  # call += 40; rbp -= 1; goto next
    "89c048c1e5204809e8"  # end: rax = eax without a sign | rbp << 32
    "4883c4085d5bc3"  # rsp += 8; pop rbp, rbx; ret
)

CALL = np.dtype([(name, np.uint64) for name in ("function", "first", "second", "third", "fourth")])
"""A C function that returns an int, by its address, and up to four integers or addresses."""


C = TypeVar("C", bound="Calls")
F = TypeVar("F", bound=Callable[..., Any])


_FUNCTIONS: dict[bytes, Any | None] = {}


def function_of(code: bytes) -> Any | None:
    """Return machine code as a function that returns a size_t; None if it cannot run here.

    Its `address` is where it begins. It stays as long as the process, since calls know no more of
    it; of threads that want the same one at once all get one, so that none is let go.

    Args:
        code: it begins with ``endbr64`` and reaches nothing outside of itself but by its arguments;
            empty where the processor lacks what it needs.
    """
    if code in _FUNCTIONS:
        return _FUNCTIONS[code]
    return _FUNCTIONS.setdefault(code, _made(code))


def _made(code: bytes) -> Any | None:
    if not code or sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return None
    size = -(-len(code) // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        memory = mmap.mmap(
            *(-1, size),
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
        memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if protect(address, size, mmap.PROT_READ | mmap.PROT_EXEC):
            return None  # a hardened system
    except OSError:
        return None
    function = ctypes.CFUNCTYPE(ctypes.c_size_t)(address)
    function.memory = memory  # type: ignore[attr-defined]  # lives as long
    function.address = address  # type: ignore[attr-defined]
    return function


def for_good(make: F) -> F:
    """Return a function that makes what it returns once for the same arguments, and keeps it.

    For what machine code is told the address of. As with `function_of`, of threads that want the
    same at once all get one: `functools.cache` gives each its own, and keeps that of the last.
    """
    kept: dict[tuple[Any, ...], Any] = {}

    @functools.wraps(make)
    def get(*arguments: Any) -> Any:
        if arguments in kept:
            return kept[arguments]
        return kept.setdefault(arguments, make(*arguments))

    return cast("F", get)


class Calls(partial[int]):
    """Calls of C functions one after the other as one, which returns 0 if all did.

    It stops behind one that did not, and returns what that one did in the lower 32 bits, and above
    how many were left, that one included.
    """

    @property
    def record(self) -> tuple[int, ...]:
        """It as of type `CALL`, so that it may be among others."""
        start, count = self.args
        return self.func.address, start.value, count.value, 0, 0  # type: ignore[attr-defined]


def calls(records: npt.NDArray[np.void]) -> Calls | None:
    """Return what calls functions one after the other; None where that is not possible.

    Args:
        records: of type `CALL`, less than 2^31; what they point to has to live as long.
    """
    made = calls_at(records.ctypes.data, len(records), Calls)
    if made is not None:
        made.records = records  # type: ignore[attr-defined]  # live as long
    return made


def calls_at(address: int, count: int, kind: type[C]) -> C | None:
    """Return what `calls` does, of records that lie at an address and are kept there by others."""
    function = function_of(_CALLS)
    if function is None:
        return None
    return kind(function, ctypes.c_void_p(address), _count(count))


@functools.lru_cache
def _count(count: int) -> ctypes.c_size_t:
    """A number of calls; to be given plain numbers takes a function twice as long."""
    return ctypes.c_size_t(count)


_CACHE_SIZES = {1: 188, 2: 191}
"""glibc's _SC_LEVEL1_DCACHE_SIZE and _SC_LEVEL2_CACHE_SIZE, which `os` has no names for; musl has
no such numbers and refuses them."""


@functools.cache
def cache_bytes(level: int, *, default: int) -> int:
    """Return what a core's cache of data holds, as the system's C library tells it.

    Args:
        level: 1 or 2.
        default: returned where nothing is told.
    """
    if sys.platform != "linux":
        return default
    try:
        return max(os.sysconf(_CACHE_SIZES[level]), 0) or default
    except (OSError, ValueError):
        return default


@functools.cache
def processor_flags() -> frozenset[str]:
    """Return what Linux says that the first processor has; nothing where it says nothing."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            for line in file:  # the first of many alike
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()
