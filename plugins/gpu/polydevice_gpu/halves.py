"""Rounding weights to f16: NumPy takes 3 ns a number, the processor's instruction 0.3.

BERT-base's 109 million were half of what loading it took from `CACHE_DIR`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.runtime.machine_code import function_of, processor_flags

_AT_ONCE = 8

# size_t loop(const float* rdi, half* rsi, size_t eights rdx): 0.
_ROUND = bytes.fromhex(
    "f30f1efa"  # endbr64
    "4885d27417"  # next: if rdx == 0 goto end
    "c5fc1007"  # vmovups ymm0, [rdi]
    "c4e37d1d0600"  # vcvtps2ph [rsi], ymm0, to the nearest, ties to even
    "4883c7204883c61048ffcaebe4"  # rdi += 32; rsi += 16; rdx -= 1; goto next
    "c5f87731c0c3"  # end: vzeroupper; eax = 0; ret
)


def as_halves(array: Array) -> Array:
    """Return an f32 array rounded to f16 in memory order, as ``astype`` does."""
    function = function_of(_ROUND) if {"avx", "f16c"} <= processor_flags() else None
    if function is None or array.dtype != np.float32:
        return np.asarray(array.astype(np.float16, copy=False), order="C")
    array = np.asarray(array)  # NumPy makes a number of what has no axes
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    lying = array.transpose(order)  # rounded as it lies, and moved with half the bytes
    if not lying.flags.c_contiguous:
        order, lying = list(range(array.ndim)), np.asarray(array, order="C")
    made = np.empty(lying.shape, np.float16)
    whole = lying.size // _AT_ONCE
    _call(function, lying, made, whole)
    rest = slice(whole * _AT_ONCE, None)
    made.reshape(-1)[rest] = lying.reshape(-1)[rest]
    return np.asarray(made.transpose([order.index(n) for n in range(array.ndim)]), order="C")


def _call(function: Any, given: Array, made: Array, eights: int) -> None:
    places = (ctypes.c_void_p(each.ctypes.data) for each in (given, made))
    function(*places, ctypes.c_size_t(eights))
