"""The user's own OpenCL objects: contexts, queues, buffers, images and SVM memory.

All come as pyopencl's objects or as OpenCL's handles in numbers. They are checked as far as OpenCL
can tell, retained, and so live as long as they are used here, whatever the user releases.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as ocl

from polydevice.errors import BlobError, OptionValueError, PolydeviceError
from polydevice_gpu.cl import library
from polydevice_gpu.cl.device import Device
from polydevice_gpu.cl.status import check, translated

Array = npt.NDArray[Any]

_QUEUE_CONTEXT, _QUEUE_DEVICE, _QUEUE_PROPERTIES = 0x1090, 0x1091, 0x1093
_MEM_TYPE, _MEM_FLAGS, _MEM_SIZE, _MEM_HOST_PTR = 0x1100, 0x1101, 0x1102, 0x1103
_MEM_CONTEXT, _MEM_PARENT, _MEM_OFFSET = 0x1106, 0x1107, 0x1108
_BUFFER, _IMAGE2D = 0x10F0, 0x10F1
_READ_WRITE, _WRITE_ONLY, _READ_ONLY, _USE_HOST_PTR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_HOST_READ_ONLY, _HOST_WRITE_ONLY, _HOST_NO_ACCESS = 1 << 8, 1 << 7, 1 << 9
_OUT_OF_ORDER = 1 << 0
PROFILING = 1 << 1

VECTOR_BYTES = 128
"""Alignment of the widest vectors of OpenCL C, which kernels may read wherever a tensor begins."""


def handle_of(value: Any, kind: type, what: str) -> int:
    """Return OpenCL's handle of a pyopencl object, or of a number that is one.

    Raises:
        OptionValueError: for anything else.
    """
    if isinstance(value, kind):
        pointer: int = value.int_ptr  # type: ignore[attr-defined]
    elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
        pointer = value
    else:
        raise OptionValueError(
            f"{what}={value!r} is not legal; give a pyopencl.{kind.__name__} or OpenCL's handle as "
            "a number"
        )
    return pointer


def context_of(value: Any) -> ocl.Context:
    """Return a user's context, retained.

    Raises:
        OptionValueError: for anything else.
    """
    pointer = handle_of(value, ocl.Context, "OCL_CONTEXT")
    with translated(f"using the OpenCL context {pointer:#x}"):
        return ocl.Context.from_int_ptr(pointer)


def devices_of(context: ocl.Context) -> list[int]:
    """Return the handles of a context's devices."""
    return [device.int_ptr for device in context.devices]


def device_of(queue: Any) -> int:
    """Return the handle of a user's queue's device.

    Raises:
        OptionValueError: for anything but a queue.
    """
    pointer = handle_of(queue, ocl.CommandQueue, "OCL_QUEUE")
    return _number(library.library().clGetCommandQueueInfo, pointer, _QUEUE_DEVICE)


def queue_of(value: Any, device: Device) -> ocl.CommandQueue:
    """Return a user's queue, retained, after a check that networks can run on it.

    Raises:
        OptionValueError: a queue of another context or device, or one that is out of order.
    """
    pointer = handle_of(value, ocl.CommandQueue, "OCL_QUEUE")
    query = library.library().clGetCommandQueueInfo
    context, own = (_number(query, pointer, what) for what in (_QUEUE_CONTEXT, _QUEUE_DEVICE))
    if context != device.context.int_ptr:
        raise OptionValueError(
            f"OCL_QUEUE={pointer:#x} belongs to another OpenCL context ({context:#x}) than "
            f"OCL_CONTEXT ({device.context.int_ptr:#x}); make it with "
            "pyopencl.CommandQueue(context)"
        )
    if own != device.handle.int_ptr:
        raise OptionValueError(
            f"OCL_QUEUE={pointer:#x} belongs to another device than {device.name}; make it with "
            "pyopencl.CommandQueue(context, device)"
        )
    if _number(query, pointer, _QUEUE_PROPERTIES) & _OUT_OF_ORDER:
        raise OptionValueError(
            f"OCL_QUEUE={pointer:#x} is out of order, but layers rely on the order of commands; "
            "make it without OUT_OF_ORDER_EXEC_MODE_ENABLE"
        )
    with translated(f"using the queue {pointer:#x}"):
        return ocl.CommandQueue.from_int_ptr(pointer)


def is_profiling(queue: ocl.CommandQueue) -> bool:
    """Whether a queue records times."""
    query = library.library().clGetCommandQueueInfo
    return bool(_number(query, queue.int_ptr, _QUEUE_PROPERTIES) & PROFILING)


