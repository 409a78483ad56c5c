"""The hooks a plugin may implement.

A plugin is any importable object named by an entry point of the group ``polydevice.plugins``;
the entry point's name is the device's name::

    [project.entry-points."polydevice.plugins"]
    NPU = "my_package"

and ``my_package`` holds functions marked with `hookimpl`. Importing it must be quick and must not
load a device library; that belongs inside the hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from polydevice.dtype import Array
    from polydevice.network import Network
    from polydevice.ops.op import Op
    from polydevice.plugin import Plugin, Services

PROJECT = "polydevice"
API_VERSION = 2
"""Version of the plugin interface; a plugin built for another one sets ``polydevice_api``."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_devices(register: Callable[[str, Callable[[str, Services], Plugin]], None]) -> None:
    """Call ``register(name, factory)`` for each device family; ``factory(name, services)``.

    The names AUTO, CPU, GPU, HETERO and MULTI, and those of other plugins, are refused. A plugin of
    operations or file formats alone registers its entry point's name with the factory None.
    """


@hookspec
def will_load_network() -> None:
    """Take notice that a network is going to be loaded on a device of this plugin.

    Called each time, before the plugin is started and asked for its devices. What takes a while and
    needs no configuration, such as starting a driver, can begin here, in a thread.
    """


@hookspec
def register_operations() -> None:
    """Import the modules that define further operations with ``@operation``."""


@hookspec
def register_readers(register: Callable[[str, Callable[[Any, Any], Network]], None]) -> None:
    """Call ``register(suffix, reader)`` for each file format; ``reader(model, weights)``."""


@hookspec(firstresult=True)
def evaluate(op: Op, inputs: Sequence[Array]) -> list[Array] | None:
    """Compute one operation on arrays, for constant folding; None when it cannot be computed.

    Asked for what the CPU device cannot compute.
    """
