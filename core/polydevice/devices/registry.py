"""Registry: finds plugins through entry points; one failure never hides another."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import importlib_metadata
import pluggy

from polydevice import hookspecs
from polydevice.devices.plugin_names import FIRST_PARTY, Conflict, Entry, check_name, refusal
from polydevice.errors import (
    DeviceNameError,
    PluginError,
    PolydeviceError,
    UnsupportedOperationError,
)
from polydevice.isolation import PluginTimeoutError, contained, within_limit
from polydevice.locks import RLock
from polydevice.plugin import Plugin, Services

GROUP = "polydevice.plugins"

Factory = Callable[[str, Services], Plugin]
T = TypeVar("T")

_log = logging.getLogger(__name__)


class Registry:
    """The plugins by device name, imported on first use.

    The names of our own devices are reserved; a name that two others want is nobody's. A plugin
    that fails, to be imported, to register, to start or to return in time, is called no more.

    Attributes:
        entries: device name → where its plugin comes from.
        failures: device name → why its plugin cannot be used.
        conflicts: who wanted a name and did not get it.
        definitions: how often plugins were let define operations.
    """

    def __init__(self) -> None:
        """Look up the entry points; nothing is imported yet."""
        self.hooks = pluggy.PluginManager(hookspecs.PROJECT)
        self.hooks.add_hookspecs(hookspecs)
        self.entries: dict[str, Entry] = {}
        self.failures: dict[str, PluginError] = {}
        self.conflicts: list[Conflict] = []
        self._factories: dict[str, Factory | None] = {}  # None: a plugin of other hooks
        self._modules: dict[str, dict[Any, Any]] = {}  # what each that was loaded offered
        self.definitions = 0
        self._asked: set[Any] = set()
        self._warned: set[tuple[str, str]] = set()
        self._lock = RLock()
        for point in importlib_metadata.entry_points(group=GROUP):
            distribution = point.dist.name if point.dist is not None else "?"
            self._add(point.name, Entry(point.value, distribution))

    def _add(self, name: str, entry: Entry) -> None:
        reason = refusal(name, entry)
        known = self.entries.get(name)
        if reason:
            self.conflicts.append(Conflict(name, entry, reason))
        elif known is None:
            self.entries[name] = entry
        elif known.module != entry.module:
            # First come, first served would depend on the order of folders: refuse both loudly.
            reason = f"two plugins are called {name}: {known} and {entry}; uninstall one of them"
            self.failures[name] = PluginError(reason)
            self.conflicts.append(Conflict(name, entry, reason))

    def names(self) -> list[str]:
        """Every registered device name, sorted."""
        return sorted({*self.entries, *self._factories})

    def title(self, name: str) -> str:
        """How messages call a device's plugin: its name, module and distribution."""
        entry = self.entries.get(name)
        return f"plugin {name}" + (f" ({entry})" if entry else "")

    def register(self, plugin_name: Any, device_name: Any) -> None:
        """Register a plugin by hand.

        Args:
            plugin_name: module to import.
            device_name: name of its device.

        Raises:
            DeviceNameError: for a name with a dot or colon.
            PluginError: when the name is taken, or reserved for a device of ours.
        """
        check_name(device_name)
        if not isinstance(plugin_name, str) or not plugin_name:
            raise PluginError(f"{plugin_name!r} names no module; give its importable name")
        entry = Entry(plugin_name, "register_plugin()")
        with self._lock:
            if device_name in self.entries:
                raise PluginError(
                    f"device {device_name} is already registered by "
                    f"{self.entries[device_name].module}; unregister it first or choose another "
                    "name"
                )
            if reason := refusal(device_name, entry):
                raise PluginError(reason)
            self.entries[device_name] = entry

    def unregister(self, device_name: str) -> None:
        """Forget a device name; raises PluginError when it is not registered."""
        with self._lock:
            if device_name not in self.names():
                raise PluginError(
                    f"device {device_name} is not registered; registered: {', '.join(self.names())}"
                )
            entry = self.entries.pop(device_name, None)
            self._factories.pop(device_name, None)
            self.failures.pop(device_name, None)
            if entry is not None and all(e.module != entry.module for e in self.entries.values()):
                self._withdraw(entry.module)

    def factory(self, name: str) -> Factory:
        """Return what makes the plugin of a device, importing its module on first use.

        Raises:
            PluginError: when the module cannot be imported or offers no such device.
            KeyError: when no plugin has that name.
        """
        with self._lock:
            if name in self.entries:
                self._load(name)
            if name in self.failures:
                raise self.failures[name]
            if name in self._factories:
                factory = self._factories[name]
                if factory is None:
                    raise PluginError(f"{self.title(name)} offers hooks and no device")
                return factory
        raise KeyError(name)

    def will_load(self, name: str) -> None:
        """Tell the plugin of a device that a network is going to be loaded on it."""
        with self._lock:
            if name not in self.entries:
                return
            self._load(name)
            module = self.entries[name].module
            plugins = self.hooks.get_plugins()
        others = frozenset(each for each in plugins if self.hooks.get_name(each) != module)
        for _ in self.call("will_load_network", skip=others):
            pass

    def load_all(self) -> None:
        """Import every plugin, for hooks that any of them may implement (operations, readers)."""
        with self._lock:
            for name in list(self.entries):
                self._load(name)

    # -- calls of hooks -----------------------------------------------------------------------

    def call(
        self, hook: str, skip: frozenset[Any] = frozenset(), **arguments: Any
    ) -> Iterator[Any]:
        """Call a hook of one plugin after another, ours first, and yield what each returns.

        One that raises anything yields nothing and costs one warning in the log; one that does not
        return in time is called no more.

        Args:
            hook: its name.
            skip: plugins not to call.
            arguments: all arguments of the hook.
        """
        implementations = [
            each
            for each in reversed(getattr(self.hooks.hook, hook).get_hookimpls())
            if each.plugin not in skip and not any((each.hookwrapper, each.wrapper))
        ]
        ours = FIRST_PARTY.values()
        for each in sorted(implementations, key=lambda each: each.plugin_name not in ours):
            work = partial(each.function, *(arguments[name] for name in each.argnames))
            if each.plugin_name in ours:
                yield work()
                continue
            try:
                result = within_limit(work, f"{hook}() of plugin {each.plugin_name}")
            except PolydeviceError as error:
                if (hook, each.plugin_name) not in self._warned:
                    _log.warning("%s", error)
                self._warned.add((hook, each.plugin_name))
                if isinstance(error, PluginTimeoutError):
                    self._fail_module(each.plugin_name, error)
                continue
            yield result

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
            fresh = self.hooks.get_plugins() - self._asked
            for _ in self.call("register_operations", skip=frozenset(self._asked)):
                pass
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

    # -- loading ------------------------------------------------------------------------------

    def fail(self, name: str, error: PluginError) -> None:
        """Note that a plugin cannot be used; once none of its devices can, none of its hooks is."""
        with self._lock:
            self.failures[name] = error
            entry = self.entries.get(name)
            if entry is None:
                return
            devices = [each for each, other in self.entries.items() if other.module == entry.module]
            if all(each in self.failures for each in devices):
                self._withdraw(entry.module)

    def _fail_module(self, module: str, error: PluginError) -> None:
        with self._lock:
            for name, entry in self.entries.items():
                if entry.module == module:
                    self.failures[name] = self._unusable(name, str(error), error)
            self._withdraw(module)

    def _withdraw(self, module: str) -> None:
        if self.hooks.has_plugin(module):
            self.hooks.unregister(name=module)
        self._modules.pop(module, None)

    def _unusable(self, name: str, reason: str, cause: BaseException) -> PluginError:
        distribution = self.entries[name].distribution
        failure = PluginError(
            f"{self.title(name)} cannot be used: {reason}. Fix or uninstall {distribution}; "
            "other devices are not affected."
        )
        failure.__cause__ = cause
        return failure

    def _load(self, name: str) -> None:
        entry = self.entries[name]
        if name in self.failures:
            return
        try:
            if entry.module not in self._modules:
                self._load_module(entry)
            elif name not in self._factories and name in self._modules[entry.module]:
                # Unregistered and registered again, while the module served another device.
                self._offer(name, self._modules[entry.module][name], entry)
            if name not in self._factories:
                raise PluginError(f"its register_devices() registers no device {name!r}")
        except PolydeviceError as error:
            self.fail(name, self._unusable(name, str(error), error))

    def _load_module(self, entry: Entry) -> None:
        module = _import(entry)
        wanted = getattr(module, "polydevice_api", hookspecs.API_VERSION)
        if wanted != hookspecs.API_VERSION:
            raise PluginError(
                f"it is built for plugin interface {wanted}, this is {hookspecs.API_VERSION}; "
                f"install a version of {entry.distribution} that fits"
            )
        found: list[tuple[Any, Any]] = []
        try:
            with contained("registering it"):
                self.hooks.register(module, name=entry.module)
            caller = self.hooks.hook.register_devices
            for each in caller.get_hookimpls():
                if each.plugin is module:
                    given = {"register": lambda *pair: found.append(pair)}
                    work = partial(each.function, *(given[name] for name in each.argnames))
                    if entry.is_first_party:
                        work()
                    else:
                        within_limit(work, "its register_devices()")
            for device, factory in found:
                self._offer(device, factory, entry)
        except PolydeviceError:
            self._withdraw(entry.module)
            raise
        self._modules[entry.module] = dict(found)

    def _offer(self, device: Any, factory: Any, entry: Entry) -> None:
        """Take a device from its plugin, unless the name is another's."""
        try:
            check_name(device)
        except DeviceNameError as error:
            raise PluginError(
                f"its register_devices() offers a device of no name: {error}"
            ) from None
        owner = self.entries.get(device)
        reason = refusal(device, entry)
        if not reason and owner is not None and owner.module != entry.module:
            reason = f"{device} is the device of {owner}"
        elif not reason and owner is None and device in self._factories:
            reason = f"{device} is another plugin's already"
        if reason:
            self.conflicts.append(Conflict(device, entry, reason))
        else:
            self._factories[device] = factory


def _import(entry: Entry) -> Any:
    module_name, _, attribute = entry.module.partition(":")

    def work() -> Any:
        module = importlib.import_module(module_name)
        for part in filter(None, attribute.split(".")):
            module = getattr(module, part)
        return module

    if entry.is_first_party:
        with contained("importing it"):
            return work()
    return within_limit(work, "importing it")
