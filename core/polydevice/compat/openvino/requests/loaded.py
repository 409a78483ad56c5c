"""LoadedModel: a network on its device, and all that a call needs looked up once."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from polydevice.blob import RoiBlob
from polydevice.compat.openvino.graph.ports import ConstOutput
from polydevice.compat.openvino.graph.remote_tensor import RemoteTensor
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.dtype import Array, ElementType
from polydevice.errors import BlobError
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.ops.io import Result
from polydevice.runtime.request_memory import PortKind

COPIED_BYTES = 16384
"""Inputs of together at most this many bytes are copied into the memory of the request that calls
run on: pointing oneDNN to other memory costs many times what copying a kilobyte does."""


class LoadedModel:
    """A network that was loaded, seen from OpenVINO's API.

    Attributes:
        executable: core's network.
        inputs: as OpenVINO shows them.
        outputs: likewise.
        keys: number, name or port → the input's name in core.
        out_keys: number, name or port → the output's name in core.
        pairs: output as OpenVINO shows it, and its name in core.
        names: core's names of the inputs.
        out_names: core's names of the outputs.
        dtypes: input's name in core → NumPy type.
        small: whether copying the inputs costs less than reading them in place.
        text: whether an output is text, which NumPy shows otherwise than core keeps it.
    """

    def __init__(self, executable: ExecutableNetwork, network: Network) -> None:
        """Look up what calls need.

        Args:
            executable: which is closed when nothing refers to the model any more.
            network: what was loaded, or the descriptions of its inputs and outputs; not changed.
        """
        self.executable = executable
        weakref.finalize(self, executable.close).atexit = False  # threads end by themselves then
        self.network = network
        self.inputs = [ConstOutput(node.outputs[0], network) for node in network.parameters]
        self.outputs = [ConstOutput(node.outputs[0], network) for node in network.results]
        self.keys = _keys(self.inputs, list(executable.inputs))
        self.out_keys = _keys(self.outputs, list(executable.outputs))
        self.pairs = tuple(zip(self.outputs, executable.outputs, strict=True))
        self.names = tuple(executable.inputs)
        self.out_names = tuple(executable.outputs)
        self.dtypes = {name: port.dtype for name, port in executable.inputs.items()}
        sizes = [port.desc.span_bytes for port in executable.inputs.values()]
        known = [size for size in sizes if size is not None]
        self.small = len(known) == len(sizes) and sum(known) <= COPIED_BYTES
        ports = executable.outputs.values()
        self.text = any(port.element_type is ElementType.string for port in ports)

    def input_name(self, key: Any) -> str:
        """Return core's name of an input.

        Raises:
            RuntimeError: there is none of that name or number.
        """
        found = self.keys.get(key)
        if found is None:
            found = self._like(key, self.inputs, self.names)
        if found is None:
            raise RuntimeError(
                f"Port for tensor name {key} was not found; inputs: "
                f"{', '.join(str(sorted(port.get_names())) for port in self.inputs)}"
            )
        return found

    def end(self, key: Any) -> tuple[PortKind, str]:
        """Return which input or output a name or port means, and core's name of it.

        Raises:
            RuntimeError: there is none of that name.
        """
        if isinstance(key, (ConstOutput, str)):
            is_result = isinstance(key, ConstOutput) and isinstance(key._port.node.op, Result)
            found = None if is_result else self.keys.get(key)
            found = found or (None if is_result else self._like(key, self.inputs, self.names))
            if found is not None:
                return "input", found
            found = self.out_keys.get(key) or self._like(key, self.outputs, self.out_names)
            if found is not None:
                return "output", found
        raise RuntimeError(f"Port for tensor name {key} was not found.")

    @staticmethod
    def _like(key: Any, ports: list[ConstOutput], names: Any) -> str | None:
        """Return the name of the port that the port of another model, or of its source, means."""
        if not isinstance(key, ConstOutput):
            return None
        own = key.get_names()
        for port, name in zip(ports, names, strict=True):
            if own & port.get_names() or key._port.node.name == port._port.node.name:
                return str(name)
        return None

    def feed(self, inputs: Any) -> dict[str, Any]:
        """Return input's name in core → value as given.

        Raises:
            RuntimeError: an input that there is not, or not all that are needed.
        """
        kind = inputs.__class__  # asking the abstract class takes 0.3 µs
        if kind is np.ndarray and len(self.names) == 1:
            return {self.names[0]: inputs}
        if kind is dict or isinstance(inputs, Mapping):
            keys = self.keys
            try:
                return {keys[key]: value for key, value in inputs.items()}
            except (KeyError, TypeError):
                return {self.input_name(key): value for key, value in inputs.items()}
        if isinstance(inputs, (list, tuple)):
            if len(inputs) > len(self.names) and len(self.names) == 1:
                return {self.names[0]: inputs}  # a value that is written as a list
            if len(inputs) > len(self.names):
                raise RuntimeError(
                    f"{len(inputs)} inputs are given; the model has {len(self.names)}"
                )
            if len(self.names) == 1 and inputs and np.isscalar(inputs[0]):
                return {self.names[0]: inputs}
            return dict(zip(self.names, inputs, strict=False))
        if len(self.names) != 1:
            raise RuntimeError(
                f"one value is given; the model has {len(self.names)} inputs: give a dictionary, "
                "or a list of all of them"
            )
        return {self.names[0]: inputs}

    def shared(self, name: str, value: Any) -> Any:
        """Return what core reads in place; the value itself where it can be read."""
        dtype = self.dtypes[name]
        if value.__class__ is np.ndarray and value.dtype == dtype and value.shape:
            return value
        if isinstance(value, RemoteTensor):
            return value._remote
        if isinstance(value, Tensor):
            blob = value._blob()  # core says when it has another type, as OpenVINO does
            return blob if isinstance(blob, RoiBlob) else blob.array
        array = np.asarray(value)
        if array.dtype != dtype:
            array = _cast(array, dtype)
        sizes = self.executable.inputs[name].sizes
        if array.ndim == 0 and sizes is not None and np.prod(sizes) == 1:
            array = array.reshape(sizes)
        return array

    def copied(self, name: str, value: Any, place: Array | None) -> Any:
        """Return what core reads: the memory of the request, into which the value is copied.

        Raises:
            BlobError: sizes that do not fit.
        """
        if value.__class__ is np.ndarray:
            array = value
        elif isinstance(value, (Tensor, RemoteTensor)):
            return self.shared(name, value)
        else:
            array = np.asarray(value)
        if place is None:
            return _cast(array, self.dtypes[name])
        if array.shape != place.shape and (array.ndim or place.size != 1):
            self.executable.inputs[name].check(
                self.executable.inputs[name].element_type, array.shape
            )
            return _cast(array, self.dtypes[name])
        if place.dtype == object:
            array = array.astype(object)
        place[...] = array
        return place

    def results(self, results: Mapping[str, Array], share: bool, decode: bool) -> Any:
        """Return output → array, the request's memory or copies of it."""
        if self.text:
            kind: Any = np.str_ if decode else np.bytes_
            return {
                port: _text(results[name], kind)
                if results[name].dtype == object
                else results[name].copy()
                for port, name in self.pairs
            }
        if share:
            return {port: results[name] for port, name in self.pairs if name in results}
        return {port: results[name].copy() for port, name in self.pairs if name in results}


def _keys(ports: list[ConstOutput], names: list[str]) -> dict[Any, str]:
    keys: dict[Any, str] = {}
    for index, (port, name) in enumerate(zip(ports, names, strict=True)):
        keys[index] = keys[port] = name
        for each in port.get_names():
            keys.setdefault(each, name)
    return keys


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    try:
        return np.array(array, dtype, order="C")
    except (TypeError, ValueError) as error:
        raise BlobError(f"{array.dtype} cannot be cast to {dtype}: {error}") from None


def _text(array: Array, kind: Any) -> Array:
    def shown(item: Any) -> Any:
        raw = item if isinstance(item, bytes) else str(item).encode()
        return raw.decode() if kind is np.str_ else raw

    return np.asarray([shown(item) for item in array.reshape(-1)], kind).reshape(array.shape)
