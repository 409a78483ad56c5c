"""MemoryBudget: what a network may use of memory, and how much that is here."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from mmap import PAGESIZE
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from polydevice.errors import DeviceMemoryError
from polydevice.locks import RLock

if TYPE_CHECKING:
    from polydevice.dtype import Array

T = TypeVar("T")

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_UNKNOWN = 1 << 47


def host_memory_bytes() -> int:
    """Return what this process may use of the machine's memory; 2^47 where it is not known.

    That is the smallest of the physical memory, the process's own limit (``ulimit -v``) and the
    limits of the control groups, of either version, that it is in: its own and all above it.
    """
    return _host_memory_bytes(_CONTROL_GROUPS, _MEMBERSHIP)


@functools.cache
def _host_memory_bytes(groups: Path, membership: Path) -> int:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = _UNKNOWN
    return min([total, *_process_limits(), *_group_limits(groups, membership)])


def _process_limits() -> Iterator[int]:
    try:
        import resource  # which not every system has
    except ImportError:
        return
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            yield soft


def _group_limits(groups: Path, membership: Path) -> Iterator[int]:
    """Yield the limits of all control groups around this process.

    Args:
        groups: where the groups are mounted: all of version 2, or folders of which ``memory`` is
            version 1's and ``unified`` version 2's.
        membership: the file that says "number:controllers:path" of every hierarchy. In a container
            the path may be the machine's, which is not there; the mounted root then is its own.
    """
    lines = ["0::/", "1:memory:/"]
    with suppress(OSError):
        lines += membership.read_text().splitlines()
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            roots, name = [groups, groups / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            roots, name = [groups / "memory"], "memory.limit_in_bytes"
        else:
            continue
        own = PurePosixPath(path.lstrip("/"))
        for root, group in itertools.product(roots, [own, *own.parents]):
            with suppress(OSError):
                text = (root / group / name).read_text().strip()
                if text.isdigit():
                    yield int(text)


class _Held(weakref.ref[object]):
    """Whose memory is given back when it is gone; equal to itself alone, as owners have no hash."""

    __slots__ = ("size_bytes",)
    size_bytes: int
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class MemoryBudget:
    """Counts the memory of one network, all its requests together, and refuses too much.

    Whoever allocates asks first: `hold` for what lives as long as an object, `take` and `give` for
    what lives during a step, `check` for what Python frees by itself soon. All may be called from
    any thread.
    """

    def __init__(self, limit_bytes: int, whose: str) -> None:
        """Begin with nothing used.

        Args:
            limit_bytes: the most that may be used at once; 0 for what the machine has.
            whose: for messages, such as "network 'resnet' on CPU".
        """
        self.is_set = bool(limit_bytes)
        """Whether somebody chose the limit; then it holds for memory of devices too."""
        self.limit_bytes = limit_bytes or host_memory_bytes()
        self._whose = whose
        self._used = 0
        self._held: set[_Held] = set()
        self._lock = RLock()  # finalizers enter wherever the garbage collector runs

    @property
    def used_bytes(self) -> int:
        """What is used now."""
        return self._used

    def check(self, size_bytes: int, what: str) -> None:
        """Return if so much more fits.

        Args:
            size_bytes: of what is about to be allocated.
            what: for the message.

        Raises:
            DeviceMemoryError: naming it, its size, and the limit.
        """
        if self._used + size_bytes > self.limit_bytes:
            raise DeviceMemoryError(
                f"{what} needs {size_bytes} bytes; {self._whose} uses {self._used} already, of "
                f"{self.limit_bytes} that it may use (MEMORY_LIMIT; else the machine's or device's "
                "memory). Use smaller inputs or fewer requests, or raise the limit"
            )

    def take(self, size_bytes: int, what: str) -> None:
        """Count memory as used; raises what `check` does, and then counts nothing."""
        with self._lock:
            self.check(size_bytes, what)
            self._used += size_bytes

    def give(self, size_bytes: int) -> None:
        """Count memory as free again."""
        with self._lock:
            self._used -= size_bytes

    def allocated(self, size_bytes: int, what: str, make: Callable[[], T]) -> T:
        """Make what takes so much memory for as long as it lives, an array say."""
        self.check(size_bytes, what)
        try:
            made = make()
        except MemoryError:
            raise DeviceMemoryError(
                f"{what} needs {size_bytes} bytes, which there are not; {self._whose} uses "
                f"{self._used} already. Use smaller inputs or fewer requests, or set MEMORY_LIMIT "
                "to what it may use, so that it is refused before anything is allocated"
            ) from None
        self.hold(made, size_bytes, what)
        return made

    def hold(self, owner: object, size_bytes: int, what: str) -> None:
        """Take memory that is given back when `owner` is gone."""
        self.take(size_bytes, what)
        held = _Held(owner, self._let_go)  # `weakref.finalize` takes 4 us
        held.size_bytes = size_bytes
        self._held.add(held)

    def _let_go(self, held: _Held) -> None:
        self._held.discard(held)
        self.give(held.size_bytes)

    def hold_arrays(self, owner: object, arrays: Iterable[Array], what: str) -> None:
        """Take the memory of arrays until that of each is free; raises what `check` does.

        Args:
            owner: with it goes what the small ones take.
            arrays: which may be views on one memory, and the same several times.
            what: for the message.
        """
        bases = {id(base): base for base in map(_base, arrays)}.values()
        self.check(sum(base.nbytes for base in bases), what)
        small = 0
        for base in bases:
            if base.nbytes < SMALL_BYTES:
                small += base.nbytes
            else:
                self.hold(base, base.nbytes, what)
        self.hold(owner, small, what)


def _base(array: Array) -> Array:
    """Return the array that others are views on."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


SMALL_BYTES = 4096
"""Arrays below are not waited for one by one."""

WORTH_BYTES = 1 << 20
"""Of constants, from which on memory is given back and what can be made again let go of: asking for
it took 7 to 50 ms in a process of a million objects, half of them freed, and 1 in a small one."""


def give_back(constant_bytes: int) -> None:
    """Let the system have what reading or loading a model has freed again, if that may be much.

    glibc keeps it: of an ONNX file of 24 MB 23 MB stayed besides its constants.

    Args:
        constant_bytes: of the model.
    """
    trim = _trim()
    if trim is not None and constant_bytes >= WORTH_BYTES:
        trim(0)


@functools.lru_cache(maxsize=1)
def _trim() -> Any:
    """glibc's `malloc_trim`; None with another C library."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


_DONT_NEED = 4
"""MADV_DONTNEED of Linux."""


def give_back_pages(address: int, size_bytes: int) -> None:
    """Let the system have the whole pages of some memory whose content nobody needs.

    They come back, as zeros or what is in the file that is mapped there, when somebody touches
    them. Elsewhere than on Linux nothing happens.
    """
    advise = _advise()
    first, end = (-(-address // PAGESIZE) * PAGESIZE, (address + size_bytes) // PAGESIZE * PAGESIZE)
    if advise is not None and end > first:
        advise(first, end - first, _DONT_NEED)


@functools.lru_cache(maxsize=1)
def _advise() -> Any:
    """The system's `madvise`; None elsewhere than on Linux."""
    if not sys.platform.startswith("linux"):
        return None
    found = ctypes.CDLL(None).madvise
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found
