"""Runs in a child process: load the drivers and tell which platforms and devices they offer."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from polydevice_gpu.cl import library

_PLATFORM_TEXT = {"profile": 0x900, "version": 0x901, "name": 0x902, "vendor": 0x903}
_PLATFORM_TEXT["extensions"] = 0x904

_DEVICE_TEXT = {
    "name": 0x102B,
    "vendor": 0x102C,
    "driver_version": 0x102D,
    "profile": 0x102E,
    "version": 0x102F,
    "extensions": 0x1030,
    "opencl_c_version": 0x103D,
}
_DEVICE_NUMBERS = {
    "type": 0x1000,
    "vendor_id": 0x1001,
    "max_compute_units": 0x1002,
    "max_work_group_size": 0x1004,
    "preferred_vector_width_char": 0x1006,
    "preferred_vector_width_float": 0x100A,
    "max_clock_mhz": 0x100C,
    "max_allocation_bytes": 0x1010,
    "image_support": 0x1016,
    "address_alignment_bits": 0x1019,
    "single_precision": 0x101B,
    "global_memory_bytes": 0x101F,
    "local_memory_kind": 0x1022,
    "local_memory_bytes": 0x1023,
    "little_endian": 0x1026,
    "available": 0x1027,
    "compiler_available": 0x1028,
    "queue_properties": 0x102A,
    "preferred_vector_width_half": 0x1034,
    "unified_memory": 0x1035,
    "native_vector_width_float": 0x103A,
    "ip_version_intel": 0x4250,
    "feature_capabilities_intel": 0x4256,
    "compute_capability_major_nv": 0x4000,
    "compute_capability_minor_nv": 0x4001,
}

_MAX_WORK_ITEM_SIZES = 0x1005
_PCI_BUS_INFO_KHR = 0x410F
_PCI_NV = (0x400A, 0x4008, 0x4009)


def main(argument: dict[str, Any], report: Callable[[Any], None]) -> None:
    """Report ``{"library_error"}`` or ``{"platforms": [...]}``.

    `argument`: ``opencl`` (the OpenCL library), ``driver`` (one driver's library, or empty).
    """
    if argument["driver"]:
        try:
            # The loader skips a driver it cannot open in silence; this gets the reason.
            ctypes.CDLL(argument["driver"])
        except OSError as error:
            report({"library_error": str(error)})
            return
        report({"library_loaded": argument["driver"]})
    library.use(argument["opencl"])
    try:
        cl = library.library()
    except OSError as error:
        report({"opencl_error": str(error)})
        return
    platforms = [_platform(cl, platform) for platform in library.list_platforms(cl)]
    report({"platforms": platforms})


def _platform(cl: ctypes.CDLL, platform: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        key: library.info_text(cl.clGetPlatformInfo, platform, code)
        for key, code in _PLATFORM_TEXT.items()
    }
    facts["devices"] = [_device(cl, device) for device in library.list_devices(cl, platform)]
    return facts


def _device(cl: ctypes.CDLL, device: int) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key, code in _DEVICE_TEXT.items():
        facts[key] = library.info_text(cl.clGetDeviceInfo, device, code)
    for key, code in _DEVICE_NUMBERS.items():
        facts[key] = _number(library.info_bytes(cl.clGetDeviceInfo, device, code))
    sizes = library.info_bytes(cl.clGetDeviceInfo, device, _MAX_WORK_ITEM_SIZES) or b""
    facts["max_work_item_sizes"] = [size for (size,) in struct.iter_unpack("N", sizes)]
    facts["pci_address"] = _pci_address(
        library.info_bytes(cl.clGetDeviceInfo, device, _PCI_BUS_INFO_KHR),
        [library.info_bytes(cl.clGetDeviceInfo, device, code) for code in _PCI_NV],
    )
    return facts


def _pci_address(khr: bytes | None, nv: list[bytes | None]) -> str:
    """Return where a device is on the PCI bus, as Linux writes it; empty where nobody says.

    Args:
        khr: answer of cl_khr_pci_bus_info: domain, bus, device and function.
        nv: answers of cl_nv_device_attribute_query: domain, bus, and device.
    """
    if khr is not None and len(khr) == 16:
        domain, bus, device, function = struct.unpack("=4I", khr)
        return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"
    if all(nv):
        domain, bus, device = (_number(answer) for answer in nv)
        return f"{domain:04x}:{bus:02x}:{device:02x}.0"
    return ""


def _number(answer: bytes | None) -> int:
    """Return an integer of 4 or 8 bytes; 0 where the driver does not know the question."""
    if answer is None:
        return 0
    if len(answer) == 4:
        return int(struct.unpack("=I", answer)[0])
    return int(struct.unpack("=Q", answer)[0]) if len(answer) == 8 else 0
