"""AUTO: the best device that loads a network, with the CPU standing in while it compiles."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from polydevice.bounds import Bounds, enter_bounds, network_budget, within
from polydevice.errors import (
    DeviceNameError,
    DeviceNotFoundError,
    OptionError,
    PluginError,
    PolydeviceError,
)
from polydevice.executable_network import ExecutableNetwork
from polydevice.locks import Lock
from polydevice.network import Network
from polydevice.options import Options
from polydevice.options.composite import check_member_keys
from polydevice.remote import RemoteContext
from polydevice_auto.executable import SharedExecutable, has_variables
from polydevice_auto.member import Member
from polydevice_auto.options import AutoOptions
from polydevice_auto.plugin import SharedPlugin, first_line, none_loaded
from polydevice_auto.runner import SharedRunner
from polydevice_auto.schedule import InOrder

_log = logging.getLogger(__name__)

STAND_IN = "CPU"
"""The device that needs least time to load a network."""

REQUESTS = 4
"""Optimal number of requests while it is not known which device will run them: what a GPU with
two streams asks for."""

_KINDS = {"discrete": "a discrete GPU", "integrated": "an integrated GPU"}
_ORDER = ("discrete", "", "integrated", STAND_IN)


class AutoPlugin(SharedPlugin):
    """One device runs all requests: the first candidate that loads the network."""

    option_type = AutoOptions

    def candidates(self, options: Options) -> list[str]:
        """Return the devices that are listed, else all of the machine, the quickest kinds first.

        Raises:
            DeviceNotFoundError: there is none.
            DeviceNameError: a number of requests is given.
        """
        assert isinstance(options, AutoOptions)
        members = self._members(options)
        for member in members:
            if member.requests:
                raise DeviceNameError(
                    f"AUTO runs requests on one device, so {member} is not possible; "
                    f"use {member.name}, or MULTI"
                )
        named = [member.name for member in members]
        found = named or sorted(
            self.services.available_devices, key=lambda device: _ORDER.index(self._kind(device))
        )
        if not found:
            raise DeviceNotFoundError(
                "AUTO found no device; `polydevice devices --why` says what was left out"
            )
        return found

    def _kind(self, device: str) -> str:
        if device.partition(".")[0] == STAND_IN:
            return STAND_IN
        kind = str(self.metric(device, "DEVICE_TYPE", ""))
        return kind if kind in _KINDS else ""

    def load_network(
        self,
        network: Network,
        options: Options,
        device_id: str,
        context: RemoteContext | None = None,
    ) -> ExecutableNetwork:
        """Load the network on the CPU and, in the background, on a device before it; or just once.

        Raises:
            DeviceNotFoundError: there is no device.
            UnsupportedNetworkError: no device can run the network.
            UnknownOptionError: for a configuration key that neither AUTO nor a candidate knows.
        """
        assert isinstance(options, AutoOptions)
        names = self.candidates(options)
        failures = self._unusable(names)
        names = [name for name in names if name not in failures]
        check_member_keys(self.name, names, options, self.services)
        memory = network_budget(options.memory_limit, f"network {network.name!r} on {self.name}")
        with within(Bounds(memory=memory)):  # of all devices together
            return self._load(network, options, names, failures)

    def _unusable(self, names: Sequence[str]) -> dict[str, PolydeviceError]:
        """Return the candidates whose plugins do not work, with the reasons."""
        failures: dict[str, PolydeviceError] = {}
        for name in names:
            try:
                self.services.option_keys(name)
            except PluginError as error:
                failures[name] = error
        return failures

    def _load(
        self,
        network: Network,
        options: AutoOptions,
        names: Sequence[str],
        failures: dict[str, PolydeviceError],
    ) -> ExecutableNetwork:
        """Load on the first device that can; the CPU first, if it is to stand in."""
        ranks = [f"candidates: {', '.join(map(self._described, names))}"]
        order, later = list(names), []
        if options.startup_fallback and STAND_IN in names and not has_variables(network):
            index = names.index(STAND_IN)
            order, later = list(names[index:]), list(names[:index])
        # Watched is what the CPU can take over from.
        limit = options.timeout_ms / 1e3 if options.runtime_fallback else 0.0
        for number, device in enumerate(order):
            try:
                first = self.load_member(network, device, options)
            except OptionError:
                raise
            except PolydeviceError as error:
                failures[device] = error
                if later:  # nothing can stand in
                    order[number + 1 : number + 1] = later
                    later = []
                continue
            notes = [
                *ranks,
                *(f"{name}: not possible: {first_line(e)}" for name, e in failures.items()),
            ]
            return AutoExecutable(
                network,
                options,
                first,
                later,
                lambda name: self.load_member(network, name, options, limit_s=limit),
                notes,
            )
        raise none_loaded(self.name, network, failures)

    def _described(self, device: str) -> str:
        kind = _KINDS.get(self._kind(device))
        return f"{device} ({kind})" if kind else device


class AutoExecutable(SharedExecutable):
    """A network on one device, or on the CPU and on its way to another."""

    def __init__(
        self,
        network: Network,
        options: AutoOptions,
        first: Member,
        later: Sequence[str],
        load: Callable[[str], Member],
        notes: Sequence[str],
    ) -> None:
        """Begin on a device, and load the network on a better one in the background.

        Args:
            network: the network.
            options: the configuration.
            first: the device that runs it from now on.
            later: devices that are preferred to it, in order; the first that loads takes over.
            load: loads the network on a device.
            notes: why these.
        """
        schedule = InOrder(network.name, [first])
        streams = max(REQUESTS if later else 1, first.slots)
        device = f"AUTO:{','.join([*later, first.device])}"
        super().__init__(network, device, options, schedule, notes, streams)
        self._keeps = options.runtime_fallback
        self._first = first
        self._loading = list(later)
        self._bounds = Bounds(memory=self.memory)
        self._ending = Lock()
        self._ended = False
        self._loader: threading.Thread | None = None
        if not later:
            self._say(f"{first.device}: chosen, the first candidate that loads the network")
            return
        self._say(f"{first.device}: runs requests until one of {', '.join(later)} is ready")
        name = f"AUTO:{network.name}-loading"
        self._loader = threading.Thread(target=self._move, args=(load,), name=name, daemon=True)
        self._loader.start()

    def _say(self, note: str) -> None:
        self.notes.append(note)
        _log.info("AUTO, network %r: %s", self.name, note)

    # -- moving over --------------------------------------------------------------------------

    def _move(self, load: Callable[[str], Member]) -> None:
        """Load the network on the first better device that can, and let it take over."""
        enter_bounds(self._bounds)
        failures: dict[str, BaseException] = {}
        while self._loading and not self._ended:
            device = self._loading[0]
            try:
                member = load(device)
            except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise it to
                failures[device] = error
                self.notes.append(f"{device}: not possible: {first_line(error)}")
                self._loading.pop(0)
                continue
            self._take_over(member)
            return
        if not self._ended:
            self._say(f"{self._first.device}: stays, since no other candidate loads the network")
            reasons = "; ".join(f"{name}: {first_line(error)}" for name, error in failures.items())
            _log.warning("AUTO leaves network %r on %s. %s", self.name, self._first.device, reasons)

    def _take_over(self, member: Member) -> None:
        with self._ending:
            if self._ended:
                member.executable.close_by(self.closing_end)
                return
            self.executor.streams = max(self.streams, member.slots)
            for follower in self.followers:
                member.executable.follow(follower)
            # Before requests run there: who sees that finds nothing more to be loaded.
            self._say(f"{member.device}: chosen, the first candidate that loads the network")
            self._loading.clear()
            self.schedule.prefer(member)
        if not self._keeps and self.schedule.close_idle(self._first):
            self._first.executable.close()

    def ran(self, runner: SharedRunner, member: Member) -> None:
        """Free what a request holds on the CPU, once another device runs it."""
        if not runner.holds(self._first) or self._first is self._preferred:
            return
        runner.leave(self._first)

    def freed(self, member: Member) -> None:
        """Close the network on the CPU when the last inference there has ended."""
        if self._keeps or member is not self._first or self._first is self._preferred:
            return
        if self.schedule.close_idle(self._first):
            self._first.executable.close()

    # -- questions ----------------------------------------------------------------------------

    def metrics(self) -> dict[str, Any]:
        """Return what the base class does, for one device, and what is still tried."""
        return {
            **super().metrics(),
            "EXECUTION_DEVICES": [self._preferred.executable.device],
            "LOADING_DEVICES": list(self._loading),
        }

    def _optimal(self, working: Sequence[Member]) -> int:
        return max(self._preferred.slots, REQUESTS if self._loading else 1)

    def stop(self) -> None:
        """Give up loading."""
        with self._ending:
            self._ended = True
        self._bounds.cancel(f"network {self.name!r} was closed")

    def release(self) -> None:
        """Wait for the end of loading, and close the devices' networks."""
        if self._loader is not None and self._loader is not threading.current_thread():
            self._loader.join(max(self.closing_end - time.monotonic(), 0))
            if self._loader.is_alive():
                _log.warning("AUTO still loads network %r after it was closed", self.name)
        super().release()