class SharedMemory:
    """A user's memory object, retained.

    Attributes:
        handle: pyopencl's object.
        owner: what the user gave, whose host memory it may use.
        size_bytes: its size.
        is_image: whether it is a two-dimensional image, not a buffer.
        is_aligned: whether kernels may use it in place.
        root: handle of the whole buffer that it is part of; 0 for host memory.
        offset_bytes: where in that it begins; of host memory, its address.
        readable: whether kernels may read it.
        writable: whether kernels may write it.
        host_access: what the host may do: some of "rw".
    """

    def __init__(self, pointer: int, owner: Any, device: Device, *, retain: bool = True) -> None:
        """Look a memory object up.

        Raises:
            BlobError: memory that is released, of another context, of another kind, or at an
                offset that the device cannot read from.
        """
        label = f"MEM_HANDLE {pointer:#x}"
        self._check_alive(pointer, device, label)
        query = library.library().clGetMemObjectInfo
        context = _number(query, pointer, _MEM_CONTEXT)
        if context != device.context.int_ptr:
            raise BlobError(
                f"{label} belongs to another OpenCL context ({context:#x}) than this one "
                f"({device.context.int_ptr:#x}); make the blob in a context created with "
                "OCL_CONTEXT of that memory"
            )
        kind = _number(query, pointer, _MEM_TYPE, ctypes.c_uint)
        if kind not in (_BUFFER, _IMAGE2D):
            raise BlobError(f"{label} is neither a buffer nor a two-dimensional image")
        self.is_image = kind == _IMAGE2D
        self.owner = owner
        self.size_bytes = _number(query, pointer, _MEM_SIZE, ctypes.c_size_t)
        self.root = _number(query, pointer, _MEM_PARENT) or pointer
        self.offset_bytes = _number(query, pointer, _MEM_OFFSET, ctypes.c_size_t)
        flags = _number(query, pointer, _MEM_FLAGS, ctypes.c_ulonglong)
        self.readable, self.writable = not flags & _WRITE_ONLY, not flags & _READ_ONLY
        self.host_access = _host_access(flags)
        self._check_offset(label, device)
        address = _number(query, pointer, _MEM_HOST_PTR) if flags & _USE_HOST_PTR else 0
        if address:  # several buffers may use the same host memory
            self.root, self.offset_bytes = 0, address
        self.is_aligned = address % min(VECTOR_BYTES, device.region_alignment_bytes) == 0
        wrapper = ocl.Image if self.is_image else ocl.Buffer
        with translated(f"using {label}"):
            self.handle: Any = wrapper.from_int_ptr(pointer, retain)

    @staticmethod
    def _check_alive(pointer: int, device: Device, label: str) -> None:
        """Refuse memory that was released, which OpenCL does not notice before it crashes.

        All objects of a driver begin with the address of the same table (cl_khr_icd); what was
        freed begins with something else.
        """
        first, own = (
            ctypes.c_void_p.from_address(each).value for each in (pointer, device.context.int_ptr)
        )
        if first != own:
            raise BlobError(
                f"{label} is no memory object of {device.name}'s driver (any more); keep the "
                "memory until the blob is made, and give handles as numbers only where they are "
                "OpenCL's"
            )

    def _check_offset(self, label: str, device: Device) -> None:
        alignment = device.region_alignment_bytes
        if self.offset_bytes % alignment:
            raise BlobError(
                f"{label} begins at byte {self.offset_bytes} of its buffer; {device.name} reads "
                f"sub-buffers at multiples of {alignment} bytes only"
            )


def svm_memory(value: Any, device: Device) -> SharedMemory:
    """Return shared virtual memory as a buffer on the same bytes (OpenCL 2.0, 5.2.1 and 5.6.1).

    Raises:
        BlobError: anything but pyopencl's SVM memory; a device without.
    """
    if not isinstance(value, (ocl.SVM, ocl.SVMAllocation)):
        raise BlobError(
            f"MEM_HANDLE={value!r} is no shared virtual memory; give a pyopencl.SVM or "
            "pyopencl.SVMAllocation"
        )
    if not int(getattr(device.handle, "svm_capabilities", 0)):
        raise BlobError(f"{device.name} has no shared virtual memory; use an OCL_BUFFER")
    status = ctypes.c_int()
    pointer = library.library().clCreateBuffer(
        *(device.context.int_ptr, _READ_WRITE | _USE_HOST_PTR, value.size, value.svm_ptr),
        ctypes.byref(status),
    )
    check(status.value, f"using {value.size} bytes of shared virtual memory")
    return SharedMemory(pointer, value, device, retain=False)


def shared_memory(value: Any, device: Device) -> SharedMemory:
    """Return a user's buffer or image.

    Raises:
        BlobError: not a memory object, or one that cannot be used here.
    """
    try:
        pointer = handle_of(value, ocl.MemoryObject, "MEM_HANDLE")
    except OptionValueError as error:
        raise BlobError(str(error)) from None
    return SharedMemory(pointer, value, device)


