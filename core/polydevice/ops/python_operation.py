"""PythonOperation: what a NumPy function computes, as an operation of every device."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from typing_extensions import Self

from polydevice.dtype import Array, ElementType
from polydevice.errors import (
    NetworkError,
    UnsupportedOperationError,
)
from polydevice.ops.op import EVERYWHERE, Op
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

if TYPE_CHECKING:
    from polydevice.ops.custom_operation import CustomOperation


LEFT_OUT = "left_out"
"""Attribute of operations whose inputs may be left out before others."""

T = TypeVar("T")


class PythonOperation(Op):
    """The base of operations that `operation` makes of functions.

    Inputs:  those of the function
    Outputs: what the function returns
    Source:  `polydevice.operation`
    """

    strings_at = EVERYWHERE
    containers_at = EVERYWHERE
    if TYPE_CHECKING:  # annotations are evaluated, and this module is below that class's
        definition: ClassVar[CustomOperation]
        """The function, its rules and its OpenCL body."""

    def __post_init__(self) -> None:
        """Check the attributes, which are said by files and by users.

        Raises:
            NetworkError: one has another type than the function says.
        """
        self._check_left_out()
        hints = _hints(type(self))  # type: ignore[arg-type]
        for name, given in self.keywords().items():
            if given is None and getattr(type(self), name, ...) is None:
                continue  # the function's own default
            kind = hints[name]
            inner = typing.get_args(kind)[:1]
            several = bool(inner) and isinstance(given, tuple)
            wanted = inner[0] if several else kind
            items = [_plain(item, wanted) for item in (given if several else [given])]
            if any(type(item) is not wanted for item in items):
                what = f"a tuple of {inner[0].__name__}" if inner else kind.__name__
                raise NetworkError(
                    f"{self.definition.title}: {name}={given!r} is not legal: its type is {what}"
                )
            object.__setattr__(self, name, tuple(items) if several else items[0])

    def _check_left_out(self) -> None:
        places, least = self.places_left_out, self.definition.input_counts[0]
        legal = range(least, len(self.definition.defaults))
        if list(places) != sorted(set(places)) or any(place not in legal for place in places):
            raise NetworkError(
                f"{self.definition.title}: inputs {list(places)} cannot be left out; only inputs "
                f"{list(legal)} have defaults in the function"
            )

    @property
    def places_left_out(self) -> tuple[int, ...]:
        """Inputs that are left out before others that are given, counted from 0."""
        places: tuple[int, ...] = getattr(self, LEFT_OUT, ())
        return places

    def keywords(self) -> dict[str, Any]:
        """Return the attributes that the function has."""
        return {name: value for name, value in self.attributes().items() if name != LEFT_OUT}

    def for_inputs(self, inputs: Sequence[T | None]) -> tuple[Self, list[T]]:
        """Return the operation for inputs of which some are left out, and the others.

        Args:
            inputs: in the order of the function's parameters, None for what is left out.

        Raises:
            NetworkError: the function has no default for one.
        """
        given = [each for each in inputs if each is not None]
        last = max((n for n, each in enumerate(inputs) if each is not None), default=-1)
        places = tuple(n for n in range(last) if inputs[n] is None)
        if not places:
            return self, given
        if not hasattr(self, LEFT_OUT):
            raise NetworkError(
                f"{self.definition.title}: inputs {list(places)} cannot be left out before others: "
                "the function has no defaults for them"
            )
        return self.replace(**{LEFT_OUT: places}), given

    def placed(self, given: Sequence[Any], instead: Sequence[Any]) -> list[Any]:
        """Return what belongs to each input, with something of `instead` where it is left out."""
        found = list(given)
        for place in self.places_left_out:
            found.insert(place, instead[place])
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Let other processes make it again from the function, which they find by its name."""
        return _made, (self.definition, self.attributes())

    @classmethod
    def from_onnx(cls, attributes: Mapping[str, Any], opset: int) -> Self:
        """Make the operation from the attributes of an ONNX node.

        Raises:
            NetworkError: the function has no such attribute, or one of another type.
        """
        cls.definition.check_names(attributes)
        return cls._make({name: _of_file(cls, name, v) for name, v in attributes.items()})

    def to_ir(self) -> dict[str, str]:
        """Return the attributes as texts.

        Raises:
            UnsupportedOperationError: read again, they would be others, as IR has no commas in
                lists of texts and no spaces around texts.
        """
        texts = super().to_ir()
        read = type(self).from_ir(texts, 1).attributes()
        for name, value in self.attributes().items():
            if repr(read[name]) != repr(value):
                raise UnsupportedOperationError(
                    f"{self.definition.title}: IR files cannot hold {name}={value!r}: texts have "
                    "no spaces at their ends there, and none of a list is empty or has commas"
                )
        return texts

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what the rules for shapes and types say.

        Raises:
            ShapeError: another number of inputs than the function takes, shapes that do not
                broadcast, or the function for shapes refuses them.
        """
        own = self.definition
        least, most = own.input_counts
        places = self.places_left_out
        more = len(inputs) if most is None else most - len(places)
        self.check_count(inputs, least, more)
        if places and places[-1] >= len(inputs) + len(places) - 1:
            raise NetworkError(f"{own.title}: input {places[-1]} is left out, and none follows")
        shapes = own.infer_shapes([desc.shape for desc in inputs], self)
        types = own.infer_types(inputs[0].element_type if inputs else None, len(shapes))
        return [TensorDesc(kind, shape) for kind, shape in zip(types, shapes)]

    def compute(self, inputs: Sequence[Array]) -> list[Array]:
        """Call the function.

        Raises:
            NetworkError: it raises something, changes an input, or returns another number of
                arrays, another type or another shape than its rules say.
        """
        own = self.definition
        try:
            arrays = self.placed([_read_only(array) for array in inputs], own.defaults)
            answer = own.function(*arrays, **self.keywords())
        except Exception as error:
            raise NetworkError(f"{own.title}: its function failed: {error!r}") from error
        answers = list(answer) if isinstance(answer, (tuple, list)) else [answer]
        stated = self.infer([TensorDesc(ElementType.of(a.dtype), Shape(a.shape)) for a in inputs])
        if len(answers) != len(stated):
            raise NetworkError(
                f"{own.title}: its function returns {len(answers)} arrays where its shapes are "
                f"{len(stated)}"
            )
        return [own.checked(a, desc) for a, desc in zip(answers, stated)]


@functools.cache
def _hints(cls: type[Op]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _plain(value: Any, kind: type) -> Any:
    """Return a number of NumPy's as one of Python's; integers are floats too."""
    if isinstance(value, np.generic):
        value = value.item()
    return float(value) if kind is float and type(value) is int else value


def _made(definition: CustomOperation, attributes: Mapping[str, Any]) -> PythonOperation:
    return definition.op(**attributes)


def _of_file(cls: type[Op], name: str, value: Any) -> Any:
    """Return an attribute of an ONNX file as a function takes it; ONNX writes truth as 0 and 1."""
    kind = _hints(cls)[name]  # type: ignore[arg-type]
    inner = typing.get_args(kind)[:1]
    if inner and isinstance(value, (tuple, list)):
        return tuple(_item_of_file(item, inner[0]) for item in value)
    return _item_of_file(value, kind)


def _item_of_file(value: Any, kind: Any) -> Any:
    if kind is bool and type(value) is int and value in (0, 1):
        return bool(value)
    return value.decode() if kind is str and isinstance(value, bytes) else value


def _read_only(value: Any) -> Any:
    """Return a view that refuses changes: the array may be the user's own, or another's input."""
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def without_none(kind: Any) -> Any:
    """Return ``float`` of ``float | None``, as Python 3.10 reads defaults that are None."""
    kinds = [each for each in typing.get_args(kind) if each is not type(None)]
    return kinds[0] if len(kinds) == 1 and type(None) in typing.get_args(kind) else kind
