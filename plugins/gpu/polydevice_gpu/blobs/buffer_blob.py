"""BufferBlob: a blob in an OpenCL buffer."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.remote import static_sizes
from polydevice.tensor import TensorDesc
from polydevice_gpu import cl
from polydevice_gpu.blobs.blob import GpuBlob
from polydevice_gpu.blobs.region_blob import RegionBlob
from polydevice_gpu.cl.memory import sharing

if TYPE_CHECKING:
    from polydevice_gpu.blobs.context import GpuContext
    from polydevice_gpu.cl.memory.sharing import SharedMemory


class BufferBlob(GpuBlob):
    """A blob in an OpenCL buffer, ours or the user's; shared virtual memory comes as one too."""

    def __init__(
        self,
        context: GpuContext,
        desc: TensorDesc,
        memory: cl.Buffer,
        kind: str = "OCL_BUFFER",
        shared: SharedMemory | None = None,
    ) -> None:
        """Use a buffer of at least the blob's size; made by `allocated` and `wrapped`."""
        super().__init__(context, desc)
        self._memory: cl.Buffer | None = memory
        self._kind = kind
        self._shared = shared

    @classmethod
    def allocated(cls, context: GpuContext, desc: TensorDesc) -> BufferBlob:
        """Allocate the memory.

        Raises:
            BlobError: for a shape that is not static.
            DeviceMemoryError: the memory cannot be allocated.
        """
        size = math.prod(static_sizes(desc)) * desc.element_type.dtype.itemsize
        memory = context.device.memory.allocate(max(size, 1), f"blob {desc}")
        return cls(context, desc, memory)

    @classmethod
    def wrapped(
        cls, context: GpuContext, desc: TensorDesc, shared: SharedMemory, kind: str
    ) -> BufferBlob:
        """Use the user's memory.

        Raises:
            BlobError: it is too small.
        """
        memory = context.device.memory.wrap(shared.handle, shared.size_bytes, f"shared {desc}")
        made = cls(context, desc, memory, kind, shared)
        if made.size_bytes > shared.size_bytes:
            raise BlobError(
                f"the memory has {shared.size_bytes} bytes, but {desc} needs {made.size_bytes}"
            )
        return made

    @property
    def params(self) -> dict[str, Any]:
        """SHARED_MEM_TYPE, OCL_CONTEXT and MEM_HANDLE (pyopencl's objects)."""
        handle = self.handle
        if self._kind == "OCL_SVM" and self._shared is not None:
            handle = self._shared.owner
        return {
            "SHARED_MEM_TYPE": self._kind,
            "OCL_CONTEXT": self.context.params["OCL_CONTEXT"],
            "MEM_HANDLE": handle,
        }

    @property
    def buffer(self) -> cl.Buffer | None:
        """The memory, unless it begins at an address at which kernels cannot read vectors."""
        return self._memory if self._shared is None or self._shared.is_aligned else None

    @property
    def span(self) -> tuple[int, int, int]:
        """Whole buffer, first byte and end."""
        memory = self._buffer()
        root, start = memory.pointer, 0
        if self._shared is not None:
            root, start = self._shared.root, self._shared.offset_bytes
        return (root, start, start + self.size_bytes)

    def _buffer(self) -> cl.Buffer:
        if self._memory is None:
            raise BlobError(f"{self!r} is released; make another blob")
        return self._memory

    @property
    def handle(self) -> Any:
        """pyopencl's memory object."""
        return self._buffer().handle

    def _drop(self) -> None:
        self._memory = self._shared = None

    def allows(self, kind: str) -> str:
        """Return why kernels cannot read (input) or write (output) the memory, if so."""
        if self._shared is None:
            return ""
        if kind == "input" and not self._shared.readable:
            return "its buffer is WRITE_ONLY for kernels"
        if kind == "output" and not self._shared.writable:
            return "its buffer is READ_ONLY for kernels"
        return ""

    def fetch(self, queue: cl.Queue, target: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy of the first bytes."""
        queue.copy(self._buffer(), target, size_bytes)

    def store(self, queue: cl.Queue, source: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy into this memory."""
        queue.copy(source, self._buffer(), size_bytes)

    def fetch_region(self, queue: cl.Queue, target: cl.Buffer, bounds: tuple[slice, ...]) -> None:
        """Enqueue a copy of a region."""
        origin, sizes, pitches = block(self.shape, bounds, self.element_type.dtype.itemsize)
        queue.copy_block(self._buffer(), target, origin, sizes, pitches)

    def _mapped(self, queue: Any, mode: str) -> AbstractContextManager[Array]:
        access = "rw" if self._shared is None else self._shared.host_access
        if any(letter not in access for letter in mode):
            flag = {"": "HOST_NO_ACCESS", "r": "HOST_READ_ONLY", "w": "HOST_WRITE_ONLY"}[access]
            raise BlobError(
                f"{self!r} cannot be mapped for {mode!r}: its buffer was made with {flag}"
            )
        return sharing.mapped(queue, self.handle, self.size_bytes, mode, repr(self))

    def _places(self) -> dict[str, Any]:
        return {}

    def cut(self, bounds: tuple[slice, ...]) -> RegionBlob:
        """Return the part within these bounds."""
        return RegionBlob(self, bounds)


def block(
    shape: tuple[int, ...], bounds: tuple[slice, ...], itemsize: int
) -> tuple[list[int], list[int], list[int]]:
    """Return a region as a block of bytes, rows and planes.

    Args:
        shape: of the whole, planar.
        bounds: per axis; at most two neighbouring axes are cut, and the end of the first one.
        itemsize: bytes of an element.

    Returns:
        Its origin, its sizes, and the pitches of the whole from row to row and plane to plane.
    """
    cut = [a for a, part in enumerate(bounds) if (part.start, part.stop) != (0, shape[a])]
    last = cut[-1] if cut else len(shape) - 1
    first = max(last - 1, 0)
    inner = math.prod(shape[last + 1 :]) * itemsize
    columns, rows = bounds[last], bounds[first] if last else slice(0, 1)
    row_pitch = shape[last] * inner
    height = shape[first] if last else 1
    origin = [columns.start * inner, rows.start, 0]
    sizes = [(columns.stop - columns.start) * inner, rows.stop - rows.start]
    planes = math.prod(part.stop - part.start for part in bounds[:first]) if last else 1
    return origin, [*sizes, planes], [row_pitch, row_pitch * height]
