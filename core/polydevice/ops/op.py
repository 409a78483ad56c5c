"""Op: the definition of one kind of computation, and the table of all of them.

An operation is a frozen dataclass whose fields are its attributes; it has no inputs, data or
device (a `Node` has those). ``@operation`` enters it in the table by IR type and opset::

    @operation("SoftMax", since=(1, 8), onnx="Softmax")
    class SoftMax(Op):
        axis: int = attribute(default=1, onnx="axis")

        def infer(self, inputs): ...
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, Union

from typing_extensions import Self, dataclass_transform

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.errors import (
    ElementTypeError,
    ModelFormatError,
    ShapeError,
    UnsupportedOperationError,
    nearest,
)
from polydevice.shape import Dim, Shape, count_of
from polydevice.tensor import TensorDesc

REQUIRED: Any = dataclasses.MISSING
EVERYWHERE = range(1 << 31)
"""Places of all inputs, for `Op.strings_at` and `Op.containers_at`."""


def attribute(
    *,
    default: Any = REQUIRED,
    ir: str | None = None,
    onnx: str | None = None,
    came_with: int | None = None,
    hint: bool = False,
) -> Any:
    """Declare one attribute of an operation.

    Args:
        default: value when the model file does not give one; left out, the attribute is required.
            Written with its name, or type checkers would not see it.
        ir: name in IR files, when it differs from the field's name; "" for an attribute that IR
            files do not have.
        onnx: name in ONNX files; left out, ONNX files do not have it.
        came_with: the opset from which on the default holds; in older ones it is the opposite, and
            IR files say it by the version of the operation. Only for a bool, with ``ir=""``.
        hint: what only we know, and others who read the IR file may pass over, as answers differ by
            rounding alone; written where it is not the default.
    """
    metadata = {"ir": ir, "onnx": onnx, "came_with": came_with, "hint": hint}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Op:
    """One kind of computation. Subclasses are frozen dataclasses made by ``@operation``."""

    type: ClassVar[str] = ""
    """Type name as IR files write it."""
    domain: ClassVar[str] = "opset"
    """"opset" for OpenVINO's numbered operation sets, else the name of another set."""
    since: ClassVar[tuple[int, ...]] = (1,)
    """The opsets that brought a version which this class serves, oldest first."""
    onnx_types: ClassVar[tuple[str, ...]] = ()
    """ONNX operators that map to this class one to one."""
    shape_arithmetic: ClassVar[bool] = False
    """Whether it is used to compute shapes, so that it is worth evaluating on known sizes."""
    sized_by_values: ClassVar[bool] = False
    """Whether the result may be of any size whatever the sizes of the inputs: the elements of an
    input say it, or attributes multiply what the inputs have."""
    is_stateful: ClassVar[bool] = False
    """Whether equal inputs may give other outputs (random numbers, variables); never folded."""
    has_side_effect: ClassVar[bool] = False
    """Whether it must run although no result depends on it (Assign)."""
    strings_at: ClassVar[Container[int]] = ()
    """Places of the inputs that may hold strings: most operations compute with numbers alone."""
    numbers_at: ClassVar[Container[int]] = ()
    """Places of the inputs that hold one number each (an axis, a count), of whatever rank."""
    integers_at: ClassVar[Container[int]] = ()
    """Places of the inputs that hold axes or sizes: a floating-point number may be none."""
    per_axis_at: ClassVar[Container[int]] = ()
    """Places of the inputs that list one number for each axis of the first one."""
    floats_at: ClassVar[Container[int]] = ()
    """Places of the inputs that hold floating-point numbers and for which nobody defines others."""
    takes_booleans: ClassVar[bool] = True
    """Whether it means something for booleans; arithmetic does not."""
    containers_at: ClassVar[Container[int]] = ()
    """Places of the inputs that may be sequences or optionals."""
    has_bodies: ClassVar[bool] = False
    """Whether it runs graphs of its own, which may keep state or have side effects."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return type and shape of every output; raises ShapeError or ElementTypeError.

        Shapes may be partly unknown (items that are `Dim`) or of unknown rank (None).
        """
        raise NotImplementedError(f"{type(self).__name__} does not define infer()")

    def check_inputs(self, inputs: Sequence[TensorDesc]) -> None:
        """Check what does not depend on the operation's rules.

        Raises:
            ElementTypeError: an input holds anything but the numbers that are wanted.
            ShapeError: an input holds none, or several, where one is wanted.
        """
        for place, desc in enumerate(inputs):
            if desc.kind != "tensor" and place not in self.containers_at:
                raise ElementTypeError(
                    f"input {place} is a {desc.kind}; {self.type} takes a tensor there"
                )
            if desc.element_type is ElementType.string and place not in self.strings_at:
                raise ElementTypeError(
                    f"input {place} holds strings; {self.type} computes with numbers there"
                )
            if desc.element_type is ElementType.boolean and not self.takes_booleans:
                raise ElementTypeError(
                    f"input {place} holds booleans; {self.type} computes with numbers: convert it"
                )
            if place in self.integers_at and not desc.element_type.is_integer:
                raise ElementTypeError(
                    f"input {place} is {desc.element_type}; {self.type} takes integers there"
                )
            if place in self.floats_at and not desc.element_type.is_float:
                raise ElementTypeError(
                    f"input {place} is {desc.element_type}; {self.type} takes floating-point "
                    "numbers there"
                )
            if place in self.numbers_at:
                numbers = desc.shape.elements if desc.shape is not None and desc.is_static else 1
                if numbers != 1:
                    raise ShapeError(
                        f"input {place} has the shape {desc.shape}; {self.type} takes one number "
                        "there"
                    )
            rank = inputs[0].rank if place in self.per_axis_at else None
            if rank is not None and count_of(desc.shape) not in (None, rank):
                raise ShapeError(
                    f"input {place} of shape {desc.shape} does not fit the {rank} axes of "
                    f"{inputs[0].shape}: {self.type} takes one number for each"
                )

    def check_count(
        self, inputs: Sequence[TensorDesc], least: int, most: int | None = None
    ) -> None:
        """Raise ShapeError unless there are `least` to `most` inputs (exactly `least` if None)."""
        if not least <= len(inputs) <= (least if most is None else most):
            wanted = str(least) if most is None else f"{least} to {most}"
            raise ShapeError(f"{len(inputs)} inputs are given; {self.type} takes {wanted}")

    @classmethod
    def from_ir(cls, attributes: Mapping[str, str], opset: int) -> Self:
        """Make the operation from the attribute texts of an IR layer written for `opset`."""
        values: dict[str, Any] = {
            name: default if opset >= first else not default
            for name, (default, first) in cls._version_fields().items()
        }
        for name, (key, kind) in _ir_fields(cls).items():
            if key in attributes:
                try:
                    values[name] = parse_attribute(attributes[key], kind)
                except (ValueError, KeyError) as error:
                    raise ModelFormatError(
                        f"{cls.type}: attribute {key}={attributes[key]!r} is not legal: {error}"
                    ) from None
        return cls._make(values)

    @classmethod
    def from_onnx(cls, attributes: Mapping[str, Any], opset: int) -> Self:
        """Make the operation from the attributes of an ONNX node of the given opset.

        Values are plain Python ones: int, float, str, lists of these.
        """
        values: dict[str, Any] = {}
        hints = _hints(cls)
        for field in dataclasses.fields(cls):
            key = field.metadata.get("onnx")
            if key is not None and key in attributes:
                values[field.name] = convert_attribute(attributes[key], hints[field.name])
        return cls._make(values)

    @classmethod
    def _make(cls, values: dict[str, Any]) -> Self:
        for field in dataclasses.fields(cls):
            if field.name not in values and field.default is REQUIRED:
                raise ModelFormatError(f"{cls.type}: required attribute {field.name!r} is missing")
        return cls(**values)

    def to_ir(self) -> dict[str, str]:
        """Return the attribute texts for an IR layer of version ``opset{since[-1]}``."""
        keys = _ir_fields(type(self))
        return {
            keys[field.name][0]: format_attribute(value)
            for field in dataclasses.fields(self)
            if field.name in keys
            and (value := getattr(self, field.name)) is not None
            and not (field.metadata.get("hint") and value == field.default)
        }

    @property
    def opset(self) -> str:
        """The operation set written to IR files, such as ``opset8``."""
        if self.domain != "opset":
            return self.domain
        newest = self.since[-1]
        for name, (default, first) in self._version_fields().items():
            if getattr(self, name) != default:
                newest = min(newest, max(version for version in self.since if version < first))
        return f"opset{newest}"

    @classmethod
    def _version_fields(cls) -> dict[str, tuple[bool, int]]:
        """Return the attributes that the version says: default, and the opset it came with."""
        return {
            field.name: (bool(field.default), field.metadata["came_with"])
            for field in dataclasses.fields(cls)
            if field.metadata.get("came_with") is not None
        }

    def attributes(self) -> dict[str, Any]:
        """Return name → value of every attribute."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some attributes changed."""
        return dataclasses.replace(self, **changes)


