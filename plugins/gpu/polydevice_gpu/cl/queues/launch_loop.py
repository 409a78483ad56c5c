"""Loops in machine code: all launches of a list in one call, and all arguments of its kernels.

Called one by one from Python, every launch gives Python's lock away and asks for it again. With one
thread that is 0.3 µs; with threads for several devices each waits for another one's Python twice a
launch, so that two GPUs did less together than one (EfficientNet-Lite0 on two H200s, 53 launches an
inference: 0.78 times). The loop over the launches is therefore machine code: 99 bytes, for x86-64
with the calling convention of Linux. Elsewhere, and where a system refuses memory that holds code,
launches are called one by one.

A plan for new sizes sets some hundreds of arguments (650 in text detection), at 0.7 µs a call from
Python, so that they have such a loop, too: 0.03 ms for all of these.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from polydevice.processor.machine_code import CALL, calls, function_of
from polydevice_gpu.cl import library

# size_t loop(enqueue rdi, queue rsi, record* rdx, size_t count rcx): how many were enqueued.
_ENQUEUE = bytes.fromhex(
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

LAUNCH = np.dtype(
    [
        (name, np.uint64)
        for name in ("kernel", "dimensions", "offset", "global_size", "local_size", "event")
    ]
)
"""What `clEnqueueNDRangeKernel` is given for one launch, but the queue; sizes by addresses."""

_ARGUMENTS = {"first": "kernel", "second": "position", "third": "size", "fourth": "content"}
ARGUMENT = np.dtype([(name, np.uint64) for name in _ARGUMENTS.values()])
"""What `clSetKernelArg` is given; the content by its address."""

Records = npt.NDArray[np.void]


class LaunchLoop(NamedTuple):
    """Launches in order on one queue.

    Attributes:
        function: the loop.
        enqueue: address of `clEnqueueNDRangeKernel`.
        queue: handle of the queue.
        start: address of the launches.
        length: how many there are.
        records: the launches, of type `LAUNCH`; what they point to has to live as long.
    """

    function: Any
    enqueue: ctypes.c_void_p
    queue: ctypes.c_void_p
    start: ctypes.c_void_p
    length: ctypes.c_size_t
    records: Records

    def __call__(self) -> int:
        """Enqueue until one is refused; return how many were taken."""
        return int(self.function(self.enqueue, self.queue, self.start, self.length))


def launch_loop(queue: int, records: Records) -> LaunchLoop | None:
    """Return the loop over launches on a queue; None where there is none for this system."""
    function = function_of(_ENQUEUE)
    if function is None:
        return None
    enqueue = _address_of("clEnqueueNDRangeKernel")
    return LaunchLoop(function, enqueue, ctypes.c_void_p(queue), *_given(records), records)


def set_arguments(records: Records) -> int:
    """Set arguments of kernels until one is refused; return how many were taken.

    Args:
        records: of type `ARGUMENT`; what they point to may go afterwards.
    """
    given = np.empty(len(records), CALL)
    given["function"] = _address_of("clSetKernelArg").value
    for name, other in _ARGUMENTS.items():
        given[name] = records[other]
    call = calls(given)
    if call is not None:
        return len(records) - (call() >> 32)
    set_argument = library.library().clSetKernelArg
    for number, (kernel, position, size, content) in enumerate(records.tolist()):
        if set_argument(kernel, position, size, content or None):
            return number
    return len(records)


def _given(records: Records) -> tuple[ctypes.c_void_p, ctypes.c_size_t]:
    return ctypes.c_void_p(records.ctypes.data), ctypes.c_size_t(len(records))


@functools.cache
def _address_of(name: str) -> ctypes.c_void_p:
    return ctypes.cast(getattr(library.library(), name), ctypes.c_void_p)
