"""ModelCache: compiled networks in a folder, for devices that can export and import them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from polydevice.accuracy.calibration import digest
from polydevice.errors import PolydeviceError, UnknownMetricError
from polydevice.files.archive import network_to_bytes
from polydevice.files.file_cache import MODELS_SUFFIX, FileCache, digest_of
from polydevice.network.kept_layers import ALL_F32
from polydevice.version import __version__

if TYPE_CHECKING:
    from polydevice.executable_network import ExecutableNetwork
    from polydevice.network import Network
    from polydevice.options import Options
    from polydevice.plugin import Plugin


class ModelCache:
    """Loads networks through a folder of exported ones.

    An entry counts for the same network (its graph, weights, input and output settings), device,
    configuration and versions only. One that cannot be imported is set aside and made again.
    """

    def __init__(self, folder: Path) -> None:
        """Check the folder; one that cannot be used costs a warning and caches nothing."""
        self.files = FileCache(folder, MODELS_SUFFIX, "compiled networks")

    def load_network(
        self,
        plugin: Plugin,
        network: Network,
        options: Options,
        device_id: str,
        load: Callable[[Network], ExecutableNetwork],
    ) -> ExecutableNetwork:
        """Import the network's entry; without one, `load` it and keep that.

        Of several that want it at the same time, in any process, one loads and the others wait.
        """
        if not self.files.usable:
            return load(network)
        key = _key(plugin, network, options, device_id)
        if (known := self._imported(key, plugin, options, device_id)) is not None:
            return known
        with self.files.making(key):
            made = self.files.has(key)  # meanwhile
            if made and (known := self._imported(key, plugin, options, device_id)) is not None:
                return known
            executable = load(network)
            if ALL_F32 not in network.rt_info:  # else options say more than what was loaded
                self.files.store(key, executable.export())
        return executable

    def _imported(
        self, key: bytes, plugin: Plugin, options: Options, device_id: str
    ) -> ExecutableNetwork | None:
        content = self.files.load(key)
        if content is None:
            return None
        try:
            executable = plugin.import_network(content, options, device_id)
        except PolydeviceError:
            self.files.set_aside(key)
            return None
        executable.from_cache = True
        return executable


def _key(plugin: Plugin, network: Network, options: Options, device_id: str) -> bytes:
    try:
        device = str(plugin.get_metric("FULL_DEVICE_NAME", options, device_id))
    except UnknownMetricError:
        device = f"{plugin.name}.{device_id}"
    settings = sorted(f"{key}={value}" for key, value in options.model_dump().items())
    versions = f"{__version__} {plugin.version}"
    compared = digest(options.accuracy_guard_inputs) if options.accuracy_guard else ""
    parts = (versions, device, "\n".join(settings), compared)
    return digest_of(*parts, network_to_bytes(network))
