"""Type: OpenVINO's element types."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from typing_extensions import Self

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.surface import Surface
from polydevice.dtype import ElementType

_SPELLED = {
    ElementType.boolean: "char",
    ElementType.bf16: "bfloat16",
    ElementType.f16: "float16",
    ElementType.f32: "float32",
    ElementType.f64: "double64",
}
_QUANTIZED = ("i32", "i4", "i8", "u8", "f4e2m1", "f8e4m3", "f8e5m2", "f8e8m0")
_BOTH = (ElementType.dynamic, ElementType.string)


class Type(Surface):
    """The type of a tensor's elements; its members are `Type.f32`, `Type.i8`…."""

    __slots__ = ("_element",)
    _all: ClassVar[dict[ElementType, Type]] = {}
    _element: ElementType

    bf16: ClassVar[Type]
    boolean: ClassVar[Type]
    dynamic: ClassVar[Type]
    f16: ClassVar[Type]
    f32: ClassVar[Type]
    f4e2m1: ClassVar[Type]
    f64: ClassVar[Type]
    f8e4m3: ClassVar[Type]
    f8e5m2: ClassVar[Type]
    f8e8m0: ClassVar[Type]
    i16: ClassVar[Type]
    i32: ClassVar[Type]
    i4: ClassVar[Type]
    i64: ClassVar[Type]
    i8: ClassVar[Type]
    string: ClassVar[Type]
    u1: ClassVar[Type]
    u16: ClassVar[Type]
    u2: ClassVar[Type]
    u32: ClassVar[Type]
    u4: ClassVar[Type]
    u64: ClassVar[Type]
    u8: ClassVar[Type]

    @translated
    def __new__(cls, dtype: Any) -> Self:
        """Return the type of a NumPy type, a name ("f32", "FP32", "float32"), or a Type.

        Raises:
            RuntimeError: there is no such type.
        """
        found: Any = type_of(dtype)
        return found  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        return Type, (self._element.value,)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return hash(self._element)

    def get_type_name(self) -> str:
        """Return the name, such as "f32"."""
        return self._element.value

    @property
    def type_name(self) -> str:
        """The name, such as "f32"."""
        return self._element.value

    def to_string(self) -> str:
        """Return the name, such as "f32"."""
        return self._element.value

    def to_dtype(self) -> np.dtype[Any]:
        """Return NumPy's type.

        Raises:
            RuntimeError: the dynamic type has none.
        """
        if self._element is ElementType.dynamic:
            raise RuntimeError("the type dynamic has no NumPy type")
        return dtype_of(self._element)

    def get_bitwidth(self) -> int:
        """Return the bits of one element in memory that is packed."""
        if self._element is ElementType.string:
            return 256  # of std::string there
        return 0 if self._element is ElementType.dynamic else self._element.bits

    @property
    def bitwidth(self) -> int:
        """The bits of one element in memory that is packed."""
        return self.get_bitwidth()

    def get_size(self) -> int:
        """Return the bytes of one element, rounded up."""
        return (self.get_bitwidth() + 7) // 8

    @property
    def size(self) -> int:
        """The bytes of one element, rounded up."""
        return self.get_size()

    def is_static(self) -> bool:
        """Whether the type is known."""
        return self._element is not ElementType.dynamic

    def is_dynamic(self) -> bool:
        """Whether the type is not known."""
        return self._element is ElementType.dynamic

    def is_real(self) -> bool:
        """Whether it is a floating-point type."""
        return self._element.is_float

    @property
    def real(self) -> bool:
        """Whether it is a floating-point type."""
        return self._element.is_float

    def is_integral(self) -> bool:
        """Whether it is no floating-point type."""
        return not self._element.is_float

    @property
    def integral(self) -> bool:
        """Whether it is no floating-point type."""
        return not self._element.is_float

    def is_integral_number(self) -> bool:
        """Whether it is an integer type."""
        return self._element.is_integer or self._element in _BOTH

    @property
    def integral_number(self) -> bool:
        """Whether it is an integer type."""
        return self.is_integral_number()

    def is_signed(self) -> bool:
        """Whether the type has negative numbers."""
        known = self._element.is_signed or self._element is ElementType.boolean
        return known or self._element is ElementType.dynamic

    @property
    def signed(self) -> bool:
        """Whether the type has negative numbers."""
        return self.is_signed()

    def is_quantized(self) -> bool:
        """Whether it is one of the types that quantised values have."""
        return self._element.value in _QUANTIZED

    @property
    def quantized(self) -> bool:
        """Whether it is one of the types that quantised values have."""
        return self.is_quantized()

    def compatible(self, other: Type) -> bool:
        """Whether both are the same, or one is not known."""
        return self is other or self.is_dynamic() or other.is_dynamic()

    def merge(self, other: Type) -> Type | None:
        """Return the one of the two that is known; None when they differ."""
        if not self.compatible(other):
            return None
        return other if self.is_dynamic() else self

    def __repr__(self) -> str:
        element = self._element
        name = _SPELLED.get(element, element.value)
        if element.value[0] in "iu" and element.value[1:].isdecimal():
            name = ("int" if element.value[0] == "i" else "uint") + element.value[1:] + "_t"
        return f"<Type: {name!r}>"

    __str__ = __repr__


def _make(element: ElementType) -> Type:
    made = object.__new__(Type)
    made._element = element
    return made


for _each in ElementType:
    Type._all[_each] = _make(_each)
    if _each.value in Type.__annotations__:
        setattr(Type, _each.value, Type._all[_each])


def type_of(wanted: Any) -> Type:
    """Return the Type of a NumPy type, a name, one of core's element types, or a Type.

    Raises:
        ElementTypeError: there is no such type.
    """
    if isinstance(wanted, Type):
        return wanted
    if isinstance(wanted, str):
        return Type._all[ElementType.parse(wanted)]
    if not isinstance(wanted, ElementType):
        wanted = ElementType.of(wanted)
    return Type._all[wanted]


def element_of(wanted: Any) -> ElementType:
    """Return core's element type of what `type_of` takes.

    Raises:
        ElementTypeError: there is no such type.
    """
    return type_of(wanted)._element


def dtype_of(element: ElementType) -> np.dtype[Any]:
    """Return the NumPy type that programs written for OpenVINO see."""
    return np.dtype("S") if element is ElementType.string else element.dtype