def kind_of(value: Any) -> str:
    """Return SHARED_MEM_TYPE of a memory object that comes without one."""
    if isinstance(value, (ocl.SVM, ocl.SVMAllocation)):
        return "OCL_SVM"
    return "OCL_IMAGE2D" if isinstance(value, ocl.Image) else "OCL_BUFFER"


@contextmanager
def mapped(
    queue: ocl.CommandQueue, handle: Any, size_bytes: int, mode: str, what: str
) -> Iterator[Array]:
    """Show a buffer's bytes to the host."""
    with translated(f"mapping {what}"):
        array, _ = ocl.enqueue_map_buffer(
            queue, handle, _map_flags(mode), 0, (size_bytes,), np.dtype(np.uint8)
        )
    try:
        yield array
    finally:
        _unmap(queue, array, what)


@contextmanager
def mapped_image(queue: ocl.CommandQueue, handle: Any, mode: str, what: str) -> Iterator[Array]:
    """Show an image's bytes to the host: rows × pixels × bytes of a pixel."""
    shape = (handle.height, handle.width, handle.element_size)
    enqueue: Any = ocl.enqueue_map_image  # with another result in pyopencl's types
    with translated(f"mapping {what}"):
        array, _, row_pitch, _ = enqueue(
            *(queue, handle, _map_flags(mode), (0, 0, 0), (shape[1], shape[0], 1)),
            *(shape, np.dtype(np.uint8)),
        )
    try:
        # Rows may begin at multiples of more than they hold, which only the mapping tells.
        yield np.lib.stride_tricks.as_strided(array, shape, (row_pitch, shape[2], 1))
    finally:
        _unmap(queue, array, what)


def _map_flags(mode: str) -> Any:
    flags = ocl.map_flags
    if mode == "r":
        return flags.READ
    if mode == "w":
        return flags.WRITE_INVALIDATE_REGION
    return flags.READ | flags.WRITE


def _unmap(queue: ocl.CommandQueue, array: Array, what: str) -> None:
    base: Any = array.base
    with translated(f"unmapping {what}"):
        base.release(queue)
        queue.finish()


def enqueue_copy(
    queue: ocl.CommandQueue,
    target: Any,
    source: Any,
    wait_for: Sequence[Any],
    blocking: bool,
    **places: Any,
) -> ocl.Event:
    """Copy between host arrays, buffers and images; returns pyopencl's event.

    A copy of no bytes, which OpenCL calls an error, becomes a marker.

    Args:
        queue: pyopencl's queue.
        target: a NumPy array, or pyopencl's memory object.
        source: likewise; one of the two is a memory object.
        wait_for: pyopencl's events.
        blocking: wait for the end.
        places: byte_count, origin, region… of pyopencl.enqueue_copy.
    """
    on_device = isinstance(target, ocl.MemoryObject) and isinstance(source, ocl.MemoryObject)
    if not on_device:
        places["is_blocking"] = blocking
    arrays = [side for side in (target, source) if isinstance(side, np.ndarray)]
    nothing = places.get("byte_count") == 0 or any(not array.nbytes for array in arrays)
    with translated("copying a blob"):
        event: Any
        if nothing:
            event = ocl.enqueue_marker(queue, wait_for=list(wait_for))
        else:
            event = ocl.enqueue_copy(queue, target, source, wait_for=list(wait_for), **places)
        if blocking and (on_device or nothing):
            event.wait()
    return event  # type: ignore[no-any-return]


def copy_queue(value: Any, device: Device) -> ocl.CommandQueue:
    """Return the queue to copy on: the user's after a check, or the context's.

    Raises:
        BlobError: not a queue, or one of another context.
    """
    if value is None:
        return device.memory.queue
    try:
        pointer = handle_of(value, ocl.CommandQueue, "queue")
    except PolydeviceError as error:
        raise BlobError(str(error)) from None
    context = _number(library.library().clGetCommandQueueInfo, pointer, _QUEUE_CONTEXT)
    if context != device.context.int_ptr:
        raise BlobError(
            f"queue {pointer:#x} belongs to another OpenCL context than the blob's; make it with "
            "pyopencl.CommandQueue(blob.context.params['OCL_CONTEXT'])"
        )
    found: ocl.CommandQueue = (
        value if isinstance(value, ocl.CommandQueue) else ocl.CommandQueue.from_int_ptr(pointer)
    )
    return found


def _host_access(flags: int) -> str:
    if flags & _HOST_NO_ACCESS:
        return ""
    if flags & _HOST_READ_ONLY:
        return "r"
    return "w" if flags & _HOST_WRITE_ONLY else "rw"


def _number(query: Any, pointer: int, what: int, kind: Any = ctypes.c_void_p) -> int:
    """Return the answer of a clGet…Info function that is a number or a handle."""
    answer = kind()
    code = query(pointer, what, ctypes.sizeof(kind), ctypes.byref(answer), None)
    check(code, f"asking about the OpenCL object {pointer:#x}")
    return answer.value or 0
