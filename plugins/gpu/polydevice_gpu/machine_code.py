"""Machine code as a function of this process, for x86-64 with the calling convention of Linux."""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import sys
from typing import Any


@functools.cache
def function_of(code: bytes) -> Any | None:
    """Return machine code as a function that returns a size_t; None if it cannot run here.

    Args:
        code: at most a page; it begins with ``endbr64`` and reaches nothing outside of itself but
            by its arguments.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return None
    try:
        memory = mmap.mmap(
            *(-1, mmap.PAGESIZE),
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
        memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
            return None  # a hardened system
    except OSError:
        return None
    function = ctypes.CFUNCTYPE(ctypes.c_size_t)(address)
    function.memory = memory  # type: ignore[attr-defined]  # lives as long
    return function


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
