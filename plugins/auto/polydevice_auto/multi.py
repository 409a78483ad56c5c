"""MULTI: a network loaded on several devices, which share its requests by their speed."""

from __future__ import annotations

import logging

from polydevice.bounds import Bounds, enter_bounds, network_budget
from polydevice.errors import (
    DeviceNameError,
    DeviceNotFoundError,
    OptionError,
    PolydeviceError,
)
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.options import Options
from polydevice.options.composite import check_member_keys
from polydevice.remote import RemoteContext
from polydevice_auto.executable import SharedExecutable
from polydevice_auto.member import Member
from polydevice_auto.options import MultiOptions
from polydevice_auto.plugin import SharedPlugin, first_line, none_loaded
from polydevice_auto.schedule import BySpeed

_log = logging.getLogger(__name__)

_OF_THE_USER = (DeviceNameError, DeviceNotFoundError, OptionError)
"""Mistakes in what was asked for, which no other device makes good."""


class MultiPlugin(SharedPlugin):
    """Every member runs whole requests, side by side."""

    option_type = MultiOptions

    def load_network(
        self,
        network: Network,
        options: Options,
        device_id: str,
        context: RemoteContext | None = None,
    ) -> ExecutableNetwork:
        """Load the network on every member; one that cannot is left out with a warning.

        Raises:
            DeviceNotFoundError: a member is not there, or none is named.
            UnsupportedNetworkError: no member can run the network.
            UnknownOptionError: for a configuration key that neither MULTI nor a member knows.
        """
        assert isinstance(options, MultiOptions)
        device = f"{self.name}:{','.join(self.candidates(options))}"
        check_member_keys(self.name, self.candidates(options), options, self.services)
        memory = network_budget(options.memory_limit, f"network {network.name!r} on {self.name}")
        entered = enter_bounds(Bounds(memory=memory))  # of all members together
        members: list[Member] = []
        try:
            failures = self._load_members(network, options, members)
            if not members:
                raise none_loaded(device, network, failures)
            notes = [
                *(f"{member.device}: runs requests" for member in members),
                *(f"{name}: left out: {first_line(error)}" for name, error in failures.items()),
            ]
            schedule = BySpeed(network.name, members)
            streams = sum(member.slots for member in members)
            return SharedExecutable(network, device, options, schedule, notes, streams)
        except BaseException:
            for member in members:
                member.executable.close()
            raise
        finally:
            enter_bounds(entered)

    def _load_members(
        self, network: Network, options: MultiOptions, members: list[Member]
    ) -> dict[str, PolydeviceError]:
        """Fill `members` with those that load; return what the others raised."""
        failures: dict[str, PolydeviceError] = {}
        for name in self._members(options):
            try:
                limit = options.timeout_ms / 1e3
                members.append(self.load_member(network, name.name, options, name.requests, limit))
            except _OF_THE_USER:
                raise
            except PolydeviceError as error:
                failures[name.name] = error
        if members:
            for device, failure in failures.items():
                _log.warning(
                    "MULTI runs network %r without %s: %s",
                    *(network.name, device, first_line(failure)),
                )
        return failures

    def candidates(self, options: Options) -> list[str]:
        """Return the members' names.

        Raises:
            DeviceNotFoundError: none is named.
        """
        assert isinstance(options, MultiOptions)
        if not options.priorities:
            raise DeviceNotFoundError(
                "MULTI needs members: name them, as in 'MULTI:GPU,CPU', or set "
                "MULTI_DEVICE_PRIORITIES"
            )
        return super().candidates(options)
