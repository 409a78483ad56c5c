"""widen_half: a network in f16 or bf16 computes in f32, which this device's primitives take."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.errors import NetworkError
from polydevice.network import Network, unique_name
from polydevice.node import Port, constant
from polydevice.ops.convert import Convert
from polydevice.ops.io import Constant, Parameter
from polydevice_cpu.lower import is_heavy

HALF = (ElementType.f16, ElementType.bf16)


def widen_half(network: Network) -> None:
    """Widen constants and what enters, narrow what leaves; does nothing unless it `_is_half`.

    If, Loop and TensorIterator keep the types of their bodies, which are widened by themselves.
    Networks in which an operation insists on a narrow type (a variable) stay as they are.
    """
    if not _is_half(network):
        return
    trial = network.clone()
    wanted = [result.inputs[0].element_type for result in trial.results]
    try:
        _widen(trial)
        trial.infer()
        _narrow(trial, wanted)
        trial.infer()
    except NetworkError:
        return
    network.parameters, network.results, network.sinks = (
        trial.parameters,
        trial.results,
        trial.sinks,
    )


def _is_half(network: Network) -> bool:
    """Whether something heavy is computed in a half, or in f32 between halves alone.

    ONNX Runtime saves networks in f16 so: with conversions around all that it computes in f32.
    """
    heavy = [node.outputs[0].element_type for node in network.nodes() if is_heavy(type(node.op))]
    around = [node.output for node in network.parameters]
    around += [result.inputs[0] for result in network.results]
    floating = {port.element_type for port in around if port.element_type.is_float}
    return any(kind in HALF for kind in heavy) or (bool(heavy and floating) and floating <= {*HALF})


def _is_half_tensor(port: Port) -> bool:
    """Whether it is no list of them, which bodies carry as they are."""
    return port.element_type in HALF and port.desc.kind == "tensor"


def _widen(network: Network) -> None:
    replaced: dict[Port, Port] = {}
    for node in network.nodes():
        given = node.inputs
        node.inputs = [replaced.get(port, port) for port in given]
        if node.op.has_bodies:
            for index, port in enumerate(given):
                if _is_half_tensor(port):
                    name = f"{node.name}/input {index}"
                    narrow = _converted(network, name, node.inputs[index], port.element_type)
                    node.inputs[index] = narrow
            for index, port in enumerate(node.outputs):
                if _is_half_tensor(port):
                    name = f"{node.name}/output {index}"
                    replaced[port] = _converted(network, name, port, ElementType.f32)
            continue
        if not node.outputs or node.outputs[0].element_type not in HALF:
            continue
        if isinstance(node.op, Constant):
            wide = constant(node.name, node.op.value.astype(np.float32))
            replaced[node.output] = wide.output
        elif isinstance(node.op, Parameter):
            name = f"{node.name}/widened"
            replaced[node.output] = _converted(network, name, node.output, ElementType.f32)
        elif isinstance(node.op, Convert):
            node.op = node.op.replace(destination_type=ElementType.f32)


def _converted(network: Network, name: str, port: Port, element_type: ElementType) -> Port:
    convert = Convert(destination_type=element_type)
    return Emitter(unique_name(network, name)).emit(convert, port)


def _narrow(network: Network, wanted: list[ElementType]) -> None:
    for result, element_type in zip(network.results, wanted, strict=True):
        port = result.inputs[0]
        if port.element_type is not element_type:
            result.inputs = [_converted(network, f"{result.name}/narrowed", port, element_type)]
