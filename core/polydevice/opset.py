"""opset: networks written in Python, one function for each operation that core knows.

For example::

    from polydevice import opset

    x = opset.parameter([1, 3, 8, 8], "f32", name="image")
    y = opset.relu(opset.add(x, np.float32(1)))
    network = opset.network("tiny", {"y": opset.reduce_mean(y, [2, 3], keep_dims=True)})

A function is called like the type of its operation, with or without underscores (`mat_mul`,
`matmul`); `dir(opset)` lists them. Positional arguments are the inputs: results of other functions,
arrays, or numbers, which become constants. Arguments by keyword are the attributes, called as the
operation's class in `polydevice.ops` calls them. Functions of operations with one output return
that, others a list.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter, Input
from polydevice.errors import NetworkError, PolydeviceError, nearest
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op, operations
from polydevice.ops.state import Assign
from polydevice.shape import DimLike, Shape

_OWN = (Constant, Parameter, Result)


def parameter(
    shape: Sequence[DimLike | None], element_type: str | ElementType = "f32", *, name: str
) -> Port:
    """Return an input of a network.

    Args:
        shape: sizes; None or -1 for an unknown one, `Dim` for one with bounds.
        element_type: such as "f32" or "i64".
        name: of the input.

    Raises:
        NetworkError: there is no such element type, or the shape is none.
    """
    try:
        kind = ElementType(element_type)
    except ValueError:
        legal = ", ".join(each.value for each in ElementType)
        raise NetworkError(
            f"input {name!r}: element type {element_type!r} is not known; legal: {legal}"
        ) from None
    return Node(name, Parameter(kind, Shape(shape))).output


def constant(value: Any, element_type: str | ElementType | None = None, *, name: str = "") -> Port:
    """Return a constant; integers become i64 and a list of floats f64 without a type."""
    kind = None if element_type is None else ElementType(element_type)
    return Emitter(name or "constant").value(value, kind)


def network(
    name: str, outputs: Mapping[str, Port] | Sequence[Port], inputs: Sequence[Port] | None = None
) -> Network:
    """Return the network that computes some values; its nodes get names that differ.

    Args:
        name: of the network.
        outputs: name → value; of a list the values' own names.
        inputs: results of `parameter`, in their order; those that are found when left out.

    Raises:
        NetworkError: an input is missing in `inputs` or is none, or two have one name.
    """
    named = outputs.items() if isinstance(outputs, Mapping) else [("", port) for port in outputs]
    results = [
        Node(f"{label or _port(port).name}/result", Result(output_name=label), [_port(port)])
        for label, port in named
    ]
    made = Network(name, [], results)
    nodes = made.nodes()
    made.sinks = [node for node in nodes if isinstance(node.op, Assign)]
    found = [node for node in nodes if isinstance(node.op, Parameter)]
    given = found if inputs is None else [_port(port).node for port in inputs]
    for node in given:
        if not isinstance(node.op, Parameter):
            raise NetworkError(f"{node.title} is no input; opset.parameter() makes inputs")
    missing = [node.name for node in found if node not in given]
    if missing:
        raise NetworkError(f"network {name!r} reads {missing[0]!r}, which is not among its inputs")
    names = [node.name for node in given]
    if len(set(names)) < len(names):
        raise NetworkError(f"network {name!r} has two inputs of one name: {', '.join(names)}")
    made.parameters = given
    _name(nodes, set(names))
    return made


def _name(nodes: Sequence[Node], taken: set[str]) -> None:
    """Number the nodes of one name, constants last; inputs keep theirs."""
    counts: dict[str, int] = {}
    for node in sorted(nodes, key=lambda each: isinstance(each.op, Constant)):
        if isinstance(node.op, Parameter):
            continue
        stem = node.name
        while node.name in taken:
            counts[stem] = counts.get(stem, 0) + 1
            node.name = f"{stem}_{counts[stem]}"
        taken.add(node.name)


def _port(value: Any) -> Port:
    if isinstance(value, Port):
        return value
    raise NetworkError(f"{type(value).__name__} is no value of a network; give what opset returns")


def _classes() -> dict[str, type[Op]]:
    """Return name without underscores → the newest class of that type, plugins' ones too."""
    import polydevice.ops  # noqa: F401 - importing it defines every operation

    found: dict[str, type[Op]] = {}
    for cls in sorted(operations(), key=lambda each: (each.domain == "opset", each.since[-1])):
        if not issubclass(cls, _OWN):
            found[cls.type.replace("_", "").lower()] = cls
    return found


def _function(cls: type[Op]) -> Callable[..., Any]:
    fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]

    def make(*inputs: Input, name: str = "", **attributes: Any) -> Any:
        unknown = [each for each in attributes if each not in fields]
        if unknown:
            raise NetworkError(
                f"{cls.type} has no attribute {unknown[0]!r}; it has: "
                f"{', '.join(sorted(fields)) or 'none'}." + nearest(unknown[0], fields)
            )
        try:
            op = cls(**{key: _hashable(value) for key, value in attributes.items()})
        except TypeError as error:
            raise NetworkError(f"{cls.type}: {error}") from error
        emitter = Emitter(name or cls.type)
        try:
            outputs = emitter.emit_all(op, *inputs)
        except PolydeviceError:
            raise
        except (TypeError, ValueError) as error:
            given = ", ".join(type(item).__name__ for item in inputs)
            raise NetworkError(f"{cls.type} does not accept ({given}): {error}") from error
        return outputs[0] if len(outputs) == 1 else list(outputs)

    make.__name__ = make.__qualname__ = _snake(cls.type)
    make.__doc__ = cls.__doc__
    return make


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _snake(kind: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z0-9])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the function of an operation."""
    cls = None if name.startswith("__") else _classes().get(name.replace("_", "").lower())
    if cls is None:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}." + nearest(name, __dir__())
        )
    return _function(cls)


def __dir__() -> list[str]:
    """Return every function's name."""
    return sorted(
        ["constant", "network", "parameter", *(_snake(c.type) for c in _classes().values())]
    )
