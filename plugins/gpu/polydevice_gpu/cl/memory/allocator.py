"""Device memory: buffers, regions of buffers, memory shared with the host, accounting.

Regions are sub-buffers, not a buffer with an offset argument, so that kernels stay free of offsets.
Both cost the same: 200 launches of a small kernel took 2.24 and 2.33 µs each on PoCL 3.1, 2.89 and
2.93 µs on Intel's CPU runtime (best of 25, interleaved).
Offsets are multiples of `Allocator.region_alignment_bytes`; views at other offsets (crop,
concat) are element offsets of the kernel that reads them.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as ocl

from polydevice.errors import DeviceMemoryError
from polydevice.locks import RLock
from polydevice_gpu.cl import library
from polydevice_gpu.cl.discovery.facts import DeviceFacts
from polydevice_gpu.cl.status import check, translated

_GUARD_PATTERN = 0xA5
_MAP_READ_WRITE = 3
_PAGE_BYTES = 4096  # Intel GPUs share host memory without a copy from page boundaries only

Array = npt.NDArray[Any]


class _Allocation:
    """One OpenCL buffer and its place in the account; released with its last user."""

    __slots__ = ("handle", "memory", "name", "size_bytes")

    def __init__(self, memory: Allocator, handle: ocl.Buffer, size_bytes: int, name: str) -> None:
        self.memory = memory
        self.handle = handle
        self.size_bytes = size_bytes
        self.name = name

    def __del__(self) -> None:
        self.memory._forget(self)


class Buffer:
    """A piece of device memory: an allocation, or a region of one.

    Memory is given back when the last buffer and launch that use it are gone.

    Attributes:
        name: for messages.
        size_bytes: how much may be used.
        offset_bytes: where it begins in its allocation.
        whole: OpenCL's handle of the allocation.
        handle: pyopencl's buffer.
        pointer: OpenCL's handle as a number.
        argument: where the handle stands, as a kernel's arguments are given.
        host: the array that shares this memory, of a buffer from `Allocator.shared`; else None.
        mapped: whether shared memory belongs to the host at the moment.
    """

    __slots__ = (
        "_allocation",
        "argument",
        "handle",
        "host",
        "mapped",
        "name",
        "offset_bytes",
        "pointer",
        "size_bytes",
        "whole",
    )

    def __init__(
        self,
        allocation: _Allocation,
        handle: ocl.Buffer,
        offset_bytes: int,
        size_bytes: int,
        name: str,
        host: Array | None = None,
    ) -> None:
        """Describe a piece; made by `Allocator` and `region`."""
        self._allocation = allocation
        self.handle = handle
        self.pointer = handle.int_ptr
        self.argument = ctypes.byref(ctypes.c_void_p(self.pointer))
        self.whole = allocation.handle.int_ptr
        self.offset_bytes = offset_bytes
        self.size_bytes = size_bytes
        self.name = name
        self.host = host
        self.mapped = False

    def region(self, offset_bytes: int, size_bytes: int, name: str = "") -> Buffer:
        """Return a part that shares this memory and keeps it alive.

        Raises:
            DeviceMemoryError: if it lies outside, or its offset is not aligned.
        """
        label = f"region {name!r} of {self.name!r}"
        alignment = self._allocation.memory.region_alignment_bytes
        if offset_bytes < 0 or size_bytes < 1 or size_bytes > self.size_bytes - offset_bytes:
            raise DeviceMemoryError(
                f"{label}: {size_bytes} bytes at {offset_bytes} are outside {self.size_bytes} bytes"
            )
        start = self.offset_bytes + offset_bytes
        if start % alignment:
            raise DeviceMemoryError(
                f"{label}: offset {offset_bytes} is not a multiple of {alignment} bytes"
            )
        with translated(label):
            handle = self._allocation.handle.get_sub_region(start, size_bytes)
        return Buffer(self._allocation, handle, start, size_bytes, name or self.name)

    def __repr__(self) -> str:
        return f"Buffer({self.name!r}, {self.size_bytes} bytes)"


class Allocator:
    """Allocates on one device, keeps account, and may watch for writes outside of buffers.

    Attributes:
        region_alignment_bytes: offsets of regions are multiples of it.
        limit_bytes: most that may be allocated at once; None for what the device has.
        guard_bytes: bytes before and after every allocation that `check_guards` watches; for tests.
    """

    def __init__(
        self, context: ocl.Context, device: ocl.Device, facts: DeviceFacts, alignment_bytes: int
    ) -> None:
        """Account for a context's memory; made by `Device`."""
        self._context = context
        self._facts = facts
        self.region_alignment_bytes = alignment_bytes
        self.limit_bytes: int | None = None
        self.guard_bytes = 0
        # The garbage collector may release buffers, which enters here, while this thread holds it.
        self._lock = RLock()
        self._bytes = 0
        self._peak_bytes = 0
        self._guarded: dict[int, _Guard] = {}
        # For mapping, copies and guards; calls on it are complete.
        self._queue = ocl.CommandQueue(context, device)

    @property
    def is_usable(self) -> bool:
        """Whether the context still accepts commands."""
        code: int = library.library().clFinish(self._queue.int_ptr)
        return code == 0

    @property
    def bytes_allocated(self) -> int:
        """Bytes of all live allocations."""
        return self._bytes

    @property
    def peak_bytes(self) -> int:
        """Largest `bytes_allocated` so far."""
        return self._peak_bytes

    def allocate(self, size_bytes: int, name: str) -> Buffer:
        """Allocate memory with undefined content.

        Args:
            size_bytes: 1 or more.
            name: for messages.

        Raises:
            DeviceMemoryError: if the device, its limit for one allocation, or `limit_bytes` does
                not allow it; everything allocated before stays usable.
        """
        guard = -(-self.guard_bytes // self.region_alignment_bytes) * self.region_alignment_bytes
        allocation = self._make(size_bytes + 2 * guard, name, ocl.mem_flags.READ_WRITE, None)
        buffer = Buffer(allocation, allocation.handle, 0, size_bytes, name)
        if not guard:
            return buffer
        buffer.size_bytes += 2 * guard
        with self._lock:
            self._guarded[id(allocation)] = _Guard(self._queue, allocation, guard, size_bytes)
        return buffer.region(guard, size_bytes)

    def zeros(self, size_bytes: int, name: str) -> Buffer:
        """Allocate memory that is zero when this returns.

        Raises:
            DeviceMemoryError: as `allocate`.
        """
        buffer = self.allocate(size_bytes, name)
        ocl.enqueue_copy(self._queue, buffer.handle, np.zeros(size_bytes, np.uint8))
        return buffer

    def wrap(self, handle: ocl.Buffer, size_bytes: int, name: str) -> Buffer:
        """Return memory of somebody else as a buffer; it does not count as allocated here."""
        whole, offset = handle, 0
        # Intel's runtime does not give the whole of a sub-buffer whose own handle was released.
        with contextlib.suppress(ocl.Error):
            parent: Any = handle  # pyopencl's types do not know the attribute
            if parent.associated_memobject is not None:
                whole, offset = parent.associated_memobject, parent.offset
        return Buffer(_Allocation(self, whole, 0, name), handle, offset, size_bytes, name)

    @property
    def queue(self) -> ocl.CommandQueue:
        """The context's queue for what belongs to no stream; whoever uses it waits for it."""
        return self._queue

    def shared(self, size_bytes: int, name: str) -> Buffer:
        """Allocate memory whose `host` array is reached by the device as fast as can be.

        With unified memory array and buffer are the same bytes; elsewhere the array is pinned
        memory that transfers move by direct access. Bring the array to the device with
        ``Queue.publish`` and back with ``Queue.fetch``.
        """
        if self._facts.unified_memory:
            array = _aligned_bytes(size_bytes)
            flags = ocl.mem_flags.READ_WRITE | ocl.mem_flags.USE_HOST_PTR
            allocation = self._make(size_bytes, name, flags, array)
            buffer = Buffer(allocation, allocation.handle, 0, size_bytes, name, array)
            map_host(self._queue.int_ptr, buffer, wait=True)
            return buffer
        buffer = self.allocate(size_bytes, name)
        buffer.host = self._pinned(size_bytes, f"host memory of {name}")
        return buffer

    def check_guards(self) -> None:
        """Look for writes outside of live allocations.

        Raises:
            DeviceMemoryError: naming the buffer and the first byte that was written.
        """
        with self._lock:
            guards = list(self._guarded.values())
        for guard in guards:
            guard.check()

    def _make(self, size_bytes: int, name: str, flags: Any, host: Array | None) -> _Allocation:
        self._reserve(size_bytes, name)
        doing = f"allocating {size_bytes} bytes for {name!r} on {self._facts.name}"
        try:
            with translated(doing):
                if host is None:
                    handle = ocl.Buffer(self._context, flags, size_bytes)
                else:
                    handle = ocl.Buffer(self._context, flags, hostbuf=host)
        except BaseException:
            with self._lock:
                self._bytes -= size_bytes
            raise
        return _Allocation(self, handle, size_bytes, name)

    def _reserve(self, size_bytes: int, name: str) -> None:
        """Enter an allocation into the account, unless it cannot succeed.

        Checked here because drivers allocate lazily: they fail at the first launch that uses the
        buffer, or hand out memory that is not there.
        """
        single, total = self._facts.max_allocation_bytes, self._facts.global_memory_bytes
        limit = total if self.limit_bytes is None else self.limit_bytes
        with self._lock:
            if size_bytes < 1:
                problem = "a buffer has at least 1 byte"
            elif size_bytes > single:
                problem = f"one buffer may have {single} bytes"
            elif self._bytes + size_bytes > limit:
                problem = f"{self._bytes} of {limit} bytes are in use"
            else:
                self._bytes += size_bytes
                self._peak_bytes = max(self._peak_bytes, self._bytes)
                return
        raise DeviceMemoryError(
            f"{self._facts.name} cannot allocate {size_bytes} bytes for {name!r}: {problem}. Use a "
            "smaller batch or fewer streams and requests, or close other networks"
        )

    def _forget(self, allocation: _Allocation) -> None:
        with self._lock:
            self._bytes -= allocation.size_bytes
            self._guarded.pop(id(allocation), None)

    def _pinned(self, size_bytes: int, name: str) -> Array:
        """Return host memory that the driver pinned; the array keeps it mapped."""
        flags = ocl.mem_flags.READ_WRITE | ocl.mem_flags.ALLOC_HOST_PTR
        with translated(f"pinning {size_bytes} bytes for {name}"):
            holder = ocl.Buffer(self._context, flags, size_bytes)
            rights: Any = _MAP_READ_WRITE  # pyopencl's types know no combinations
            dtype: Any = np.uint8
            shape = (size_bytes,)
            array, _ = ocl.enqueue_map_buffer(self._queue, holder, rights, 0, shape, dtype)
        result: Array = array
        return result


class _Guard:
    """Pattern bytes before and after one allocation."""

    def __init__(
        self, queue: ocl.CommandQueue, allocation: _Allocation, guard_bytes: int, size_bytes: int
    ) -> None:
        self._queue = queue
        self._handle = allocation.handle
        self._name = allocation.name
        self._guard_bytes = guard_bytes
        self._size_bytes = size_bytes
        pattern = np.full(guard_bytes, _GUARD_PATTERN, np.uint8)
        for offset in (0, guard_bytes + size_bytes):
            ocl.enqueue_copy(self._queue, self._handle, pattern, dst_offset=offset)

    def check(self) -> None:
        """Raise DeviceMemoryError if a byte of the pattern has changed."""
        found = np.empty(self._guard_bytes, np.uint8)
        sides = ((0, -self._guard_bytes), (self._guard_bytes + self._size_bytes, self._size_bytes))
        for offset, first in sides:
            ocl.enqueue_copy(self._queue, found, self._handle, src_offset=offset)
            wrong = np.flatnonzero(found != _GUARD_PATTERN)
            if wrong.size:
                raise DeviceMemoryError(
                    f"a kernel wrote outside of {self._name!r}: byte {first + int(wrong[0])} of "
                    f"{self._size_bytes}, and {wrong.size - 1} more"
                )


def map_host(queue: int, buffer: Buffer, *, wait: bool) -> None:
    """Give shared memory to the host: map it for reading and writing.

    Args:
        queue: OpenCL's handle of a queue.
        buffer: with unified memory, not mapped.
        wait: return when the host may touch it.
    """
    host = buffer.host
    if host is None:
        raise DeviceMemoryError(f"{buffer.name!r} has no host array")
    status = ctypes.c_int()
    address = library.library().clEnqueueMapBuffer(
        *(queue, buffer.pointer, int(wait), _MAP_READ_WRITE, 0, buffer.size_bytes),
        *(0, None, None, ctypes.byref(status)),
    )
    check(status.value, f"mapping {buffer.name!r}")
    # OpenCL 1.2, 5.2.3: the address is that of the host memory the buffer was made from.
    if address != host.ctypes.data:
        raise DeviceMemoryError(f"the driver maps {buffer.name!r} at another address")
    buffer.mapped = True


def _aligned_bytes(size_bytes: int) -> Array:
    """Return host memory that begins at a page boundary."""
    whole = np.empty(size_bytes + _PAGE_BYTES, np.uint8)
    skip = -whole.ctypes.data % _PAGE_BYTES
    return whole[skip : skip + size_bytes]
