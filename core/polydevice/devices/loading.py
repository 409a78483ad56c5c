"""How models and networks get from what a user hands over to a plugin."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydevice import arguments
from polydevice.dtype import ElementType
from polydevice.errors import (
    DeviceNameError,
    ElementTypeError,
    ModelFileError,
    PolydeviceError,
)
from polydevice.files.safe_open import read_given

if TYPE_CHECKING:
    from polydevice.devices.model_cache import ModelCache
    from polydevice.executable_network import ExecutableNetwork
    from polydevice.network import Network, PathLike
    from polydevice.node import Evaluate
    from polydevice.options import Options
    from polydevice.plugin import Plugin
    from polydevice.remote import RemoteContext


def prepared(network: Network, evaluate: Evaluate) -> Network:
    """Return a copy with the settings of inputs and outputs made part of the graph.

    Raises:
        ElementTypeError: for an input without an element type.
    """
    from polydevice.passes.apply_port_settings import apply_port_settings

    copy = network.clone()
    copy.evaluate = evaluate
    if network.evaluate is None:  # made by hand or unpickled: computed shapes are not known yet
        copy.infer()
    _check_inputs(copy)
    apply_port_settings(copy)
    return copy


def _check_inputs(network: Network) -> None:
    for node in network.parameters:
        (desc,) = node.op.infer([])
        if desc.kind == "tensor" and desc.element_type is ElementType.dynamic:
            legal = ", ".join(kind.value for kind in ElementType if kind is not ElementType.dynamic)
            raise ElementTypeError(
                f"the network's input {node.name!r} has no element type; give its Parameter one: "
                f"{legal}"
            )


def load(
    plugin: Plugin,
    network: Network,
    options: Options,
    device_id: str,
    context: RemoteContext | None,
    cache: ModelCache | None,
) -> ExecutableNetwork:
    """Let a plugin load a network, guarded and through the model cache where that is set."""
    if options.shape_buckets:
        from polydevice.padding.network import padded

        again = partial(load, plugin, device_id=device_id, context=context, cache=cache)
        return padded(network, options, lambda made, plain: again(made, options=plain))

    def plain(network: Network, options: Options) -> ExecutableNetwork:
        return plugin.load_network(network, options, device_id, context)

    def compiled(network: Network) -> ExecutableNetwork:
        if not options.accuracy_guard:
            return plain(network, options)
        from polydevice.accuracy import guarded

        return guarded(network, options, plain)

    if cache is not None and plugin.can_export and context is None:
        from polydevice.accuracy import is_trying

        if not is_trying():
            return cache.load_network(plugin, network, options, device_id, compiled)
    return compiled(network)


def given_context(value: Any) -> RemoteContext:
    """Return what takes a device's name's place; raises DeviceNameError unless it is a context."""
    from polydevice.remote import RemoteContext

    if isinstance(value, RemoteContext):
        return value
    raise DeviceNameError(f"a device name such as 'GPU.1', or a context, is needed, not {value!r}")


def content_of(model: Any) -> bytes | None:
    """Return a model's bytes for a report; None where they cannot be read again."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    try:
        return read_given(Path(model), "model file", ModelFileError, 1 << 31)
    except (TypeError, PolydeviceError):
        return None


def exported(data: bytes | PathLike) -> bytes:
    """Return an exported network, of which a path may be given; raises ModelFileError."""
    if isinstance(data, bytes):
        return data
    if not isinstance(data, (str, os.PathLike)):
        raise ModelFileError(
            f"an exported network is bytes, or the path of a file, not {arguments.shown(data)}"
        )
    from polydevice.readers.limits import ReadLimits

    limit = ReadLimits().weights_bytes
    return read_given(Path(data), "exported network", ModelFileError, limit)
