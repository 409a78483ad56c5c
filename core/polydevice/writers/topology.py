"""The topology file of an IR: layers, ports, edges and notes of a network as XML."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple
from xml.etree import ElementTree as ET

from polydevice.errors import UnsupportedOperationError
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.control_flow import Body, BodyInput, BodyOutput, If, Iteration, Loop, Slicing
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.shape import Shape
from polydevice.writers.weights import WeightsWriter

_SETTINGS = frozenset({"precision", "layout"})
"""Notes of inputs and outputs that are made part of the graph before writing."""

_OWN_NOTES = frozenset({"ir_version"})

_XML_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def topology(network: Network, weights: IO[bytes]) -> bytes:
    """Return a (prepared) network's topology as XML, and write its constants to `weights`."""
    root = ET.Element("net", name=_text(network.name), version="11")
    _Writer(WeightsWriter(weights)).graph(root, network)
    notes = ET.SubElement(root, "rt_info")
    for key, value in network.rt_info.items():
        if key not in _OWN_NOTES:
            _nested_note(notes, key, value)
    ET.indent(root, "\t")
    text: str = ET.tostring(root, "unicode")
    return f'<?xml version="1.0"?>\n{text}\n'.encode()


class _Writer:
    """Turns nodes into layers; one writer serves a network and the bodies inside it."""

    def __init__(self, weights: WeightsWriter) -> None:
        self.weights = weights

    def graph(self, parent: ET.Element, network: Network) -> dict[Node, int]:
        """Write layers and edges of a graph below `parent`; return the layers' ids."""
        layers = ET.SubElement(parent, "layers")
        edges = ET.SubElement(parent, "edges")
        numbers: dict[Node, int] = {}
        names: dict[str, int] = {}
        for number, node in enumerate(network.nodes()):
            numbers[node] = number
            self._layer(layers, node, number, _unique(_text(node.name), names))
            for index, port in enumerate(node.inputs):
                ET.SubElement(
                    edges,
                    "edge",
                    {
                        "from-layer": str(numbers[port.node]),
                        "from-port": str(len(port.node.inputs) + port.index),
                        "to-layer": str(number),
                        "to-port": str(index),
                    },
                )
        return numbers

    def _layer(self, parent: ET.Element, node: Node, number: int, name: str) -> ET.Element:
        layer = ET.SubElement(
            parent, "layer", id=str(number), name=name, type=node.type, version=node.op.opset
        )
        if isinstance(node.op, Result) and node.op.output_name:
            layer.set("output_names", _listed([node.op.output_name]))
        data = self._data(node)
        if data:
            ET.SubElement(layer, "data", {k: _exact(node, k, v) for k, v in data.items()})
        _layer_notes(layer, node.rt_info)
        self._bodies(layer, node)
        if node.inputs:
            section = ET.SubElement(layer, "input")
            for index, port in enumerate(node.inputs):
                _port(section, index, port)
        if node.outputs and not isinstance(node.op, Result):
            section = ET.SubElement(layer, "output")
            for port in node.outputs:
                element = _port(section, len(node.inputs) + port.index, port)
                if port.names:
                    element.set("names", _listed(sorted(port.names)))
                if "model_layout" in node.rt_info:
                    _note(element, "layout", {"layout": node.rt_info["model_layout"]})
        return layer

    def _bodies(self, layer: ET.Element, node: Node) -> None:
        op = node.op
        if isinstance(op, If):
            for side, body, inputs, outputs in (
                ("then", op.then_body, op.then_inputs, op.then_outputs),
                ("else", op.else_body, op.else_inputs, op.else_outputs),
            ):
                ports = ET.SubElement(layer, f"{side}_port_map")
                numbers = self._body(layer, f"{side}_body", body)
                _ties(ports, node, numbers, inputs, outputs)
        elif isinstance(op, Iteration):
            ports = ET.SubElement(layer, "port_map")
            edges = ET.SubElement(layer, "back_edges")
            numbers = self._body(layer, "body", op.body)
            _ties(ports, node, numbers, op.body_inputs, op.body_outputs)
            for edge in op.back_edges:
                result, parameter = numbers.results[edge.result], numbers.parameters[edge.parameter]
                ET.SubElement(
                    edges, "edge", {"from-layer": str(result), "to-layer": str(parameter)}
                )
            if isinstance(op, Loop):
                _purposes(ports, op, numbers)

    def _body(self, layer: ET.Element, tag: str, body: Body) -> _BodyLayers:
        assert isinstance(body, Network)
        numbers = self.graph(ET.SubElement(layer, tag), body)
        return _BodyLayers(
            [numbers[node] for node in body.parameters], [numbers[node] for node in body.results]
        )

    def _data(self, node: Node) -> dict[str, str]:
        op = node.op
        data = op.to_ir()
        if isinstance(op, Constant):
            offset, size = self.weights.add(op.value, op.element_type)
            shape = ",".join(map(str, op.value.shape))
            return {**data, "shape": shape, "offset": str(offset), "size": str(size)}
        if isinstance(op, Parameter) and op.shape is None:
            data["shape"] = "..."
        return data


