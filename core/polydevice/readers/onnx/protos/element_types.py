"""ONNX's numbers for element types."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.errors import ModelFormatError
from polydevice.readers.onnx.protos.messages import TensorProto

_T = ElementType
ELEMENT_TYPES: dict[int, ElementType] = {
    TensorProto.FLOAT: _T.f32,
    TensorProto.UINT8: _T.u8,
    TensorProto.INT8: _T.i8,
    TensorProto.UINT16: _T.u16,
    TensorProto.INT16: _T.i16,
    TensorProto.INT32: _T.i32,
    TensorProto.INT64: _T.i64,
    TensorProto.STRING: _T.string,
    TensorProto.BOOL: _T.boolean,
    TensorProto.FLOAT16: _T.f16,
    TensorProto.DOUBLE: _T.f64,
    TensorProto.UINT32: _T.u32,
    TensorProto.UINT64: _T.u64,
    TensorProto.COMPLEX64: _T.c64,
    TensorProto.COMPLEX128: _T.c128,
    TensorProto.BFLOAT16: _T.bf16,
}
# Newer onnx packages know more types; each is looked up by the name it has there.
_LATER = {
    "FLOAT8E4M3FN": "f8e4m3",
    "FLOAT8E4M3FNUZ": "f8e4m3fnuz",
    "FLOAT8E5M2": "f8e5m2",
    "FLOAT8E5M2FNUZ": "f8e5m2fnuz",
    "UINT4": "u4",
    "INT4": "i4",
    "FLOAT4E2M1": "f4e2m1",
    "FLOAT8E8M0": "f8e8m0",
    "UINT2": "u2",
    "INT2": "i2",
    "FLOAT6E2M3": "f6e2m3",
    "FLOAT6E3M2": "f6e3m2",
}
_NAMES = dict(TensorProto.DataType.items())
ELEMENT_TYPES.update(
    {
        _NAMES[onnx_name]: ElementType(name)
        for onnx_name, name in _LATER.items()
        if onnx_name in _NAMES and name in {t.value for t in ElementType}
    }
)
_CODES = {element_type: code for code, element_type in ELEMENT_TYPES.items()}


def element_type_of(code: int) -> ElementType:
    """Return the element type for ONNX's number; raises ModelFormatError for unknown ones."""
    try:
        return ELEMENT_TYPES[code]
    except KeyError:
        names = {value: key for key, value in _NAMES.items()}
        raise ModelFormatError(
            f"element type {names.get(code, code)} is not supported; supported: {supported()}"
        ) from None


def supported() -> str:
    """Return the names of the element types that can be read, for messages."""
    names = {value: key for key, value in _NAMES.items()}
    return ", ".join(names[known] for known in sorted(ELEMENT_TYPES))


def code_of(element_type: ElementType) -> int:
    """Return ONNX's number for an element type."""
    return _CODES.get(element_type, TensorProto.UNDEFINED)
