"""Registry: finds plugins through entry points; one failure never hides another."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import importlib_metadata
import pluggy

from polydevice import hookspecs
from polydevice.errors import DeviceNameError, PluginError, UnsupportedOperationError
from polydevice.plugin import Plugin, Services

GROUP = "polydevice.plugins"
FIRST_PARTY = ("polydevice_cpu", "polydevice_gpu", "polydevice_hetero")
IMPORT_LIMIT_S = float(os.environ.get("POLYDEVICE_PLUGIN_TIMEOUT", "10"))
"""How long importing a third-party plugin may take, in seconds."""

Factory = Callable[[str, Services], Plugin]
T = TypeVar("T")

_log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """Where a plugin comes from: what to import, and the distribution that names it."""

    module: str
    distribution: str


class Registry:
    """The plugins by device name, imported on first use.

    Attributes:
        entries: device name → where its plugin comes from.
        failures: device name → why its plugin cannot be used.
        definitions: how often plugins were let define operations.
    """

    def __init__(self) -> None:
        """Look up the entry points; nothing is imported yet."""
        self.hooks = pluggy.PluginManager(hookspecs.PROJECT)
        self.hooks.add_hookspecs(hookspecs)
        self.entries: dict[str, Entry] = {}
        self.failures: dict[str, PluginError] = {}
        self._factories: dict[str, Factory] = {}
        self._modules: set[str] = set()
        self.definitions = 0
        self._asked: set[Any] = set()
        self._lock = threading.RLock()
        for point in importlib_metadata.entry_points(group=GROUP):
            distribution = point.dist.name if point.dist is not None else "?"
            self._add(point.name, Entry(point.value, distribution))

    def _add(self, name: str, entry: Entry) -> None:
        known = self.entries.get(name)
        if known is not None and known.module != entry.module:
            # First come, first served would depend on the order of folders: refuse both loudly,
            # but never let a stranger displace a first-party device.
            ours = next((e for e in (known, entry) if e.module in FIRST_PARTY), None)
            if ours is None:
                self.failures[name] = PluginError(
                    f"two plugins are called {name}: {known.module} (of {known.distribution}) and "
                    f"{entry.module} (of {entry.distribution}); uninstall one of them"
                )
            self.entries[name] = ours or known
            return
        self.entries[name] = entry

    def names(self) -> list[str]:
        """Every registered device name, sorted."""
        return sorted({*self.entries, *self._factories})

    def title(self, name: str) -> str:
        """How messages call a device's plugin: its name, module and distribution."""
        entry = self.entries.get(name)
        source = f" ({entry.module}, from {entry.distribution})" if entry else ""
        return f"plugin {name}{source}"

    def register(self, plugin_name: str, device_name: str) -> None:
        """Register a plugin by hand.

        Args:
            plugin_name: module to import.
            device_name: name of its device.

        Raises:
            DeviceNameError: for a name with a dot or colon.
            PluginError: when the name is taken.
        """
        if not device_name or not device_name.replace("_", "a").isalnum():
            raise DeviceNameError(f"{device_name!r} cannot name a device; use letters and digits")
        with self._lock:
            if device_name in self.entries:
                taken = self.entries[device_name]
                raise PluginError(
                    f"device {device_name} is already registered by {taken.module}; "
                    "unregister it first or choose another name"
                )
            self.entries[device_name] = Entry(plugin_name, "register_plugin()")

    def unregister(self, device_name: str) -> None:
        """Forget a device name; raises PluginError when it is not registered."""
        with self._lock:
            if device_name not in self.names():
                raise PluginError(
                    f"device {device_name} is not registered; registered: {', '.join(self.names())}"
                )
            self.entries.pop(device_name, None)
            self._factories.pop(device_name, None)
            self.failures.pop(device_name, None)

    def factory(self, name: str) -> Factory:
        """Return what makes the plugin of a device, importing its module on first use.

        Raises:
            PluginError: when the module cannot be imported or offers no such device.
        """
        with self._lock:
            if name not in self._factories and name in self.entries:
                self._load(name)
            if name in self._factories:
                return self._factories[name]
            if name in self.failures:
                raise self.failures[name]
        raise KeyError(name)

    def load_all(self) -> None:
        """Import every plugin, for hooks that any of them may implement (operations, readers)."""
        with self._lock:
            for name in list(self.entries):
                self._load(name)

    def define_operations(self, seen: int) -> bool:
        """Let every plugin that was not asked before define its operations.

        One that fails costs a warning in the log, and only its own operations.

        Args:
            seen: `definitions` before the caller missed an operation.

        Returns:
            Whether plugins were asked since then, here or by another thread.
        """
        with self._lock:
            self.load_all()
            plugins = self.hooks.get_plugins()
            fresh = plugins - self._asked
            for plugin in fresh:
                only_this = self.hooks.subset_hook_caller("register_operations", plugins - {plugin})
                try:
                    only_this()
                except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin does
                    name = self.hooks.get_name(plugin)
                    _log.warning("plugin %s failed to define its operations: %r", name, error)
            self._asked |= fresh
            self.definitions += bool(fresh)
            return self.definitions > seen

    def with_operations(self, work: Callable[[], T]) -> T:
        """Do `work`; again with the operations of all plugins, if it needs one that is unknown."""
        seen = self.definitions
        try:
            return work()
        except UnsupportedOperationError:
            if not self.define_operations(seen):
                raise
        return work()

    def _load(self, name: str) -> None:
        entry = self.entries[name]
        if name in self.failures or entry.module in self._modules:
            return
        try:
            module = _import(entry)
            wanted = getattr(module, "polydevice_api", hookspecs.API_VERSION)
            if wanted != hookspecs.API_VERSION:
                raise PluginError(
                    f"it is built for plugin interface {wanted}, this is {hookspecs.API_VERSION}; "
                    f"install a version of {entry.distribution} that fits"
                )
            self.hooks.register(module, name=entry.module)
            self._modules.add(entry.module)
            others = [plugin for plugin in self.hooks.get_plugins() if plugin is not module]
            only_this = self.hooks.subset_hook_caller("register_devices", others)
            only_this(register=self._factories.__setitem__)
            if name not in self._factories:
                raise PluginError(f"its register_devices() registers no device {name!r}")
        except Exception as error:  # noqa: BLE001 - kept, and raised when the device is used
            reason = str(error) if isinstance(error, PluginError) else f"{error!r}"
            failure = PluginError(
                f"{self.title(name)} cannot be used: "
                f"{reason}. Fix or uninstall {entry.distribution}; other devices are not affected."
            )
            failure.__cause__ = error
            self.failures[name] = failure


def _import(entry: Entry) -> Any:
    module_name, _, attribute = entry.module.partition(":")
    if module_name.split(".")[0] in FIRST_PARTY:
        module = importlib.import_module(module_name)
    else:
        module = _import_with_limit(module_name)
    for part in filter(None, attribute.split(".")):
        module = getattr(module, part)
    return module


def _import_with_limit(name: str) -> Any:
    """Import in a thread of its own, so that a module that hangs costs only the time limit."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(importlib.import_module(name))
        except BaseException as error:  # noqa: BLE001 - not even SystemExit may end the program
            outcome.append(PluginError(f"importing it raised {error!r}"))

    thread = threading.Thread(target=work, name=f"import {name}", daemon=True)
    thread.start()
    thread.join(IMPORT_LIMIT_S)
    if not outcome:
        raise PluginError(
            f"importing it took longer than {IMPORT_LIMIT_S:g} s "
            "(POLYDEVICE_PLUGIN_TIMEOUT sets the limit)"
        )
    if isinstance(outcome[0], PluginError):
        raise outcome[0]
    return outcome[0]
