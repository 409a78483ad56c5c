"""Conversions between element types."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import InferenceError
from polydevice.interval import apply
from polydevice.ops.convert import BitCast, Convert, ConvertLike, ConvertPromoteTypes
from polydevice.symbolic_size import is_symbolic, whole
from polydevice.tensor import desc_of
from polydevice_cpu.algorithms.precision import is_float, narrow
from polydevice_cpu.implement import directly, implements

_SATURATING = (
    ElementType.f8e4m3,
    ElementType.f8e5m2,
    ElementType.f8e4m3fnuz,
    ElementType.f8e5m2fnuz,
    ElementType.f4e2m1,
)


def convert_to(x: Array, kind: ElementType) -> Array:
    """Return x in another element type; sizes that are not known yet stay as they are."""
    if x.dtype == object:
        return _from_objects(x, kind)
    if kind is ElementType.string:
        if x.dtype.kind in "iub" or x.dtype == np.float64:  # a third of NumPy's own time
            items = x.reshape(-1).tolist()  # whose `repr` is found in two thirds of `str`'s time
            return np.fromiter(map(repr, items), object, len(items)).reshape(x.shape)
        if x.dtype.kind == "V":  # NumPy knows no text of them, but of wider types
            x = x.astype(np.float32 if is_float(x.dtype) else np.int8)
        return x.astype(np.str_).astype(object)
    if kind in (ElementType.boolean, ElementType.u1):
        return np.asarray(x != 0).astype(kind.dtype, copy=False)
    if kind in _SATURATING:
        return saturated(x, kind)
    if kind.dtype.kind == "V":  # 4-bit integers and bf16 convert from the types NumPy knows
        middle = np.dtype(np.float32 if kind.is_float else np.int32)
        return x.astype(middle, copy=False).astype(kind.dtype)
    if x.dtype.kind == "V" and not is_float(x.dtype):
        return x.astype(np.int8).astype(kind.dtype)
    return narrow(x, kind.dtype)


def saturated(x: Array, kind: ElementType) -> Array:
    """Round to a narrow float; what is out of range becomes the largest number, NaN stays."""
    wide = x.astype(np.float32)
    limit = np.float32(ml_dtypes.finfo(kind.dtype).max)  # type: ignore[no-untyped-call]  # has no types
    return np.clip(wide, -limit, limit).astype(kind.dtype)


def _from_objects(x: Array, kind: ElementType) -> Array:
    """Strings are parsed; anything else are numbers of which some are not known."""
    items = x.reshape(-1).tolist()
    kinds = set(map(type, items))
    if kinds == {str} and kind is not ElementType.string:
        numbers = _all_parsed(items, kind)
        if numbers is not None:
            return convert_to(numbers.reshape(x.shape), kind)
    if not all(issubclass(each, (str, bytes)) for each in kinds):
        return np.asarray(np.frompyfunc(partial(apply, _number(kind)), 1, 1)(x))
    if kind is ElementType.string:
        return x
    text = [i.decode() if isinstance(i, bytes) else i for i in items]
    if kind.is_integer and kind is not ElementType.u1:
        bits = [_parsed(_integer, t, kind) & (1 << 64) - 1 for t in text]
        return convert_to(np.array(bits, np.uint64).view(np.int64).reshape(x.shape), kind)
    numbers = np.array([_parsed(float, t, kind) for t in text], np.float64)
    return convert_to(numbers.reshape(x.shape), kind)


def _all_parsed(texts: list[str], kind: ElementType) -> Array | None:
    """Return what texts say; None where one does not, or integers have more than 64 bits."""
    is_whole = kind.is_integer and kind is not ElementType.u1
    try:
        if is_whole:
            return np.fromiter(map(int, texts), np.int64, len(texts))
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except (ValueError, OverflowError):
        return None


def _parsed(function: Callable[[str], Any], text: str, kind: ElementType) -> Any:
    try:
        return function(text)
    except (ValueError, OverflowError):
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise InferenceError(f"{shown!r} is no number that Convert can make {kind} of") from None


def _integer(text: str) -> int:
    """All digits count, also where f64 has fewer; a fraction is cut off."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _number(kind: ElementType) -> Callable[[Any], Any]:
    """Return what converts one number; raises TypeError where an interval would not stay one."""
    if kind.is_integer and kind.bits >= 8:
        return whole
    if kind in (ElementType.f32, ElementType.f64):
        return lambda number: number if is_symbolic(number) else kind.dtype.type(number)
    raise TypeError(f"unknown numbers of type {kind} are not followed")


@implements(Convert)
def convert(op: Convert, x: Array) -> Array:
    """Convert to the attribute's type."""
    kind = op.destination_type
    if x.dtype != object:
        if kind is ElementType.f8e8m0:
            return power_of_two(x, op.rounding, op.saturate)
        if kind in _SATURATING and not op.saturate:
            return x.astype(np.float32).astype(kind.dtype)
    return convert_to(x, kind)


def _directly(op: Convert) -> Callable[[Array], Array] | None:
    """Return what lets NumPy convert integers, as it does to most types."""
    dtype = op.destination_type.dtype
    if dtype.kind not in "iuf" or op.destination_type is ElementType.u1:
        return None

    def compute(x: Array) -> Array:
        return x.astype(dtype, copy=False) if x.dtype.kind in "iub" else convert(op, x)

    return compute


directly(Convert, _directly)


def power_of_two(x: Array, rounding: str, saturate: bool) -> Array:
    """Round to the exponent alone (f8e8m0); infinity and NaN become NaN, the sign is lost."""
    bits = x.astype(np.float32).view(np.uint32)
    exponent = (bits >> 23 & 0xFF).astype(np.int32)
    mantissa = bits & 0x7FFFFF
    half = np.uint32(1 << 22)
    if rounding == "up":
        increment = mantissa > 0
    elif rounding == "nearest":
        increment = (mantissa > half) | ((mantissa == half) & (exponent > 0))
    else:
        increment = np.zeros(x.shape, bool)
    largest = 0xFE if saturate else 0xFF
    rounded = np.minimum(exponent + increment, largest)
    return np.where(exponent == 0xFF, 0xFF, rounded).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


@implements(ConvertLike)
def convert_like(_op: ConvertLike, x: Array, like: Array) -> Array:
    """Convert to the other input's type."""
    return convert_to(x, ElementType.of(like.dtype))


@implements(ConvertPromoteTypes)
def convert_promote_types(op: ConvertPromoteTypes, a: Array, b: Array) -> tuple[Array, Array]:
    """Convert both to the type that the definition finds."""
    kind = op.promoted(desc_of(a), desc_of(b))
    return convert_to(a, kind), convert_to(b, kind)


@implements(BitCast)
def bit_cast(op: BitCast, x: Array) -> Array:
    """Return a view; elements narrower than a byte lie in one each, bits at the bottom."""
    return np.ascontiguousarray(x).reshape(x.shape).view(op.destination_type.dtype)
