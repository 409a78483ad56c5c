"""Functions of single numbers that lie one behind the other, by machine code."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import PARTS, Code, Told, has_vectors, told
from polydevice_cpu.algorithms.by_machine.functions import Activation, Functions
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    R8,
    R9,
    RAX,
    RCX,
    RDI,
    RSI,
    STORE,
)
from polydevice_cpu.algorithms.by_machine.rows.shares import placed, shares_work
from polydevice_cpu.onednn.engine import address_of

FEW = 64
"""Numbers from which on machine code is called for them; NumPy takes less for fewer."""

_LANES, _NUMBERS = 16, 4
_VECTOR, _SOME = 0, 1
"""The vector that is computed, and the mask of the last one's elements."""


def prepared(activation: Activation, count: int, threads: int = 1) -> Code | None:
    """Return the code for so many numbers, which is told their address and the results'.

    None where the system has no such code.
    """
    found = _function(activation)
    if found is None:
        return None
    vectors = -(-count // _LANES)
    is_shared = shares_work((vectors, _LANES), threads)
    each = -(-vectors // (threads * PARTS)) * _LANES
    if not is_shared:
        return Code.of([_told(*found, 0, count)])
    starts = range(0, count, each)
    parts = [_told(*found, first, min(each, count - first)) for first in starts]
    return Code.shared(parts, threads)


def computed(activation: Activation, x: Array) -> Array | None:
    """Return a function of an array; None where it is not f32 or has few numbers, or without code.

    4,320 numbers whose sizes only the data told take a logistic function 3 us, and NumPy 23.
    """
    if x.dtype != np.float32 or x.size < FEW or not has_vectors():
        return None
    found = _function(activation)
    if found is None:
        return None
    source, result = np.ascontiguousarray(x), np.empty(x.shape, x.dtype)
    function, numbers = _told(*found, 0, x.size)
    function(placed(numbers, address_of(source), address_of(result)))
    return result


def _told(function: Any, constants: bytes, first: int, count: int) -> Told:
    rest = count % _LANES
    begin = 4 * first
    pack = struct.Struct(f"@4q{len(constants)}s").pack
    return function, told(pack, begin, begin, count // _LANES, (1 << rest) - 1, constants)


@lru_cache(maxsize=32)
def _function(activation: Activation) -> tuple[Any, bytes] | None:
    text, constants = _code(activation)
    function = function_of(text)
    return None if function is None else (function, constants)


def _code(activation: Activation) -> tuple[bytes, bytes]:
    """The function, and the constants behind what it is told."""
    code = Functions()
    code.begin(0)
    for place, register in enumerate((R8, R9, RCX, RAX)):
        code.load(register, RDI, place)
    code.move(RSI, RDI)
    code.step(RSI, 8 * _NUMBERS)
    code.compare(RCX, 0)
    few = code.ahead("0f84")
    whole = len(code.text)
    code.vector(LOAD, _VECTOR, 0, R8)
    code.activate(_VECTOR, activation)
    code.vector(STORE, _VECTOR, 0, R9)
    code.step(R8, 4 * _LANES)
    code.step(R9, 4 * _LANES)
    code.again(RCX, whole)
    code.here(few)
    code.compare(RAX, 0)
    none = code.ahead("0f84")
    code.set_mask(_SOME, RAX)
    code.vector(LOAD, _VECTOR, 0, R8, mask=_SOME)
    code.activate(_VECTOR, activation)
    code.vector(STORE, _VECTOR, 0, R9, mask=_SOME)
    code.here(none)
    code.end(0)
    return code.assembled(), b"".join(code.constants)
