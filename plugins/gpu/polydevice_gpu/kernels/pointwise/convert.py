"""Conversions between types."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops import convert
from polydevice_gpu.kernels.pointwise.expression import declare
from polydevice_gpu.kernels.types import compute_type

# Bits of the mantissa, smallest exponent, largest number, what overflow becomes otherwise.
_NARROW_FLOATS = {
    ElementType.f8e4m3: (3, -6, 448.0, "NAN"),
    ElementType.f8e4m3fnuz: (3, -7, 240.0, "NAN"),
    ElementType.f8e5m2: (2, -14, 57344.0, "INFINITY"),
    ElementType.f8e5m2fnuz: (2, -15, 57344.0, "NAN"),
    ElementType.f4e2m1: (1, 0, 6.0, "NAN"),
}


def _rounded(kind: ElementType, saturate: bool) -> str:
    """Round to the nearest number of a narrow type, halves to even; it is held in f32."""
    bits, least, largest, beyond = _NARROW_FLOATS[kind]
    exponent = f"max(ilogb(fabs((F)(x))), {least})"
    y = f"ldexp(rint(ldexp((F)(x), {bits} - {exponent})), {exponent} - {bits})"
    limit = f"{largest}f" if saturate else f"(float){beyond}"
    return f"WHERE(fabs({y}) > (F)({largest}f), copysign((F)({limit}), (F)(x)), {y})"


_ROUNDED = {ElementType.f16: "ROUND_HALF((F)(x))", ElementType.bf16: "ROUND_BFLOAT((F)(x))"}
"""What has to be said where the result goes on to another operation instead of into memory."""

_EXACT = (ElementType.i8, ElementType.u8, ElementType.boolean)
"""Types whose numbers all are numbers of f16 and bf16."""


def _conversion(op: convert.Convert, kinds: list[ElementType]) -> str:
    kind = op.destination_type
    if kind in _NARROW_FLOATS:
        return _rounded(kind, op.saturate)
    if kind in _ROUNDED and kinds[0] not in (kind, *_EXACT):
        return _ROUNDED[kind]
    if kind is ElementType.boolean:
        return "x != 0"
    if kind.is_float:
        return "x"
    # Through long: a float outside the range of a narrow type keeps its low bits, like NumPy.
    return "(F)(long)(x)" if kind is not ElementType.u64 else "(F)(x)"


declare(convert.Convert, _conversion, any_type=True)


def _same_bits(op: convert.BitCast, kinds: list[ElementType]) -> str:
    """Integers and f32; the host casts what kernels hold as another type."""
    bits = "as_uint(x)" if kinds[0].is_float else "x"
    if op.destination_type.is_float:
        return f"as_float((uint)({bits}))"
    return (
        f"as_{compute_type(op.destination_type)}(({_UNSIGNED[op.destination_type.bits]})({bits}))"
    )


_UNSIGNED = {8: "uchar", 16: "ushort", 32: "uint", 64: "ulong"}
"""The unsigned C type of so many bits."""

declare(convert.BitCast, _same_bits, any_type=True, scalar=True)
