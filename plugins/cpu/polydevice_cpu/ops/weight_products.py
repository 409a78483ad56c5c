"""Digits of numbers, and what products of digits tell about the product."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.implement import implements
from polydevice_cpu.passes.weight_products import DIGITS, ZERO, Digits, OfDigits

_MOST = (ZERO - 1) * 0x010101
_ZEROS = ZERO * 0x010101
"""The zero of three digits; added to what is `_MOST` at most, an f32 still holds it."""


@implements(Digits)
def digits(_op: Digits, x: Array) -> tuple[Array, Array]:
    """Into new arrays."""
    made = np.empty((DIGITS * (x.size // x.shape[-1]), x.shape[-1]), np.uint8)
    step = np.empty((*x.shape[:-1], 1), np.float32)
    write_digits(x, made, step)
    return made, step


def write_digits(x: Array, made: Array, step: Array) -> None:
    """Write digits [3 * rows, K] and steps; a row that is not finite gets one that is not."""
    np.abs(x).max(axis=-1, keepdims=True, out=step)
    step *= np.float32(1 / _MOST)
    whole = x / np.where(step == 0, np.float32(1), step)
    np.clip(np.rint(whole, out=whole), -_MOST, _MOST, out=whole)  # steps are rounded too
    whole += np.float32(_ZEROS)
    of_bytes = whole.astype(np.int32).view(np.uint8).reshape(-1, whole.shape[-1], 4)
    places = made.reshape(DIGITS, -1, whole.shape[-1])
    for place in range(DIGITS):
        np.copyto(places[place], of_bytes[..., DIGITS - 1 - place])  # the last digit lies first


@implements(OfDigits)
def of_digits(_op: OfDigits, products: Array, step: Array) -> Array:
    """Into a new array."""
    result = np.empty((*step.shape[:-1], products.shape[-1]), np.float32)
    write_of_digits(products, step, result)
    return result


def write_of_digits(products: Array, step: Array, result: Array) -> None:
    """Write (65536 a + 256 b + c) * step."""
    columns = products.shape[-1]
    a, b, c = products.reshape(DIGITS, -1, columns)
    total = result.reshape(-1, columns)
    np.multiply(a, np.float32(256), out=total)
    total += b
    total *= np.float32(256)
    total += c
    total *= step.reshape(-1, 1)
