"""Devices: the device families that plugins register, started on first use, and their options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice import arguments
from polydevice.device_name import DeviceName
from polydevice.devices.plugin_names import FIRST_PARTY
from polydevice.devices.registry import Registry
from polydevice.errors import (
    DeviceError,
    DeviceNameError,
    DeviceNotFoundError,
    OptionError,
    PluginError,
    PolydeviceError,
    UnknownMetricError,
    UnknownOptionError,
    nearest,
)
from polydevice.foreign_errors import foreign_error
from polydevice.locks import RLock
from polydevice.plugin import DeviceReport, Line, Plugin, Section, Services

if TYPE_CHECKING:
    from polydevice.network import Network
    from polydevice.options import Options


class Devices:
    """What a core knows about devices: plugins by family, and the configuration of each.

    Usable from many threads.

    Attributes:
        registry: where plugins come from.
    """

    def __init__(self, services: Services) -> None:
        """Look up which plugins are installed; none is imported yet."""
        self.registry = Registry()
        self._services = services
        self._plugins: dict[str, Plugin] = {}
        self._options: dict[str, Options] = {}
        self._device_config: dict[tuple[str, str], dict[str, Any]] = {}
        self._lock = RLock()
        self._closed = False

    def names(self) -> list[str]:
        """Return what `Core.available_devices` is."""
        names: list[str] = []
        for family in self.registry.names():
            try:
                plugin = self.plugin(family)
                ids = [] if plugin.is_composite else self._ids(plugin, self._options[family])
            except PolydeviceError:
                continue  # explain() reports it
            names += [family] if len(ids) == 1 else [f"{family}.{i}" for i in ids]
        return names

    def explain(self) -> list[DeviceReport]:
        """Return what `Core.explain_devices` does."""
        reports: list[DeviceReport] = []
        for family in self.registry.names():
            try:
                plugin = self.plugin(family)
                if not plugin.is_composite:
                    with self.contract(family, "explaining its devices"):
                        reports += plugin.explain_devices(self._options[family])
            except PolydeviceError as error:
                fix = "see the reason; other devices are not affected"
                reports.append(DeviceReport(f"plugin {family}", "failed", str(error), fix))
        for conflict in self.registry.conflicts:
            subject = f"plugin {conflict.device} ({conflict.entry})"
            fix = f"uninstall {conflict.entry.distribution}, or have it name its device otherwise"
            reports.append(DeviceReport(subject, "left out", conflict.reason, fix))
        return reports

    # -- plugins ------------------------------------------------------------------------------

    def plugin(self, family: str) -> Plugin:
        """Return the plugin of a family, started if need be.

        Raises:
            DeviceNotFoundError: no such family is registered.
            PluginError: it cannot be started.
            DeviceError: the core is closed.
        """
        with self._lock:
            if self._closed:
                raise DeviceError("this Core is closed; make a new one")
            if family in self._plugins:
                return self._plugins[family]
            try:
                factory = self.registry.factory(family)
            except KeyError:
                known = self.registry.names()
                raise DeviceNotFoundError(
                    f"no device {family!r} is registered.{nearest(family, known)} "
                    f"Registered: {', '.join(known) or 'none'}"
                ) from None
            try:
                with self.contract(family, "starting"):
                    plugin = factory(family, self._services)
                    self._options[family] = plugin.option_type()
            except PluginError as error:
                if family not in FIRST_PARTY:
                    self.registry.fail(family, error)
                raise
            self._plugins[family] = plugin
            return plugin

    def diagnose(self, seconds: float) -> list[Section]:
        """Return what `Core.diagnose_devices` does."""
        sections: list[Section] = []
        for family in self.registry.names():
            try:
                plugin = self.plugin(family)
                if not plugin.is_composite:
                    with self.contract(family, "examining its devices"):
                        sections += plugin.diagnose(self._options[family], seconds)
            except PolydeviceError as error:
                sections.append(
                    Section(f"{family}: devices", (Line("plugin", "failed", str(error)),))
                )
        conflicts = (
            Line(f"plugin {c.device} ({c.entry})", "left out", c.reason)
            for c in self.registry.conflicts
        )
        lines = tuple(conflicts)
        return [*sections, Section("Plugins", lines)] if lines else sections

    @contextmanager
    def contract(self, family: str, doing: str, network: Network | None = None) -> Iterator[None]:
        """Turn what a plugin may not raise into an error that says whose fault it is.

        That is a PluginError for plugins of others, and an InternalError for our own. NumPy says
        nothing of infinities and NaN meanwhile: constants may have them, and values that follow.
        """
        try:
            with np.errstate(all="ignore"):
                yield
        except PolydeviceError:
            raise
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # not even SystemExit may end the program
            if family in FIRST_PARTY or isinstance(error, MemoryError):
                raise foreign_error(f"{family} failed while {doing}", error, network) from error
            raise PluginError(
                f"{self.registry.title(family)} failed while {doing}: {error!r}. "
                "Other devices are not affected."
            ) from error

    def unregister(self, family: str) -> Plugin | None:
        """Forget a family; return its plugin if it was started, for closing.

        Raises:
            PluginError: when the name is not registered.
        """
        with self._lock:
            self.registry.unregister(family)
            self._options.pop(family, None)
            return self._plugins.pop(family, None)

    def end(self) -> list[Plugin] | None:
        """Start no plugin from now on; return those that were started, None the second time."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            return list(self._plugins.values())

    # -- device names -------------------------------------------------------------------------

    def _ids(self, plugin: Plugin, options: Options) -> list[str]:
        with self.contract(plugin.name, "looking for devices"):
            return plugin.device_ids(options)

    def resolve(
        self,
        device_name: str,
        config: Mapping[str, Any] | None = None,
        *,
        will_load: bool = False,
    ) -> tuple[Plugin, Options, str]:
        """Return plugin, options and device id for a device string and a load's configuration.

        Args:
            device_name: as a user wrote it.
            config: on top of the device's configuration.
            will_load: whether a network is loaded next, which the plugin is told first of all.

        Raises:
            DeviceNotFoundError: saying what was left out and why.
            OptionError: (a subclass) for a wrong key or value.
        """
        name = DeviceName.parse(device_name)
        if will_load and not self._closed:
            with self.contract(name.family, "preparing to load a network"):
                self.registry.will_load(name.family)
        plugin = self.plugin(name.family)
        if name.members and not plugin.is_composite:
            raise DeviceNameError(
                f"{name.family} takes no members, so {device_name!r} is not "
                "possible; use for example 'HETERO:GPU,CPU'"
            )
        options = self._options[name.family]
        device_id = name.device_id
        given = arguments.options(config, "the configuration", OptionError)
        keys = plugin.option_type.keys()
        if not device_id and "DEVICE_ID" in keys:
            device_id = str(given.get("DEVICE_ID", options.read("DEVICE_ID")))
        options = options.updated(self._device_config.get((name.family, device_id or "0"), {}))
        options = options.updated(given)
        if name.members:
            options = options.updated({plugin.members_key: ",".join(map(str, name.members))})
        if not plugin.is_composite:
            self._check_exists(plugin, options, device_name, device_id)
        return plugin, options, device_id

    def _check_exists(
        self, plugin: Plugin, options: Options, device_name: str, device_id: str
    ) -> None:
        ids = self._ids(plugin, options)
        if device_id in ids or (ids and not device_id):
            return
        lines = [
            f"  {r.subject}: {r.status}"
            + (f" — {r.reason}" if r.reason else "")
            + (f". Fix: {r.fix}" if r.fix else "")
            for r in plugin.explain_devices(options)
        ]
        there = ", ".join(f"{plugin.name}.{i}" for i in ids)
        raise DeviceNotFoundError(
            f"device {device_name!r} is not available. "
            + (f"Available: {there}." if there else f"{plugin.name} has no usable device here.")
            + ("\n" + "\n".join(lines) if lines else "")
        )

    # -- configuration ------------------------------------------------------------------------

    def set_config(self, config: Mapping[str, Any], device_name: str) -> None:
        """Set keys of a family or one device; all of them or, when one is wrong, none.

        Raises:
            OptionError: (a subclass) for a wrong key or value.
            DeviceNotFoundError: saying what was left out and why.
        """
        config = arguments.options(config, "the configuration", OptionError)
        name = DeviceName.parse(device_name)
        if name.members:
            raise DeviceNameError(
                f"set_config() takes one device, not {device_name!r}; set the keys of each member, "
                f"or pass them to load_network()"
            )
        plugin = self.plugin(name.family)
        with self._lock:
            options = self._options[name.family]
            if name.device_id:
                key = (name.family, name.device_id)
                merged = options.merged(self._device_config.get(key, {}), config)
                options.updated(merged)  # validates
                if name.device_id not in self._ids(plugin, options):
                    self._check_exists(plugin, options, device_name, name.device_id)
                self._device_config[key] = merged
            else:
                self._options[name.family] = options.updated(config)

    def set_config_everywhere(self, config: Mapping[str, Any], known: Sequence[str] = ()) -> None:
        """Set keys in every family that knows them; all of them or, when one is wrong, none.

        Args:
            config: key → value.
            known: keys, without "KEY_", that need no family.

        Raises:
            UnknownOptionError: for a key that every family lacks.
            OptionValueError: for an illegal value.
        """
        changed: dict[str, Options] = {}
        unknown = {key for key in config if key.removeprefix("KEY_") not in known}
        with self._lock:
            for family in self.registry.names():
                try:
                    keys = set(self.plugin(family).option_type.keys())
                except PolydeviceError:
                    continue  # a plugin that does not work cannot be configured
                mine = {k: v for k, v in config.items() if k.removeprefix("KEY_") in keys}
                unknown -= set(mine)
                changed[family] = self._options[family].updated(mine)
            if unknown:
                raise UnknownOptionError(f"no device knows {', '.join(sorted(unknown))}")
            self._options.update(changed)

    def get_config(self, device_name: str, key: str) -> str:
        """Return the value of a key of a family or one device, as text."""
        name = DeviceName.parse(device_name)
        self.plugin(name.family)
        options = self._options[name.family]
        return options.updated(self._device_config.get((name.family, name.device_id), {})).read(key)

    def get_metric(self, device_name: str, name: str) -> Any:
        """Return a metric of a device."""
        arguments.text(name, "metric", UnknownMetricError)
        parsed = DeviceName.parse(device_name)
        plugin = self.plugin(parsed.family)
        if parsed.members:
            raise DeviceNameError(f"get_metric() takes one device, not {device_name!r}")
        options = self._options[parsed.family]
        if not plugin.is_composite and name != "AVAILABLE_DEVICES":
            self._check_exists(plugin, options, device_name, parsed.device_id)
        return plugin.get_metric(name, options, parsed.device_id)
