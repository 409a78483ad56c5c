"""The OpenCL library itself, called through ctypes: the same one that pyopencl is linked to.

pyopencl covers contexts, queues and buffers. Programs, kernels and launches go to the entry
points directly: an enqueue costs a third of the wrapper's time there (see `launch`), and no
second cache, include path or environment variable gets between us and the compiler.
This module uses the standard library only, because probe processes import it too.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import os
import sys
import weakref
from pathlib import Path
from typing import Any

SUCCESS = 0
PLATFORM_NOT_FOUND = -1001

c_handle = ctypes.c_void_p
_handles = ctypes.POINTER(ctypes.c_void_p)
_sizes = ctypes.POINTER(ctypes.c_size_t)
_uints = ctypes.POINTER(ctypes.c_uint)
_int = ctypes.c_int
_uint = ctypes.c_uint
_ulong = ctypes.c_ulonglong
_size = ctypes.c_size_t
_any = ctypes.c_void_p

# name: (result type, argument types); OpenCL 1.2 specification, chapters 4 and 5.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "clGetPlatformIDs": (_int, [_uint, _handles, _uints]),
    "clGetPlatformInfo": (_int, [c_handle, _uint, _size, _any, _sizes]),
    "clGetDeviceIDs": (_int, [c_handle, _ulong, _uint, _handles, _uints]),
    "clGetDeviceInfo": (_int, [c_handle, _uint, _size, _any, _sizes]),
    "clCreateContext": (c_handle, [_any, _uint, _handles, _any, _any, ctypes.POINTER(_int)]),
    "clReleaseContext": (_int, [c_handle]),
    "clCreateCommandQueue": (c_handle, [c_handle, c_handle, _ulong, ctypes.POINTER(_int)]),
    "clReleaseCommandQueue": (_int, [c_handle]),
    "clFinish": (_int, [c_handle]),
    "clCreateBuffer": (c_handle, [c_handle, _ulong, _size, _any, ctypes.POINTER(_int)]),
    "clReleaseMemObject": (_int, [c_handle]),
    "clEnqueueReadBuffer": (
        _int,
        [c_handle, c_handle, _uint, _size, _size, _any, _uint, _any, _any],
    ),
    "clEnqueueWriteBuffer": (
        _int,
        [c_handle, c_handle, _uint, _size, _size, _any, _uint, _any, _any],
    ),
    "clEnqueueCopyBuffer": (
        _int,
        [c_handle, c_handle, c_handle, _size, _size, _size, _uint, _any, _any],
    ),
    "clEnqueueCopyBufferRect": (
        _int,
        [
            *(c_handle, c_handle, c_handle, _sizes, _sizes, _sizes),
            *(_size, _size, _size, _size, _uint, _any, _any),
        ],
    ),
    "clEnqueueCopyImageToBuffer": (
        _int,
        [c_handle, c_handle, c_handle, _sizes, _sizes, _size, _uint, _any, _any],
    ),
    "clEnqueueCopyBufferToImage": (
        _int,
        [c_handle, c_handle, c_handle, _size, _sizes, _sizes, _uint, _any, _any],
    ),
    "clEnqueueMarkerWithWaitList": (_int, [c_handle, _uint, _any, _any]),
    "clEnqueueFillBuffer": (
        _int,
        [c_handle, c_handle, _any, _size, _size, _size, _uint, _any, _any],
    ),
    "clEnqueueMapBuffer": (
        _any,
        [c_handle, c_handle, _uint, _ulong, _size, _size, _uint, _any, _any, _any],
    ),
    "clEnqueueUnmapMemObject": (_int, [c_handle, c_handle, _any, _uint, _any, _any]),
    "clFlush": (_int, [c_handle]),
    "clCreateProgramWithSource": (
        c_handle,
        [c_handle, _uint, ctypes.POINTER(ctypes.c_char_p), _sizes, ctypes.POINTER(_int)],
    ),
    "clCreateProgramWithBinary": (
        c_handle,
        [c_handle, _uint, _handles, _sizes, _handles, ctypes.POINTER(_int), ctypes.POINTER(_int)],
    ),
    "clBuildProgram": (_int, [c_handle, _uint, _handles, ctypes.c_char_p, _any, _any]),
    "clGetProgramInfo": (_int, [c_handle, _uint, _size, _any, _sizes]),
    "clGetProgramBuildInfo": (_int, [c_handle, c_handle, _uint, _size, _any, _sizes]),
    "clReleaseProgram": (_int, [c_handle]),
    "clCreateKernel": (c_handle, [c_handle, ctypes.c_char_p, ctypes.POINTER(_int)]),
    "clCloneKernel": (c_handle, [c_handle, ctypes.POINTER(_int)]),  # of OpenCL 2.1
    "clReleaseKernel": (_int, [c_handle]),
    "clSetKernelArg": (_int, [c_handle, _uint, _size, _any]),
    "clGetKernelInfo": (_int, [c_handle, _uint, _size, _any, _sizes]),
    "clGetKernelWorkGroupInfo": (_int, [c_handle, c_handle, _uint, _size, _any, _sizes]),
    "clEnqueueNDRangeKernel": (
        _int,
        [c_handle, c_handle, _uint, _any, _any, _any, _uint, _any, _any],
    ),
    "clWaitForEvents": (_int, [_uint, _handles]),
    "clReleaseEvent": (_int, [c_handle]),
    "clGetEventInfo": (_int, [c_handle, _uint, _size, _any, _sizes]),
    "clGetMemObjectInfo": (_int, [c_handle, _uint, _size, _any, _sizes]),
    "clGetCommandQueueInfo": (_int, [c_handle, _uint, _size, _any, _sizes]),
    "clGetContextInfo": (_int, [c_handle, _uint, _size, _any, _sizes]),
    "clGetEventProfilingInfo": (_int, [c_handle, _uint, _size, _any, _sizes]),
    "clGetExtensionFunctionAddressForPlatform": (_any, [c_handle, ctypes.c_char_p]),
}


def pyopencl_folder() -> Path | None:
    """Return the folder of the installed pyopencl without importing it; None if not installed."""
    spec = importlib.util.find_spec("pyopencl")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def find_library() -> tuple[str, bool]:
    """Return (file to load, whether it is pyopencl's own extension module).

    Looking a symbol up in a shared object searches the objects that it is linked to as well, so
    opening pyopencl's extension module reaches exactly the loader that pyopencl will use: the one
    bundled in its wheel, conda's, or the system's. Windows does not search that way.
    """
    folder = pyopencl_folder()
    if folder is not None and sys.platform != "win32":
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            extension = folder / f"_cl{suffix}"
            if extension.is_file():
                return str(extension), True
    if sys.platform == "win32":
        return "OpenCL.dll", False
    if sys.platform == "darwin":
        return "/System/Library/Frameworks/OpenCL.framework/OpenCL", False
    return "libOpenCL.so.1", False


@functools.cache
def preloaded() -> bool:
    """Whether the program carries an OpenCL library of its own, which everything binds to.

    A preloaded one (oclgrind), or one that the main program is linked to, comes before the library
    that pyopencl is linked to, for pyopencl as well; no choice of drivers reaches it.
    """
    return os.name == "posix" and hasattr(ctypes.CDLL(None), "clGetPlatformIDs")


_handed: list[str] = []


def use(path: str) -> None:
    """Make `path` the library of this process: what a child process was handed by its parent.

    A child sees no installed packages, so what it would find by itself is another library than its
    parent's, or none.
    """
    _handed[:] = [path]


def _open() -> ctypes.CDLL:
    if preloaded():
        return ctypes.CDLL(None)
    return ctypes.CDLL(_handed[0] if _handed else find_library()[0])


@functools.cache
def library() -> ctypes.CDLL:
    """Open the OpenCL library of this process and declare its functions.

    The loader looks for drivers at the first call of clGetPlatformIDs, not here.
    Raises OSError if there is none.
    """
    opened = _open()
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(opened, name, None)
        if function is not None:
            function.restype = result
            function.argtypes = arguments
    return opened


def release_with(owner: object, release: Any, *arguments: Any) -> weakref.finalize[Any, Any]:
    """Have a driver's object released when its owner is gone; not at exit.

    At exit it may be in use: Python ends its finalizers before the threads that infer.
    """
    made = weakref.finalize(owner, release, *arguments)
    made.atexit = False
    return made


_SHORT_BYTES = 256


def info_bytes(query: Any, *arguments: Any) -> bytes | None:
    """Return what a clGet…Info function answers, or None if it does not know the question."""
    size, short = ctypes.c_size_t(), ctypes.create_string_buffer(_SHORT_BYTES)
    # One call where it fits: behind each, a thread that is busy in Python may go on for 5 ms.
    if query(*arguments, _SHORT_BYTES, short, ctypes.byref(size)) == SUCCESS:
        return short.raw[: size.value]
    if query(*arguments, 0, None, ctypes.byref(size)) != SUCCESS:
        return None
    answer = ctypes.create_string_buffer(max(1, size.value))
    if query(*arguments, size.value, answer, None) != SUCCESS:
        return None
    return answer.raw[: size.value]


def info_text(query: Any, *arguments: Any) -> str:
    """Return a text answer; empty if the question is not known."""
    answer = info_bytes(query, *arguments) or b""
    return answer.split(b"\0")[0].decode("utf-8", "replace").strip()


_PLATFORM_NAME, _PLATFORM_VERSION = 0x902, 0x901
_DEVICE_NAME, _DRIVER_VERSION = 0x102B, 0x102D
_DEVICE_TYPE_ALL = 0xFFFFFFFF


def list_platforms(cl: ctypes.CDLL) -> list[int]:
    """Return the handles of all platforms; the first call loads the drivers."""
    count = ctypes.c_uint()
    if cl.clGetPlatformIDs(0, None, ctypes.byref(count)) != SUCCESS or not count.value:
        return []
    handles = (ctypes.c_void_p * count.value)()
    cl.clGetPlatformIDs(count.value, handles, None)
    return [handle for handle in handles if handle]


def list_devices(cl: ctypes.CDLL, platform: int) -> list[int]:
    """Return the handles of all devices of a platform, of any type."""
    count = ctypes.c_uint()
    cl.clGetDeviceIDs(platform, _DEVICE_TYPE_ALL, 0, None, ctypes.byref(count))
    if not count.value:
        return []
    handles = (ctypes.c_void_p * count.value)()
    cl.clGetDeviceIDs(platform, _DEVICE_TYPE_ALL, count.value, handles, None)
    return [handle for handle in handles if handle]


def find_device(cl: ctypes.CDLL, identity: tuple[str, ...], twin: int) -> tuple[int, int]:
    """Return the handles of platform and device number `twin` of those with this identity.

    `identity`: platform name, platform version, device name, driver version. Handles differ from
    process to process and the order of platforms may, so a device is found by what it says.
    Raises LookupError if this process's loader does not offer it.
    """
    seen = 0
    for platform, device, said in _identified(cl):
        if said == tuple(identity):
            if seen == twin:
                return platform, device
            seen += 1
    raise LookupError(f"no device {identity[2]!r} on platform {identity[0]!r}")


def identities(cl: ctypes.CDLL) -> list[tuple[str, ...]]:
    """Return the identity of every device that this process's loader offers, in its order."""
    return [said for _, _, said in _identified(cl)]


@functools.cache
def _identified(cl: ctypes.CDLL) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return platform, device and its identity for each device, asked once in a process."""
    found = []
    for platform in list_platforms(cl):
        about = tuple(
            info_text(cl.clGetPlatformInfo, platform, code)
            for code in (_PLATFORM_NAME, _PLATFORM_VERSION)
        )
        for device in list_devices(cl, platform):
            itself = tuple(
                info_text(cl.clGetDeviceInfo, device, code)
                for code in (_DEVICE_NAME, _DRIVER_VERSION)
            )
            found.append((platform, device, about + itself))
    return found


@functools.cache
def undeclared(name: str) -> Any:
    """Return a function without declared argument types, for calls whose arguments are prepared.

    Handles must be ``c_void_p`` objects: a bare Python integer is passed as a C int.
    """
    return getattr(_open(), name)
