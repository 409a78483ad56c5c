"""Element types in OpenCL C: how values are stored and what they are computed in."""

from __future__ import annotations

import enum
import functools

from polydevice.dtype import ElementType as T

_C_NAMES = {
    T.f16: "half",
    T.f32: "float",
    T.f64: "double",
    T.i8: "char",
    T.u8: "uchar",
    T.i16: "short",
    T.u16: "ushort",
    T.i32: "int",
    T.u32: "uint",
    T.i64: "long",
    T.u64: "ulong",
    T.boolean: "uchar",
}

_STORED_AS = {
    # Held in wider types: a conversion on the way in and out instead of kernels for each.
    T.bf16: T.f32,
    T.f8e4m3: T.f32,
    T.f8e4m3fnuz: T.f32,
    T.f8e5m2: T.f32,
    T.f8e5m2fnuz: T.f32,
    T.f4e2m1: T.f32,
    T.i2: T.i8,
    T.i4: T.i8,
    T.u1: T.u8,
    T.u2: T.u8,
    T.u4: T.u8,
}


def storage_type(element_type: T, *, fp64: bool) -> T | None:
    """Return the type in which device memory holds a value; None when kernels cannot hold it.

    Args:
        element_type: the model's type.
        fp64: whether the device computes in double precision; if not, f64 is held as f32.
    """
    if element_type is T.f64 and not fp64:
        return T.f32
    stored = _STORED_AS.get(element_type, element_type)
    return stored if stored in _C_NAMES else None


FLOATS = (T.f16, T.f32)
"""Types that may be stored as one another."""


def stored_as(element_type: T, *, fp64: bool, floats: T | None) -> T:
    """Return the type in which a value is stored; types that kernels cannot hold keep their own.

    Args:
        element_type: the model's type.
        fp64: see `storage_type`.
        floats: the type in which f16 and f32 values are stored; None for each its own.
    """
    stored = storage_type(element_type, fp64=fp64) or element_type
    return floats if floats is not None and stored in FLOATS else stored


def c_type(storage: T) -> str:
    """Return the OpenCL C type of a stored element."""
    return _C_NAMES[storage]


@functools.cache  # asked of 400 times for each kernel that is written
def compute_type(element_type: T, *, fp64: bool = True) -> str:
    """Return the OpenCL C type in which a value is computed: float for every narrower float."""
    if element_type is T.f64 and fp64:
        return "double"
    if element_type.is_float:
        return "float"
    return _C_NAMES[_STORED_AS.get(element_type, element_type)]


IN_VECTORS = ("float", "int", "char", "uchar")
"""Compute types of which vectors are made: floats, and what is converted from and to them."""


def is_float(name: str) -> bool:
    """Whether a C type is float or a vector of floats."""
    return name.startswith("float")


class At(enum.Enum):
    """Where vectors lie, and how they are reached.

    Attributes:
        MULTIPLES: of their size: one instruction everywhere.
        LOOSE: anywhere, on a processor, which has instructions for that; see include/loose.cl.
        ANYWHERE: anywhere; compilers may emit an instruction for each element (NVIDIA).
    """

    MULTIPLES = enum.auto()
    LOOSE = enum.auto()
    ANYWHERE = enum.auto()


def load(storage: T, pointer: str, index: str, width: int = 1, at: At = At.ANYWHERE) -> str:
    """Write the expression that reads `width` neighbouring elements in their compute type.

    half is read by vload_half, which every device has; half arithmetic is not needed for it.
    Where nothing is known of the address, compilers may assume what the standard does not promise,
    and crash (PoCL 3.1 on vload_half8), so that vectors of half are then put together from single
    ones; see include/half.cl for others.
    """
    place = f"{pointer} + ({index})"
    if storage is T.f16:
        if width == 1:
            return f"vload_half({index}, {pointer})"
        return f"load_half{width}{'_aligned' if at is At.MULTIPLES else ''}({place})"
    if width == 1:
        return f"{pointer}[{index}]"
    if at is At.ANYWHERE or storage is T.f64:
        return f"vload{width}(0, {place})"
    return f"(*(__global const {_vector(storage, width, at)}*)({place}))"


def store(
    storage: T, pointer: str, index: str, value: str, width: int = 1, at: At = At.ANYWHERE
) -> str:
    """Write the expression that stores `width` neighbouring elements, converting to `storage`."""
    place = f"{pointer} + ({index})"
    if storage is T.f16:
        if width == 1:
            return f"vstore_half({value}, {index}, {pointer})"
        return f"store_half{width}{'_aligned' if at is At.MULTIPLES else ''}({value}, {place})"
    if width == 1:
        return f"{pointer}[{index}] = ({c_type(storage)})({value})"
    if at is At.ANYWHERE or storage is T.f64:
        return f"vstore{width}({value}, 0, {place})"
    return f"*(__global {_vector(storage, width, at)}*)({place}) = ({value})"


def _vector(storage: T, width: int, at: At) -> str:
    return f"{'loose_' if at is At.LOOSE else ''}{c_type(storage)}{width}"
