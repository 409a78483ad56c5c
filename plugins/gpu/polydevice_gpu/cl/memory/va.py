"""`cl_intel_va_api_media_sharing`: surfaces of a VA display as OpenCL images.

Specification: cl_intel_va_api_media_sharing, version 8. The entry points are asked of the platform,
as for every extension; a driver without them, or a machine without libva, has no VA surfaces.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from typing import Any

import pyopencl as ocl

from polydevice.errors import DeviceError
from polydevice_gpu.cl import library
from polydevice_gpu.cl.memory.image import Image
from polydevice_gpu.cl.status import check, translated

EXTENSION = "cl_intel_va_api_media_sharing"
_VA_API_DISPLAY = 0x4094
_ALL_DEVICES = 0x4096
_CONTEXT_VA_API_DISPLAY = 0x4097
_CONTEXT_PLATFORM = 0x1084
_DEVICE_NOT_FOUND = -1
_READ_WRITE = 1 << 0

_handle, _any, _int, _uint = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
_TRANSFER = (_handle, _uint, _any, _uint, _any, _any)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "clGetDeviceIDsFromVA_APIMediaAdapterINTEL": (
        *(_int, _handle, _uint, _any, _uint, _uint, _any, _any),
    ),
    "clCreateFromVA_APIMediaSurfaceINTEL": (
        *(_handle, _handle, ctypes.c_ulonglong, _any, _uint, _any),
    ),
    "clEnqueueAcquireVA_APIMediaSurfacesINTEL": (_int, *_TRANSFER),
    "clEnqueueReleaseVA_APIMediaSurfacesINTEL": (_int, *_TRANSFER),
}


def missing_libva() -> str:
    """Return why there can be no VA display on this machine; empty when libva is there."""
    if not sys.platform.startswith("linux"):
        return f"VA displays exist on Linux only, not on {sys.platform}"
    if ctypes.util.find_library("va") is None:
        return "libva is missing; install it (libva2) with a driver for this GPU (vainfo shows it)"
    return ""


class VaFunctions:
    """Entry points of the extension on one platform."""

    def __init__(self, platform: int) -> None:
        """Look them up.

        Raises:
            DeviceError: the platform lacks one.
        """
        self.platform = platform
        lookup = library.library().clGetExtensionFunctionAddressForPlatform
        self._functions: dict[str, Any] = {}
        for name, types in _FUNCTIONS.items():
            address = lookup(platform, name.encode())
            if not address:
                raise DeviceError(
                    f"this OpenCL driver has no {EXTENSION} ({name} is missing); VA surfaces need "
                    "Intel's driver on the GPU that decodes. Copy the frames, or wrap their "
                    "memory as OCL_BUFFER or OCL_IMAGE2D"
                )
            self._functions[name] = ctypes.CFUNCTYPE(*types)(address)

    def devices(self, display: int) -> list[int]:
        """Return the handles of the devices that can share the display's surfaces."""
        query = self._functions["clGetDeviceIDsFromVA_APIMediaAdapterINTEL"]
        about = (self.platform, _VA_API_DISPLAY, display, _ALL_DEVICES)
        count = _uint()
        code = query(*about, 0, None, ctypes.byref(count))
        if code != _DEVICE_NOT_FOUND:
            check(code, f"asking for the devices of the VA display {display:#x}")
        if not count.value:
            return []
        handles = (_handle * count.value)()
        code = query(*about, count.value, handles, None)
        check(code, f"asking for the devices of the VA display {display:#x}")
        return [handle for handle in handles if handle]

    def context(self, device: int, display: int) -> ocl.Context:
        """Make a context that shares the display's surfaces."""
        kind = ctypes.c_ssize_t * 5
        properties = kind(_CONTEXT_PLATFORM, self.platform, _CONTEXT_VA_API_DISPLAY, display, 0)
        devices, status = (_handle * 1)(device), _int()
        pointer = library.library().clCreateContext(
            properties, 1, devices, None, None, ctypes.byref(status)
        )
        check(status.value, f"making a context for the VA display {display:#x}")
        return ocl.Context.from_int_ptr(pointer, False)

    def image(self, context: ocl.Context, surface: int, plane: int) -> Image:
        """Make an image of a plane of a surface; it holds pixels between acquire and release."""
        create = self._functions["clCreateFromVA_APIMediaSurfaceINTEL"]
        number, status = _uint(surface), _int()
        what = f"plane {plane} of VA surface {surface}"
        pointer = create(
            context.int_ptr, _READ_WRITE, ctypes.byref(number), plane, ctypes.byref(status)
        )
        check(status.value, f"sharing {what}")
        with translated(f"sharing {what}"):
            return Image(ocl.Image.from_int_ptr(pointer, False), what)

    def acquire(self, queue: int, image: Image) -> None:
        """Enqueue that OpenCL takes the surface over."""
        self._transfer("clEnqueueAcquireVA_APIMediaSurfacesINTEL", queue, image)

    def release(self, queue: int, image: Image) -> None:
        """Enqueue that the display gets the surface back."""
        self._transfer("clEnqueueReleaseVA_APIMediaSurfacesINTEL", queue, image)

    def _transfer(self, name: str, queue: int, image: Image) -> None:
        objects = (_handle * 1)(image.pointer)
        code = self._functions[name](queue, 1, objects, 0, None, None)
        check(code, f"{name} of {image.name}")
