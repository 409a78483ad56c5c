"""Case: one operation as a one-layer IR, with random inputs; both runtimes read the same text."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from polydevice.dtype import ElementType
from polydevice.writers.weights import packed

PRECISIONS = {
    "float16": ("f16", "FP16"), "float32": ("f32", "FP32"), "float64": ("f64", "FP64"),
    "bfloat16": ("bf16", "BF16"), "bool": ("boolean", "BOOL"),
}  # fmt: skip


@dataclass(frozen=True)
class Input:
    """One input: a value, and whether the IR holds it as a constant.

    `kind` is the element type where NumPy's does not tell it (u1, string).
    """

    value: np.ndarray
    constant: bool = False
    kind: str = ""


@dataclass(frozen=True)
class Case:
    """One operation of one operation set, its inputs and attributes.

    Attributes:
        kind: type in the IR.
        opset: number of the operation set that the layer names.
        inputs: in order.
        attributes: as Python values; written the way OpenVINO writes them.
        outputs: number of outputs.
        variant: what distinguishes the case from others of the operation.
        tolerance: key of the table in tolerances.py, "" for the one of the element type.
        compared: outputs that are compared (indices); None for all.
        dynamic: whether the case also makes sense with every input size unknown.
        reference: whether OpenVINO's reference implementation is asked instead of its CPU plugin;
            None: where it has one.
        others: inputs of the second inference, constants included; see `OpCase`.
    """

    kind: str
    opset: int
    inputs: tuple[Input, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    variant: str = ""
    tolerance: str = ""
    compared: tuple[int, ...] | None = None
    dynamic: bool = True
    reference: bool | None = False
    others: Sequence[np.ndarray] | None = None

    @property
    def id(self) -> str:
        """Name of the test."""
        return f"{self.kind}-{self.opset}" + (f"-{self.variant}" if self.variant else "")

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """Input name → value of those that are not constants."""
        return {f"input{i}": v.value for i, v in enumerate(self.inputs) if not v.constant}


def C(value: Any, dtype: Any = None, kind: str = "") -> Input:  # noqa: N802 - there are hundreds
    """Make a constant input; Python's integers become i64."""
    return Input(np.asarray(value, dtype), constant=True, kind=kind)


def case(
    kind: str,
    opset: int,
    *inputs: np.ndarray | Input,
    outputs: int = 1,
    variant: str = "",
    tolerance: str = "",
    compared: Sequence[int] | None = None,
    dynamic: bool = True,
    reference: bool = False,
    others: Sequence[np.ndarray] | None = None,
    **attributes: Any,
) -> Case:
    """Make a case; attributes are keywords, with ``_`` for ``-`` where IR has that."""
    dashed = {"exclude_pad": "exclude-pad", "rounding_type": "rounding_type"}
    return Case(
        kind,
        opset,
        tuple(i if isinstance(i, Input) else Input(np.asarray(i)) for i in inputs),
        {dashed.get(k, k): v for k, v in attributes.items()},
        outputs,
        variant,
        tolerance,
        None if compared is None else tuple(compared),
        dynamic,
        reference,
        others,
    )


class Random:
    """Random inputs, the same in every run."""

    def __init__(self, name: str) -> None:
        self._generator = np.random.default_rng(zlib.crc32(name.encode()))

    def f(self, *shape: int, low: float = -2, high: float = 2, dtype: Any = np.float32) -> Any:
        """Floating-point numbers, uniform."""
        return self._generator.uniform(low, high, shape).astype(dtype)

    def i(self, *shape: int, low: int = -5, high: int = 6, dtype: Any = np.int32) -> Any:
        """Integers from low up to, without, high."""
        return self._generator.integers(low, high, shape).astype(dtype)

    def b(self, *shape: int) -> Any:
        """Booleans."""
        return self._generator.integers(0, 2, shape).astype(bool)

    def distinct(self, *shape: int, dtype: Any = np.float32) -> Any:
        """Numbers without ties, for what sorts them."""
        count = int(np.prod(shape))
        return (self._generator.permutation(count) / 4 - count / 8).reshape(shape).astype(dtype)

    def boxes(self, *shape: int, size: float = 1.0) -> Any:
        """Boxes (x1, y1, x2, y2) with positive area inside [0, size]."""
        first = self._generator.uniform(0, 0.6 * size, (*shape, 2))
        extent = self._generator.uniform(0.1 * size, 0.4 * size, (*shape, 2))
        return np.concatenate([first, first + extent], -1).astype(np.float32)


