"""opset1 to opset17: functions that make nodes, from one factory over core's operations.

A function's arguments come from `opset_arguments.txt`, one line for each function and the operation
set in which it got them: name, number of the set, arguments with their defaults. The tests write
that file from the real package and hold it against it. Which argument is an attribute, and which
an input, is what core's operation says.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph import states
from polydevice.compat.openvino.graph.node import Node, make, port_of
from polydevice.compat.openvino.graph.terminals import Constant, Parameter, Result
from polydevice.compat.openvino.models.bodies import if_op, loop, tensor_iterator
from polydevice.compat.openvino.modules import enter_module
from polydevice.compat.openvino.surface import missing
from polydevice.compat.openvino.types.element_type import Type, element_of
from polydevice.dtype import ElementType
from polydevice.errors import UnsupportedOperationError
from polydevice.node import Port
from polydevice.ops.op import Op, find_operation, format_attribute, operations

NEWEST = 17
NAMES = [f"opset{number}" for number in range(1, NEWEST + 1)]
MODULES: dict[str, ModuleType] = {}

_TYPES = {"absolute": "abs", "ceil": "ceiling"}
"""Functions that are called otherwise than the operation's type."""

_ATTRIBUTES = {
    "broadcast_spec": "mode",
    "exclude_pad": "exclude-pad",
    "kernel_shape": "kernel",
    "max_value": "max",
    "min_value": "min",
}
"""Arguments that are called otherwise than the attribute in IR files."""

_LEFT_OUT = {
    "default_index": np.asarray(-1, np.int32),
    "max_output_boxes_per_class": np.asarray(0, np.int64),
    "iou_threshold": np.asarray(0, np.float32),
    "score_threshold": np.asarray(0, np.float32),
}
"""What an optional input is where it is left out and a later one is given."""

_LITERALS = {"None": None, "True": True, "False": False}
_COLLECTED = ("attrs", "attributes")

Line = tuple[int, tuple[tuple[str, Any], ...]]


@functools.cache
def arguments() -> dict[str, list[Line]]:
    """Return function → (first operation set, arguments with their defaults), oldest first."""
    text = importlib.resources.files(__package__).joinpath("opset_arguments.txt").read_text()
    table: dict[str, list[Line]] = {}
    for line in text.splitlines():
        name, number, *words = line.split(" ")
        table.setdefault(name, []).append((int(number), tuple(map(_argument, words))))
    return table


def _argument(word: str) -> tuple[str, Any]:
    name, given, default = word.partition("=")
    if not given:
        return name, inspect.Parameter.empty
    if default in _LITERALS:
        return name, _LITERALS[default]
    try:
        return name, float(default) if "." in default or "e-" in default else int(default)
    except ValueError:
        return name, default


@functools.cache
def _types() -> dict[str, str]:
    """Return function's name without its underscores → type of core's operation."""
    return {cls.type.lower(): cls.type for cls in operations() if cls.domain == "opset"}


def function(name: str, opset: int) -> Callable[..., Node]:
    """Return the function of an operation set that makes nodes of a type.

    Raises:
        AttributeError: the set has none of that name.
    """
    known = [line for line in arguments().get(name, []) if line[0] <= opset]
    kind = _types().get(_TYPES.get(name, name).replace("_", ""))
    if not known or kind is None:
        raise missing(name, f"opset{opset}")
    return _made(name, kind, opset, known[-1][1])


