"""In which type NumPy computes: narrow floats in f32, integers in f64, both converted back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polydevice.dtype import Array

EXACT_INTEGERS = float(2**53)
"""Integers up to this size are exact in f64."""

LONGEST = 1 << 16
"""Of longer axes and windows NumPy adds up parts of parts, in as long: oneDNN's eight sums with
AVX2 (four with SSE4.1) of 0.1 are off by 4e-5 (5e-4) where there are 200,000, and by 2e-3 (4e-3) of
2,000,000."""


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether the type is a floating-point type, those of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return f32 or f64, in which functions of an array of that type are computed."""
    if dtype.kind == "c" or dtype in (np.float32, np.float64):
        return dtype
    return np.dtype(np.float32 if is_float(dtype) else np.float64)


def fits_f32(values: Array | float) -> bool:
    """Return whether f32 holds values of f64 (each 0, or finite and not so small that digits go).

    A factor times weights, or another factor, must: infinity times a weight of 0 is not what it
    was.
    """
    limits, sizes = np.finfo(np.float32), np.abs(values)
    return bool(np.all((sizes == 0) | (sizes >= limits.tiny) & (sizes <= limits.max)))


def widen(x: Array) -> Array:
    """Return x in the type it is computed in; x itself when that is its own."""
    return x.astype(compute_type(x.dtype), copy=False)


def narrow(y: Array, dtype: np.dtype[Any]) -> Array:
    """Return y in another type; floats become integers as Convert does it."""
    if y.dtype == dtype:
        return y
    if dtype.kind in "iu" and dtype.itemsize < 4 and is_float(y.dtype):
        # Through i32, since C leaves the conversion of values that do not fit undefined.
        return y.astype(np.int32).astype(dtype)
    return y.astype(dtype)


def through_float(function: Callable[..., Any]) -> Callable[..., Array]:
    """Make f(op, *arrays) from f(*arrays) on f32 or f64; the result has the first input's type."""

    def apply(_op: Any, *inputs: Array) -> Array:
        return narrow(np.asarray(function(*map(widen, inputs))), inputs[0].dtype)

    apply.__doc__ = function.__doc__
    apply.__module__ = getattr(function, "__module__", __name__)  # ufuncs had none before NumPy 2.1
    return apply


def exact_product(a: Array, b: Array, terms: int) -> bool:
    """Whether sums of that many products of two integer arrays are exact in f64."""
    if a.size == 0 or b.size == 0:
        return True
    largest = [float(max(abs(int(x.max())), abs(int(x.min())))) for x in (a, b)]
    return largest[0] * largest[1] * max(terms, 1) < EXACT_INTEGERS


_NARROW_INTEGERS = "int4", "uint4", "int2", "uint2"


def product_type(a: Array, b: Array, terms: int) -> np.dtype[Any]:
    """Return the type in which sums of `terms` products are formed.

    f64 also for integers where that is exact, because only floats have a fast matrix product.
    """
    if a.dtype.kind in "iub" or (a.dtype.kind == "V" and a.dtype.name in _NARROW_INTEGERS):
        wide = a.astype(np.int64, copy=False), b.astype(np.int64, copy=False)
        return np.dtype(np.float64 if exact_product(*wide, terms) else np.int64)
    return compute_type(a.dtype)
