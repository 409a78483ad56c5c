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

import numpy as np

from polydevice.arguments import integer, shown, text
from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.errors import ElementTypeError, NetworkError, PolydeviceError, ShapeError, nearest
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.custom_operation import CustomOperation
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op, operations
from polydevice.ops.python_operation import PythonOperation
from polydevice.ops.state import Assign
from polydevice.opset.values import as_attribute, as_input, as_values
from polydevice.shape import Dim, DimLike, Shape

_OWN = (Constant, Parameter, Result)
_LARGEST = (1 << 63) - 1


def parameter(
    shape: Sequence[DimLike | None], element_type: str | ElementType = "f32", *, name: str
) -> Port:
    """Return an input of a network.

    Args:
        shape: sizes; None or -1 for an unknown one, `Dim` for one with bounds.
        element_type: such as "f32" or "i64".
        name: of the input.

    Raises:
        NetworkError: (or a subclass) there is no such element type, the shape is none, or the name
            is no text.
    """
    if not text(name, "the name of an input", NetworkError):
        raise NetworkError("an input needs a name")
    what = f"input {name!r}"
    if not isinstance(shape, (list, tuple)):
        raise ShapeError(f"{what}: {shown(shape)} is no shape; give a list of sizes")
    sizes: list[DimLike | None] = []
    for size in shape:
        known = size is None or isinstance(size, Dim)
        sizes.append(
            size if known else integer(size, f"{what}: a size", ShapeError, least=-1, most=_LARGEST)
        )
    return Node(name, Parameter(_element_type(what, element_type), Shape(sizes))).output


def constant(value: Any, element_type: str | ElementType | None = None, *, name: str = "") -> Port:
    """Return a constant; integers become i64 and a list of floats f64 without a type.

    Args:
        value: a number, text, array, or lists of them.
        element_type: such as "f16"; numbers must fit into it.
        name: of the constant.

    Raises:
        NetworkError: (or a subclass) the value is none of these, or does not fit the type.
    """
    text(name, "the name of a constant", NetworkError)
    what = f"constant {name!r}" if name else "constant"
    kind = None if element_type is None else _element_type(what, element_type)
    array = as_values(what, value)
    if array.dtype == object and kind not in (None, ElementType.string):
        raise ElementTypeError(f"{what}: {shown(value)} are texts, which {kind} cannot hold")
    if kind is None:
        if array.dtype == object:
            kind = ElementType.string
        elif array.dtype.kind in "iu" and not isinstance(value, (np.ndarray, np.generic)):
            kind = ElementType.i64
    if kind is not None and array.dtype != kind.dtype:
        array = _converted(what, value, array, kind)
    return Emitter(name or "constant").value(array, kind)


