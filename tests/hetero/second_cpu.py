"""A second device for cutting networks: the CPU under another name."""

from __future__ import annotations

from typing import Any

from polydevice.exported import ExportedNetwork
from polydevice.hookspecs import hookimpl
from polydevice.network import Network
from polydevice.options import Options
from polydevice.remote import RemoteContext
from polydevice_cpu.executable import CpuExecutableNetwork
from polydevice_cpu.plugin import CpuPlugin


class PickyPlugin(CpuPlugin):
    """A CPU that refuses some operations, so that HETERO has something to decide."""

    refused = ("ReLU",)

    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        refused = {n.name: "it is picky" for n in network.nodes() if n.type in self.refused}
        return {**super().unsupported_nodes(network, options), **refused}

    def import_network(
        self, data: bytes, options: Options, device_id: str, context: RemoteContext | None = None
    ) -> CpuExecutableNetwork:
        """The CPU's networks export as the CPU's, under whatever name it is registered."""
        found = ExportedNetwork.read("CPU", data, self.services.evaluate)
        return self.load_network(found.network, options.over(found.config), device_id)


@hookimpl
def register_devices(register: Any) -> None:
    register("PICKY", PickyPlugin)