def ir_of(given: Case, *, dynamic: bool = False) -> tuple[bytes, bytes]:
    """Write a case as IR v11: topology and weights.

    With `dynamic` the sizes of all inputs that are not constants are unknown.
    """
    layers: list[str] = []
    edges: list[str] = []
    weights = bytearray()
    count = len(given.inputs)
    for i, item in enumerate(given.inputs):
        kind, precision = _names(item)
        shape = item.value.shape
        sizes: Sequence[object] = shape
        if item.constant:
            data = bytes(packed(item.value, ElementType.parse(kind)))
            weights += bytes(-len(weights) % 8)
            place = {"offset": len(weights), "size": len(data)}
            weights += data
            attributes = {"element_type": kind, "shape": shape, **place}
        else:
            sizes = ["?"] * len(shape) if dynamic else shape
            attributes = {"element_type": kind, "shape": sizes}
        port = _port(0, precision, ["-1" if size == "?" else size for size in sizes])
        layer_type = "Const" if item.constant else "Parameter"
        layers.append(_layer(i, f"input{i}", layer_type, 1, attributes, "", port))
        edges.append(_edge(i, 0, count, i))
    inputs = "".join(_port(i, _names(v)[1], v.value.shape) for i, v in enumerate(given.inputs))
    return _whole(given, layers, edges, count, inputs), bytes(weights)


def _whole(given: Case, layers: list[str], edges: list[str], number: int, inputs: str) -> bytes:
    """Add the operation itself, with that number, and a Result for each output."""
    first = len(given.inputs)
    outputs = "".join(_port(first + i, "FP32", ()) for i in range(given.outputs))
    op = _layer(number, "op", given.kind, given.opset, given.attributes, inputs, outputs)
    layers = [*layers, op]
    edges = list(edges)
    for i in range(given.outputs):
        result = _layer(number + 1 + i, f"output{i}", "Result", 1, {}, _port(0, "FP32", ()), "")
        layers.append(result)
        edges.append(_edge(number, first + i, number + 1 + i, 0))
    text = (
        f'<?xml version="1.0"?><net name="{given.kind}" version="11"><layers>{"".join(layers)}'
        f"</layers><edges>{''.join(edges)}</edges></net>"
    )
    return text.encode()


def late_ir_of(given: Case) -> tuple[bytes, dict[str, np.ndarray]]:
    """Write a case whose sizes no device knows before it computes; return what feeds it, too.

    Every input, constants included, comes as a row of numbers and the sizes to reshape it to.
    """
    layers: list[str] = []
    edges: list[str] = []
    feeds: dict[str, np.ndarray] = {}
    count = 3 * len(given.inputs)
    for i, item in enumerate(given.inputs):
        kind, precision = _names(item)
        rank, row, sizes = item.value.ndim, 3 * i, 3 * i + 1
        row_port, sizes_port = _port(0, precision, ["-1"]), _port(1, "I64", [rank])
        late_port = _port(2, precision, ["-1"] * rank)
        for number, name, typed in (
            (row, f"row{i}", {"element_type": kind, "shape": ["?"]}),
            (sizes, f"sizes{i}", {"element_type": "i64", "shape": [rank]}),
        ):
            port = _port(0, precision, ["-1"]) if number == row else _port(0, "I64", [rank])
            layers.append(_layer(number, name, "Parameter", 1, typed, "", port))
        both = row_port + sizes_port
        late = _layer(row + 2, f"late{i}", "Reshape", 1, {"special_zero": False}, both, late_port)
        layers.append(late)
        edges += [_edge(row, 0, row + 2, 0), _edge(sizes, 0, row + 2, 1)]
        edges.append(_edge(row + 2, 2, count, i))
        feeds[f"row{i}"] = item.value.reshape(-1)
        feeds[f"sizes{i}"] = np.array(item.value.shape, np.int64)
    inputs = "".join(
        _port(i, _names(v)[1], ["-1"] * v.value.ndim) for i, v in enumerate(given.inputs)
    )
    return _whole(given, layers, edges, count, inputs), feeds


def _names(item: Input) -> tuple[str, str]:
    """Return the element type's name in attributes, and in ports."""
    if item.kind:
        return item.kind, {"u1": "BIN"}.get(item.kind, item.kind.upper())
    name = str(item.value.dtype)
    short = name.replace("uint", "u").replace("int", "i")
    return PRECISIONS.get(name, (short, short.upper()))


def _layer(
    number: int,
    name: str,
    kind: str,
    opset: int,
    attributes: Mapping[str, Any],
    inputs: str,
    outputs: str,
) -> str:
    data = "".join(f" {key}={quoteattr(_text(value))}" for key, value in attributes.items())
    return (
        f'<layer id="{number}" name="{name}" type="{kind}" version="opset{opset}"><data{data}/>'
        + (f"<input>{inputs}</input>" if inputs else "")
        + (f"<output>{outputs}</output>" if outputs else "")
        + "</layer>"
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(value)


def _port(number: int, precision: str, sizes: Sequence[object]) -> str:
    dims = "".join(f"<dim>{size}</dim>" for size in sizes)
    return f'<port id="{number}" precision="{precision}">{dims}</port>'


def _edge(source: int, port: int, target: int, position: int) -> str:
    return (
        f'<edge from-layer="{source}" from-port="{port}" to-layer="{target}" to-port="{position}"/>'
    )
