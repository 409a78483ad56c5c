"""GpuBlob: a blob in the memory of an OpenCL device, of whatever kind."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.locks import Lock
from polydevice.remote import MAP_MODES, RemoteBlob
from polydevice.tensor import TensorDesc
from polydevice_gpu import cl
from polydevice_gpu.cl.memory import sharing

if TYPE_CHECKING:
    from polydevice_gpu.blobs.context import GpuContext


class GpuBlob(RemoteBlob):
    """Device memory of an OpenCL context."""

    context: GpuContext

    def __init__(self, context: GpuContext, desc: TensorDesc) -> None:
        """Describe the memory, which the subclass holds."""
        super().__init__(context, desc)
        self.size_bytes = math.prod(self.shape) * self.element_type.dtype.itemsize
        self.is_released = False
        self._mappings = 0
        self._lock = Lock()

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
    def whole(self) -> GpuBlob:
        """The blob that owns the memory; another one for regions."""
        return self

    @property
    @abstractmethod
    def handle(self) -> Any:
        """pyopencl's memory object."""

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

    def fetch_region(self, queue: cl.Queue, target: cl.Buffer, bounds: tuple[slice, ...]) -> None:
        """Enqueue a copy of a region, densely, to the beginning of a buffer."""
        raise BlobError(f"{self!r} has no regions")


def _copy_on_device(
    queue: Any, source: GpuBlob, target: GpuBlob, wait_for: Sequence[Any], blocking: bool
) -> Any:
    given, wanted = source._places(), target._places()
    if given and wanted:
        ends = {"src_origin": given["origin"], "dest_origin": wanted["origin"]}
        places = {**ends, "region": given["region"]}
    elif given or wanted:
        places = {"offset": 0, **(given or wanted)}
    else:
        places = {"byte_count": source.size_bytes}
    handles = (target.handle, source.handle)
    with source._acquired(queue), target._acquired(queue):
        return sharing.enqueue_copy(queue, *handles, wait_for, blocking, **places)
