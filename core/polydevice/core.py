"""Core: reads networks, finds devices, loads networks on them."""

from __future__ import annotations

import functools
import itertools
import os
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from typing_extensions import Self

from polydevice import arguments
from polydevice.device_name import DeviceName
from polydevice.devices.devices import Devices
from polydevice.devices.loading import content_of, exported, given_context, load, prepared
from polydevice.dtype import Array
from polydevice.errors import (
    DeviceError,
    NetworkError,
    OptionError,
    OptionValueError,
    PluginError,
    PolydeviceError,
)
from polydevice.foreign_errors import foreign_error
from polydevice.garbage import loading
from polydevice.locks import Lock
from polydevice.memory_budget import WORTH_BYTES, give_back
from polydevice.plugin import DeviceReport, Line, Section, Version
from polydevice.runtime.executor import closing_time

if TYPE_CHECKING:
    from polydevice.devices.model_cache import ModelCache
    from polydevice.executable_network import ExecutableNetwork
    from polydevice.network import Network, PathLike
    from polydevice.ops.op import Op
    from polydevice.readers import ModelSource
    from polydevice.readers.limits import ReadLimits
    from polydevice.remote import RemoteContext


class Core:
    """The entry point: devices, their configuration, and loading networks on them.

    Usable from many threads. As a context manager it closes everything on exit::

        with Core() as core:
            network = core.read_network("model.xml")
            executable = core.load_network(network, "GPU")
            result = executable.infer({"image": image})
    """

    def __init__(self) -> None:
        """Look up which plugins are installed; none is imported yet."""
        self._devices = Devices(self)
        self._registry = self._devices.registry
        self._networks: weakref.WeakSet[ExecutableNetwork] = weakref.WeakSet()
        self._model_cache: ModelCache | None = None
        self._lock = Lock()

    # -- devices ------------------------------------------------------------------------------

    @property
    def available_devices(self) -> list[str]:
        """Names of the devices that can be used now: "CPU", "GPU", or "GPU.0", "GPU.1".

        A family with one device is listed by its bare name. A family whose plugin or driver
        fails is left out; `explain_devices` says why.
        """
        return self._devices.names()

    def explain_devices(self) -> list[DeviceReport]:
        """Say what was found while looking for devices, and why things were left out."""
        return self._devices.explain()

    def diagnose_devices(self, seconds: float = 2.0) -> list[Section]:
        """Say all that a bug report should hold about devices; `polydevice doctor` prints it.

        Args:
            seconds: how long a plugin may take; drivers that do not answer by then are said to
                have hung. Waiting for a free core does not count.
        """
        return self._devices.diagnose(seconds)

    def get_versions(self, device_name: str) -> dict[str, Version]:
        """Return family → version for a device and, for "HETERO:…", its members."""
        name = DeviceName.parse(device_name)
        families = [name.family, *(member.family for member in name.members)]
        return {family: self._devices.plugin(family).version for family in families}

    def register_plugin(self, plugin_name: str, device_name: str) -> None:
        """Register a plugin that no entry point names.

        Args:
            plugin_name: importable module with the hooks of `polydevice.hookspecs`.
            device_name: name that its ``register_devices`` registers.

        Raises:
            DeviceNameError: for a name with a dot or colon.
            PluginError: when the name is taken.
        """
        self._registry.register(plugin_name, device_name)

    def unregister_plugin(self, device_name: str) -> None:
        """Close a device family's plugin and forget its name.

        Raises:
            PluginError: when the name is not registered.
        """
        plugin = self._devices.unregister(DeviceName.parse(device_name).family)
        if plugin is not None:
            plugin._close(closing_time())

    # -- configuration ------------------------------------------------------------------------

    def set_config(self, config: Mapping[str, Any], device_name: str | None = None) -> None:
        """Set configuration keys; all of them or, when one is wrong, none.

        Args:
            config: key → value; texts as in the Inference Engine ("YES", "4") or Python values.
            device_name: a family ("GPU") for all of its devices, or one device ("GPU.1"); None
                for every family that knows the keys. CACHE_DIR without a device is also where
                the core keeps compiled networks, of devices that can export them; "" for nowhere.

        Raises:
            UnknownOptionError: for a key that the device (or, with None, every device) lacks.
            OptionValueError: for an illegal value.
        """
        config = arguments.options(config, "the configuration", OptionError)
        if device_name is not None:
            self._devices.set_config(config, device_name)
            return
        folders = [v for k, v in config.items() if k.removeprefix("KEY_") == "CACHE_DIR"]
        if folders:
            _check_folder(folders[-1])
        self._devices.set_config_everywhere(config, known=("CACHE_DIR",))
        if folders:
            self._model_cache = _model_cache(folders[-1])

    def get_config(self, device_name: str, key: str) -> str:
        """Return the value of a configuration key of a family or one device, as text.

        Raises:
            UnknownOptionError: naming the nearest legal keys.
        """
        return self._devices.get_config(device_name, key)

    def get_metric(self, device_name: str, name: str) -> Any:
        """Return a metric of a device.

        Raises:
            UnknownMetricError: naming the ones that exist.
        """
        return self._devices.get_metric(device_name, name)

    def device_identity(self, device_name: str) -> str:
        """Return what a device and its driver are called, versions included.

        Raises:
            DeviceNotFoundError: there is no such device.
        """
        plugin, options, device_id = self._devices.resolve(device_name)
        with self._devices.contract(plugin.name, "asking what it is"):
            return plugin.identity(options, device_id)

    def describe_operation(self, op: type[Op], device_name: str) -> list[Line]:
        """Say how a device runs an operation and in which files that is written, best way first."""
        family = DeviceName.parse(device_name).family
        return self._devices.plugin(family).describe_operation(op)

    def merge_tuning(self, device_name: str, files: Sequence[PathLike], output: PathLike) -> int:
        """Merge tuning files into one; return how many choices that has.

        Of a layer that several have, the choice that took less time stays; what the files say
        about other devices stays, too.

        Args:
            device_name: whose files they are: "GPU". The device itself need not be there.
            files: the files; of equal choices, or such of unknown time, the first counts.
            output: what is written: one of the files, or a path where nothing is yet.

        Raises:
            DeviceError: the device has no tuning files.
            OptionValueError: a file is missing or broken, or the output exists already and is
                none of them, or cannot be written; then nothing is written.
        """
        plugin = self._devices.plugin(DeviceName.parse(device_name).family)
        with self._devices.contract(plugin.name, "merging tuning files"):
            return plugin.merge_tuning([Path(file) for file in files], Path(output))

    def option_keys(self, device_name: str) -> list[str]:
        """Return the configuration keys that a device knows; its members' too, where it has any."""
        name = DeviceName.parse(device_name)
        families = dict.fromkeys([name.family, *(member.family for member in name.members)])
        known = [self._devices.plugin(family).option_type.keys() for family in families]
        return list(dict.fromkeys(itertools.chain.from_iterable(known)))

    # -- networks -----------------------------------------------------------------------------

    def read_network(
        self,
        model: ModelSource,
        weights: ModelSource | None = None,
        *,
        limits: ReadLimits | None = None,
    ) -> Network:
        """Read an OpenVINO IR (v10, v11) or ONNX model.

        Args:
            model: path of an .xml or .onnx file, the content of one (bytes, bytearray or
                memoryview), or a file opened in binary mode.
            weights: for IR, the .bin, likewise; by default the file of the same stem.
            limits: bounds on what the file may ask for; None takes the defaults.

        Raises:
            ModelError: (a subclass) saying what is wrong with the file and where.
            NetworkError: (a subclass) naming the node that is not valid.
        """
        from polydevice import readers
        from polydevice.readers.limits import ReadLimits

        if limits is not None and not isinstance(limits, ReadLimits):
            raise OptionValueError(f"limits are ReadLimits, not {arguments.shown(limits)}")
        try:
            with np.errstate(all="ignore"):  # constants may be infinite, or none
                return readers.read(
                    model, weights, evaluate=self.evaluate, registry=self._registry, limits=limits
                )
        except PolydeviceError:
            raise
        except Exception as error:
            what = f"{len(model)} bytes" if isinstance(model, bytes) else arguments.shown(model)
            raise foreign_error(
                f"reading a model ({what}) failed", error, content=content_of(model)
            ) from error

    def load_network(
        self,
        network: Network | PathLike,
        device_name: str | RemoteContext,
        config: Mapping[str, Any] | None = None,
        num_requests: int | None = None,
    ) -> ExecutableNetwork:
        """Compile a network for a device.

        Args:
            network: a network, which is not changed, or the path of a model file.
            device_name: "CPU", "GPU", "GPU.1", "HETERO:GPU,CPU"…; or a context, whose memory the
                network then shares (such networks are not kept in the model cache).
            config: keys on top of the device's configuration, for this network alone.
            num_requests: length of the executable network's `requests`; None is 1, and 0 asks
                the device for its optimal number.

        Raises:
            DeviceNotFoundError: saying what was left out and why.
            UnsupportedNetworkError: listing every node that the device cannot run.
            ElementTypeError: for an input without an element type.
            OptionError: (a subclass) for a wrong key or value.
            PluginError: when the plugin fails in another way; the cause is chained.
        """
        if num_requests is not None:
            num_requests = arguments.number_of_requests(num_requests, "num_requests")
        context = None if isinstance(device_name, str) else given_context(device_name)
        name = str(device_name) if context is None else context.device_name
        plugin, options, device_id = self._devices.resolve(name, config, will_load=True)
        with loading:
            copy = self._prepared(network)
            with self._devices.contract(plugin.name, f"loading network {copy.name!r}", copy):
                executable = load(plugin, copy, options, device_id, context, self._model_cache)
            optimal = num_requests == 0
            number = executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") if optimal else 0
            executable._reserve_requests(number or num_requests or 1)
            with self._lock:
                self._networks.add(executable)
            size = copy.constant_bytes
            del copy  # of which a device may need nothing more
            if size >= WORTH_BYTES:
                loading.collect()
        give_back(size)
        return executable

    def create_context(self, device_name: str, params: Mapping[str, Any]) -> RemoteContext:
        """Make a context of the user's objects, such as an OpenCL context.

        Args:
            device_name: "GPU"; "GPU.1" to choose one of the context's devices.
            params: see docs/remote-blobs.md; CONTEXT_TYPE is always needed.

        Raises:
            DeviceError: the device has no contexts; the message names those that have.
            OptionError: (a subclass) for an unknown, missing or illegal parameter.
        """
        return self._context_of(device_name, params)

    def get_default_context(self, device_name: str) -> RemoteContext:
        """Return the context that all networks loaded by a device's name share.

        Raises:
            DeviceError: the device has no contexts; the message names those that have.
        """
        return self._context_of(device_name, None)

    def _context_of(self, device_name: str, params: Mapping[str, Any] | None) -> RemoteContext:
        self._check_contexts(DeviceName.parse(device_name).family)
        plugin, options, device_id = self._devices.resolve(device_name)
        with self._devices.contract(plugin.name, "making a context"):
            return plugin.context(options, device_id, params)

    def _check_contexts(self, family: str) -> None:
        if not self._devices.plugin(family).has_contexts:
            able = ", ".join(name for name in self._registry.names() if self._has_contexts(name))
            raise DeviceError(
                f"{family} has no contexts for sharing device memory. Devices that have: "
                f"{able or 'none here'}"
            )

    def _has_contexts(self, family: str) -> bool:
        try:
            return self._devices.plugin(family).has_contexts
        except PolydeviceError:
            return False  # explain_devices() reports it

    def import_network(
        self,
        data: bytes | PathLike,
        device_name: str | RemoteContext,
        config: Mapping[str, Any] | None = None,
    ) -> ExecutableNetwork:
        """Load what ``ExecutableNetwork.export`` of the same device family wrote.

        Args:
            data: the bytes, or the path of a file with them.
            device_name: "CPU", "GPU.1"…; or a context, whose memory the network then shares.
            config: keys for this network, on top of the device's and of those it was loaded with.

        Raises:
            ModelFileError: the file cannot be read.
            ModelFormatError: the bytes are damaged, of another device or another version.
            UnsupportedOperationError: the network has an operation of a plugin that is not here.
            DeviceError: the device cannot import networks.
            OptionValueError: SHAPE_BUCKETS is set, which needs the model itself.
        """
        context = None if isinstance(device_name, str) else given_context(device_name)
        name = str(device_name) if context is None else context.device_name
        plugin, options, device_id = self._devices.resolve(name, config)
        if options.shape_buckets:
            raise OptionValueError(
                f"SHAPE_BUCKETS={options.shape_buckets} is not possible for a network that is "
                "imported; load the model with load_network(), or leave the key out"
            )
        content = exported(data)
        importing = partial(plugin.import_network, content, options, device_id, context)
        with self._devices.contract(plugin.name, "importing a network"):
            executable = self._registry.with_operations(importing)
        with self._lock:
            self._networks.add(executable)
        return executable

    def query_network(
        self,
        network: Network | PathLike,
        device_name: str,
        config: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        """Return node name → device name for every node that the device can run.

        For "HETERO:GPU.1,CPU" that is the first of its members that can. Affinities that are set in
        the network are not looked at.
        """
        copy = self._prepared(network)
        plugin, options, device_id = self._devices.resolve(device_name, config)
        with self._devices.contract(plugin.name, "asking what it runs", copy):
            return plugin.query_network(copy, options, device_id)

    def unsupported_nodes(
        self,
        network: Network,
        device_name: str,
        config: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        """Return node name → reason for every node that the device cannot run."""
        from polydevice.network import Network

        if not isinstance(network, Network):
            raise NetworkError(f"a network is needed, not {arguments.shown(network)}")
        plugin, options, _ = self._devices.resolve(device_name, config)
        with self._devices.contract(plugin.name, "asking what it runs", network):
            return plugin.unsupported_nodes(network, options)

    def _prepared(self, network: Network | PathLike) -> Network:
        from polydevice.network import Network

        if isinstance(network, Network):
            return prepared(network, self.evaluate)
        read = self.read_network(network)
        copy = prepared(read, self.evaluate)
        read.take_apart()
        return copy

    def evaluate(self, op: Op, inputs: Sequence[Array]) -> list[Array] | None:
        """Compute one operation on host arrays; None when no plugin can."""
        try:
            self._registry.factory("CPU")
        except (KeyError, PluginError):
            return None
        for result in self._registry.call("evaluate", op=op, inputs=inputs):
            if _is_arrays(result):
                return list(result)
        return None

    # -- end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel every inference, and close every network and plugin."""
        plugins = self._devices.end()
        if plugins is None:
            return
        with self._lock:
            networks = list(self._networks)
        for executable in networks:
            executable._cancel_all("the core was closed")  # all at once, to wait for them once
        end = closing_time()  # of all of them together
        for executable in networks:
            executable.close_by(end)
        for plugin in plugins:
            plugin._close(end)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Core cannot be copied or pickled; make another")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@functools.cache
def shared_core() -> Core:
    """Return one core for the whole process, for callers that have none; made on first use."""
    return Core()


def _is_arrays(result: Any) -> bool:
    """Whether a plugin's `evaluate` returned what it may; anything else counts as None."""
    return isinstance(result, (list, tuple)) and all(isinstance(a, np.ndarray) for a in result)


def _check_folder(folder: Any) -> None:
    if not isinstance(folder, (str, os.PathLike)):
        raise OptionValueError(f"CACHE_DIR={folder!r} is not legal; legal: a folder, or nothing")


def _model_cache(folder: Any) -> ModelCache | None:
    from polydevice.devices.model_cache import ModelCache

    return ModelCache(Path(folder)) if os.fspath(folder) else None
