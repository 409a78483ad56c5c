"""Datatypes of the Open Inference Protocol, and tensors in its binary form.

Sources: the protocol's "Tensor data types" and its binary tensor data extension. Numbers are
little-endian and row-major; an element of type BYTES is its length in 4 bytes, then its bytes.
"""

from __future__ import annotations

import struct
import sys
from math import prod
from typing import Any

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.serve.refusal import Reason, RefusedError

_NAMES = {
    ElementType.boolean: "BOOL",
    ElementType.u8: "UINT8",
    ElementType.u16: "UINT16",
    ElementType.u32: "UINT32",
    ElementType.u64: "UINT64",
    ElementType.i8: "INT8",
    ElementType.i16: "INT16",
    ElementType.i32: "INT32",
    ElementType.i64: "INT64",
    ElementType.f16: "FP16",
    ElementType.bf16: "BF16",
    ElementType.f32: "FP32",
    ElementType.f64: "FP64",
    ElementType.string: "BYTES",
}
_TYPES = {name: element_type for element_type, name in _NAMES.items()}
_LENGTH = struct.Struct("<I")


def datatype_of(element_type: ElementType) -> str | None:
    """Return the protocol's name of an element type; None where it has none."""
    return _NAMES.get(element_type)


def element_type_of(datatype: str) -> ElementType:
    """Return the element type that the protocol calls so.

    Raises:
        RefusedError: there is none.
    """
    if datatype not in _TYPES:
        raise RefusedError(
            Reason.INVALID, f"there is no datatype {datatype!r}; legal: {', '.join(_TYPES)}"
        )
    return _TYPES[datatype]


def array_of(data: memoryview, element_type: ElementType, shape: tuple[int, ...]) -> Array:
    """Return a tensor that was sent in binary form; in place where its address is aligned.

    Raises:
        RefusedError: when the data has another length than the shape.
    """
    if element_type is ElementType.string:
        return _strings(data, shape)
    dtype = element_type.dtype
    wanted = prod(shape) * dtype.itemsize
    if len(data) != wanted:
        raise RefusedError(
            Reason.INVALID,
            f"{len(data)} bytes are given for shape {list(shape)} of {_NAMES[element_type]}, "
            f"which has {wanted}",
        )
    if element_type is ElementType.boolean and (np.frombuffer(data, "u1") > 1).any():
        raise RefusedError(Reason.INVALID, "a BOOL is one byte, 0 or 1")
    array: Array = np.frombuffer(data, _little(dtype)).astype(dtype, copy=False).reshape(shape)
    return array if array.flags.aligned else array.copy()


def bytes_of(array: Array, element_type: ElementType) -> bytes:
    """Return a tensor in binary form."""
    return bytes(buffer_of(array, element_type))


def buffer_of(array: Array, element_type: ElementType) -> bytes | memoryview:
    """Return a tensor in binary form, in its own memory where that has it."""
    if element_type is ElementType.string:
        parts: list[bytes] = []
        for value in array.flat:
            encoded = value.encode() if isinstance(value, str) else bytes(value)
            parts += (_LENGTH.pack(len(encoded)), encoded)
        return b"".join(parts)
    little = array.astype(_little(array.dtype), order="C", copy=False)
    return little.reshape(-1).view(np.uint8).data


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if sys.byteorder == "little" else dtype.newbyteorder("<")


def _strings(data: memoryview, shape: tuple[int, ...]) -> Array:
    number, at = prod(shape), 0
    if number * _LENGTH.size > len(data):
        raise RefusedError(
            Reason.INVALID, f"{len(data)} bytes are too few for {number} of type BYTES"
        )
    array: Array = np.empty(number, object)
    for index in range(number):
        if at + _LENGTH.size > len(data):
            raise RefusedError(Reason.INVALID, f"the data ends before element {index} of {number}")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            raise RefusedError(
                Reason.INVALID,
                f"element {index} is to have {length} bytes, and {len(data) - at} are left",
            )
        array[index] = text_of(bytes(data[at : at + length]))
        at += length
    if at != len(data):
        raise RefusedError(
            Reason.INVALID, f"{len(data) - at} bytes are left after {number} elements"
        )
    return array.reshape(shape)


def text_of(value: bytes) -> str:
    """Return an element of type BYTES as the text that networks compute with.

    Raises:
        RefusedError: for what is no UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise RefusedError(Reason.INVALID, "an element of type BYTES is not UTF-8") from None
