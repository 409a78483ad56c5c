"""GpuContext: one OpenCL context with a device, its memory, its programs, and the user's queue."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from polydevice.dtype import ElementType
from polydevice.errors import BlobError, OptionValueError, UnknownOptionError, nearest
from polydevice.locks import Lock
from polydevice.remote import RemoteBlob, RemoteContext
from polydevice.tensor import TensorDesc
from polydevice_gpu import cl
from polydevice_gpu.blobs.blob import GpuBlob
from polydevice_gpu.blobs.buffer_blob import BufferBlob
from polydevice_gpu.blobs.image_blob import ImageBlob
from polydevice_gpu.cl.memory import sharing
from polydevice_gpu.cl.queues.turn_lock import TurnLock
from polydevice_gpu.kernels.types import storage_type

SHARED_MEM_TYPES = ("OCL_BUFFER", "OCL_IMAGE2D", "OCL_SVM", "VA_SURFACE")
"""Values of SHARED_MEM_TYPE."""

_BLOB_PARAMS = ("SHARED_MEM_TYPE", "MEM_HANDLE", "DEV_OBJECT_HANDLE", "VA_PLANE")


class GpuContext(RemoteContext):
    """An OpenCL context in which networks are loaded and blobs are made.

    Attributes:
        device: the device, with the context's memory.
        lock: held while commands of one inference are enqueued on the user's queue.
    """

    def __init__(self, device_name: str, device: cl.Device, queue: Any = None) -> None:
        """Describe a context.

        Args:
            device_name: such as "GPU.0".
            device: opened in the OpenCL context.
            queue: the user's (pyopencl), checked; None for queues of the networks' own.
        """
        super().__init__(device_name)
        self.device = device
        self.lock = TurnLock()
        self._queue = queue
        self._builders: dict[tuple[str, int], cl.ProgramBuilder] = {}
        self._blobs: weakref.WeakValueDictionary[tuple[object, ...], GpuBlob] = (
            weakref.WeakValueDictionary()
        )
        self._making = Lock()
        self._running: deque[cl.Event] = deque()

    def keep_until(self, event: cl.Event, kept: object) -> None:
        """Keep memory alive until the user's queue got there; called with `lock` held."""
        event.kept = kept
        self._running.append(event)
        while len(self._running) > 1 and self._running[0].has_ended:
            self._running.popleft().kept = None

    @property
    def has_queue(self) -> bool:
        """Whether networks run on a queue of the user's."""
        return self._queue is not None

    @property
    def params(self) -> dict[str, Any]:
        """CONTEXT_TYPE, OCL_CONTEXT and, if the user gave one, OCL_QUEUE, as pyopencl's objects."""
        found = {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": self.device.context}
        if self._queue is not None:
            found["OCL_QUEUE"] = self._queue
        return found

    def shares_memory_with(self, other: RemoteContext) -> bool:
        """Whether blobs of another context can be used in this one: both are one OpenCL context."""
        mine = self.device.context.int_ptr
        return isinstance(other, GpuContext) and other.device.context.int_ptr == mine

    def holds(self, element_type: ElementType) -> bool:
        """Whether kernels read and write the type as it is, instead of a wider one."""
        return storage_type(element_type, fp64=self.device.capabilities.fp64) is element_type

    def user_queue(self, *, profiling: bool, priority: int, throttle: int) -> cl.Queue:
        """Return the user's queue for the launches of one network.

        Raises:
            OptionValueError: times are wanted, but the queue does not record them; or a priority
                or throttle, which only who makes a queue decides.
        """
        for value, word in ((priority, "PRIORITY"), (throttle, "THROTTLE")):
            if value:
                raise OptionValueError(
                    f"GPU_PLUGIN_{word}={value} is not possible on OCL_QUEUE, the user's own "
                    "queue; leave it at 0, and make the queue so"
                )
        if profiling and not sharing.is_profiling(self._queue):
            raise OptionValueError(
                "PERF_COUNT=YES needs times, which OCL_QUEUE does not record; make the queue with "
                "properties=pyopencl.command_queue_properties.PROFILING_ENABLE"
            )
        return self.device.wrap_queue(self._queue, profiling=profiling)

    def builder(self, cache_dir: str, threads: int) -> cl.ProgramBuilder:
        """Return the builder for a cache folder, shared so that programs are too."""
        key = (cache_dir, threads)
        with self._making:
            if key not in self._builders:
                self._builders[key] = cl.ProgramBuilder(
                    self.device, cache_dir or None, threads=threads
                )
            return self._builders[key]

    def create_blob(self, desc: TensorDesc, params: Mapping[str, Any] | None = None) -> RemoteBlob:
        """Make a blob: allocate its memory, or wrap memory that is there already.

        Args:
            desc: element type and shape; static.
            params: nothing to allocate. Else SHARED_MEM_TYPE (found out from the handle when left
                out) with MEM_HANDLE, or VA_SURFACE with DEV_OBJECT_HANDLE and VA_PLANE.

        Raises:
            BlobError: memory that is too small, of another context, or of a kind that the device
                does not have; a handle that is a blob of another type or shape already.
            DeviceMemoryError: the memory cannot be allocated.
        """
        given = dict(params or {})
        unknown = [key for key in given if key not in _BLOB_PARAMS]
        if unknown:
            raise BlobError(
                f"a blob has no parameter {unknown[0]!r}.{nearest(unknown[0], _BLOB_PARAMS)} "
                f"Legal: {', '.join(_BLOB_PARAMS)}"
            )
        if not given:
            return BufferBlob.allocated(self, desc)
        with self._making:
            return self._wrapped(desc, given)

    def _wrapped(self, desc: TensorDesc, params: dict[str, Any]) -> GpuBlob:
        kind = params.get("SHARED_MEM_TYPE")
        if kind == "VA_SURFACE":
            return self._surface(desc, params)
        if kind is not None and kind not in SHARED_MEM_TYPES:
            raise BlobError(
                f"SHARED_MEM_TYPE={kind!r} is not legal; legal: {', '.join(SHARED_MEM_TYPES)}"
            )
        if params.get("MEM_HANDLE") is None:
            raise BlobError(
                "a blob of memory that is there already needs MEM_HANDLE; leave all parameters "
                "out to allocate memory"
            )
        value = params["MEM_HANDLE"]
        kind = kind or sharing.kind_of(value)
        if kind == "OCL_SVM":
            memory = sharing.svm_memory(value, self.device)
            key: tuple[object, ...] = (kind, value.svm_ptr)
        else:
            memory = sharing.shared_memory(value, self.device)
            key = (kind, memory.handle.int_ptr)
        if memory.is_image is not (kind == "OCL_IMAGE2D"):
            found = "an image" if memory.is_image else "a buffer"
            raise BlobError(f"MEM_HANDLE is {found}, but SHARED_MEM_TYPE is {kind}")
        return self._known(key, desc) or self._remember(
            key,
            ImageBlob(self, desc, cl.Image(memory.handle, f"image {desc}"), memory)
            if memory.is_image
            else BufferBlob.wrapped(self, desc, memory, kind),
        )

    def _surface(self, desc: TensorDesc, params: dict[str, Any]) -> GpuBlob:
        raise BlobError(
            "SHARED_MEM_TYPE=VA_SURFACE needs a context that shares a VA display; make it with "
            "core.create_context('GPU', {'CONTEXT_TYPE': 'VA_SHARED', 'VA_DEVICE': display})"
        )

    def _known(self, key: tuple[object, ...], desc: TensorDesc) -> GpuBlob | None:
        """Return the blob that was made of a handle before, while anybody uses it."""
        blob = self._blobs.get(key)
        if blob is None or blob.is_released:
            return None
        if blob.desc != desc:
            raise BlobError(
                f"this memory is {blob!r} already, and cannot be {desc} at the same time; let go "
                "of that blob first (blob.release()), or use a sub-buffer"
            )
        return blob

    def _remember(self, key: tuple[object, ...], blob: GpuBlob) -> GpuBlob:
        self._blobs[key] = blob
        return blob


def check_params(params: Mapping[str, Any], needed: str, legal: tuple[str, ...]) -> None:
    """Check the names of a context's parameters.

    Raises:
        UnknownOptionError: for one that does not exist.
        OptionValueError: `needed` is missing.
    """
    for key in params:
        if key not in legal:
            raise UnknownOptionError(
                f"a context has no parameter {key!r}.{nearest(key, legal)} "
                f"Legal: {', '.join(legal)}"
            )
    if params.get(needed) is None:
        raise OptionValueError(
            f"a context of type {params['CONTEXT_TYPE']} needs the parameter {needed}"
        )
