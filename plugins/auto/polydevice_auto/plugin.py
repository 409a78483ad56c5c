"""SharedPlugin: what AUTO and MULTI have in common as devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polydevice.device_name import DeviceName
from polydevice.errors import (
    DeviceError,
    DeviceNameError,
    DeviceNotFoundError,
    PolydeviceError,
    UnknownMetricError,
    UnsupportedNetworkError,
)
from polydevice.foreign_errors import foreign_error
from polydevice.network import Network
from polydevice.options import Options
from polydevice.options.composite import config_for
from polydevice.plugin import Plugin, Version
from polydevice_auto.member import Member
from polydevice_auto.options import PRIORITIES, AutoOptions, MultiOptions

SharedOptions = AutoOptions | MultiOptions

COMPOSITE = ("AUTO", "HETERO", "MULTI")
"""Devices that cannot be members."""


class SharedPlugin(Plugin):
    """A device that runs whole networks on others, which it reaches through the core."""

    members_key = PRIORITIES

    @property
    def version(self) -> Version:
        """Return the plugin's version."""
        return Version(f"polydevice {self.name} plugin", 0, 1, "polydevice")

    def device_ids(self, options: Options) -> list[str]:
        """Return nothing: it is no device of its own."""
        return []

    def metrics(self, options: Options, device_id: str) -> dict[str, Any]:
        """Return the plugin's metrics."""
        return {
            "FULL_DEVICE_NAME": self.name,
            "OPTIMIZATION_CAPABILITIES": lambda: self._capabilities(options),
        }

    def _capabilities(self, options: Options) -> list[str]:
        """Return what at least one of the devices can do."""
        assert isinstance(options, SharedOptions)
        try:
            devices = self.candidates(options)
        except DeviceNotFoundError:
            return []
        found = (self.metric(device, "OPTIMIZATION_CAPABILITIES", []) for device in devices)
        return list(dict.fromkeys(capability for each in found for capability in each))

    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        """Return what the device lacks that can run most of the network."""
        return self._best(network, options)[1]

    def query_network(self, network: Network, options: Options, device_id: str) -> dict[str, str]:
        """Return node name → the device that can run most of the network, where it can."""
        device, refused = self._best(network, options)
        return {node.name: device for node in network.nodes() if node.name not in refused}

    def metric(self, device: str, name: str, missing: Any) -> Any:
        """Return a metric of a device, or `missing` where it, or the device, is not there."""
        try:
            return self.services.get_metric(device, name)
        except (UnknownMetricError, DeviceError):
            return missing

    def _members(self, options: SharedOptions) -> list[DeviceName]:
        """Return the devices that are listed.

        Raises:
            DeviceNameError: for one that consists of others itself.
        """
        if not options.priorities:
            return []
        members = DeviceName.parse(f"{self.name}:{options.priorities}").members
        for member in members:
            if member.family in COMPOSITE:
                raise DeviceNameError(
                    f"{self.name} takes devices, not {member.family}, which consists of some "
                    f"itself; name them: '{self.name}:GPU,CPU'"
                )
        return list(members)

    def _best(self, network: Network, options: Options) -> tuple[str, dict[str, str]]:
        assert isinstance(options, SharedOptions)
        found: list[tuple[str, dict[str, str]]] = []
        for device in self.candidates(options):
            config = config_for(device, options, self.services)
            try:
                refused = self.services.unsupported_nodes(network, device, config)
            except UnsupportedNetworkError as error:
                reason = first_line(error)
                refused = {node.name: reason for node in network.nodes()}
            found.append((device, refused))
        return min(found, key=lambda each: len(each[1]))

    def candidates(self, options: SharedOptions) -> list[str]:
        """Return the names of the devices that come into question, in order of preference."""
        return [member.name for member in self._members(options)]

    def load_member(
        self,
        network: Network,
        device: str,
        options: SharedOptions,
        slots: int = 0,
        limit_s: float = 0,
    ) -> Member:
        """Load the network on one device; see `Member` for the arguments.

        Raises:
            PolydeviceError: whatever the device raises; what is none of ours as InternalError.
        """
        config = config_for(device, options, self.services)
        try:
            loaded = self.services.load_network(network, device, config)
            return Member(device, loaded, slots, limit_s)
        except PolydeviceError:
            raise
        except Exception as error:
            raise foreign_error(f"{device} failed while loading", error, network) from error


def first_line(error: BaseException) -> str:
    """Return what a log or a note says of an error."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(":")


def none_loaded(
    device: str, network: Network, failures: Mapping[str, PolydeviceError]
) -> DeviceError:
    """Make the error for a network that no device could load.

    Args:
        device: the composite's name.
        network: what was to be loaded.
        failures: device → what it raised, at least one.
    """
    errors: Sequence[PolydeviceError] = list(failures.values())
    if len(errors) == 1 and isinstance(errors[0], DeviceError):
        return errors[0]
    kinds = {type(error) for error in errors}
    kind = UnsupportedNetworkError if kinds == {UnsupportedNetworkError} else DeviceError
    return kind(
        f"no device of {device} could load network {network.name!r}:\n"
        + "\n".join(f"{name}: {error}" for name, error in failures.items())
    )
