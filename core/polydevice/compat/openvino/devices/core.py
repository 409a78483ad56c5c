"""Core: devices, and models on them."""

from __future__ import annotations

import io
import os
import platform
from collections.abc import Mapping
from typing import Any

from polydevice.compat import chosen_device
from polydevice.compat.openvino.devices import settings
from polydevice.compat.openvino.devices.compiled_model import CompiledModel
from polydevice.compat.openvino.devices.context import RemoteContext
from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.process import evaluate
from polydevice.compat.openvino.surface import Surface
from polydevice.core import Core as CoreCore
from polydevice.errors import UnknownOptionError
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops import io as ops
from polydevice.passes.apply_port_settings import apply_port_settings
from polydevice.plugin import Version as CoreVersion


class Version(Surface):
    """The version of a plugin."""

    def __init__(self, version: CoreVersion) -> None:
        """Show core's."""
        self.major, self.minor, self.patch = version.major, version.minor, 0
        self.build_number, self.description = version.build_number, version.description


class Core(Surface):
    """Devices, their properties, and models on them."""

    __slots__ = ("__weakref__", "_core", "_set")

    def __init__(self, xml_config_file: Any = "") -> None:
        """Find the devices.

        Raises:
            RuntimeError: a file of plugins, which are found by entry points here.
        """
        if os.fspath(xml_config_file):
            raise RuntimeError(
                f"{xml_config_file}: plugins are found by entry points (docs/adding-a-device.md), "
                "not listed in a file; use Core()"
            )
        self._core = CoreCore()
        self._set: dict[str, dict[str, Any]] = {}

    # -- devices ------------------------------------------------------------------------------

    @property
    def available_devices(self) -> list[str]:
        """Names of the devices that can be used."""
        return self._core.available_devices

    def get_available_devices(self) -> list[str]:
        """Return the names of the devices that can be used."""
        return self._core.available_devices

    @translated
    def get_versions(self, device_name: str) -> dict[str, Version]:
        """Return family → version of its plugin."""
        return {name: Version(v) for name, v in self._core.get_versions(device_name).items()}

    @translated
    def register_plugin(self, plugin_name: str, device_name: str, config: Any = None) -> None:
        """Register an importable module with polydevice's hooks as the plugin of a device."""
        self._core.register_plugin(plugin_name, device_name)
        if config:
            self.set_property(device_name, config)

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
    def unload_plugin(self, device_name: str) -> None:
        """Close a device's plugin and forget its name."""
        self._core.unregister_plugin(device_name)

    def add_extension(self, extension: Any) -> None:
        """Refuse: extensions are libraries of OpenVINO's.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"the extension {extension!r} cannot be used: it is a library, or a class, of "
            "OpenVINO's. Register operations with the hook register_operations (docs/hooks.md), "
            "and kernels of your own as custom layers (docs/custom-layers.md)"
        )

    # -- properties ---------------------------------------------------------------------------

    @translated
    def set_property(self, *given: Any) -> None:
        """Set properties: ``set_property(device, properties)``, or of all devices without one.

        Properties are a dictionary, or what calling a property of `openvino.properties` returns.

        Raises:
            RuntimeError: an unknown property, or a value that is not legal.
        """
        named = isinstance(given[0], str) and len(given) > 1
        if named and not isinstance(given[1], (Mapping, tuple)):
            given, named = (tuple(given),), False  # ("KEY", value)
        properties = settings.pairs(given[1] if named else given)
        if named:
            self._set.setdefault(given[0], {}).update(properties)
            devices = _members(chosen_device() or given[0])
        else:
            self._set.setdefault("", {}).update(properties)
            if "CACHE_DIR" in properties:
                self._core.set_config({"CACHE_DIR": os.fspath(properties["CACHE_DIR"])})
            names = self._core.available_devices
            devices = list(dict.fromkeys(name.partition(".")[0] for name in names))
        for device in devices:
            keys = self._core.option_keys(device)
            self._core.set_config(settings.to_config(properties, keys, device), device)

    @translated
    def get_property(self, device_name: str, property: str | None = None) -> Any:  # noqa: A002
        """Return a property of a device; of the core where only its name is given.

        Raises:
            RuntimeError: there is none of that name.
        """
        name = str(device_name if property is None else property)
        if property is None and name == "CACHE_DIR":
            return str(self._set.get("", {}).get(name, ""))
        named = "CPU" if property is None else device_name
        device_name = _members(chosen_device() or named)[0]
        metrics = self._core.get_metric(device_name, "SUPPORTED_METRICS")
        keys = self._core.option_keys(device_name)
        if name == "SUPPORTED_PROPERTIES":
            own = [metric for metric in metrics if metric != "SUPPORTED_CONFIG_KEYS"]
            listed = dict.fromkeys(own, "RO") | dict.fromkeys(settings.properties_of(keys), "RW")
            return {**listed, "SUPPORTED_PROPERTIES": "RO"}
        if name in metrics and name != "DEVICE_TYPE":
            return self._core.get_metric(device_name, name)
        if name == "EXECUTION_DEVICES":
            return [device_name]
        if name == "DEVICE_TYPE":
            return settings.device_type(str(self._kind(device_name, metrics)))
        if name == "DEVICE_ARCHITECTURE":
            return platform.machine()
        found = settings.from_config(name, lambda k: self._core.get_config(device_name, k), keys)
        if found is None:
            found = settings.kept(name, self._set.get(named, {}))
        if found is None:
            found = self._set.get(named, {}).get(name)
        if found is None:
            legal = ", ".join(self.get_property(device_name, "SUPPORTED_PROPERTIES"))
            raise UnknownOptionError(
                f"Cannot get unsupported property: {name} of {device_name}; there are: {legal}"
            )
        return found

    def _kind(self, device: str, metrics: list[str]) -> Any:
        known = "DEVICE_TYPE" in metrics
        return self._core.get_metric(device, "DEVICE_TYPE") if known else "integrated"

    # -- models -------------------------------------------------------------------------------

    @translated
    def read_model(self, model: Any, weights: Any = None, config: Any = None) -> Model:
        """Read an OpenVINO IR or an ONNX model.

        Args:
            model: a path, the content as bytes or text of XML, or a stream.
            weights: of an IR, likewise, or as a tensor; "" or None for the file of the same stem.
            config: has no effect.

        Raises:
            RuntimeError: the model cannot be read.
        """
        return Model._of(self._read(model, weights))

    def _read(self, model: Any, weights: Any = None) -> Network:
        if isinstance(weights, Tensor):
            weights = weights._memory().tobytes()
        if isinstance(weights, (str, os.PathLike)) and not os.fspath(weights):
            weights = None
        if isinstance(model, str) and model.lstrip().startswith("<"):
            model = model.encode()
        network = self._core.read_network(_content(model), _content(weights))
        apply_port_settings(network)
        for node in network.parameters:  # an ONNX input has its own name, and so has IR of today
            if not node.output.names and "onnx" in network.rt_info:
                node.output.names.add(node.name)
        return network

    @translated
    def compile_model(
        self,
        model: Any,
        device_name: Any = None,
        config: Any = None,
        *,
        weights: Any = None,
    ) -> CompiledModel:
        """Load a model on a device.

        Args:
            model: a Model, or what `read_model` takes.
            device_name: "CPU", "GPU.1", "AUTO", "HETERO:GPU,CPU"…; None for AUTO; or a context.
            config: properties of this model; a CACHE_DIR counts for later ones too.
            weights: of a model that is read.

        Raises:
            RuntimeError: the model cannot be read, or the device cannot run it.
        """
        if isinstance(device_name, Mapping):
            device_name, config = None, device_name
        network = model._network if isinstance(model, Model) else self._read(model, weights)
        shown = network.clone()
        folder = settings.pairs(config or {}).get("CACHE_DIR")
        if folder is not None:
            self._core.set_config({"CACHE_DIR": os.fspath(folder)})
        if isinstance(device_name, RemoteContext):
            device = device_name._context.device_name
            executable = self._core.load_network(
                network, device_name._context, self._config(config, device)
            )
            return CompiledModel._of(executable, shown, config)
        device = self._device(device_name, config)
        executable = self._core.load_network(network, device, self._config(config, device))
        return CompiledModel._of(executable, shown, config)

    def _device(self, name: str | None, config: Any = None) -> str:
        device = chosen_device() or str(name or "AUTO")
        given = settings.pairs(config or {})
        priorities = next((given[name] for name in settings.PRIORITIES if name in given), None)
        if priorities and ":" not in device and chosen_device() is None:
            device = f"{device}:{priorities}"
        return device

    def _config(self, config: Any, device: str) -> dict[str, Any]:
        given = settings.pairs(config or {})
        return settings.to_config(given, self._core.option_keys(device), device)

    @translated
    def query_model(self, model: Model, device_name: str, config: Any = None) -> dict[str, str]:
        """Return node → device, of the nodes that the device can run."""
        device = self._device(device_name)
        return self._core.query_network(model._network, device, self._config(config, device))

    @translated
    def import_model(
        self, model_stream: Any, device_name: Any, config: Any = None
    ) -> CompiledModel:
        """Load what `CompiledModel.export_model` gave.

        Raises:
            RuntimeError: it is damaged, or of another device or version.
        """
        if isinstance(model_stream, Tensor):
            model_stream = model_stream._memory().tobytes()
        content = _content(model_stream)
        content = content.read() if hasattr(content, "read") else content
        context = device_name._context if isinstance(device_name, RemoteContext) else None
        name = context.device_name if context is not None else self._device(device_name)
        executable = self._core.import_network(content, context or name, self._config(config, name))
        inputs = [
            Node(port.name, ops.Parameter(port.element_type, port.shape))
            for port in executable.inputs.values()
        ]
        outputs = []
        for node, info in zip(inputs, executable.inputs.values(), strict=True):
            node.output.names |= info.tensor_names
        for info in executable.outputs.values():
            made = Node(info.name, ops.Parameter(info.element_type, info.shape))
            made.output.names |= info.tensor_names
            outputs.append(Node(f"{info.name}/result", ops.Result(), [made.output]))
        shown = Network(executable.name, inputs, outputs, evaluate=evaluate)
        return CompiledModel._of(executable, shown, config)

    # -- contexts -----------------------------------------------------------------------------

    @translated
    def create_context(self, device_name: str, properties: Any) -> RemoteContext:
        """Make a context of objects of the device's library; see docs/remote-blobs.md."""
        return RemoteContext(self._core.create_context(device_name, settings.pairs(properties)))

    @translated
    def get_default_context(self, device_name: str) -> RemoteContext:
        """Return the context that models loaded by the device's name share."""
        return RemoteContext(self._core.get_default_context(device_name))


def compile_model(
    model: Any, device_name: str | None = "AUTO", config: Any = None
) -> CompiledModel:
    """Load a model on a device, with a core of its own; see `Core.compile_model`."""
    return Core().compile_model(model, device_name, config)


def _members(device: str) -> list[str]:
    """Return the devices of "HETERO:GPU,CPU" and its like; of others the device itself."""
    family, _, members = device.partition(":")
    return [member.partition("(")[0] for member in members.split(",")] if members else [family]


def _content(model: Any) -> Any:
    """Return what core reads: a path, bytes, or None; streams from their beginning."""
    if isinstance(model, io.BytesIO):
        return model.getvalue()
    return model
