"""The topology file as plain records, checked for consistency, before any operation is made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ModelFormatError, ModelLimitError, ShapeError
from polydevice.ops.op import Op, parse_shape
from polydevice.readers.ir.document import Element
from polydevice.readers.limits import ReadLimits
from polydevice.shape import Shape

_COMMA = re.compile(r"(?<!\\),")

Operation = tuple[type[Op], int]
"""An operation class, and the number of the operation set that a layer names."""

BODIES = ("body", "then_body", "else_body")
"""Elements of a layer that hold a graph of their own."""


@dataclass(frozen=True)
class PortRecord:
    """One end of a layer: its id in the file, what the file says of its value, its names."""

    id: int
    element_type: ElementType | None
    shape: Shape
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.element_type or ''}{self.shape}"


@dataclass
class LayerRecord:
    """One layer: type and opset, attribute texts, ports in order, bodies."""

    id: int
    name: str
    type: str
    version: str
    data: dict[str, str]
    inputs: list[PortRecord]
    outputs: list[PortRecord]
    rt_info: dict[str, Any]
    element: Element
    output_names: tuple[str, ...] = ()
    bodies: dict[str, GraphRecord] = field(default_factory=dict)
    operation: Operation | None = None
    """Filled by `operation_of`."""

    @property
    def title(self) -> str:
        """How messages call the layer."""
        return f"layer {self.id} {self.name!r} ({self.type}, {self.version or 'no opset'})"

    def output_index(self, port: int) -> int:
        """Return the position of the output port with that id; raises ModelFormatError."""
        for index, record in enumerate(self.outputs):
            if record.id == port:
                return index
        raise ModelFormatError(f"{self.title} has no output port {port}")


@dataclass
class GraphRecord:
    """Layers by id in the file's order, and for every input port the output that feeds it."""

    layers: dict[int, LayerRecord]
    sources: dict[tuple[int, int], tuple[int, int]]

    def feeds(self, layer: LayerRecord) -> list[tuple[int, int]]:
        """Return (layer id, output port id) for every input port, in order."""
        return [self.sources[layer.id, port.id] for port in layer.inputs]


def read_graph(element: Element, limits: ReadLimits, ir_version: int) -> GraphRecord:
    """Read ``layers`` and ``edges`` of a net or body, and the bodies inside it.

    Raises:
        ModelFormatError: missing or contradicting content, naming the element.
        ModelLimitError: too many layers, or bodies nested too deep.
    """
    return _GraphReader(limits, ir_version).read(element, 0)


class _GraphReader:
    def __init__(self, limits: ReadLimits, ir_version: int) -> None:
        self.limits = limits
        self.ir_version = ir_version
        self.layers = 0

    def read(self, element: Element, depth: int) -> GraphRecord:
        if depth > self.limits.body_depth:
            raise ModelLimitError(
                f"bodies are nested deeper than ReadLimits.body_depth = {self.limits.body_depth}"
            )
        layers: dict[int, LayerRecord] = {}
        names: set[str] = set()
        for item in _section(element, "layers").all("layer"):
            layer = self._layer(item, depth)
            if layer.id in layers:
                raise ModelFormatError(
                    f"{layers[layer.id].title} and {layer.title} have the same id; ids must be "
                    "unique"
                )
            if layer.name in names:
                raise ModelFormatError(f"two layers are named {layer.name!r}; names must be unique")
            names.add(layer.name)
            layers[layer.id] = layer
        if not layers:
            raise ModelFormatError(f"{element} has no layers")
        sources = _read_edges(element.child("edges"), layers)
        return GraphRecord(layers, sources)

    def _layer(self, element: Element, depth: int) -> LayerRecord:
        self.layers += 1
        if self.layers > self.limits.layers:
            raise ModelLimitError(
                f"the model has more than ReadLimits.layers = {self.limits.layers} layers"
            )
        data = element.child("data")
        attributes = element.attributes
        layer = LayerRecord(
            id=_identifier(element, "id"),
            name=element.required("name"),
            type=element.required("type"),
            version=attributes.get("version", ""),
            data={} if data is None else data.attributes,
            inputs=self._ports(element, "input"),
            outputs=self._ports(element, "output"),
            rt_info=_layer_rt_info(element),
            element=element,
            output_names=split_names(attributes.get("output_names", "")),
        )
        if len(layer.outputs) > self.limits.layer_outputs:
            raise ModelLimitError(
                f"{layer.title} has {len(layer.outputs)} outputs, more than "
                f"ReadLimits.layer_outputs = {self.limits.layer_outputs}"
            )
        for tag in BODIES:
            body = element.child(tag)
            if body is not None:
                layer.bodies[tag] = self.read(body, depth + 1)
        return layer

    def _ports(self, layer: Element, side: str) -> list[PortRecord]:
        section = layer.child(side)
        if section is None:
            return []
        ports: list[PortRecord] = []
        known: set[int] = set()
        for element in section.all("port"):
            number = _identifier(element, "id")
            if number in known:
                raise ModelFormatError(f"{layer}: two {side} ports have the id {number}")
            known.add(number)
            ports.append(self._port(layer, element, number))
        return ports

    def _port(self, layer: Element, element: Element, number: int) -> PortRecord:
        sizes = [child.text for child in element.children if child.tag == "dim"]
        if len(sizes) > self.limits.rank:
            raise ModelLimitError(
                f"{layer}: port {number} has {len(sizes)} dimensions, more than "
                f"ReadLimits.rank = {self.limits.rank}"
            )
        try:
            shape = parse_shape(",".join(sizes)) if sizes else Shape()
        except (ValueError, ShapeError):
            shape = None
        if (
            shape is None
            or len(shape) != len(sizes)
            or (
                self.ir_version < 11
                and not all(isinstance(size, int) and size > 0 for size in shape)
            )
        ):
            legal = "a positive whole number" if self.ir_version < 11 else "a size, -1 or low..high"
            raise ModelFormatError(
                f"{layer}: port {number} has the sizes {sizes}; each <dim> must be {legal}"
            )
        precision = element.attributes.get("precision")
        try:
            element_type = None if precision is None else ElementType.parse(precision)
        except ElementTypeError:
            element_type = None  # informative only: the operation's own rule decides
        return PortRecord(
            number, element_type, shape, split_names(element.attributes.get("names", ""))
        )


