"""IECore: devices, and networks on them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polydevice.compat import chosen_device
from polydevice.compat.inference_engine.executable import ExecutableNetwork
from polydevice.compat.inference_engine.network import IENetwork, read
from polydevice.compat.inference_engine.surface import Surface
from polydevice.compat.openvino.errors import translated
from polydevice.core import Core
from polydevice.plugin import Version

Config = Mapping[str, str]


class IECore(Surface):
    """Devices, and networks on them."""

    def __init__(self, xml_config_file: Any = "") -> None:
        """Find the devices.

        Raises:
            RuntimeError: a file of plugins, which are found by entry points here.
        """
        if os.fspath(xml_config_file):
            self.register_plugins(xml_config_file)
        self._core = Core()

    @property
    def available_devices(self) -> list[str]:
        """Names of the devices that can be used."""
        return self._core.available_devices

    @translated
    def get_versions(self, device_name: str) -> dict[str, Version]:
        """Return family → version: major, minor, build_number, description."""
        return self._core.get_versions(device_name)

    def read_network(
        self, model: Any, weights: Any = "", init_from_buffer: bool = False
    ) -> IENetwork:
        """Read an OpenVINO IR or an ONNX model.

        Args:
            model: path; or the content, as bytes, with `init_from_buffer`.
            weights: likewise; "" for the file of the same stem.
            init_from_buffer: whether contents are given.

        Raises:
            Exception: there is no such file.
            RuntimeError: it cannot be read.
        """
        return IENetwork._of(read(model, weights, init_from_buffer))

    @translated
    def load_network(
        self,
        network: Any,
        device_name: str,
        config: Config | None = None,
        num_requests: int = 1,
    ) -> ExecutableNetwork:
        """Load a network, or the file of one, on a device.

        Args:
            network: an IENetwork, or a path.
            device_name: "CPU", "GPU.1", "HETERO:GPU,CPU"…
            config: keys of this network.
            num_requests: how many requests there are; 0 for the device's optimal number.

        Raises:
            ValueError: a negative number of requests.
            TypeError: keys or values that are no text.
            RuntimeError: the device cannot run it, or a key or value is not legal.
        """
        if num_requests < 0:
            raise ValueError(
                f"Incorrect number of requests specified: {num_requests}. Expected positive "
                "integer number or zero for auto detection"
            )
        given = network._network if isinstance(network, IENetwork) else read(network)
        device = chosen_device() or device_name
        executable = self._core.load_network(given, device, _texts(config), num_requests)
        return ExecutableNetwork(executable)

    @translated
    def import_network(
        self,
        model_file: Any,
        device_name: str,
        config: Config | None = None,
        num_requests: int = 1,
    ) -> ExecutableNetwork:
        """Load what `ExecutableNetwork.export` wrote.

        Raises:
            ValueError: a negative number of requests.
            RuntimeError: it is damaged, or of another device or version.
        """
        if num_requests < 0:
            raise ValueError(f"Incorrect number of requests specified: {num_requests}")
        device = chosen_device() or device_name
        imported = self._core.import_network(Path(model_file), device, _texts(config))
        made = ExecutableNetwork(imported)
        if num_requests > 1:
            from polydevice.compat.inference_engine.request import InferRequest

            more = [imported.create_infer_request() for _ in range(num_requests)]
            made._requests = [InferRequest(request) for request in more]
        return made

    @translated
    def query_network(
        self, network: IENetwork, device_name: str, config: Config | None = None
    ) -> dict[str, str]:
        """Return layer → device, of the layers that the device can run."""
        device = chosen_device() or device_name
        return self._core.query_network(network._network, device, _texts(config))

    @translated
    def set_config(self, config: Config, device_name: str) -> None:
        """Set keys of a device; of all with "".

        Raises:
            TypeError: keys or values that are no text.
            RuntimeError: an unknown key, or a value that is not legal.
        """
        self._core.set_config(_texts(config) or {}, device_name or None)

    @translated
    def get_config(self, device_name: str, config_name: str) -> str:
        """Return a key's value; raises RuntimeError when there is none of that name."""
        return self._core.get_config(device_name, config_name)

    @translated
    def get_metric(self, device_name: str, metric_name: str) -> Any:
        """Return a metric; raises RuntimeError when there is none of that name."""
        return self._core.get_metric(device_name, metric_name)

    @translated
    def register_plugin(self, plugin_name: str, device_name: str = "") -> None:
        """Register an importable module with polydevice's hooks as the plugin of a device."""
        self._core.register_plugin(plugin_name, device_name)

    def register_plugins(self, xml_config_file: Any) -> None:
        """Refuse: plugins are found by entry points.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"{xml_config_file}: plugins are found by entry points (docs/adding-a-device.md), not "
            "listed in a file"
        )

    @translated
    def unregister_plugin(self, device_name: str) -> None:
        """Close a device's plugin and forget its name."""
        self._core.unregister_plugin(device_name)

    def add_extension(self, extension_path: Any, device_name: str) -> None:
        """Refuse: extensions are libraries of OpenVINO's.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"the extension {extension_path!r} cannot be used: it is a library of OpenVINO's. "
            "Register operations with the hook register_operations (docs/hooks.md), and kernels of "
            "your own as custom layers (docs/custom-layers.md)"
        )


def _texts(config: Mapping[Any, Any] | None) -> dict[str, str] | None:
    if config is None:
        return None
    for key, value in config.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"keys and values of a configuration are text, not {key!r}: {value!r}")
    return dict(config)
