"""Sides: what computes the values to compare, one of our devices or another runtime."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from polydevice.core import Core
from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.errors import OptionValueError, PolydeviceError
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.convert import Convert
from polydevice.ops.io import Result

RUNTIMES = ("onnxruntime", "openvino")


class Side(Protocol):
    """Computes values inside a network from its inputs."""

    def values(self, ports: Iterable[Port], inputs: Mapping[str, Array]) -> dict[Port, Array]:
        """Return the values of those ports that this side has; others are left out."""


class DeviceSide:
    """A network on one of our devices."""

    def __init__(self, core: Core, network: Network, device: str, config: Mapping[str, Any]):
        """Take what `Core.load_network` takes; nothing is loaded yet."""
        self._core, self._network, self._device = core, network, device
        self._config = dict(config)

    def values(self, ports: Iterable[Port], inputs: Mapping[str, Array]) -> dict[Port, Array]:
        """Load the network with the ports as outputs, run it once, and let it go.

        A device keeps outputs in the type that the model says, and what lies inside perhaps in
        half precision. To see that, and not to change it, such values leave as halves.
        """
        wanted = list(ports)
        network = self._network.clone()
        nodes = {node.name: node for node in network.nodes()}
        names = {}
        for number, port in enumerate(wanted):
            names[port] = f"{port.name}/compared{number}"
            inside = as_kept(nodes[port.node.name].outputs[port.index], self._config)
            result = Node(f"{names[port]}/result", Result(output_name=names[port]), [inside])
            network.results.append(result)
        answers = infer_once(self._core, network, self._device, self._config, inputs)
        del network, nodes
        gc.collect()  # nodes and ports know each other, so that their constants would stay
        return {port: answers[names[port]] for port in wanted}


def infer_once(
    core: Core,
    network: Network,
    device: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Array],
) -> dict[str, Array]:
    """Load a network, run it once, let it go, and return name → output.

    The outputs are not copied where the request's memory is theirs alone: values of large networks
    would be in memory three times, in the device, in the request, and as the copy.
    """
    executable = core.load_network(network, device, config)
    try:
        answers = executable.create_infer_request().infer(inputs)
        return {name: a if a.flags.owndata else a.copy() for name, a in answers.items()}
    finally:
        executable.close()


def as_kept(port: Port, config: Mapping[str, Any]) -> Port:
    """Return a port converted to the type in which a device keeps it between layers.

    Args:
        port: of any type; only f32 is kept as something else.
        config: of the device.
    """
    kept = None
    if str(config.get("INFERENCE_PRECISION_HINT", "")).lower() == "f16":
        kept = ElementType.f16
    if str(config.get("ENFORCE_F16", "")).upper() == "YES":
        kept = ElementType.f16
    if str(config.get("ENFORCE_BF16", "")).upper() == "YES":
        kept = ElementType.bf16
    if kept is None or port.element_type is not ElementType.f32:
        return port
    return Emitter(f"{port.name}/kept").emit(Convert(kept), port)


class OnnxRuntimeSide:
    """The same ONNX file in ONNX Runtime on its CPU device, without its optimisations."""

    def __init__(self, model: Any) -> None:
        """Read the file.

        Raises:
            OptionValueError: onnxruntime is not installed, or the model is no ONNX file.
        """
        try:
            import onnx
            import onnxruntime  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            raise _not_installed("onnxruntime") from None
        self._onnx, self._runtime = onnx, onnxruntime
        if isinstance(model, (bytes, bytearray, memoryview)):
            self._model = onnx.load_from_string(bytes(model))
        elif isinstance(model, (str, os.PathLike)) and Path(model).suffix != ".xml":
            self._model = onnx.load(os.fspath(model))
        else:
            raise OptionValueError(
                "onnxruntime reads ONNX files only; give the path of one, or compare with CPU or "
                "openvino"
            )

    def values(self, ports: Iterable[Port], inputs: Mapping[str, Array]) -> dict[Port, Array]:
        """Run the file with these tensors as outputs."""
        graph = self._model.graph
        known = {name for node in graph.node for name in node.output if name}
        chosen = {port: name for port in ports for name in sorted(port.names) if name in known}
        if not chosen:
            return {}  # asked for nothing, ONNX Runtime would answer with all outputs
        model = self._onnx.ModelProto()
        model.CopyFrom(self._model)
        given = {output.name for output in graph.output}
        for name in dict.fromkeys(chosen.values()):
            if name not in given:
                model.graph.output.append(self._onnx.ValueInfoProto(name=name))
        settings = self._runtime.SessionOptions()
        settings.log_severity_level = 3
        settings.graph_optimization_level = self._runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = self._runtime.InferenceSession(
                model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
            )
            names = list(dict.fromkeys(chosen.values()))
            answers = dict(zip(names, session.run(names, dict(inputs)), strict=True))
        except Exception as error:
            raise OptionValueError(f"onnxruntime does not run the model: {error}") from error
        return {port: answers[name] for port, name in chosen.items()}


class OpenVinoSide:
    """The same file in OpenVINO on its CPU device, in f32."""

    def __init__(self, model: Any, shapes: Mapping[str, Sequence[int]]) -> None:
        """Read the file and give its inputs their shapes.

        Raises:
            OptionValueError: openvino is not installed, or does not read the model.
        """
        try:
            import openvino  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise _not_installed("openvino") from None
        if not isinstance(model, (str, os.PathLike)):
            raise OptionValueError("openvino compares files only; give the model's path")
        self._core = openvino.Core()
        self._path, self._shapes = os.fspath(model), shapes
        try:
            self._core.read_model(self._path)
        except Exception as error:
            raise OptionValueError(f"openvino does not read the model: {error}") from error

    def values(self, ports: Iterable[Port], inputs: Mapping[str, Array]) -> dict[Port, Array]:
        """Compile the file with these tensors as outputs, as many as it knows, and run it."""
        model = self._core.read_model(self._path)
        if self._shapes:
            model.reshape({name: list(sizes) for name, sizes in self._shapes.items()})
        outputs = {}
        for port in ports:
            for key in (*sorted(port.names), (port.node.name, port.index)):
                try:
                    outputs[port] = model.add_outputs(key)[0]
                    break
                except RuntimeError:
                    continue  # OpenVINO has no such tensor: it was fused or has another name
        try:
            compiled = self._core.compile_model(
                model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
            )
            request = compiled.create_infer_request()
            request.infer(dict(inputs))
            return {
                port: request.get_tensor(compiled.outputs[model.outputs.index(output)]).data.copy()
                for port, output in outputs.items()
            }
        except Exception as error:
            raise OptionValueError(f"openvino does not run the model: {error}") from error


def precision_config(core: Core, device: str, precision: str) -> dict[str, str]:
    """Return the configuration that makes a device compute in a precision.

    Args:
        core: that knows the device.
        device: name of the device.
        precision: f32, f16, bf16, or "" for what the device does by itself.

    Raises:
        OptionValueError: the device has no key for it.
    """
    if not precision:
        return {}
    keys = core.option_keys(device)
    if "INFERENCE_PRECISION_HINT" in keys and precision in ("f32", "f16"):
        return {"INFERENCE_PRECISION_HINT": precision}
    if "ENFORCE_BF16" in keys and precision in ("f32", "bf16"):
        return {"ENFORCE_BF16": "YES" if precision == "bf16" else "NO"}
    raise OptionValueError(
        f"{device} has no key to compute in {precision!r}; legal: "
        + ", ".join(
            ["f32", "f16"] * ("INFERENCE_PRECISION_HINT" in keys)
            + ["f32", "bf16"] * ("ENFORCE_BF16" in keys)
            or ["none"]
        )
    )


def make_side(
    core: Core, name: str, model: Any, network: Network, shapes: Mapping[str, Sequence[int]]
) -> Side:
    """Return the reference of that name: a device of ours in f32, onnxruntime or openvino."""
    if name == "onnxruntime":
        return OnnxRuntimeSide(model)
    if name == "openvino":
        return OpenVinoSide(model, shapes)
    try:
        config = precision_config(core, name, "f32")
    except PolydeviceError as error:
        if name.lower() in RUNTIMES:
            raise OptionValueError(f"write {name.lower()!r} for {name!r}") from error
        config = {}
    return DeviceSide(core, network, name, config)


def _not_installed(name: str) -> OptionValueError:
    return OptionValueError(f"comparing with {name} needs it installed: pip install {name}")
