"""ONNX's backend interface on any device: ``import polydevice.onnx_backend as backend``.

Implements onnx.backend.base, which ONNX's own backend test suite drives::

    model = onnx.load("model.onnx")
    outputs = backend.prepare(model, "CPU").run([x])

The device is any that `Core` knows ("CPU", "GPU.1", "HETERO:GPU,CPU"); ONNX's own name for a GPU,
"CUDA", stands for "GPU", and "CUDA:1" for "GPU.1".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, helper
from onnx.backend.base import Backend, BackendRep

from polydevice.core import shared_core
from polydevice.dtype import ElementType
from polydevice.errors import BlobError, DeviceError, PolydeviceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.locks import Lock
from polydevice.readers.onnx.protos.types import type_of_desc
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice.values import from_array, to_array

__all__ = [
    "PolydeviceBackend",
    "PolydeviceRep",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]


def device_name(device: str) -> str:
    """Return our name for a device in ONNX's or our own spelling."""
    family, _, number = device.partition(":")
    if family == "CUDA":
        return f"GPU.{number}" if number else "GPU"
    return device


class PolydeviceRep(BackendRep):
    """A model loaded on a device."""

    def __init__(self, executable: ExecutableNetwork) -> None:
        """Make one request, which every run uses in turn."""
        self._executable = executable
        self._request = executable.create_infer_request()
        self._lock = Lock()

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Run one inference.

        Args:
            inputs: a list in the model's order, a dictionary by name, or the only input. A
                sequence is a list of arrays; an empty optional is None.

        Returns:
            The outputs in the model's order, in the same form.

        Raises:
            BlobError: inputs that do not fit.
            InferenceError: when the inference fails.
        """
        descs = {name: port.desc for name, port in self._executable.inputs.items()}
        given = _by_name(inputs, list(descs))
        arrays = {name: to_array(value, descs[name]) for name, value in given.items()}
        with self._lock:
            results = self._request.infer(arrays)
            return tuple(
                from_array(results[name], port.desc)
                for name, port in self._executable.outputs.items()
            )

    def placed_elsewhere(self, device: str) -> list[str]:
        """Return the types of operations that do not run on `device` itself."""
        family = device.partition(".")[0]
        return sorted(
            {
                place.type
                for place in self._executable.placement()
                if place.device and place.device.partition(".")[0] != family
            }
        )


def _by_name(inputs: Any, names: Sequence[str]) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        unknown = [name for name in inputs if name not in names]
        if unknown:
            raise BlobError(f"the model has no input {unknown[0]!r}; inputs: {', '.join(names)}")
        return dict(inputs)
    listed = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if len(listed) != len(names):
        raise BlobError(f"{len(listed)} inputs are given; the model has {len(names)}")
    return dict(zip(names, listed, strict=True))


class PolydeviceBackend(Backend):
    """Prepares ONNX models on polydevice's devices."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Whether the model can be read and the device can run all of it."""
        core = shared_core()
        try:
            network = core.read_network(model.SerializeToString())
            return not core.unsupported_nodes(network, device_name(device))
        except PolydeviceError:
            return False

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> PolydeviceRep:
        """Load a model.

        Args:
            model: external data must have been loaded into it. The reader checks what it needs;
                onnx.checker, which refuses more, is not asked.
            device: see the module's description.
            kwargs: configuration keys of the device, under `config`; others are ignored.

        Raises:
            ModelError, NetworkError: (subclasses) the model cannot be read.
            DeviceError: (a subclass) the device is not there or cannot run it.
        """
        config = kwargs.get("config")
        core = shared_core()
        network = core.read_network(model.SerializeToString())
        return PolydeviceRep(core.load_network(network, device_name(device), config))

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Load a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single node; `opset_version` among the arguments chooses its opset."""
        names = [name for name in node.input if name]
        given = _by_name(inputs, names)
        version = kwargs.get("opset_version")
        graph = helper.make_graph(
            [node],
            node.name or node.op_type,
            [helper.make_value_info(name, _type_of(value)) for name, value in given.items()],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        imports = None if version is None else [helper.make_opsetid(node.domain, int(version))]
        model = helper.make_model(graph, opset_imports=imports)
        core = shared_core()
        network = core.read_network(model.SerializeToString())
        return PolydeviceRep(core.load_network(network, device_name(device))).run(given)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the device is there."""
        try:
            shared_core().get_metric(device_name(device), "FULL_DEVICE_NAME")
        except DeviceError:
            return False
        return True


def _type_of(value: Any) -> TypeProto:
    array = np.asarray(value)
    return type_of_desc(TensorDesc(ElementType.of(array.dtype), Shape(array.shape)))


is_compatible = PolydeviceBackend.is_compatible
prepare = PolydeviceBackend.prepare
run_model = PolydeviceBackend.run_model
run_node = PolydeviceBackend.run_node
supports_device = PolydeviceBackend.supports_device
