"""AUTO and MULTI: whole networks, on one of several devices or on all. Hooks only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polydevice.hookspecs import hookimpl

if TYPE_CHECKING:
    from polydevice.plugin import Plugin, Services


@hookimpl
def register_devices(register: Callable[[str, Callable[[str, Services], Plugin]], None]) -> None:
    """Register the families "AUTO" and "MULTI"."""

    def auto(name: str, services: Services) -> Plugin:
        from polydevice_auto.auto import AutoPlugin

        return AutoPlugin(name, services)

    def multi(name: str, services: Services) -> Plugin:
        from polydevice_auto.multi import MultiPlugin

        return MultiPlugin(name, services)

    register("AUTO", auto)
    register("MULTI", multi)