O = TypeVar("O", bound=type[Op])  # noqa: E741 - reads best in the signature below

_TABLE: dict[tuple[str, str], dict[int, type[Op]]] = {}
_ONNX: dict[str, type[Op]] = {}


@dataclass_transform(field_specifiers=(attribute,), frozen_default=True)
def operation(
    ir: str,
    *,
    since: int | tuple[int, ...] = 1,
    onnx: str | tuple[str, ...] = (),
    domain: str = "opset",
) -> Callable[[O], O]:
    """Enter a class in the table of operations.

    Args:
        ir: type name in IR files; looked up without regard to case.
        since: opset or opsets whose version of the type this class serves.
        onnx: ONNX operators (default domain) that map to it one to one through ``from_onnx``.
        domain: "opset" for OpenVINO's sets; "onnx" for ONNX operators that those lack.

    Raises:
        ValueError: when another class already serves that type and opset, naming its module.
    """
    versions = (since,) if isinstance(since, int) else since
    names = (onnx,) if isinstance(onnx, str) else onnx

    def register(cls: O) -> O:
        made = dataclass(frozen=True)(cls) if _adds_to_its_base(cls) else cls
        made.type, made.domain, made.since, made.onnx_types = ir, domain, tuple(versions), names
        table = _TABLE.setdefault((domain, ir.lower()), {})
        for version in versions:
            if version in table:
                raise ValueError(
                    f"operation {ir} of {domain}{version} is already defined in "
                    f"{table[version].__module__}"
                )
            table[version] = made
        for name in names:
            if name in _ONNX:
                raise ValueError(f"ONNX {name} already maps to an op in {_ONNX[name].__module__}")
            _ONNX[name] = made
        return typing.cast(O, made)

    return register


