"""Select."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.select import Select
from polydevice_cpu.implement import implements, writes
from polydevice_cpu.ops.arithmetic import align

MANY = 2048
"""From so many results on bits are selected: 4x8x64x64 numbers take `where` 450 us, in which the
processor guesses each condition, and 75 so; 256 take 2 and 5."""

_BITS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


@implements(Select)
def select(op: Select, condition: Array, a: Array, b: Array) -> Array:
    """NumPy's where; both branches exist already, so nothing is computed in vain."""
    condition, b = align(a, condition, op.auto_broadcast), align(a, b, op.auto_broadcast)
    shapes = {condition.shape, a.shape, b.shape, ()}
    # Which of them is the result's takes 2 us to find out where it is not the only one.
    shape = max(shapes) if len(shapes) < 3 else np.broadcast_shapes(*shapes)
    if a.dtype != b.dtype or not _is_of_bits(a, shape):
        return np.asarray(np.where(condition, a, b))
    result = np.empty(shape, a.dtype)
    _select_bits(condition, a, b, result)
    return result


@writes(Select)
def write(op: Select, condition: Array, a: Array, b: Array, result: Array) -> None:
    """Write where the result is to lie."""
    condition, b = align(a, condition, op.auto_broadcast), align(a, b, op.auto_broadcast)
    if _is_of_bits(a, result.shape):
        _select_bits(condition, a, b, result)
    else:
        result[...] = np.where(condition, a, b)


def _is_of_bits(a: Array, shape: tuple[int, ...]) -> bool:
    return math.prod(shape) >= MANY and not a.dtype.hasobject and a.dtype.itemsize in _BITS


def _select_bits(condition: Array, a: Array, b: Array, result: Array) -> None:
    """Write b with the bits changed in which a differs from it, where the condition holds."""
    kind = _BITS[a.dtype.itemsize]
    a, b, bits = (each.view(kind) for each in (a, b, result))
    # NumPy makes a number of what has no axes.
    mask = np.asarray(condition.view(np.int8) != 0).view(np.int8).astype(kind)
    np.negative(mask, out=mask)
    np.bitwise_xor(a, b, out=bits)
    bits &= mask
    bits ^= b
