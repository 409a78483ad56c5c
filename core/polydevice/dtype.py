"""ElementType: the type of a tensor's elements, and its NumPy equivalent."""

from __future__ import annotations

from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from polydevice.errors import ElementTypeError, nearest

Array = npt.NDArray[Any]


class ElementType(Enum):
    """Type of one element; the value is its name in IR files (``f32``, ``i8``, ``boolean``…).

    Types narrower than a byte (``u1``, ``i2``, ``u2``, ``i4``, ``u4``, ``f4e2m1``) are packed in
    IR and ONNX files; in memory each element takes one byte, in the NumPy type of `dtype`.
    """

    f16 = "f16"
    f32 = "f32"
    f64 = "f64"
    bf16 = "bf16"
    i2 = "i2"
    i4 = "i4"
    i8 = "i8"
    i16 = "i16"
    i32 = "i32"
    i64 = "i64"
    u1 = "u1"
    u2 = "u2"
    u4 = "u4"
    u8 = "u8"
    u16 = "u16"
    u32 = "u32"
    u64 = "u64"
    boolean = "boolean"
    string = "string"
    c64 = "c64"
    c128 = "c128"
    f8e4m3 = "f8e4m3"
    f8e5m2 = "f8e5m2"
    f8e4m3fnuz = "f8e4m3fnuz"
    f8e5m2fnuz = "f8e5m2fnuz"
    f8e8m0 = "f8e8m0"
    f4e2m1 = "f4e2m1"
    dynamic = "dynamic"

    __hash__ = object.__hash__  # there is one of each; the name's takes a call in Python

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type that holds one element in memory."""
        try:
            return _DTYPES[self]
        except KeyError:
            raise ElementTypeError(
                f"element type {self.value} has no NumPy type; infer the network's types first"
            ) from None

    @property
    def bits(self) -> int:
        """Bits of one element in a model file."""
        return _BITS[self]

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating-point type."""
        return self.value.startswith(("f", "bf"))

    @property
    def is_signed(self) -> bool:
        """Whether the type can hold negative numbers."""
        return self.is_float or self.value.startswith("i")

    @property
    def is_integer(self) -> bool:
        """Whether the type is an integer type (boolean is not)."""
        return self.value[0] in "iu" and self is not ElementType.boolean

    @property
    def precision(self) -> str:
        """The Inference Engine's upper-case name (``FP32``, ``I8``, ``BOOL``, ``BIN``…)."""
        return _PRECISIONS.get(self, self.value.upper())

    @classmethod
    def of(cls, dtype: npt.DTypeLike) -> ElementType:
        """Return the element type of a NumPy type; raises ElementTypeError if there is none."""
        found = _FROM_DTYPE.get(np.dtype(dtype))
        if found is not None:
            return found
        if np.dtype(dtype).kind in "OUST":
            return cls.string
        raise ElementTypeError(
            f"NumPy type {np.dtype(dtype)} has no element type; "
            f"use one of {', '.join(sorted(str(d) for d in _FROM_DTYPE))}"
        )

    @classmethod
    def parse(cls, text: str) -> ElementType:
        """Read ``f32`` (IR), ``FP32`` (Inference Engine) or ``float32`` (NumPy) names."""
        found = _BY_NAME.get(text) or _BY_NAME.get(text.lower())
        if found is None:
            raise ElementTypeError(
                f"unknown element type {text!r}; legal: {', '.join(t.value for t in cls)}."
                + nearest(text, _BY_NAME)
            )
        return found

    def __repr__(self) -> str:
        return self.value

    def __str__(self) -> str:
        return self.value


_T = ElementType
# u1 has no NumPy type of its own; one byte of 0 or 1 per element.
_DTYPES: dict[ElementType, np.dtype[Any]] = {
    _T.f16: np.dtype(np.float16),
    _T.f32: np.dtype(np.float32),
    _T.f64: np.dtype(np.float64),
    _T.bf16: np.dtype(ml_dtypes.bfloat16),
    _T.i2: np.dtype(ml_dtypes.int2),
    _T.i4: np.dtype(ml_dtypes.int4),
    _T.i8: np.dtype(np.int8),
    _T.i16: np.dtype(np.int16),
    _T.i32: np.dtype(np.int32),
    _T.i64: np.dtype(np.int64),
    _T.u1: np.dtype(np.uint8),
    _T.u2: np.dtype(ml_dtypes.uint2),
    _T.u4: np.dtype(ml_dtypes.uint4),
    _T.u8: np.dtype(np.uint8),
    _T.u16: np.dtype(np.uint16),
    _T.u32: np.dtype(np.uint32),
    _T.u64: np.dtype(np.uint64),
    _T.boolean: np.dtype(np.bool_),
    _T.string: np.dtype(object),
    _T.c64: np.dtype(np.complex64),
    _T.c128: np.dtype(np.complex128),
    _T.f8e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    _T.f8e5m2: np.dtype(ml_dtypes.float8_e5m2),
    _T.f8e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    _T.f8e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
    _T.f8e8m0: np.dtype(ml_dtypes.float8_e8m0fnu),
    _T.f4e2m1: np.dtype(ml_dtypes.float4_e2m1fn),
}
_FROM_DTYPE = {d: t for t, d in _DTYPES.items() if t not in (_T.u1, _T.string)}
_SUB_BYTE_BITS = {_T.u1: 1, _T.i2: 2, _T.u2: 2, _T.i4: 4, _T.u4: 4, _T.f4e2m1: 4}
_BITS = {t: _SUB_BYTE_BITS.get(t, d.itemsize * 8) for t, d in _DTYPES.items()}
_PRECISIONS = {
    _T.f16: "FP16",
    _T.f32: "FP32",
    _T.f64: "FP64",
    _T.boolean: "BOOL",
    _T.u1: "BIN",
    _T.dynamic: "UNSPECIFIED",
}
_BY_NAME: dict[str, ElementType] = {
    **{t.precision: t for t in _T},
    **{str(d): t for d, t in _FROM_DTYPE.items()},
    "bool": _T.boolean,
    "undefined": _T.dynamic,
    "unspecified": _T.dynamic,
    "mixed": _T.dynamic,
    **{t.value: t for t in _T},
}