def _adds_to_its_base(cls: type[Op]) -> bool:
    """Whether a class needs methods of a dataclass that are not those of its base.

    Half of the operations have no attributes of their own.
    """
    rules = ("__post_init__", "__eq__")
    return (
        bool(inspect.get_annotations(cls))
        or len(cls.__bases__) > 1
        or any(name in vars(cls) for name in rules)
    )


def find_operation(ir_type: str, version: str) -> type[Op]:
    """Return the class for an IR layer's type and version ("opset8").

    The newest version not above the requested one serves; raises UnsupportedOperationError.
    """
    domain, number = split_version(version)
    table = _TABLE.get((domain, ir_type.lower()), {})
    known = [since for since in table if since <= number]
    if known:
        return table[max(known)]
    if table:
        raise UnsupportedOperationError(
            f"{ir_type} is not part of {version}; it is defined since {domain}{min(table)}"
        )
    names = {cls.type for versions in _TABLE.values() for cls in versions.values()}
    raise UnsupportedOperationError(
        f"unknown operation {ir_type} of {version or 'no opset'}.{nearest(ir_type, names)}"
    )


def is_defined(ir_type: str, domain: str) -> bool:
    """Whether an operation set has that type, in any version."""
    return (domain, ir_type.lower()) in _TABLE


def find_in_domain(domain: str, ir_type: str) -> type[Op] | None:
    """Return the newest class of a type in an operation set; None when it has none."""
    versions = _TABLE.get((domain, ir_type.lower()), {})
    return versions[max(versions)] if versions else None


def forget(cls: type[Op]) -> None:
    """Take a class out of the table, so that its type can be defined anew."""
    versions = _TABLE.get((cls.domain, cls.type.lower()), {})
    for version in [version for version, known in versions.items() if known is cls]:
        del versions[version]
    if not versions:
        _TABLE.pop((cls.domain, cls.type.lower()), None)


def split_version(version: str) -> tuple[str, int]:
    """Split ``opset8`` into ("opset", 8); any other name is a set of its own with number 1."""
    if version.startswith("opset") and version[5:].isdigit():
        return "opset", int(version[5:])
    return version, 1