def _read_edges(
    element: Element | None, layers: dict[int, LayerRecord]
) -> dict[tuple[int, int], tuple[int, int]]:
    outputs = {(layer.id, port.id) for layer in layers.values() for port in layer.outputs}
    inputs = {(layer.id, port.id) for layer in layers.values() for port in layer.inputs}
    sources: dict[tuple[int, int], tuple[int, int]] = {}
    for edge in element.all("edge") if element is not None else ():
        source = edge.integer("from-layer"), edge.integer("from-port")
        target = edge.integer("to-layer"), edge.integer("to-port")
        for number in (source[0], target[0]):
            if number not in layers:
                raise ModelFormatError(f"{edge} refers to layer {number}, which does not exist")
        if source[0] == target[0]:
            raise ModelFormatError(f"{edge} connects {layers[source[0]].title} with itself")
        if source not in outputs:
            raise ModelFormatError(
                f"{edge}: {layers[source[0]].title} has no output port {source[1]}"
            )
        if target not in inputs:
            raise ModelFormatError(
                f"{edge}: {layers[target[0]].title} has no input port {target[1]}"
            )
        if target in sources:
            raise ModelFormatError(
                f"input port {target[1]} of {layers[target[0]].title} is fed by two edges"
            )
        sources[target] = source
    for number, port in inputs:
        if (number, port) not in sources:
            raise ModelFormatError(f"input port {port} of {layers[number].title} has no edge")
    return sources


def _section(element: Element, tag: str) -> Element:
    section = element.child(tag)
    if section is None:
        raise ModelFormatError(f"{element} has no <{tag}>; it is not an IR topology")
    return section


def _identifier(element: Element, name: str) -> int:
    number = element.integer(name)
    if number < 0:
        raise ModelFormatError(f"{element}: {name}={number} is negative")
    return number


def split_names(text: str) -> tuple[str, ...]:
    r"""Split a comma-separated list of names, in which ``\,`` is a comma of a name.

    Blanks around a name, as in ``a, b``, are no part of it.
    """
    names = text.split(",") if "\\" not in text else _COMMA.split(text)
    trimmed = (name.replace("\\,", ",").strip() for name in names)
    return tuple(name for name in trimmed if name)


PORT_SETTINGS = frozenset({"precision", "layout"})
"""Notes by which a network's user chooses the blobs' form; a file cannot set them."""

_V10_NOTES = ("PrimitivesPriority", "alt_width", "affinity")


def _layer_rt_info(element: Element) -> dict[str, Any]:
    """Return the notes of a layer and, for keys it lacks, of its output ports (layout)."""
    notes: dict[str, Any] = {}
    data = element.child("data")
    if data is not None:
        notes.update((key, data.attributes[key]) for key in _V10_NOTES if key in data.attributes)
    for section in _rt_sections(element):
        for item in section.all("attribute"):
            name = item.attributes.get("name")
            if name == "layout":
                notes["model_layout"] = item.attributes.get("layout", "")
            elif name is not None and name not in notes and name not in PORT_SETTINGS:
                notes[name] = _note(item)
    return notes


def _rt_sections(layer: Element) -> Iterator[Element]:
    yield from layer.all("rt_info")
    output = layer.child("output")
    if output is not None:
        for port in output.all("port"):
            yield from port.all("rt_info")


def _note(item: Element) -> str | dict[str, str]:
    rest = {key: value for key, value in item.attributes.items() if key != "name"}
    if rest.get("version") == "0":
        del rest["version"]
    return rest["value"] if set(rest) == {"value"} else rest


def nested_notes(element: Element) -> dict[str, Any]:
    """Return model-level information (rt_info, meta_data) as nested dictionaries of text."""
    notes: dict[str, Any] = {}
    for child in element.children:
        name = child.attributes.get("name", child.tag) if child.tag == "info" else child.tag
        if child.children:
            notes[name] = nested_notes(child)
        elif "value" in child.attributes:
            notes[name] = child.attributes["value"]
        elif child.attributes and child.tag != "info":
            notes[name] = dict(child.attributes)
        else:
            notes[name] = {}
    return notes