def _made(
    name: str, kind: str, opset: int, listed: tuple[tuple[str, Any], ...]
) -> Callable[..., Node]:
    parameters = [
        inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for each, default in (*listed, ("name", None))
        if each != "name"
    ]
    last = inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    signature = inspect.Signature([*_ordered(parameters), last])

    @translated
    def call(*args: Any, **kwargs: Any) -> Node:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        label = given.pop("name")
        op_type = find_operation(kind, f"opset{opset}")
        inputs, attributes = _sorted(op_type, given)
        op = op_type.from_ir(attributes, opset)
        return make(op, inputs, label)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Make a node of {kind} of opset{opset}."
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _ordered(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Give a default to whatever stands behind one, as a signature needs it."""
    seen, ordered = False, []
    for each in parameters:
        seen = seen or each.default is not inspect.Parameter.empty
        bare = seen and each.default is inspect.Parameter.empty
        ordered.append(each.replace(default=None) if bare else each)
    return ordered


def _sorted(cls: type[Op], given: dict[str, Any]) -> tuple[list[Port], dict[str, str]]:
    """Return the inputs, and the attributes as an IR file has them."""
    fields = {
        f.metadata.get("ir") or f.name
        for f in dataclasses.fields(cls)
        if f.metadata.get("ir") != ""
    }
    values: list[tuple[str, Any]] = []
    attributes: dict[str, str] = {}
    for name, value in given.items():
        attribute = _ATTRIBUTES.get(name, name)
        if name in _COLLECTED and name not in fields:
            attributes.update({k: _written(v) for k, v in (value or {}).items() if v is not None})
        elif attribute in fields and not isinstance(value, (Node, Port)):
            if value is not None:
                attributes[attribute] = _written(value)
        elif name in ("nodes", "inputs") and isinstance(value, (list, tuple)):
            values += [(name, each) for each in value]
        else:
            values.append((name, value))
    return _ports(cls, values), attributes


def _ports(cls: type[Op], values: list[tuple[str, Any]]) -> list[Port]:
    while values and values[-1][1] is None:
        values.pop()
    ports: list[Port] = []
    for name, value in values:
        if value is None:
            if name not in _LEFT_OUT:
                raise UnsupportedOperationError(
                    f"{cls.type}: {name} is left out, but an input behind it is given"
                )
            value = _LEFT_OUT[name]
        first = ports[0].element_type if ports and ports[0].element_type.is_float else None
        ports.append(_port(value, first))
    return ports


def _port(value: Any, first: ElementType | None) -> Port:
    """Return the port of an input; Python's own floats take the first input's type."""
    if isinstance(value, (float, list, tuple)) and first is not None:
        array = np.asarray(value)
        if array.dtype == np.float64:
            value = array.astype(first.dtype)
    return port_of(value)


def _written(value: Any) -> str:
    if isinstance(value, Type):
        return value.type_name
    if isinstance(value, (type, np.dtype)):
        return element_of(value).value
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    text = format_attribute(value)
    return text if text not in _DTYPE_NAMES else element_of(text).value


_DTYPE_NAMES = {"float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8"}


# -- what is no operation of its own --------------------------------------------------------------


def parameter(shape: Any, dtype: Any = np.float32, name: str | None = None) -> Parameter:
    """Make an input of a model."""
    made = Parameter(dtype, shape)
    if name is not None:
        made.set_friendly_name(name)
    return made


def constant(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    *,
    shared_memory: bool = False,
) -> Constant:
    """Make a constant of an array, a tensor or numbers; of another type where one is given."""
    array = value if hasattr(value, "_memory") else np.asarray(value)
    if dtype is not None:
        element = element_of(dtype)
        array = np.asarray(array)
        made = Constant(element, array.shape, array)
    else:
        made = Constant(array, shared_memory=shared_memory)
    if name is not None:
        made.set_friendly_name(name)
    return made


@translated
def result(data: Any, name: str | None = None) -> Result:
    """Make an output of a model."""
    made = Result(data)
    if name is not None:
        made.set_friendly_name(name)
    return made


_WRITTEN: dict[str, tuple[int, Callable[..., Node]]] = {
    "assign": (3, states.assign_of),
    "constant": (1, constant),
    "parameter": (1, parameter),
    "if_op": (8, if_op),
    "loop": (5, loop),
    "read_value": (3, states.read_value_of),
    "tensor_iterator": (1, tensor_iterator),
    "result": (1, result),
}


def make_modules(package: str) -> None:
    """Put opset1 to opset17 among the modules, as parts of `package`."""
    for number, name in enumerate(NAMES, 1):
        module = ModuleType(f"{package}.{name}", f"The functions of {name}.")
        module.__getattr__ = functools.partial(_attribute, module, number)  # type: ignore[method-assign]
        names = [n for n, lines in arguments().items() if lines[0][0] <= number]
        module.__all__ = sorted(  # type: ignore[attr-defined]
            [n for n in names if _TYPES.get(n, n).replace("_", "") in _types()]
            + [n for n, (first, _) in _WRITTEN.items() if first <= number]
        )
        module.__dir__ = functools.partial(list, module.__all__)  # type: ignore[method-assign]
        MODULES[name] = module
        enter_module(module)


def _attribute(module: ModuleType, opset: int, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    first, written = _WRITTEN.get(name, (NEWEST + 1, None))
    made = written if first <= opset else function(name, opset)
    setattr(module, name, made)
    return made
