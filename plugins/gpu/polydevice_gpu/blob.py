"""Blobs in the memory of an OpenCL device: buffers, images, and regions of both."""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.remote import MAP_MODES, RemoteBlob, static_sizes
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_gpu import cl
from polydevice_gpu.cl import sharing

if TYPE_CHECKING:
    from polydevice_gpu.cl.sharing import SharedMemory
    from polydevice_gpu.context import GpuContext


class GpuBlob(RemoteBlob):
    """Device memory of an OpenCL context."""

    context: GpuContext

    def __init__(self, context: GpuContext, desc: TensorDesc) -> None:
        """Describe the memory, which the subclass holds."""
        super().__init__(context, desc)
        self.size_bytes = math.prod(self.shape) * self.element_type.dtype.itemsize
        self.is_released = False
        self._mappings = 0
        self._lock = threading.Lock()

    # -- what a kind of memory implements -----------------------------------------------------

    @property
    def buffer(self) -> cl.Buffer | None:
        """The buffer that kernels use in place; None when that is not possible."""
        return None

    @property
    def span(self) -> tuple[int, int, int]:
        """Whole memory object, first byte and end; what overlaps may be the same memory."""
        return (0, 0, 0)

    @property
    def handle(self) -> Any:
        """pyopencl's memory object."""
        return self._handle()

    @abstractmethod
    def _handle(self) -> Any: ...

    @abstractmethod
    def fetch(self, queue: cl.Queue, target: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy of the first bytes of the content to the beginning of a buffer."""

    @abstractmethod
    def store(self, queue: cl.Queue, source: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy of the first bytes of a buffer to the beginning of this memory."""

    @abstractmethod
    def _mapped(self, queue: Any, mode: str) -> AbstractContextManager[Array]:
        """Show the content to the host as an array of bytes or of the blob's type."""

    @abstractmethod
    def _places(self) -> dict[str, Any]:
        """Return where a copy between host and this memory begins and ends, for pyopencl."""

    def allows(self, kind: str) -> str:
        """Return why the memory cannot be an input or output; empty when it can."""
        return ""

    def acquire(self, queue: int) -> None:
        """Take memory over on a queue (OpenCL's handle), if another library owns it meanwhile."""

    def give_back(self, queue: int) -> None:
        """Hand it back."""

    # -- the same for all kinds ---------------------------------------------------------------

    def overlaps(self, other: RemoteBlob) -> bool:
        """Whether another blob may share bytes with this one."""
        if other is self:
            return True
        if not isinstance(other, GpuBlob) or self.is_released or other.is_released:
            return False
        (root, start, end), (other_root, other_start, other_end) = self.span, other.span
        return root == other_root and start < other_end and other_start < end

    def check_usable(self) -> None:
        """Refuse memory that cannot be used now.

        Raises:
            BlobError: the memory is released, or mapped.
        """
        if self.is_released:
            raise BlobError(f"{self!r} is released; make another blob and set it")
        if self._mappings:
            raise BlobError(f"{self!r} is mapped; leave the `with blob.map()` block first")

    def release(self) -> None:
        """Give the memory back, or let go of what was wrapped; requests refuse it from then on.

        Raises:
            BlobError: while it is mapped.
        """
        with self._lock:
            if self._mappings:
                raise BlobError(f"{self!r} is mapped; leave the `with blob.map()` block first")
            self.is_released = True
        self._drop()

    @abstractmethod
    def _drop(self) -> None:
        """Forget the memory."""

    @contextmanager
    def map(self, mode: str = "rw", queue: Any = None) -> Iterator[Array]:
        """Show the memory to the host for the length of a ``with`` block; see `RemoteBlob.map`."""
        if mode not in MAP_MODES:
            raise BlobError(f"mode {mode!r} is not legal; legal: {', '.join(MAP_MODES)}")
        with self._lock:
            if self.is_released:
                raise BlobError(f"{self!r} is released and cannot be mapped")
            self._mappings += 1
        try:
            on = self._queue(queue)
            if not self.size_bytes:
                yield np.empty(self.shape, self.element_type.dtype)
                return
            with self._acquired(on), self._mapped(on, mode) as array:
                typed = array.view(self.element_type.dtype).reshape(self.shape)
                if mode == "r":
                    typed.flags.writeable = False
                yield typed
                del typed, array
        finally:
            with self._lock:
                self._mappings -= 1

    @contextmanager
    def _acquired(self, queue: Any) -> Iterator[None]:
        """Own the memory on pyopencl's queue for the length of a block."""
        self.acquire(queue.int_ptr)
        try:
            yield
        finally:
            self.give_back(queue.int_ptr)

    def _queue(self, queue: Any) -> Any:
        """Return pyopencl's queue for copies: the given one, the context's, or the device's."""
        if queue is None:
            queue = self.context.params.get("OCL_QUEUE")
        return sharing.copy_queue(queue, self.context.device)

    def copy_from(
        self,
        source: Blob | Array,
        *,
        queue: Any = None,
        wait_for: Sequence[Any] = (),
        blocking: bool = True,
    ) -> Any:
        """Fill the blob; returns pyopencl's event of the copy. See `RemoteBlob.copy_from`."""
        self.check_usable()
        self._check_alike(source, "copied into")
        on = self._queue(queue)
        if isinstance(source, GpuBlob):
            return _copy_on_device(on, source, self, wait_for, blocking)
        array = source.array if isinstance(source, Blob) else source
        bytes_ = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with self._acquired(on):
            return sharing.enqueue_copy(
                on, self.handle, bytes_, wait_for, blocking, **self._places()
            )

    def copy_to(
        self,
        target: Blob | Array,
        *,
        queue: Any = None,
        wait_for: Sequence[Any] = (),
        blocking: bool = True,
    ) -> Any:
        """Copy the content elsewhere; returns pyopencl's event. See `RemoteBlob.copy_from`."""
        self.check_usable()
        self._check_alike(target, "the target of")
        on = self._queue(queue)
        if isinstance(target, GpuBlob):
            return _copy_on_device(on, self, target, wait_for, blocking)
        array = target.array if isinstance(target, Blob) else target
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise BlobError(f"the target of a copy of {self!r} must be C-contiguous and writable")
        bytes_ = array.reshape(-1).view(np.uint8)
        with self._acquired(on):
            return sharing.enqueue_copy(
                on, bytes_, self.handle, wait_for, blocking, **self._places()
            )

    def _check_alike(self, other: Blob | Array, doing: str) -> None:
        if not isinstance(other, (Blob, np.ndarray)):
            raise BlobError(f"{type(other).__name__} cannot be {doing} {self!r}; give an array")
        if isinstance(other, RemoteBlob):
            if not self.context.shares_memory_with(other.context):
                raise BlobError(f"{other!r} is memory of another context than {self!r}")
            assert isinstance(other, GpuBlob)
            other.check_usable()
        dtype = other.element_type.dtype if isinstance(other, Blob) else other.dtype
        if dtype != self.element_type.dtype or other.shape != self.shape:
            raise BlobError(f"{dtype} {list(other.shape)} cannot be {doing} {self!r}")

    def _region(self, bounds: tuple[slice, ...]) -> RegionBlob:
        return RegionBlob(self, bounds)

    def fetch_region(self, queue: cl.Queue, target: cl.Buffer, bounds: tuple[slice, ...]) -> None:
        """Enqueue a copy of a region, densely, to the beginning of a buffer."""
        raise BlobError(f"{self!r} has no regions")


def _copy_on_device(
    queue: Any, source: GpuBlob, target: GpuBlob, wait_for: Sequence[Any], blocking: bool
) -> Any:
    if isinstance(source, ImageBlob) and isinstance(target, ImageBlob):
        places = {"src_origin": (0, 0), "dest_origin": (0, 0), **source.region}
    elif isinstance(source, ImageBlob) or isinstance(target, ImageBlob):
        image = source if isinstance(source, ImageBlob) else target
        assert isinstance(image, ImageBlob)
        places = {"offset": 0, "origin": (0, 0), **image.region}
    else:
        places = {"byte_count": max(source.size_bytes, 1)}
    ends = (target.handle, source.handle)
    with source._acquired(queue), target._acquired(queue):
        return sharing.enqueue_copy(queue, *ends, wait_for, blocking, **places)


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

    def _handle(self) -> Any:
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


class ImageBlob(GpuBlob):
    """A blob in a two-dimensional OpenCL image; kernels get its pixels by a copy on the device."""

    def __init__(
        self,
        context: GpuContext,
        desc: TensorDesc,
        image: cl.Image,
        shared: SharedMemory | None = None,
    ) -> None:
        """Use an image.

        Args:
            context: the context.
            desc: element type and shape.
            image: the image.
            shared: what the user gave.

        Raises:
            BlobError: the image's size or pixels are not those of the blob.
        """
        super().__init__(context, desc)
        self._image: cl.Image | None = image
        self._shared = shared
        item = self.element_type.dtype.itemsize
        channels = image.pixel_bytes // item
        rows: list[tuple[int, ...]] = [(image.height, image.width, channels)]
        rows += [(image.height, image.width)] if channels == 1 else []
        fitting = [row for row in rows if self.shape[-len(row) :] == row]
        if not fitting or image.pixel_bytes % item or math.prod(self.shape) != math.prod(rows[0]):
            raise BlobError(
                f"an image of width {image.width}, height {image.height} and {image.pixel_bytes} "
                f"bytes a pixel cannot be {desc}; a blob of it is [1, H, W, C] with the channels "
                "of a pixel innermost"
            )
        self._row_axis = len(self.shape) - len(fitting[0])

    @property
    def params(self) -> dict[str, Any]:
        """SHARED_MEM_TYPE, OCL_CONTEXT and MEM_HANDLE (pyopencl's objects)."""
        return {
            "SHARED_MEM_TYPE": "OCL_IMAGE2D",
            "OCL_CONTEXT": self.context.params["OCL_CONTEXT"],
            "MEM_HANDLE": self.handle,
        }

    @property
    def region(self) -> dict[str, Any]:
        """All of the image, for pyopencl's copies."""
        image = self._checked_image()
        return {"region": (image.width, image.height)}

    def _checked_image(self) -> cl.Image:
        if self._image is None:
            raise BlobError(f"{self!r} is released; make another blob")
        return self._image

    def _handle(self) -> Any:
        return self._checked_image().handle

    def _drop(self) -> None:
        self._image = self._shared = None

    def fetch(self, queue: cl.Queue, target: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy of the pixels."""
        image = self._checked_image()
        queue.copy_from_image(image, target, (0, 0), (image.width, image.height))

    def store(self, queue: cl.Queue, source: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy into the pixels."""
        queue.copy_to_image(source, self._checked_image())

    def fetch_region(self, queue: cl.Queue, target: cl.Buffer, bounds: tuple[slice, ...]) -> None:
        """Enqueue a copy of a region's pixels."""
        image = self._checked_image()
        rows, columns = bounds[self._row_axis : self._row_axis + 2]
        sizes = (columns.stop - columns.start, rows.stop - rows.start)
        queue.copy_from_image(image, target, (columns.start, rows.start), sizes)

    def _mapped(self, queue: Any, mode: str) -> AbstractContextManager[Array]:
        return sharing.mapped_image(queue, self.handle, mode, repr(self))

    def _places(self) -> dict[str, Any]:
        return {"origin": (0, 0), **self.region}


class RegionBlob(GpuBlob):
    """A region of another blob, to be read as an input through a copy on the device."""

    def __init__(self, parent: GpuBlob, bounds: tuple[slice, ...]) -> None:
        """Describe the region; see `RemoteBlob.roi`."""
        sizes = Shape(part.stop - part.start for part in bounds)
        super().__init__(parent.context, TensorDesc(parent.element_type, sizes))
        self.parent = parent
        self._bounds = bounds

    @property
    def params(self) -> dict[str, Any]:
        """Those of the whole."""
        return self.parent.params

    def _handle(self) -> Any:
        return self.parent.handle

    def _drop(self) -> None:
        pass  # the whole belongs to its own users

    def check_usable(self) -> None:
        """Refuse a region of memory that cannot be used now.

        Raises:
            BlobError: the memory is released, or mapped.
        """
        super().check_usable()
        self.parent.check_usable()

    def allows(self, kind: str) -> str:
        """A region can be read only."""
        return self.parent.allows(kind) if kind == "input" else "it is a region; only inputs can be"

    def acquire(self, queue: int) -> None:
        """Take the whole over."""
        self.parent.acquire(queue)

    def give_back(self, queue: int) -> None:
        """Hand the whole back."""
        self.parent.give_back(queue)

    def fetch(self, queue: cl.Queue, target: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy of the region."""
        self.parent.fetch_region(queue, target, self._bounds)

    def store(self, queue: cl.Queue, source: cl.Buffer, size_bytes: int) -> None:
        """Regions are read only."""
        raise BlobError(f"{self!r} is a region; only inputs can be")

    def _region(self, bounds: tuple[slice, ...]) -> RegionBlob:
        inner = (
            slice(mine.start + more.start, mine.start + more.stop)
            for mine, more in zip(self._bounds, bounds)
        )
        return RegionBlob(self.parent, tuple(inner))

    @contextmanager
    def map(self, mode: str = "rw", queue: Any = None) -> Iterator[Array]:
        """Show the region to the host: a strided view of the mapped whole."""
        if mode == "w":
            mode = "rw"  # what is around the region stays
        with self.parent.map(mode, queue) as whole:
            yield whole[self._bounds]

    def _mapped(self, queue: Any, mode: str) -> AbstractContextManager[Array]:
        raise BlobError(f"{self!r} is a region; map() it")

    def _places(self) -> dict[str, Any]:
        raise BlobError(f"{self!r} is a region and cannot be copied; copy the whole, or map() it")


def block(
    shape: tuple[int, ...], bounds: tuple[slice, ...], itemsize: int
) -> tuple[list[int], list[int], list[int]]:
    """Return a region as a block of bytes, rows and planes.

    Args:
        shape: of the whole, planar.
        bounds: per axis; at most two neighbouring axes are cut.
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
    return (
        origin,
        [*sizes, math.prod(shape[:first]) if last else 1],
        [row_pitch, row_pitch * height],
    )
