"""Archive: any network as bytes and back, whatever its operations.

IR files cannot express every operation that polydevice knows (ONNX's own, sequences, plugins'
operations, some attributes). An archive can: it names operations as the table of operations does
and writes attributes by their types. It is for one version of polydevice, not a format for models.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import hashlib
import json
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import ModelFormatError, PolydeviceError, UnsupportedOperationError
from polydevice.files import container
from polydevice.interval import Interval
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port
from polydevice.ops.op import Op, operations
from polydevice.ops.unknown import UnknownOperation
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc

_KIND = "network"
_ALIGNMENT_BYTES = 64
_DEPTH_LIMIT = 50


def network_to_bytes(network: Network) -> bytes:
    """Return a network as bytes; equal networks give equal bytes."""
    encoder = _Encoder()
    graph = json.dumps(encoder.network(network), separators=(",", ":")).encode()
    return container.pack(_KIND, {"graph": graph, "data": bytes(encoder.data)})


def network_from_bytes(content: bytes, evaluate: Evaluate | None = None) -> Network:
    """Return the network of `network_to_bytes`; constants may share memory with `content`.

    Args:
        content: the bytes.
        evaluate: computes shape arithmetic while shapes are inferred.

    Raises:
        ModelFormatError: the bytes are damaged, from another version, or not consistent.
        UnsupportedOperationError: it has an operation that nothing here defines.
        NetworkError: (or a subclass) an operation does not accept what it is given.
    """
    sections = container.unpack(content, _KIND)
    try:
        graph = json.loads(sections["graph"])
        decoder = _Decoder(sections["data"], evaluate)
        return decoder.network(graph)
    except PolydeviceError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ModelFormatError(f"the archived network is not consistent: {error!r}") from error


class _Encoder:
    """Turns a network into what JSON can hold, and its arrays into one run of bytes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._places: dict[bytes, int] = {}

    def network(self, network: Network) -> dict[str, Any]:
        """Describe a network; ports are pairs (number of the node, number of the output)."""
        numbers = {node: number for number, node in enumerate(network.nodes())}
        nodes = []
        for node in numbers:
            op = node.op
            row: dict[str, Any] = {
                "name": node.name,
                "op": [op.domain, op.type, op.since[-1]],
                "attributes": {k: self.value(v) for k, v in op.attributes().items()},
                "inputs": [[numbers[port.node], port.index] for port in node.inputs],
            }
            names = [sorted(port.names) for port in node.outputs]
            if any(names):
                row["names"] = names
            if node.rt_info:
                row["notes"] = self._notes(node.rt_info)
            nodes.append(row)
        return {
            "name": network.name,
            "nodes": nodes,
            "parameters": [numbers[node] for node in network.parameters],
            "results": [numbers[node] for node in network.results],
            "sinks": [numbers[node] for node in network.sinks],
            "notes": self._notes(network.rt_info),
        }

    def _notes(self, notes: Mapping[str, Any]) -> dict[str, Any]:
        """Keep plain notes; settings of ports are part of the graph before it is archived."""
        plain = (str, int, float, bool, type(None))
        return {key: value for key, value in notes.items() if isinstance(value, plain)}

    def value(self, value: Any) -> Any:
        """Describe one value by its type; the type decides how `_Decoder.value` reads it."""
        if value is None or isinstance(value, (str, bool)):
            return value
        for kinds, tag, write in self._writers:
            if isinstance(value, kinds):
                content = write(self, value)
                return {tag: content} if tag else content
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: self.value(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {"record": [type(value).__name__, fields]}
        raise ModelFormatError(f"an attribute of type {type(value).__name__} cannot be archived")

    def _float(self, number: float) -> str:
        return float(number).hex() if math.isfinite(number) else str(float(number))

    def _items(self, items: Iterable[Any]) -> list[Any]:
        return [self.value(item) for item in items]

    def _desc(self, desc: TensorDesc) -> list[Any]:
        return self._items([desc.element_type, desc.shape, desc.value, desc.kind])

    def _array(self, array: Array) -> list[Any]:
        """Append an array's bytes, equal ones once, and return where they are."""
        shape = list(array.shape)
        if array.dtype == object:
            return ["objects", shape, [self.value(item) for item in array.reshape(-1)]]
        content = np.ascontiguousarray(array).tobytes()
        digest = hashlib.sha256(content).digest()
        if digest not in self._places:
            self.data += b"\0" * (-len(self.data) % _ALIGNMENT_BYTES)
            self._places[digest] = len(self.data)
            self.data += content
        return [ElementType.of(array.dtype).value, shape, self._places[digest]]

    # In this order: an ElementType is an Enum, a Shape a tuple.
    _writers: typing.ClassVar[list[tuple[Any, str, Callable[[_Encoder, Any], Any]]]] = [
        ((int, np.integer), "", lambda _, number: int(number)),
        ((float, np.floating), "float", _float),
        (ElementType, "type", lambda _, kind: kind.value),
        (enum.Enum, "enum", lambda _, member: [type(member).__name__, member.name]),
        (Dim, "dim", lambda _, dim: [dim.min, dim.max]),
        (Interval, "interval", lambda self, item: self._items([item.min, item.max])),
        (Shape, "shape", _items),
        ((tuple, list), "tuple", _items),
        (bytes, "bytes", lambda _, content: base64.b64encode(content).decode()),
        (np.ndarray, "array", _array),
        (Network, "network", network),
        (TensorDesc, "desc", _desc),
    ]


class _Decoder:
    """Turns what `_Encoder` made back into a network, believing nothing."""

    def __init__(self, data: bytes, evaluate: Evaluate | None) -> None:
        self._data = data
        self._evaluate = evaluate
        self._classes: dict[tuple[Any, ...], type[Op]] = {
            (cls.domain, cls.type, cls.since[-1]): cls for cls in operations()
        }
        self._depth = 0

    def network(self, graph: Mapping[str, Any]) -> Network:
        """Make a network; nodes come after those they read, so that there are no cycles."""
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise ValueError("too many networks inside one another")
        nodes: list[Node] = []
        for row in graph["nodes"]:
            inputs = [self._port(nodes, *place) for place in row["inputs"]]
            op = self._op(row["op"], row["attributes"])
            node = Node(str(row["name"]), op, inputs, rt_info=row.get("notes"))
            for port, names in zip(node.outputs, row.get("names", ())):
                port.names.update(map(str, names))
            nodes.append(node)
        lists = [
            [nodes[self._index(n, nodes)] for n in graph[key]]
            for key in ("parameters", "results", "sinks")
        ]
        made = Network(str(graph["name"]), *lists, evaluate=self._evaluate, rt_info=graph["notes"])
        if self._evaluate is not None:
            made.infer()
        self._depth -= 1
        return made

    def _port(self, nodes: list[Node], number: int, output: int) -> Port:
        outputs = nodes[self._index(number, nodes)].outputs
        return outputs[self._index(output, outputs)]

    @staticmethod
    def _index(number: Any, items: list[Any]) -> int:
        if not isinstance(number, int) or not 0 <= number < len(items):
            raise ValueError(f"{number!r} is no number of what came before")
        return number

    def _op(self, key: list[Any], attributes: Mapping[str, Any]) -> Op:
        cls = self._classes.get(tuple(key))
        if key[0] == UnknownOperation.domain:
            cls = UnknownOperation
        if cls is None:
            raise UnsupportedOperationError(
                f"the archived network needs operation {key[1]!r} of {key[0]!r}, which is not "
                "here; install the plugin that defines it"
            )
        known = _types_of(cls)
        values = {str(name): self.value(value, known) for name, value in attributes.items()}
        made: Op = cls(**values)
        return made

    def value(self, value: Any, known: Mapping[str, type]) -> Any:
        """Make a value; `known` are the types that the operation's attributes mention."""
        if not isinstance(value, dict):
            if isinstance(value, list):
                raise TypeError("a list has no type")
            return value
        ((tag, content),) = value.items()
        if tag == "enum":
            return known[content[0]][content[1]]  # type: ignore[index]
        if tag == "record":
            fields = {name: self.value(v, known) for name, v in content[1].items()}
            return known[content[0]](**fields)
        if tag in {"tuple", "shape", "desc", "interval"}:
            items = [self.value(item, known) for item in content]
            makers: dict[str, Callable[[Any], Any]] = {
                "tuple": tuple,
                "shape": Shape,
                "desc": _desc,
                "interval": lambda limits: Interval(*limits),
            }
            return makers[tag](items)
        return self._plain[tag](self, content)

    def _array(self, place: list[Any]) -> Array:
        kind, sizes, where = place
        shape = [int(size) for size in sizes]
        count = math.prod(shape)
        if any(size < 0 for size in shape):
            raise ValueError("a size is negative")
        if kind == "objects":
            if count != len(where):
                raise ValueError("an array has another number of items than its shape says")
            array = np.empty(count, object)
            for index, item in enumerate(where):
                array[index] = self.value(item, {})
            return array.reshape(shape)
        dtype = ElementType(kind).dtype
        if not 0 <= where <= len(self._data) - count * dtype.itemsize:
            raise ValueError("an array lies outside of the data")
        return np.frombuffer(self._data, dtype, count, where).reshape(shape)

    _plain: typing.ClassVar[dict[str, Callable[[_Decoder, Any], Any]]] = {
        "float": lambda _, text: float(text) if text[-1] in "fn" else float.fromhex(text),
        "type": lambda _, text: ElementType(text),
        "dim": lambda _, limits: Dim(*limits),
        "bytes": lambda _, text: base64.b64decode(text),
        "array": _array,
        "network": network,
    }


def _desc(parts: list[Any]) -> TensorDesc:
    return TensorDesc(*parts)


def _types_of(cls: type[Any]) -> dict[str, type]:
    """Return the enumerations and records that the fields of a dataclass mention, by name."""
    found: dict[str, type] = {}
    pending: list[Any] = list(typing.get_type_hints(cls).values())
    while pending:
        hint = pending.pop()
        pending += typing.get_args(hint)
        if not isinstance(hint, type) or hint.__name__ in found:
            continue
        if issubclass(hint, enum.Enum) or dataclasses.is_dataclass(hint):
            found[hint.__name__] = hint
            if dataclasses.is_dataclass(hint):
                pending += typing.get_type_hints(hint).values()
    return found
