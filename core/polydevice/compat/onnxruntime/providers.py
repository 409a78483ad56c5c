"""Execution providers: onnxruntime's names for devices, and the device that each means here."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from polydevice.compat import chosen_device
from polydevice.core import shared_core
from polydevice.dataclass import dataclass
from polydevice.errors import PolydeviceError

_log = logging.getLogger("polydevice.compat.onnxruntime")

GPU, CPU = "PolydeviceGPU", "PolydeviceCPU"
DEFAULT = "CPUExecutionProvider"

_ON_GPU = (
    "NvTensorRTRTXExecutionProvider",
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "MIGraphXExecutionProvider",
    "ROCMExecutionProvider",
    "OpenVINOExecutionProvider",
    "DmlExecutionProvider",
    "WebGpuExecutionProvider",
)
_ON_CPU = ("DnnlExecutionProvider", "XnnpackExecutionProvider", "ACLExecutionProvider")
_VENDORS = {
    "NVIDIA": "CUDAExecutionProvider",
    "AMD": "MIGraphXExecutionProvider",
    "Intel": "OpenVINOExecutionProvider",
}
_FAMILIES = {
    GPU: "GPU",
    CPU: "CPU",
    DEFAULT: "CPU",
    **dict.fromkeys(_ON_GPU, "GPU"),
    **dict.fromkeys(_ON_CPU, "CPU"),
}
_said: set[str] = set()


@dataclass
class Placement:
    """Where a session runs.

    Attributes:
        device: of `Core.load_network`.
        names: providers, as the session reports them.
        options: what was given for each of them.
        config: keys of the device's own configuration.
        may_fall_back: whether nodes that the device cannot run may run on CPU.
    """

    device: str
    names: list[str]
    options: dict[str, dict[str, str]] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    may_fall_back: bool = True


def gpu_name() -> str | None:
    """Return the full name of the first GPU; None without one."""
    core = shared_core()
    for device in core.available_devices:
        if device.partition(".")[0] == "GPU":
            try:
                return str(core.get_metric(device, "FULL_DEVICE_NAME"))
            except PolydeviceError:
                return device
    return None


def get_available_providers() -> list[str]:
    """Return the providers that networks can run on, the fastest first.

    The provider of a GPU's own vendor is among them: a program that asks whether it is there means
    that GPU.
    """
    name = gpu_name()
    if name is None:
        return [CPU, DEFAULT]
    of_vendor = [theirs for vendor, theirs in _VENDORS.items() if vendor in name]
    return [GPU, *of_vendor, CPU, DEFAULT]


def get_all_providers() -> list[str]:
    """Return every name that is understood, whether its device is here or not."""
    return [GPU, *_ON_GPU, *_ON_CPU, CPU, DEFAULT]


def get_device() -> str:
    """Return "GPU" when there is one, else "CPU"; the device that `choose_device` named first."""
    forced = chosen_device()
    if forced is not None:
        return "CPU" if forced.partition(".")[0] == "CPU" else "GPU"
    return "CPU" if gpu_name() is None else "GPU"


def place(
    providers: Sequence[Any] | None, provider_options: Sequence[Mapping[Any, Any]] | None
) -> Placement:
    """Choose the device for a list of providers, of which the first that is here counts.

    Args:
        providers: names, or (name, options); None for the CPU.
        provider_options: options for each of them, where they are not beside the names.

    Raises:
        ValueError: lists of different length, or what is no name.
    """
    asked = _pairs(providers or [], provider_options)
    forced = chosen_device()
    if forced is not None:
        family = forced.partition(":")[0].partition(".")[0]
        names = [CPU, DEFAULT] if family == "CPU" else [GPU, DEFAULT]
        return Placement(forced, names, {name: {} for name in names}, may_fall_back=False)
    taken = [(name, options) for name, options in asked if _is_here(name)]
    if not any(_FAMILIES[name] == "CPU" for name, _ in taken):
        taken.append((DEFAULT, {}))
    name, options = taken[0]
    device, config = _device(name, options)
    _say(name, device)
    return Placement(device, [n for n, _ in taken], dict(taken), config)


def _pairs(
    providers: Sequence[Any], provider_options: Sequence[Mapping[Any, Any]] | None
) -> list[tuple[str, dict[str, str]]]:
    if provider_options is not None and len(provider_options) != len(providers):
        raise ValueError(
            "'providers' and 'provider_options' should be the same length if both are given."
        )
    pairs: dict[str, dict[str, str]] = {}
    for position, item in enumerate(providers):
        name, options = item if isinstance(item, (tuple, list)) and len(item) == 2 else (item, {})
        if not isinstance(name, str) or not isinstance(options, Mapping):
            raise ValueError(f"providers are names, or (name, options); {item!r} is neither")
        if provider_options is not None:
            options = provider_options[position]
        pairs.setdefault(name, {str(k): str(v) for k, v in options.items()})
    return list(pairs.items())


def _is_here(name: str) -> bool:
    family = _FAMILIES.get(name)
    if family == "CPU" or (family == "GPU" and gpu_name() is not None):
        return True
    why = "" if family is None else " `polydevice devices --why` says why there is no GPU."
    warnings.warn(
        f"Specified provider '{name}' is not in available provider names. Available providers: "
        f"'{', '.join(get_available_providers())}'.{why}",
        stacklevel=5,
    )
    return False


def _device(name: str, options: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return device and configuration; options of other makers' providers are left out."""
    family = _FAMILIES[name]
    if name == "OpenVINOExecutionProvider" and options.get("device_type", "").startswith("CPU"):
        family = "CPU"
    number = options.get("device_id", "0")
    device = f"{family}.{number}" if family == "GPU" and number not in ("", "0") else family
    rest = {key: value for key, value in options.items() if key != "device_id"}
    if name in (GPU, CPU):
        return device, rest
    if rest:
        _log.info("options of %s have no meaning on %s: %s", name, device, ", ".join(rest))
    return device, {}


def _say(name: str, device: str) -> None:
    if name in (GPU, CPU, DEFAULT) or name in _said:
        return
    _said.add(name)
    where = gpu_name() if device.startswith("GPU") else "the processor"
    _log.warning("%s is polydevice's %s here (%s)", name, device, where)
