"""Machine code for softmax of rows of any length, for processors with AVX-512.

It computes in the steps in which oneDNN does, so that answers are the same to the bit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from polydevice.processor.machine_code import function_of, processor_flags
from polydevice_cpu.algorithms.by_machine.code import Told
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
    MAX,
    MIN,
    MUL,
    R8,
    R9,
    R10,
    R11,
    RAX,
    RCX,
    RDI,
    RDX,
    RSI,
    STORE,
    SUB,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.matrix_code import quarters

LEAST, MOST = 2, 65536
"""Lengths of rows: for longer ones oneDNN has other code."""

_ROWS, _ROW_BYTES, _WHOLE, _MASK, _CONSTANTS = range(2, 7)
"""What is told behind the addresses of source and result: how many rows, the bytes of one, how many
vectors are before the last one of a row, which elements that one has, and constants."""

_SUM, _LARGEST, _X, _REST, _POWER = range(5)
_ONE, _HALF, _PER_TWO, _OF_TWO, _MOST, _LEAST, _SMALLEST, _TWO, _BIAS, _FACTORS = range(16, 26)
"""Vectors: in use for a row, and those that stay."""

_THERE, _FITS = 1, 2

_NUMBERS = (
    *(1.0, 0.5, "3fb8aa3b", "3f317218", "42b17218", "c2aeac50", "ff7fffff", 2.0, "0000007f"),
    *("3f7ffffb", "3efffee3", "3e2aad40", "3d2b9d0d", "3c07cfce"),
)
"""1, 1/2, how often 2 is in e (as a power), that the other way round, what the exponential is
computed of at most and at least, the smallest number, 2, the bias of exponents, and factors of a
polynomial."""


def _bits(number: float | str) -> bytes:
    return bytes.fromhex(number)[::-1] if isinstance(number, str) else struct.pack("<f", number)


_TABLE = struct.unpack("<7q", b"".join([_bits(number) for number in _NUMBERS]))


@cache
def _code() -> bytes:
    code = Instructions()
    code.begin(0)
    for number in range(len(_NUMBERS)):
        code.spread(_ONE + number, RDI, behind=2 * _CONSTANTS + number)
    code.load(RAX, RDI, _MASK)
    code.set_mask(_THERE, RAX)
    for register, number in ((R8, 0), (R9, 1), (R10, _ROW_BYTES), (R11, _ROWS)):
        code.load(register, RDI, number)
    next_row = len(code.text)
    code.of_vectors(LOAD, _LARGEST, 0, _SMALLEST)
    _along(code, lambda mask: _larger(code, mask))
    _join(code, MAX, _LARGEST, _X)
    code.clear(_SUM)
    _along(code, lambda mask: _exponential(code, mask))
    _join(code, ADD, _SUM, _X)
    code.of_vectors(DIVIDE, _SUM, _ONE, _SUM)
    _along(code, lambda mask: _share(code, mask))
    code.add(R8, R10)
    code.add(R9, R10)
    code.again(R11, next_row)
    code.end(0)
    return bytes(code.text)


def _along(code: Instructions, body: Callable[[int], None]) -> None:
    """Append what runs for each vector of a row, with the mask of its elements, 0 for all.

    RSI is where it lies in the source, RDX in the result.
    """
    code.move(RSI, R8)
    code.move(RDX, R9)
    code.load(RCX, RDI, _WHOLE)
    code.compare(RCX, 0)
    there_is_none = code.ahead("0f84")
    next_vector = len(code.text)
    body(0)
    code.step(RSI, 64)
    code.step(RDX, 64)
    code.again(RCX, next_vector)
    code.here(there_is_none)
    body(_THERE)


def _larger(code: Instructions, mask: int) -> None:
    code.vector(LOAD, _X, 0, RSI, mask=mask)
    code.vector(MAX, _LARGEST, _LARGEST, _X, is_memory=False, mask=mask)


def _exponential(code: Instructions, mask: int) -> None:
    """2^n times a polynomial of what is left; n is computed with less by 1, or it might not fit."""
    code.vector(LOAD, _X, 0, RSI, mask=mask)
    code.of_vectors(SUB, _X, _X, _LARGEST)
    code.of_vectors(0xC2, _FITS, _X, _LEAST)
    code.text.append(5)  # where it is not below
    code.of_vectors(MIN, _X, _X, _MOST)
    code.of_vectors(MAX, _X, _X, _LEAST)
    code.of_vectors(LOAD, _REST, 0, _X)
    code.of_vectors(MUL, _X, _X, _PER_TWO)
    code.of_vectors(ADD, _X, _X, _HALF)
    code.vector(0x08, _X, 0, _X, kind=3, prefix=1, is_memory=False)
    code.text.append(1)  # round down
    pair = _X, _OF_TWO
    code.vector(0xBC, _REST, *pair, kind=2, prefix=1, is_memory=False)  # less their product
    code.of_vectors(SUB, _X, _X, _ONE)
    code.vector(0x5B, _POWER, 0, _X, prefix=1, is_memory=False)  # as an integer
    code.vector(0xFE, _POWER, _POWER, _BIAS, prefix=1, is_memory=False)
    code.vector(0x72, 6, _POWER, _POWER, prefix=1, is_memory=False)
    code.text.append(23)  # shifted left
    code.vector(LOAD, _POWER, 0, _POWER, is_memory=False, mask=_FITS)  # and 0 elsewhere
    code.of_vectors(LOAD, _X, 0, _FACTORS + 4)
    for factor in (*reversed(range(_FACTORS, _FACTORS + 4)), _ONE):
        code.vector(0xA8, _X, _REST, factor, kind=2, prefix=1, is_memory=False)
    code.of_vectors(MUL, _X, _X, _POWER)
    code.of_vectors(MUL, _X, _X, _TWO)
    code.vector(ADD, _SUM, _SUM, _X, is_memory=False, mask=mask)
    code.vector(STORE, _X, 0, RDX, mask=mask)


def _share(code: Instructions, mask: int) -> None:
    code.vector(LOAD, _X, 0, RDX, mask=mask)
    code.of_vectors(MUL, _X, _X, _SUM)
    code.vector(STORE, _X, 0, RDX, mask=mask)


def _join(code: Instructions, opcode: int, register: int, other: int) -> None:
    """Make all elements of a vector what they are together."""
    for how in (0x4E, 0xB1):
        quarters(code, other, register, register, how)
        code.of_vectors(opcode, register, register, other)
    for how in (0x4E, 0xB1):
        code.of_vectors(0xC6, other, register, register)
        code.text.append(how)
        code.of_vectors(opcode, register, register, other)


@cache
def _function() -> Any | None:
    return function_of(_code()) if {"avx512f", "avx512dq"} <= processor_flags() else None


def softmax(rows: int, length: int) -> tuple[Told, ...] | None:
    """Return a call that computes softmax of rows that follow each other; None without code."""
    function = _function()
    if function is None or not LEAST <= length <= MOST:
        return None
    last = (1 << (length - 1) % 16 + 1) - 1
    return (Told(function, 2, (rows, 4 * length, (length - 1) // 16, last, *_TABLE)),)