class _BodyLayers(NamedTuple):
    """Ids of the layers at a body's ends, by position."""

    parameters: list[int]
    results: list[int]


def _ties(
    ports: ET.Element,
    node: Node,
    numbers: _BodyLayers,
    inputs: Iterable[BodyInput],
    outputs: Iterable[BodyOutput],
) -> None:
    for given in inputs:
        _tie(ports, "input", given.input, numbers.parameters[given.parameter], given.slicing)
    for made in outputs:
        number = len(node.inputs) + made.output
        _tie(ports, "output", number, numbers.results[made.result], made.slicing)


def _purposes(ports: ET.Element, op: Loop, numbers: _BodyLayers) -> None:
    if op.current_iteration is not None:
        tie = _tie(ports, "input", -1, numbers.parameters[op.current_iteration], None)
        tie.set("purpose", "current_iteration")
    if op.execution_condition is not None:
        tie = _tie(ports, "output", -1, numbers.results[op.execution_condition], None)
        tie.set("purpose", "execution_condition")


def _tie(
    ports: ET.Element, side: str, port: int, layer: int, slicing: Slicing | None
) -> ET.Element:
    attributes = {"external_port_id": str(port), "internal_layer_id": str(layer)}
    if slicing is not None:
        cut = dataclasses.asdict(slicing)
        attributes.update((name, str(value)) for name, value in cut.items())
    return ET.SubElement(ports, side, attributes)


def _port(section: ET.Element, number: int, port: Port) -> ET.Element:
    precision = port.element_type.precision
    element = ET.SubElement(section, "port", id=str(number), precision=precision)
    for size in port.shape or Shape():
        ET.SubElement(element, "dim").text = str(size) if isinstance(size, int) else "-1"
    return element


def _layer_notes(layer: ET.Element, notes: Mapping[str, Any]) -> None:
    for key, value in notes.items():
        if key not in _SETTINGS and key != "model_layout":
            _note(layer, key, value)


def _note(parent: ET.Element, name: str, value: Any) -> None:
    section = parent.find("rt_info")
    if section is None:
        section = ET.SubElement(parent, "rt_info")
    rest = value if isinstance(value, Mapping) else {"value": value}
    attributes = {"name": name, "version": "0", **rest}
    ET.SubElement(section, "attribute", {k: _text(v) for k, v in attributes.items()})


def _nested_note(parent: ET.Element, key: str, value: Any) -> None:
    if _XML_NAME.fullmatch(key) and key != "info":
        element = ET.SubElement(parent, key)
    else:
        element = ET.SubElement(parent, "info", name=_text(key))
    if isinstance(value, Mapping):
        for inner, item in value.items():
            _nested_note(element, inner, item)
    else:
        element.set("value", _text(value))


def _text(value: Any) -> str:
    """Return text that XML can hold; characters that it cannot become U+FFFD."""
    return _NOT_XML.sub("\ufffd", str(value))


def _exact(node: Node, name: str, text: str) -> str:
    """Return an attribute's text, of which no character may become another.

    Raises:
        UnsupportedOperationError: XML cannot hold it.
    """
    if (found := _NOT_XML.search(text)) is not None:
        raise UnsupportedOperationError(
            f"{node.title}: IR files cannot hold {name}={text!r}: XML has no character "
            f"{found.group()!r}"
        )
    return text


def _listed(names: list[str]) -> str:
    return ",".join(_text(name).replace(",", "\\,") for name in names)


def _unique(name: str, taken: dict[str, int]) -> str:
    candidate = name
    while candidate in taken:
        taken[name] += 1
        candidate = f"{name}_{taken[name]}"
    taken[candidate] = 0
    return candidate
