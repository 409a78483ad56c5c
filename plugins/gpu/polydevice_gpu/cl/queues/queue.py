"""Queue: an in-order command queue, and transfers between arrays and buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyopencl as ocl
from typing_extensions import Self

from polydevice.errors import DeviceMemoryError
from polydevice.remote import Copies
from polydevice_gpu.cl import library
from polydevice_gpu.cl.memory.allocator import Buffer, map_host
from polydevice_gpu.cl.memory.image import Image
from polydevice_gpu.cl.queues.event import Event
from polydevice_gpu.cl.status import check

if TYPE_CHECKING:
    from polydevice_gpu.cl.queues.profile import LaunchEvents

_BLOCKING, _ASYNCHRONOUS = 1, 0


class Queue:
    """A command queue of one device, for one thread at a time; a context manager that waits.

    Transfers of no bytes reach no driver: OpenCL 1.2 (5.2.2 to 5.2.4) calls them errors.

    Attributes:
        handle: pyopencl's queue.
        pointer: OpenCL's handle as a number.
        profiling: whether launches are timed.
        times_calls: whether the host's time for each launch is wanted then.
        copies: how many transfers were enqueued, of each kind.
    """

    times_calls = True

    def __init__(
        self, handle: ocl.CommandQueue, device_name: str, *, unified_memory: bool, profiling: bool
    ) -> None:
        """Wrap a queue; made by ``Device.queue``."""
        self.handle = handle
        self.pointer = handle.int_ptr
        self.profiling = profiling
        self.copies = Copies()
        self._event: Any = None  # where a transfer's event goes
        self._unified = unified_memory
        self._name = device_name
        self._cl = library.library()

    def upload(self, buffer: Buffer, array: npt.NDArray[Any], *, wait: bool = True) -> None:
        """Copy an array into the beginning of a buffer.

        Args:
            buffer: the target.
            array: C-contiguous; without `wait` it must stay unchanged until the queue got there.
            wait: return when the array may be changed again.

        Raises:
            DeviceMemoryError: if the array is too large or not contiguous.
        """
        self._fits(buffer, array)
        if not array.nbytes:
            return
        self.copies.uploads += 1
        code = self._transfer(self._cl.clEnqueueWriteBuffer, buffer, array, wait)
        if code:  # texts take longer than the call
            check(code, f"uploading {array.nbytes} bytes to {buffer.name!r} on {self._name}")

    def download(self, buffer: Buffer, array: npt.NDArray[Any], *, wait: bool = True) -> None:
        """Copy the beginning of a buffer into an array, after everything enqueued before.

        Args:
            buffer: the source.
            array: C-contiguous and writable; without `wait`, filled after `finish`.
            wait: return when the array is filled.

        Raises:
            DeviceMemoryError: if the array is too large, not contiguous or read-only.
            DeviceLostError: if a launch before it failed.
        """
        self._fits(buffer, array)
        if not array.flags.writeable:
            raise DeviceMemoryError(f"cannot download {buffer.name!r} into a read-only array")
        if not array.nbytes:
            if wait:
                self.finish()
            return
        self.copies.downloads += 1
        code = self._transfer(self._cl.clEnqueueReadBuffer, buffer, array, wait)
        if code:
            check(code, f"downloading {array.nbytes} bytes of {buffer.name!r} from {self._name}")

    def _transfer(
        self, enqueue: Callable[..., int], buffer: Buffer, array: npt.NDArray[Any], wait: bool
    ) -> int:
        mode, size = _BLOCKING if wait else _ASYNCHRONOUS, array.nbytes
        return enqueue(
            *(self.pointer, buffer.pointer, mode, 0, size, array.ctypes.data, 0, None, self._event)
        )

    def timed(self, events: LaunchEvents, names: Sequence[str]) -> None:
        """Take notice of launches that were enqueued with events; plain queues do nothing."""

    def publish(self, buffer: Buffer) -> None:
        """Hand ``buffer.host`` over to the launches enqueued after this.

        With unified memory nothing is copied. The array must not be touched until `fetch`.
        """
        host = _host(buffer)
        if not self._unified:
            self.upload(buffer, host, wait=False)
        elif buffer.mapped:
            code = self._cl.clEnqueueUnmapMemObject(
                self.pointer, buffer.pointer, host.ctypes.data, 0, None, None
            )
            check(code, f"unmapping {buffer.name!r} on {self._name}")
            buffer.mapped = False

    def fetch(self, buffer: Buffer, *, wait: bool = True) -> None:
        """Hand ``buffer.host`` back to the host, with what the launches before this wrote.

        Args:
            buffer: from `Allocator.shared`.
            wait: return when the array may be read and written; else that is so after `finish`.
        """
        host = _host(buffer)
        if not self._unified:
            self.download(buffer, host, wait=wait)
        elif not buffer.mapped:
            map_host(self.pointer, buffer, wait=wait)

    def copy(self, source: Buffer, target: Buffer, size_bytes: int | None = None) -> None:
        """Copy the beginning of a buffer (None: all of it) to the beginning of another."""
        size = source.size_bytes if size_bytes is None else size_bytes
        self._holds(source, size, target)
        if not size:
            return
        code = self._cl.clEnqueueCopyBuffer(
            *(self.pointer, source.whole, target.whole),
            *(source.offset_bytes, target.offset_bytes, size, 0, None, self._event),
        )
        self._copied(code, source.name, target.name)

    def copy_block(
        self,
        source: Buffer,
        target: Buffer,
        origin: Sequence[int],
        sizes: Sequence[int],
        pitches: Sequence[int],
    ) -> None:
        """Copy a block out of a three-dimensional buffer, densely, to the beginning of another.

        Args:
            source: holds the whole.
            target: receives the block.
            origin: where the block begins: byte in a row, row, plane.
            sizes: of the block: bytes in a row, rows, planes.
            pitches: bytes from row to row and from plane to plane of the whole.
        """
        triple = ctypes.c_size_t * 3
        self._holds(source, sizes[0] * sizes[1] * sizes[2], target)
        if not all(sizes):
            return
        dense = (sizes[0], sizes[0] * sizes[1])
        first = source.offset_bytes + origin[0] + origin[1] * pitches[0] + origin[2] * pitches[1]
        # In whole buffers: PoCL 3.1 crashes on sub-buffers here.
        code = self._cl.clEnqueueCopyBufferRect(
            *(self.pointer, source.whole, target.whole),
            *(triple(*_place(first, pitches)), triple(*_place(target.offset_bytes, dense))),
            *(triple(*sizes), *pitches, *dense, 0, None, None),
        )
        self._copied(code, f"a region of {source.name}", target.name)

    def copy_from_image(
        self, image: Image, target: Buffer, origin: Sequence[int], sizes: Sequence[int]
    ) -> None:
        """Copy pixels (x, y; width, height) densely to the beginning of a buffer."""
        if not all(sizes):
            return
        triple = ctypes.c_size_t * 3
        code = self._cl.clEnqueueCopyImageToBuffer(
            *(self.pointer, image.pointer, target.whole),
            *(triple(*origin, 0), triple(*sizes, 1), target.offset_bytes, 0, None, None),
        )
        self._copied(code, image.name, target.name)

    def copy_to_image(self, source: Buffer, image: Image) -> None:
        """Copy the beginning of a buffer to all pixels of an image."""
        triple = ctypes.c_size_t * 3
        code = self._cl.clEnqueueCopyBufferToImage(
            *(self.pointer, source.whole, image.pointer, source.offset_bytes),
            *(triple(), triple(image.width, image.height, 1), 0, None, None),
        )
        self._copied(code, source.name, image.name)

    def _copied(self, code: int, source: str, target: str) -> None:
        if code:
            check(code, f"copying {source!r} to {target!r} on {self._name}")
        self.copies.on_device += 1

    @staticmethod
    def _holds(source: Buffer, size_bytes: int, target: Buffer) -> None:
        if target.size_bytes < size_bytes:
            raise DeviceMemoryError(
                f"{size_bytes} bytes of {source.name!r} do not fit into the "
                f"{target.size_bytes} of {target.name!r}"
            )

    def mark(self) -> Event:
        """Return an event that is done when everything enqueued so far is, and hand it all over."""
        pointer = ctypes.c_void_p()
        code = self._cl.clEnqueueMarkerWithWaitList(self.pointer, 0, None, ctypes.byref(pointer))
        check(code, f"marking a queue of {self._name}")
        event = Event(pointer.value or 0, self._name)
        self.flush()
        return event

    def fill(self, buffer: Buffer, pattern: bytes = b"\0", size_bytes: int | None = None) -> None:
        """Repeat a pattern of 1, 2, 4 or 8 bytes in a buffer's beginning (None: all of it)."""
        size = buffer.size_bytes if size_bytes is None else size_bytes
        if not size:
            return
        code = self._cl.clEnqueueFillBuffer(
            *(self.pointer, buffer.pointer, pattern, len(pattern)),
            *(0, size, 0, None, None),
        )
        check(code, f"filling {buffer.name!r} on {self._name}")

    def flush(self) -> None:
        """Hand everything enqueued to the device; returns at once."""
        check(self._cl.clFlush(self.pointer), f"flushing a queue of {self._name}")

    def finish(self) -> None:
        """Wait until everything enqueued has ended.

        Raises:
            DeviceLostError: if a launch failed.
        """
        if code := self._cl.clFinish(self.pointer):
            check(code, f"waiting for {self._name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    @staticmethod
    def _fits(buffer: Buffer, array: npt.NDArray[Any]) -> None:
        if not array.flags.c_contiguous:
            raise DeviceMemoryError(f"transfers with {buffer.name!r} need a C-contiguous array")
        if array.nbytes > buffer.size_bytes:
            raise DeviceMemoryError(
                f"{array.nbytes} bytes do not fit into the {buffer.size_bytes} of {buffer.name!r}"
            )


def _place(offset_bytes: int, pitches: Sequence[int]) -> tuple[int, int, int]:
    """Return byte, row and plane of an offset."""
    plane, rest = divmod(offset_bytes, pitches[1])
    row, byte = divmod(rest, pitches[0])
    return byte, row, plane


def _host(buffer: Buffer) -> npt.NDArray[Any]:
    if buffer.host is None:
        raise DeviceMemoryError(
            f"{buffer.name!r} has no host array; make it with Allocator.shared()"
        )
    host: npt.NDArray[np.uint8] = buffer.host
    return host