def network(
    name: str, outputs: Mapping[str, Port] | Sequence[Port], inputs: Sequence[Port] | None = None
) -> Network:
    """Return the network that computes some values; its nodes get names that differ.

    Args:
        name: of the network.
        outputs: name → value; of a list the values' own names; or one value.
        inputs: results of `parameter`, in their order; those that are found when left out.

    Raises:
        NetworkError: there are no outputs or they are no values, a name is no text, an input is
            missing in `inputs` or is none, or two have one name.
    """
    text(name, "the name of a network", NetworkError)
    if isinstance(outputs, Port):
        outputs = [outputs]
    if not isinstance(outputs, (Mapping, list, tuple)) or not outputs:
        raise NetworkError(
            f"network {name!r}: {shown(outputs)} are no outputs; give name → value, or a list"
        )
    if inputs is not None and not isinstance(inputs, (list, tuple)):
        raise NetworkError(f"network {name!r}: {shown(inputs)} are no inputs; give a list")
    named = outputs.items() if isinstance(outputs, Mapping) else [("", port) for port in outputs]
    results = [
        Node(
            f"{text(label, 'the name of an output', NetworkError) or _port(port).name}/result",
            Result(output_name=label),
            [_port(port)],
        )
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


def custom(operation: CustomOperation) -> Callable[..., Any]:
    """Return the function of an operation of yours, also where a standard one has its name.

    Raises:
        NetworkError: it was not made by `polydevice.operation`.
    """
    if not isinstance(operation, CustomOperation):
        raise NetworkError(
            f"{shown(operation)} is no operation of yours; decorate a function with "
            "polydevice.operation"
        )
    return _function(operation.op)


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
    raise NetworkError(f"{shown(value)} is no value of a network; give what opset returns")


def _classes() -> dict[str, type[Op]]:
    """Return name without underscores → the newest class of that type, plugins' ones too."""
    import polydevice.ops  # noqa: F401 - importing it defines every operation

    found: dict[str, type[Op]] = {}
    for cls in sorted(operations(), key=lambda each: (each.domain == "opset", each.since[-1])):
        if not issubclass(cls, _OWN):
            found[cls.type.replace("_", "").lower()] = cls
    return found


def _function(cls: type[Op]) -> Callable[..., Any]:
    fields = {field.name for field in dataclasses.fields(cls)}

    def make(*inputs: Any, name: str = "", **attributes: Any) -> Any:
        unknown = [each for each in attributes if each not in fields]
        if unknown:
            raise NetworkError(
                f"{cls.type} has no attribute {unknown[0]!r}; it has: "
                f"{', '.join(sorted(fields)) or 'none'}." + nearest(unknown[0], fields)
            )
        text(name, f"{cls.type}: the name of a node", NetworkError)
        optional = issubclass(cls, PythonOperation)
        given: list[Any] = [
            item
            if isinstance(item, Port) or (item is None and optional)
            else as_input(f"{cls.type}: input {number}", item)
            for number, item in enumerate(inputs)
        ]
        described = ", ".join(_described(item) for item in given)
        made = {key: as_attribute(cls, key, value) for key, value in attributes.items()}
        try:
            op = cls(**made)
        except TypeError as error:
            missing = [key for key in _required(cls) if key not in made]
            lacks = f"it needs the attribute {missing[0]!r}" if missing else str(error)
            raise NetworkError(f"{cls.type}({described}): {lacks}") from None
        emitter = Emitter(name or cls.type)
        try:
            if isinstance(op, PythonOperation):
                op, given = op.for_inputs(given)
            outputs = emitter.emit_all(op, *given)
        except PolydeviceError as error:
            raise type(error)(f"{error}; given: {described or 'nothing'}") from error
        except (TypeError, ValueError, OverflowError, IndexError, AttributeError) as error:
            raise NetworkError(f"{cls.type} does not accept ({described}): {error}") from error
        return outputs[0] if len(outputs) == 1 else list(outputs)

    make.__name__ = make.__qualname__ = _snake(cls.type)
    make.__doc__ = cls.__doc__
    return make


def _required(cls: type[Op]) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]


def _described(item: Any) -> str:
    if isinstance(item, Port):
        return str(item.desc.without_value())
    if isinstance(item, np.ndarray):
        return f"{item.dtype}{list(item.shape)}"
    return shown(item)


def _element_type(what: str, given: Any) -> ElementType:
    if isinstance(given, ElementType):
        return given
    if not isinstance(given, str):
        raise ElementTypeError(f"{what}: {shown(given)} is no element type; give one such as 'f32'")
    try:
        return ElementType.parse(given)
    except ElementTypeError as error:
        raise ElementTypeError(f"{what}: {error}") from None


def _converted(what: str, given: Any, array: Array, kind: ElementType) -> Array:
    """Return values in a type that can hold them; floats may be rounded to floats."""
    if kind is ElementType.dynamic:
        raise ElementTypeError(f"{what}: dynamic is the type of nothing that is known")
    if kind is ElementType.string:
        raise ElementTypeError(f"{what}: {shown(given)} are no texts")
    if array.dtype.kind == "c" and kind.dtype.kind != "c":
        raise ElementTypeError(f"{what}: {shown(given)} is complex, which {kind} cannot hold")
    with np.errstate(all="ignore"):
        made: Array = array.astype(kind.dtype)
        exact = kind.is_float or kind.dtype.kind == "c" or bool((made == array).all())
    if not exact:
        raise ElementTypeError(f"{what}: {shown(given)} does not fit into {kind}")
    return made


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
        [
            "constant",
            "custom",
            "network",
            "parameter",
            *(_snake(c.type) for c in _classes().values()),
        ]
    )
