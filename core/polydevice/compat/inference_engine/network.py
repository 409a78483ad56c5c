"""IENetwork: a network that was read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from polydevice.compat.inference_engine.descriptions import DataPtr, InputInfoPtr, PreProcessInfo
from polydevice.compat.inference_engine.surface import Surface
from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.models.model import Model
from polydevice.core import shared_core
from polydevice.dtype import ElementType
from polydevice.network import Network

_KEPT = (ElementType.f32, ElementType.i32, ElementType.string, ElementType.dynamic)


class IENetwork(Surface):
    """A network that was read; names are sorted."""

    def __init__(self, model: Any = "", weights: Any = "", init_from_buffer: bool = False) -> None:
        """Take what ngraph's `Function.to_capsule` returns; or read a network, with a warning.

        `IECore.read_network` reads networks better.
        """
        self._preprocess: dict[str, PreProcessInfo] = {}
        if isinstance(model, Model):
            self._network = model._network
            old_precisions(self._network)
            return
        warnings.warn(
            "Reading network using constructor is deprecated. Please, use IECore.read_network() "
            "method instead",
            DeprecationWarning,
            stacklevel=2,
        )
        self._network = read(model, weights, init_from_buffer)

    @classmethod
    def _of(cls, network: Network) -> IENetwork:
        made = cls.__new__(cls)
        made._network, made._preprocess = network, {}
        return made

    @property
    def name(self) -> str:
        """The name."""
        return self._network.name

    @property
    def input_info(self) -> dict[str, InputInfoPtr]:
        """Name → input, which may be changed."""
        found = {}
        for name, info in sorted(self._network.inputs.items()):
            steps = self._preprocess.get(name)
            if steps is None:
                steps = self._preprocess[name] = PreProcessInfo(info.preprocess)
            found[name] = InputInfoPtr(info, steps)
        return found

    @property
    def inputs(self) -> dict[str, DataPtr]:
        """Name → input; `input_info` says more."""
        warnings.warn(
            "'inputs' property of IENetwork class is deprecated. To access DataPtrs user need to "
            "use 'input_data' property of InputInfoPtr objects which can be accessed by "
            "'input_info' property.",
            DeprecationWarning,
            stacklevel=2,
        )
        return {name: DataPtr(info) for name, info in sorted(self._network.inputs.items())}

    @property
    def outputs(self) -> dict[str, DataPtr]:
        """Name → output, which may be changed."""
        return {name: DataPtr(info) for name, info in sorted(self._network.outputs.items())}

    @property
    def batch_size(self) -> Any:
        """The size of the batch; may be set."""
        return self._network.batch_size

    @batch_size.setter
    def batch_size(self, batch: int) -> None:
        if batch <= 0:
            raise AttributeError(
                f"Invalid batch size {batch}! Batch size should be positive integer"
            )
        self._set_batch(batch)

    @translated
    def _set_batch(self, batch: int) -> None:
        self._network.batch_size = batch

    @translated
    def add_outputs(self, outputs: Any) -> None:
        """Make values inside the network outputs too: a layer's name, (name, port), or a list.

        Raises:
            TypeError: anything else.
            RuntimeError: there is no such layer or port.
        """
        many = list(outputs) if isinstance(outputs, (list, set)) else [outputs]
        for output in many:
            pair = isinstance(output, tuple) and len(output) == 2
            if not (isinstance(output, str) or pair):
                raise TypeError(
                    f"Incorrect type {type(output)} for layer to add; it should be a string or a "
                    "tuple of name and port"
                )
        self._network.add_outputs(many)
        old_precisions(self._network)

    @translated
    def reshape(self, input_shapes: Mapping[str, Sequence[int]]) -> None:
        """Give inputs other sizes.

        Raises:
            AttributeError: there is no input of that name.
            RuntimeError: a layer does not accept the sizes.
        """
        known = self._network.inputs
        for name in input_shapes:
            if name not in known:
                raise AttributeError(
                    f"Specified '{name}' layer not in network inputs '{sorted(known)}'! "
                )
        self._network.reshape(input_shapes)

    @translated
    def serialize(self, path_to_xml: Any, path_to_bin: Any = "") -> None:
        """Write the network as OpenVINO IR; without a second path beside the first."""
        self._network.serialize(path_to_xml, path_to_bin or None)

    @translated
    def get_ov_name_for_tensor(self, orig_name: str) -> str:
        """Return the layer, or layer.port, of the framework's tensor of that name."""
        return self._network.name_of_tensor(orig_name)


def old_precisions(network: Network) -> None:
    """Give inputs and outputs the precisions that the Inference Engine gave them.

    Floating-point inputs and outputs are FP32, and integer outputs I32. Networks of IR v10 have
    them already.
    """
    for port in network.inputs.values():
        if port.blob_type in (ElementType.f16, ElementType.bf16):
            port.precision = "FP32"
    for out in network.outputs.values():
        if out.blob_type in _KEPT:
            continue
        wide = out.blob_type.is_integer and out.blob_type.bits >= 32
        out.precision = "I32" if wide else "FP32"


@translated
def read(model: Any, weights: Any = "", init_from_buffer: bool = False) -> Network:
    """Read a network.

    Raises:
        Exception: there is no such file.
        RuntimeError: it cannot be read.
    """
    core = shared_core()
    if init_from_buffer:
        content = model.encode() if isinstance(model, str) else bytes(model)
        network = core.read_network(content, bytes(weights) if weights else b"")
    else:
        path = os.fspath(model)
        beside = os.fspath(weights) if weights is not None else ""
        for each in (path, beside):
            if each and not os.path.isfile(each):  # noqa: PTH113 - as it came
                raise Exception(f"Path to the model {each} doesn't exist or it's a directory")
        no_weights = path.endswith((".onnx", ".prototxt")) or not beside
        network = core.read_network(path, None if no_weights else beside)
    old_precisions(network)
    return network
