"""apply_port_settings: make what was set on inputs and outputs part of the graph."""

from __future__ import annotations

from functools import partial

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network, unique_name
from polydevice.network.port_setting import default_layout
from polydevice.network.preprocess import PreProcessInfo
from polydevice.node import Node, Port
from polydevice.ops.convert import Convert
from polydevice.ops.transpose import Transpose
from polydevice.passes.apply_preprocessing import apply_preprocessing
from polydevice.shape import Shape


def apply_port_settings(network: Network) -> None:
    """Insert the nodes that precision, layout and preprocessing of inputs and outputs ask for.

    An input keeps its name and takes the type, order and shape of what the user hands over; so
    does an output. Applying it again changes nothing: the settings are used up.
    """
    names = dict(zip((id(r) for r in network.results), network.outputs, strict=True))
    for node in network.parameters:
        _apply_to_input(network, node)
    for result in network.results:
        _apply_to_output(network, result, names[id(result)])


def _settings(node: Node, port: Port) -> tuple[ElementType, list[int] | None]:
    """Take the wanted element type, and the order of model dimensions in the blob, if set."""
    precision = node.rt_info.pop("precision", None)
    wanted = port.element_type if precision is None else ElementType.parse(precision)
    own = default_layout(port.desc.rank)
    layout = str(node.rt_info.pop("layout", own))
    if layout == own or sorted(layout) != sorted(own):
        return wanted, None
    node.rt_info["blob_layout"] = layout
    return wanted, [own.index(letter) for letter in layout]


def _apply_to_input(network: Network, node: Node) -> None:
    port = node.output
    steps = node.rt_info.pop("preprocess", None)
    wanted, order = _settings(node, port)
    if isinstance(steps, PreProcessInfo) and steps.is_needed:
        apply_preprocessing(network, node, steps, wanted, order)
        return
    own, shape = port.element_type, port.shape
    if wanted is own and order is None:
        return
    consumers = network.consumers()[port]
    current = port
    if order is not None and shape is not None:
        node.op = node.op.replace(shape=Shape(shape[i] for i in order))
    node.op = node.op.replace(element_type=wanted)
    node.infer()
    build, unique = Emitter(node.name), partial(unique_name, network)
    if wanted is not own:
        convert = Convert(destination_type=own)
        current = build.emit(convert, current, name=unique(f"{node.name}/convert"))
    if order is not None:
        back = np.argsort(order).astype(np.int64)
        axes = build.value(back, name=unique(f"{node.name}/order"))
        current = build.emit(Transpose(), current, axes, name=unique(f"{node.name}/transpose"))
    for user, index in consumers:
        user.inputs[index] = current


def _apply_to_output(network: Network, result: Node, output_name: str) -> None:
    port = result.inputs[0]
    wanted, order = _settings(result, port)
    if wanted is port.element_type and order is None:
        return
    current = port
    build, unique = Emitter(output_name), partial(unique_name, network)
    if order is not None:
        axes = build.value(np.asarray(order, np.int64), name=f"{output_name}/order")
        current = build.emit(Transpose(), current, axes, name=unique(f"{output_name}/transpose"))
    if wanted is not port.element_type:
        convert = Convert(destination_type=wanted)
        current = build.emit(convert, current, name=unique(f"{output_name}/convert"))
    current.names |= port.names
    result.inputs = [current]
    result.op = result.op.replace(output_name=output_name)
    result.infer()
