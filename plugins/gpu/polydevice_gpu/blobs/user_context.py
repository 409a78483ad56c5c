"""user_context: a context made of the user's OpenCL context, or of the user's VA display."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polydevice.errors import OptionValueError
from polydevice_gpu import cl
from polydevice_gpu.blobs.context import GpuContext, check_params
from polydevice_gpu.blobs.va import va_context
from polydevice_gpu.cl.discovery.report import Report
from polydevice_gpu.cl.memory import sharing

CONTEXT_TYPES = ("OCL", "VA_SHARED")


def user_context(
    family: str, report: Report, params: Mapping[str, Any], device_id: str
) -> GpuContext:
    """Make a context.

    Args:
        family: "GPU".
        report: the devices that may be used.
        params: CONTEXT_TYPE, and what that type needs.
        device_id: of the device to use; "" for the queue's, or else the context's first.

    Raises:
        UnknownOptionError: for a parameter that does not exist.
        OptionValueError: for a parameter that is missing or not legal.
    """
    kind = params.get("CONTEXT_TYPE")
    if kind not in CONTEXT_TYPES:
        given = "is missing" if kind is None else f"{kind!r} is not legal"
        raise OptionValueError(f"CONTEXT_TYPE {given}; legal: {', '.join(CONTEXT_TYPES)}")
    if kind == "VA_SHARED":
        return va_context(family, report, params, device_id)
    check_params(params, "OCL_CONTEXT", ("CONTEXT_TYPE", "OCL_CONTEXT", "OCL_QUEUE"))
    context = sharing.context_of(params["OCL_CONTEXT"])
    users = params.get("OCL_QUEUE")
    handles = sharing.devices_of(context)
    if users is not None and not device_id:
        handles = [handle for handle in handles if handle == sharing.device_of(users)]
    name, device = _device_in(family, report, handles or sharing.devices_of(context), device_id)
    device = device.within(context)
    queue = None if users is None else sharing.queue_of(users, device)
    return GpuContext(name, device, queue)


def _device_in(
    family: str, report: Report, handles: list[int], device_id: str
) -> tuple[str, cl.Device]:
    """Return the device to use of those in a context, and its name."""
    found = {each.id: each for each in report.devices if cl.handles_of(each)[1] in handles}
    chosen = device_id or next(iter(found), "")
    if chosen in found:
        return f"{family}.{chosen}", cl.open_device(found[chosen])
    there = ", ".join(f"{family}.{a.id} ({a.facts.name})" for a in report.devices)
    has = ", ".join(f"{family}.{i}" for i in found) or "none of polydevice's devices"
    wanted = f"not {family}.{device_id}" if device_id else "so that no network can run in it"
    raise OptionValueError(
        f"the OpenCL context has {has}, {wanted}. Devices there are: {there or 'none'}; a "
        "sub-device is not one of them"
    )
