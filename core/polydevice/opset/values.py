"""What is given to functions of `opset` besides values of a network: arrays and attributes."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from polydevice.arguments import shown
from polydevice.dtype import Array, ElementType
from polydevice.errors import ElementTypeError, NetworkError
from polydevice.node import Port
from polydevice.ops.op import Op

_LEGAL = "give a result of opset, an array, a number or a text, or lists of them"


def as_values(what: str, value: Any) -> Array:
    """Return numbers, truth values or texts as an array; texts in one of objects.

    Args:
        what: names the value in messages.
        value: what was given.

    Raises:
        NetworkError: it is none of them, or its lists have different lengths.
    """
    if isinstance(value, Port) or not isinstance(
        value, (np.ndarray, np.generic, int, float, complex, str, list, tuple)
    ):
        raise NetworkError(f"{what}: {shown(value)} is no constant; {_LEGAL}")
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError, TypeError) as error:
        raise NetworkError(f"{what}: {shown(value)} is no array: {error}") from None
    if array.dtype.kind in "US":
        return array.astype(str).astype(object)
    if array.dtype == object:
        if all(isinstance(item, str) for item in array.reshape(-1)):
            return array
        raise NetworkError(f"{what}: {shown(value)} holds no numbers of a type; {_LEGAL}")
    try:
        ElementType.of(array.dtype)
    except ElementTypeError as error:
        raise ElementTypeError(f"{what}: {shown(value)}: {error}") from None
    return array


def as_input(what: str, item: Any) -> Any:
    """Return an input of an operation that is no value of a network.

    Plain numbers and lists of them stay what they are: their type follows the other inputs.
    """
    array = as_values(what, item)
    plain = isinstance(item, (int, float, list, tuple)) and array.dtype != object
    return item if plain and array.dtype.kind in "biuf" else array


@functools.cache
def _hints(cls: type[Op]) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def as_attribute(cls: type[Op], name: str, value: Any) -> Any:
    """Return an attribute as its operation's class holds it.

    Names stand for element types and enumerations, and lists for tuples.

    Raises:
        NetworkError: it is of another type.
    """
    hint = _hints(cls).get(name, Any)  # type: ignore[arg-type]
    try:
        return _as(hint, value)
    except (TypeError, ValueError, ElementTypeError) as error:
        raise NetworkError(f"{cls.type}: {name}={shown(value)} is not legal: {error}") from None


def _as(hint: Any, value: Any) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _as_one_of(inner, value)
    if origin is tuple:
        return _as_tuple(hint, inner, value)
    if value is None and hint in (int, float, str, bool, ElementType):
        raise TypeError(f"it is {_named(hint)}")
    if hint is ElementType:
        return value if isinstance(value, ElementType) else ElementType.parse(_text(value))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value if isinstance(value, hint) else _member(hint, value)
    if hint is bool and not isinstance(value, (bool, np.bool_)):
        raise TypeError("it is True or False")
    if hint is int and (isinstance(value, bool) or not isinstance(value, (int, np.integer))):
        raise TypeError("it is an integer")
    if hint is float and (
        isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating))
    ):
        raise TypeError("it is a number")
    if hint is str:
        return _text(value)
    if hint in (int, float, bool):
        return hint(value)
    return tuple(value) if isinstance(value, list) else value


def _as_one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in kinds:
        return None
    problems = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _as(kind, value)
            except (TypeError, ValueError, ElementTypeError) as error:
                problems.append(str(error))
    raise TypeError("; or ".join(problems))


def _as_tuple(hint: Any, inner: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"it is {_named(hint)}")
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_as(inner[0], item) for item in value)
    if len(inner) != len(value):
        raise TypeError(f"it is {_named(hint)}")
    return tuple(_as(kind, item) for kind, item in zip(inner, value))


def _member(kind: type[Enum], value: Any) -> Enum:
    for member in kind:
        names = (str(member.value).lower(), member.name.lower())
        if isinstance(value, str) and value.lower() in names:
            return member
    raise TypeError(f"legal: {', '.join(str(member.value) for member in kind)}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is a text")
    return value


def _named(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        kinds = " and ".join(dict.fromkeys(_named(kind) for kind in inner if kind is not Ellipsis))
        return f"a list of {kinds}"
    if dataclasses.is_dataclass(hint) or not isinstance(hint, type):
        return str(hint)
    names = {int: "an integer", float: "a number", bool: "True or False", str: "a text"}
    return names.get(hint, hint.__name__)
