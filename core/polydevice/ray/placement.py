"""Which of our devices a worker of Ray's computes on, and where it keeps what it compiled."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs

from polydevice.core import Core
from polydevice.errors import DeviceNotFoundError, PluginError, PolydeviceError

SECONDS = 20
"""For a driver's tool to answer."""


def import_ray() -> Any:
    """Return the module ``ray``.

    Raises:
        PluginError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise PluginError(
            "polydevice.ray needs Ray; install it with  pip install polydevice[ray]"
        ) from error
    return ray


def device_here(core: Core, device: str) -> str:
    """Return the device for this worker: what Ray gave to it, where "AUTO" or "GPU" is asked for.

    Args:
        core: what knows the devices of this machine.
        device: as the user named it; other names than "AUTO" and "GPU" are taken as they are.

    Raises:
        DeviceNotFoundError: Ray gave a GPU to this worker that is not among our devices.
    """
    if device not in ("AUTO", "GPU"):
        return device
    ray = import_ray()
    given = [str(each) for each in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]
    if not given:
        return "CPU" if device == "AUTO" else device
    found = match(given, _addresses(core), nvidia_gpus)
    return found[0] if len(found) == 1 else f"MULTI:{','.join(found)}"


def core_here() -> Core:
    """Return a core that keeps what is compiled in a folder which the node's workers share."""
    folder = Path(platformdirs.user_cache_dir("polydevice")) / "ray"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    core = Core()
    core.set_config({"CACHE_DIR": str(folder)})
    return core


def config_here(device: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a device's configuration; on the CPU with as many threads as Ray gave it cores."""
    own: dict[str, Any] = {}
    if device == "CPU":
        cores = import_ray().get_runtime_context().get_assigned_resources().get("CPU", 0)
        if cores:
            own["CPU_THREADS_NUM"] = max(int(cores), 1)
    return {**own, **config}


def _addresses(core: Core) -> dict[str, str]:
    """Return our GPU → its address on the PCI bus, empty where its driver does not say."""
    found = {}
    for name in core.available_devices:
        if name.partition(".")[0] == "GPU":
            try:
                found[name] = str(core.get_metric(name, "DEVICE_PCI_ADDRESS"))
            except PolydeviceError:
                found[name] = ""
    return found


def match(
    given: Sequence[str],
    ours: Mapping[str, str],
    listing: Callable[[], Mapping[str, str]],
) -> list[str]:
    """Return our names of the GPUs that Ray gave to a worker.

    Args:
        given: Ray's identifiers: numbers as NVIDIA's tools have them, or UUIDs.
        ours: our GPUs → address on the PCI bus.
        listing: returns identifier → address on the PCI bus, of NVIDIA's GPUs.

    Raises:
        DeviceNotFoundError: one of them is not among ours.
    """
    if len(ours) == len(given):
        return list(ours)  # the worker sees no others
    addresses = listing()
    names = {_short(address): name for name, address in ours.items() if address}
    found = []
    for identifier in given:
        name = names.get(_short(addresses.get(identifier, "")))
        if name is None:
            shown = ", ".join(f"{name} at {at or 'no known address'}" for name, at in ours.items())
            raise DeviceNotFoundError(
                f"Ray gave GPU {identifier}, at {addresses.get(identifier, 'no known address')}, "
                f"to this worker, which is none of: {shown or 'no GPU'}. There, "
                "`polydevice devices --why` says what was left out; or name a device with device="
            )
        found.append(name)
    return found


def _short(address: str) -> str:
    """Return a PCI address with a domain of 4 digits, as Linux has it; NVIDIA writes 8."""
    domain, colon, rest = address.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def nvidia_gpus() -> dict[str, str]:
    """Return number, and UUID → address on the PCI bus of NVIDIA's GPUs; nothing without them."""
    command = ["nvidia-smi", "--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader"]
    try:
        text = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        index, uuid, address = (each.strip() for each in line.split(","))
        found[index] = found[uuid] = address
    return found
