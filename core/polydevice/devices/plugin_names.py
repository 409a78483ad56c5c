"""plugin_names: where plugins come from, and which device names they may have."""

from __future__ import annotations

from typing import Any, NamedTuple

from polydevice.errors import DeviceNameError

FIRST_PARTY = {
    "AUTO": "polydevice_auto",
    "CPU": "polydevice_cpu",
    "GPU": "polydevice_gpu",
    "HETERO": "polydevice_hetero",
    "MULTI": "polydevice_auto",
}
"""Device names that are this distribution's own, and the modules that alone may register them."""


class Entry(NamedTuple):
    """Where a plugin comes from: what to import, and the distribution that names it."""

    module: str
    distribution: str

    @property
    def is_first_party(self) -> bool:
        """Whether it is one of ours, which runs without a time limit."""
        return self.module.partition(":")[0] in FIRST_PARTY.values()

    def __str__(self) -> str:
        return f"{self.module}, from {self.distribution}"


class Conflict(NamedTuple):
    """A plugin that wanted a device name and did not get it."""

    device: str
    entry: Entry
    reason: str


def check_name(name: Any) -> None:
    """Raise DeviceNameError for what cannot name a device."""
    if not isinstance(name, str) or not name or not name.replace("_", "a").isalnum():
        raise DeviceNameError(f"{name!r} cannot name a device; use letters and digits")


def refusal(name: str, entry: Entry) -> str:
    """Say why a plugin may not have a name; empty when it may."""
    owner = FIRST_PARTY.get(name)
    if owner is None or entry.module == owner:
        return ""
    return (
        f"{name} is reserved for polydevice's own device ({owner}), which {entry} cannot replace; "
        "give the device another name, or uninstall it"
    )
