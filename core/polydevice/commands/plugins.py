"""``polydevice plugins``: what is installed, and its state."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from polydevice.commands.output import add_json, show

if TYPE_CHECKING:
    from polydevice.devices.plugin_names import Entry
    from polydevice.devices.registry import Registry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the plugins, those that failed to load and those that lost their name to another."""
    from polydevice.devices.registry import Registry

    registry = Registry()
    registry.load_all()
    rows = [_plugin_row(registry, name, entry) for name, entry in registry.entries.items()]
    rows += [
        [c.device, c.entry.module, _with_version(c.entry.distribution), "", c.reason]
        for c in registry.conflicts
    ]
    headings = ["Device", "Module", "Distribution", "Hooks", "State"]
    keys = {heading.lower(): heading for heading in headings}
    show(options, keys, [dict(zip(keys, row)) for row in sorted(rows)])
    return 0


def _plugin_row(registry: Registry, name: str, entry: Entry) -> list[str]:
    failure = registry.failures.get(name)
    plugin = registry.hooks.get_plugin(entry.module)
    callers = (registry.hooks.get_hookcallers(plugin) if plugin is not None else None) or []
    hooks = ", ".join(sorted(caller.name for caller in callers))
    state = "ready" if failure is None else str(failure)
    return [name, entry.module, _with_version(entry.distribution), hooks, state]


def _with_version(distribution: str) -> str:
    import importlib_metadata

    try:
        return f"{distribution} {importlib_metadata.version(distribution)}"
    except importlib_metadata.PackageNotFoundError:
        return f"{distribution} ?"
