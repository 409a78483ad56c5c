"""VaContext and SurfaceBlob: surfaces of a video decoder (VA) as blobs, without the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polydevice.errors import BlobError, DeviceError, OptionValueError
from polydevice.tensor import TensorDesc
from polydevice_gpu import cl
from polydevice_gpu.blobs.blob import GpuBlob
from polydevice_gpu.blobs.context import GpuContext, check_params
from polydevice_gpu.blobs.image_blob import ImageBlob
from polydevice_gpu.cl.discovery.report import Report
from polydevice_gpu.cl.memory.va import VaFunctions, missing_libva


class VaContext(GpuContext):
    """A context whose blobs may be surfaces of a VA display."""

    def __init__(self, device_name: str, device: cl.Device, va: VaFunctions, display: int) -> None:
        """Describe a context.

        Args:
            device_name: such as "GPU.0".
            device: opened in a context of the display.
            va: entry points of the extension.
            display: the VADisplay as a number.
        """
        super().__init__(device_name, device)
        self.va = va
        self.display = display

    @property
    def params(self) -> dict[str, Any]:
        """CONTEXT_TYPE, OCL_CONTEXT and VA_DEVICE."""
        return {**super().params, "CONTEXT_TYPE": "VA_SHARED", "VA_DEVICE": self.display}

    def _surface(self, desc: TensorDesc, params: dict[str, Any]) -> GpuBlob:
        surface, plane = params.get("DEV_OBJECT_HANDLE"), params.get("VA_PLANE", 0)
        if not isinstance(surface, int) or not 0 <= surface < 1 << 32:
            raise BlobError(f"DEV_OBJECT_HANDLE={surface!r} is no VASurfaceID; give its number")
        if plane not in (0, 1):
            raise BlobError(f"VA_PLANE={plane!r} is not legal; legal: 0 (Y) and 1 (UV)")
        key = ("VA_SURFACE", surface, plane)
        known = self._known(key, desc)
        if known is not None:
            return known
        image = self.va.image(self.device.context, surface, plane)
        return self._remember(key, SurfaceBlob(self, desc, image, surface, plane))


class SurfaceBlob(ImageBlob):
    """A plane of a VA surface; taken over from the display for each inference."""

    context: VaContext

    def __init__(
        self, context: VaContext, desc: TensorDesc, image: cl.Image, surface: int, plane: int
    ) -> None:
        """Use a plane.

        Raises:
            BlobError: the plane's size or pixels are not those of the blob.
        """
        super().__init__(context, desc, image)
        self._surface = surface
        self._plane = plane

    @property
    def params(self) -> dict[str, Any]:
        """SHARED_MEM_TYPE, OCL_CONTEXT, VA_DEVICE, MEM_HANDLE, DEV_OBJECT_HANDLE and VA_PLANE."""
        return {
            **super().params,
            "SHARED_MEM_TYPE": "VA_SURFACE",
            "VA_DEVICE": self.context.display,
            "DEV_OBJECT_HANDLE": self._surface,
            "VA_PLANE": self._plane,
        }

    def acquire(self, queue: int) -> None:
        """Take the surface over."""
        self.context.va.acquire(queue, self._checked_image())

    def give_back(self, queue: int) -> None:
        """Hand the surface back."""
        self.context.va.release(queue, self._checked_image())


def va_context(family: str, report: Report, params: Mapping[str, Any], device_id: str) -> VaContext:
    """Make a context that shares the surfaces of a VA display.

    Args:
        family: "GPU".
        report: the devices that may be used.
        params: CONTEXT_TYPE, and VA_DEVICE: the VADisplay as a number.
        device_id: of the device to use; "" for the first that can share the display.

    Raises:
        OptionError: (a subclass) for an unknown, missing or illegal parameter.
        DeviceError: VA displays cannot be shared here; the message says what is missing.
    """
    check_params(params, "VA_DEVICE", ("CONTEXT_TYPE", "VA_DEVICE"))
    display = params["VA_DEVICE"]
    if not isinstance(display, int) or isinstance(display, bool) or display <= 0:
        raise OptionValueError(f"VA_DEVICE={display!r} is no VADisplay; give its address")
    reasons = [missing_libva()] if missing_libva() else []
    candidates = [d for d in report.devices if not device_id or d.id == device_id]
    for admitted in [] if reasons else candidates:
        platform, handle = cl.handles_of(admitted)
        try:
            va = VaFunctions(platform)
        except DeviceError as error:
            reasons.append(f"{admitted.facts.name}: {error}")
            continue
        if handle not in va.devices(display):
            reasons.append(f"{admitted.facts.name} is not the device of this VA display")
            continue
        device = cl.open_device(admitted)
        name = f"{family}.{admitted.id}"
        return VaContext(name, device.within(va.context(handle, display)), va, display)
    raise DeviceError(
        "CONTEXT_TYPE=VA_SHARED is not possible on this machine: "
        + ("; ".join(reasons) or f"there is no {family}.{device_id or '0'}")
    )
