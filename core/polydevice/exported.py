"""Exported networks: what `ExecutableNetwork.export` writes, the same for all devices."""

from __future__ import annotations

import json
from collections.abc import Mapping

from polydevice.dataclass import dataclass
from polydevice.errors import ModelFormatError
from polydevice.files.archive import network_from_bytes, network_to_bytes
from polydevice.files.container import pack, unpack
from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.options import Options

_NETWORK, _CONFIG, _EXTRA = "network", "config", "extra/"


def export_network(
    device: str, network: Network, options: Options, extra: Mapping[str, bytes] | None = None
) -> bytes:
    """Return a loaded network as bytes.

    Args:
        device: the device family, "GPU"; only the same can import it.
        network: as the plugin was given it.
        options: as it was loaded.
        extra: what else the plugin wants back.
    """
    sections = {
        _NETWORK: network_to_bytes(network),
        _CONFIG: json.dumps(options.exported()).encode(),
    }
    for name, content in (extra or {}).items():
        sections[_EXTRA + name] = content
    return pack(f"network on {device}", sections)


@dataclass(frozen=True)
class ExportedNetwork:
    """What `export_network` was given.

    Attributes:
        network: with shapes inferred.
        config: key → text of what the network was loaded with; see `Options.over`.
        extra: the plugin's own.
    """

    network: Network
    config: dict[str, str]
    extra: dict[str, bytes]

    @classmethod
    def read(cls, device: str, data: bytes, evaluate: Evaluate | None) -> ExportedNetwork:
        """Read the bytes of `export_network`.

        Raises:
            ModelFormatError: they are damaged, of another device, or from another version.
            UnsupportedOperationError: the network has an operation that nothing here defines.
        """
        sections = unpack(data, f"network on {device}")
        try:
            config = json.loads(sections[_CONFIG])
            content = sections[_NETWORK]
            if not all(isinstance(value, str) for value in config.values()):
                raise TypeError("configuration values are texts")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ModelFormatError(f"the exported network is not consistent: {error!r}") from None
        extra = {
            name.removeprefix(_EXTRA): part
            for name, part in sections.items()
            if name.startswith(_EXTRA)
        }
        return cls(network_from_bytes(content, evaluate), config, extra)
