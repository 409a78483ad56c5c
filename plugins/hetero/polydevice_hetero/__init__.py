"""HETERO: one network cut over several devices. Hook implementations only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polydevice.hookspecs import hookimpl

if TYPE_CHECKING:
    from polydevice.plugin import Plugin, Services


@hookimpl
def register_devices(register: Callable[[str, Callable[[str, Services], Plugin]], None]) -> None:
    """Register the family "HETERO"."""

    def make(name: str, services: Services) -> Plugin:
        from polydevice_hetero.plugin import HeteroPlugin

        return HeteroPlugin(name, services)

    register("HETERO", make)