def find_onnx_operation(name: str) -> type[Op] | None:
    """Return the class that an operator of ONNX's default domain maps to one to one."""
    return _ONNX.get(name)


def operations() -> Iterator[type[Op]]:
    """Yield every operation class once, by domain and type."""
    seen: set[type[Op]] = set()
    for key in sorted(_TABLE):
        for version in sorted(_TABLE[key]):
            cls = _TABLE[key][version]
            if cls not in seen:
                seen.add(cls)
                yield cls


_HINTS: dict[type[Op], dict[str, Any]] = {}
_IR_FIELDS: dict[type[Op], dict[str, tuple[str, Any]]] = {}


def _hints(cls: type[Op]) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = typing.get_type_hints(cls)
    return _HINTS[cls]


def _ir_fields(cls: type[Op]) -> dict[str, tuple[str, Any]]:
    if cls not in _IR_FIELDS:
        hints = _hints(cls)
        _IR_FIELDS[cls] = {
            field.name: (field.metadata.get("ir") or field.name, hints[field.name])
            for field in dataclasses.fields(cls)
            if field.metadata.get("ir") != ""
        }
    return _IR_FIELDS[cls]


def parse_attribute(text: str, kind: Any) -> Any:
    """Read an IR attribute's text as `kind`: the one place that knows IR's text forms.

    Kinds: int, float, bool, str, an Enum, ElementType, Shape, ``tuple[kind, ...]``, and any of
    these ``| None``.
    """
    if typing.get_origin(kind) in (Union, types.UnionType):
        (inner,) = [a for a in typing.get_args(kind) if a is not type(None)]
        if inner is Shape and text.strip() == "...":
            return None  # unknown rank
        return parse_attribute(text, inner)
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        items = [item.strip() for item in text.split(",")] if text.strip() else []
        return tuple(parse_attribute(item, inner) for item in items)
    if kind is ElementType:
        return ElementType.parse(text.strip())
    if kind is Shape:
        return parse_shape(text)
    return convert_attribute(text.strip(), kind)


def parse_shape(text: str) -> Shape:
    """Read ``1,3,?,1..224`` (IR v11 writes unknown sizes as -1, ? or low..high)."""
    sizes: list[int | Dim] = []
    for item in text.strip("[] \n\t").split(","):
        item = item.strip()
        if not item:
            continue
        if item in ("?", "-1"):
            sizes.append(Dim())
        elif ".." in item:
            low, high = item.split("..")
            sizes.append(Dim(int(low or 0), int(high) if high else None))
        else:
            sizes.append(int(item))
    return Shape(sizes)


def convert_attribute(value: Any, kind: Any) -> Any:
    """Convert a plain value to the kind of a field; raises ValueError when it does not fit."""
    if typing.get_origin(kind) in (Union, types.UnionType):
        (inner,) = [a for a in typing.get_args(kind) if a is not type(None)]
        return convert_attribute(value, inner)
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        return tuple(convert_attribute(item, inner) for item in value)
    if kind is bool:
        return _to_bool(value)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _to_enum(value, kind)
    if kind is int:
        return int(float(value)) if isinstance(value, str) and "." in value else int(value)
    if kind is float:
        return float(value)
    if kind is str:
        return value.decode() if isinstance(value, bytes) else str(value)
    if kind is Shape:
        return Shape(value)
    return value


def _to_bool(value: Any) -> bool:
    if isinstance(value, str):
        lowered = value.lower()
        if lowered in ("true", "1", "yes"):
            return True
        if lowered in ("false", "0", "no", ""):
            return False
        raise ValueError(f"{value!r} is neither true nor false")
    return bool(value)


def _to_enum(value: Any, kind: type[enum.Enum]) -> enum.Enum:
    text = value.decode() if isinstance(value, bytes) else value
    for member in kind:
        if member.value == text or (
            isinstance(text, str) and str(member.value).lower() == text.lower()
        ):
            return member
    legal = ", ".join(str(m.value) for m in kind)
    raise ValueError(f"{text!r} is not one of {legal}")


def format_attribute(value: Any) -> str:
    """Write a value the way IR files do; the inverse of `parse_attribute`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, Shape):
        return ",".join(str(size) for size in value)
    if isinstance(value, (tuple, list)):
        return ",".join(format_attribute(item) for item in value)
    return repr(value) if isinstance(value, float) else str(value)
