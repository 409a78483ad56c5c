"""Products of f32 matrices by oneDNN's code, which takes the threads that an inference may have.

NumPy's OpenBLAS takes all cores from 2^18 multiplications on, however few threads were asked for.
"""

from __future__ import annotations

import ctypes as c
import math
from functools import lru_cache
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.library import library

ONE_THREAD = 1 << 18
"""Multiplications up to which OpenBLAS takes one thread."""

MANY = 64
"""Of more matrices at once OpenBLAS multiplies each by itself in turn, and so do we."""


@lru_cache(maxsize=1)
def _sgemm() -> Any | None:
    """The function, if there is oneDNN; rows of matrices lie one behind the other."""
    loaded = library()
    if loaded is None:
        return None
    size, address = c.c_int64, c.c_void_p
    function = c.CDLL(loaded.path).dnnl_sgemm
    function.argtypes = [
        *(c.c_char, c.c_char, size, size, size, c.c_float, address, size),
        *(address, size, c.c_float, address, size),
    ]
    return function


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return what `np.matmul` does, in `out` if it is given."""
    sizes = math.prod(a.shape) * b.shape[-1] if a.ndim > 1 and b.ndim > 1 else 0
    kinds = {a.dtype, b.dtype, np.dtype(np.float32) if out is None else out.dtype}
    function = _sgemm() if sizes >= ONE_THREAD and kinds == {np.dtype(np.float32)} else None
    if function is None:
        return np.matmul(a, b, out)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if math.prod(batch) > MANY or a.shape[-1] != b.shape[-2]:
        return np.matmul(a, b, out)
    shape = (*batch, a.shape[-2], b.shape[-1])
    result = np.empty(shape, np.float32) if out is None else out
    first, second = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    for place in np.ndindex(*batch):
        _multiply(function, first[place], second[place], result[place])
    return result


def _multiply(function: Any, a: Array, b: Array, result: Array) -> None:
    rows, terms, columns = *a.shape, b.shape[1]
    target = result if _step(result) else np.empty(result.shape, np.float32)
    a, turned_a, step_a = _seen(a)
    b, turned_b, step_b = _seen(b)
    status = function(
        *(turned_a, turned_b, rows, columns, terms, 1.0, address_of(a), step_a),
        *(address_of(b), step_b, 0.0, address_of(target), _step(target)),
    )
    if status:  # whatever it is, NumPy can
        np.matmul(a, b, target)
    if target is not result:
        np.copyto(result, target)


def _step(x: Array) -> int:
    """Elements from row to row, where those of a row follow each other and rows do not overlap."""
    step, own = x.strides
    is_plain = own == x.itemsize and step % own == 0 and step >= own * x.shape[1]
    return step // own if is_plain else 0


def _seen(x: Array) -> tuple[Array, bytes, int]:
    """Return a matrix, whether it is turned, and the elements from row to row as it lies."""
    for seen, turned in ((x, b"N"), (x.T, b"T")):
        if step := _step(seen):
            return (x, turned, step)
    x = np.ascontiguousarray(x)
    return x, b"N", x.shape[1]
