"""Writer of OpenVINO IR v11: a Network → a topology (.xml) and its weights (.bin)."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree as ET

from polydevice.dtype import ElementType
from polydevice.errors import ModelFileError, UnsupportedOperationError
from polydevice.network import Network, Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.passes.apply_port_settings import apply_port_settings
from polydevice.shape import Shape
from polydevice.writers.weights import WeightsWriter

_SETTINGS = frozenset({"precision", "layout"})
"""Notes of inputs and outputs that are made part of the graph before writing."""

_OWN_NOTES = frozenset({"ir_version"})

_FOREIGN_TYPES = frozenset(
    {
        ElementType.i2,
        ElementType.c64,
        ElementType.c128,
        ElementType.f8e4m3fnuz,
        ElementType.f8e5m2fnuz,
    }
)
"""Element types that IR files do not have."""

_XML_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_ir(
    network: Network,
    xml_path: str | os.PathLike[str],
    bin_path: str | os.PathLike[str] | None = None,
) -> None:
    """Write a network as IR v11 files, which appear whole or not at all.

    Precisions and layouts set on inputs and outputs become Convert and Transpose operations.

    Args:
        network: what to write; it is not changed.
        xml_path: file for the topology.
        bin_path: file for the constants; by default the same name with the suffix ``.bin``.

    Raises:
        UnsupportedOperationError: IR cannot express some operations; all are listed.
        ModelFileError: a file cannot be written, or both paths are the same.
    """
    xml = Path(xml_path)
    weights = xml.with_suffix(".bin") if bin_path is None else Path(bin_path)
    if xml.absolute() == weights.absolute():
        raise ModelFileError(f"topology and weights cannot both be written to {str(xml)!r}")
    check_writable(network)
    # Either file is complete whenever it is visible; the topology, which names the other's
    # offsets, takes its place last.
    with _replacing(xml) as xml_file, _replacing(weights) as weights_file:
        xml_file.write(_topology(network, weights_file))


def ir_bytes(network: Network) -> tuple[bytes, bytes]:
    """Return a network as the contents of IR v11 files: (topology, weights).

    Raises:
        UnsupportedOperationError: IR cannot express some operations; all are listed.
    """
    check_writable(network)
    weights = io.BytesIO()
    return _topology(network, weights), weights.getvalue()


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that takes the place of `path` when everything was written."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise ModelFileError(f"{str(path)!r} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def check_writable(network: Network) -> None:
    """Check that IR can express every operation of a network.

    Raises:
        UnsupportedOperationError: listing type, reason, number of nodes and the first node.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for node in network.nodes():
        reason = _obstacle(node)
        if reason is not None:
            groups.setdefault((node.type, reason), []).append(node.name)
    if not groups:
        return
    lines = [
        f"  {kind}: {len(names)} {'node' if len(names) == 1 else 'nodes'}, "
        f"first {names[0]!r}: {reason}"
        for (kind, reason), names in groups.items()
    ]
    raise UnsupportedOperationError(
        f"network {network.name!r} cannot be written as IR:\n" + "\n".join(lines) + "\n"
        "Keep the model in the format it was read from."
    )


def _obstacle(node: Node) -> str | None:
    """Say why IR cannot express a node, or None."""
    if node.op.domain in ("onnx", "com.microsoft"):
        return f"OpenVINO's operation sets have no such operation (it is of {node.op.domain})"
    for port in node.outputs:
        if port.desc.kind != "tensor":
            return f"IR has no values of kind {port.desc.kind}"
        if port.element_type in _FOREIGN_TYPES:
            return f"IR has no element type {port.element_type}"
    if isinstance(node.op, (Constant, Parameter, Result)):
        return None
    for field in dataclasses.fields(node.op):  # type: ignore[arg-type]
        value = getattr(node.op, field.name)
        if field.metadata.get("ir") == "" and value != field.default:
            return f"IR has no attribute for {field.name}={value!r}"
    return None


def _topology(network: Network, weights: IO[bytes]) -> bytes:
    network = network.clone()
    apply_port_settings(network)
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
            ET.SubElement(layer, "data", {k: _text(v) for k, v in data.items()})
        _layer_notes(layer, node.rt_info)
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


def _listed(names: list[str]) -> str:
    return ",".join(_text(name).replace(",", "\\,") for name in names)


def _unique(name: str, taken: dict[str, int]) -> str:
    candidate = name
    while candidate in taken:
        taken[name] += 1
        candidate = f"{name}_{taken[name]}"
    taken[candidate] = 0
    return candidate
