"""LaunchLoop: all launches of a list in one call, which lets other threads compute meanwhile.

Called one by one from Python, every launch gives Python's lock away and asks for it again. With one
thread that is 0.3 µs; with threads for several devices each waits for another one's Python twice a
launch, so that two GPUs did less together than one (EfficientNet-Lite0 on two H200s, 53 launches an
inference: 0.78 times). The loop over the launches is therefore machine code: 99 bytes, for x86-64
with the calling convention of Linux. Elsewhere, and where a system refuses memory that holds code,
launches are called one by one.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from polydevice_gpu.cl import library

# size_t loop(enqueue rdi, queue rsi, record* rdx, size_t count rcx): how many were enqueued.
_CODE = bytes.fromhex(
    "f30f1efa"  # endbr64
    "5355415441554156"  # push rbx, rbp, r12, r13, r14: the stack is aligned now
    "4889fd4989f44889d34989cd4989ce"  # rbp = enqueue, r12 = queue, rbx = record, r13 = r14 = count
    "4d85ed7434"  # next: if r13 == 0 goto end
    "4883ec08ff73286a006a00"  # push (pad), record.event, wait list NULL, 0 events
    "4c89e7488b33488b5308488b4b104c8b43184c8b4b20"  # rdi = queue; rsi, rdx, rcx, r8, r9 = record
    "ffd54883c420"  # call enqueue; pop the four
    "85c07509"  # if eax != 0 goto end
    "4883c33049ffcdebc7"  # record += 48; r13 -= 1; goto next
    "4c89f04c29e8"  # end: rax = r14 - r13
    "415e415d415c5d5bc3"  # pop r14, r13, r12, rbp, rbx; ret
)


class Record(ctypes.Structure):
    """What `clEnqueueNDRangeKernel` is given for one launch, but the queue."""

    _fields_ = [
        ("kernel", ctypes.c_void_p),
        ("dimensions", ctypes.c_size_t),
        ("global_offset", ctypes.c_void_p),
        ("global_size", ctypes.c_void_p),
        ("local_size", ctypes.c_void_p),
        ("event", ctypes.c_void_p),
    ]


class LaunchLoop(NamedTuple):
    """Launches in order on one queue.

    Attributes:
        function: the loop.
        enqueue: address of `clEnqueueNDRangeKernel`.
        queue: handle of the queue.
        records: the launches; what they point to has to live as long.
    """

    function: Any
    enqueue: ctypes.c_void_p
    queue: ctypes.c_void_p
    records: ctypes.Array[Record]

    def __call__(self) -> int:
        """Enqueue until one is refused; return how many were taken."""
        return int(
            self.function(
                self.enqueue, self.queue, self.records, ctypes.c_size_t(len(self.records))
            )
        )


def launch_loop(queue: int, records: Sequence[Record]) -> LaunchLoop | None:
    """Return the loop over launches on a queue; None where there is none for this system."""
    function = _function()
    if function is None:
        return None
    enqueue = ctypes.cast(library.library().clEnqueueNDRangeKernel, ctypes.c_void_p)
    array = (Record * len(records))(*records)
    return LaunchLoop(function, enqueue, ctypes.c_void_p(queue), array)


@functools.cache
def _function() -> Any | None:
    """Return the loop as a function; None if it cannot run here."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return None
    try:
        memory = mmap.mmap(
            *(-1, mmap.PAGESIZE),
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
        memory.write(_CODE)
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
