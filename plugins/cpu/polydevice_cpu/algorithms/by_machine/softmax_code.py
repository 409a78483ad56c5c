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
from polydevice_cpu.algorithms.by_machine.emitter import (
    ADD,
    DIV,
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
    SUB,
    Emitter,
    Place,
)

LEAST, MOST = 2, 65536
"""Lengths of rows: for longer ones oneDNN has other code."""

_ROWS, _ROW_BYTES, _WHOLE, _MASK, _CONSTANTS = range(2, 7)
"""What is told behind the addresses of source and result: how many rows, the bytes of one, how many
vectors are before the last one of a row, which elements that one has, and constants."""

_SUM, _LARGEST, _X, _REST, _POWER, _NOTHING = range(6)
_ONE, _HALF, _PER_TWO, _OF_TWO, _MOST, _LEAST, _SMALLEST, _TWO, _BIAS, _FACTORS = range(16, 26)
"""Vectors: in use for a row, and those that stay."""

_THERE, _BELOW = 1, 2

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
    code = Emitter()
    for number in range(len(_NUMBERS)):
        code.spread(_ONE + number, Place(RDI, 8 * _CONSTANTS + 4 * number))
    code.move(RAX, Place(RDI, 8 * _MASK))
    code.mask(_THERE, RAX)
    code.move(R8, Place(RDI, 0))
    code.move(R9, Place(RDI, 8))
    code.move(R10, Place(RDI, 8 * _ROW_BYTES))
    code.move(R11, Place(RDI, 8 * _ROWS))

    def row() -> None:
        code.vector(LOAD, _LARGEST, 0, _SMALLEST)
        _along(code, lambda mask: _larger(code, mask))
        _join(code, MAX, _LARGEST, _X)
        code.clear(_SUM)
        _along(code, lambda mask: _exponential(code, mask))
        _join(code, ADD, _SUM, _X)
        code.vector(DIV, _SUM, _ONE, _SUM)
        _along(code, lambda mask: _share(code, mask))
        code.add(R8, R10)
        code.add(R9, R10)

    code.times(R11, row)
    return code.end()


def _along(code: Emitter, body: Callable[[int], None]) -> None:
    """Append what runs for each vector of a row, with the mask of its elements, 0 for all.

    RSI is where it lies in the source, RDX in the result.
    """
    code.move(RSI, R8)
    code.move(RDX, R9)
    code.move(RCX, Place(RDI, 8 * _WHOLE))
    code.plain(0x85, RCX, RCX)
    code.raw("0f8400000000")  # none: go behind the loop
    begin = len(code.text)

    def once() -> None:
        body(0)
        code.constant(RSI, 0, 64)
        code.constant(RDX, 0, 64)

    code.times(RCX, once)
    code.text[begin - 4 : begin] = struct.pack("<i", len(code.text) - begin)
    body(_THERE)


def _larger(code: Emitter, mask: int) -> None:
    code.load(_X, Place(RSI), mask)
    code.vector(MAX, _LARGEST, _LARGEST, _X, mask=mask, keeps=True)


def _exponential(code: Emitter, mask: int) -> None:
    """2^n times a polynomial of what is left; n is computed with less by 1, or it might not fit."""
    code.load(_X, Place(RSI), mask)
    code.vector(SUB, _X, _X, _LARGEST)
    code.vector(0xC2, _BELOW, _X, _LEAST)
    code.text.append(1)
    code.vector(MIN, _X, _X, _MOST)
    code.vector(MAX, _X, _X, _LEAST)
    code.vector(LOAD, _REST, 0, _X)
    code.vector(MUL, _X, _X, _PER_TWO)
    code.vector(ADD, _X, _X, _HALF)
    code.vector(0x08, _X, 0, _X, kind=3, prefix=1)
    code.text.append(1)  # round down
    code.vector(0xBC, _REST, _X, _OF_TWO, kind=2, prefix=1)  # less x times it, rounded once
    code.vector(SUB, _X, _X, _ONE)
    code.vector(0x5B, _POWER, 0, _X, prefix=1)  # as an integer
    code.vector(0xFE, _POWER, _POWER, _BIAS, prefix=1)
    code.vector(0x72, 6, _POWER, _POWER, prefix=1)
    code.text.append(23)  # shifted left
    code.clear(_NOTHING)
    code.vector(LOAD, _POWER, 0, _NOTHING, mask=_BELOW, keeps=True)
    code.vector(LOAD, _X, 0, _FACTORS + 4)
    for factor in (*reversed(range(_FACTORS, _FACTORS + 4)), _ONE):
        code.vector(0xA8, _X, _REST, factor, kind=2, prefix=1)
    code.vector(MUL, _X, _X, _POWER)
    code.vector(MUL, _X, _X, _TWO)
    code.vector(ADD, _SUM, _SUM, _X, mask=mask, keeps=True)
    code.store(_X, Place(RDX), mask)


def _share(code: Emitter, mask: int) -> None:
    code.load(_X, Place(RDX), mask)
    code.vector(MUL, _X, _X, _SUM)
    code.store(_X, Place(RDX), mask)


def _join(code: Emitter, opcode: int, register: int, other: int) -> None:
    """Make all elements of a vector what they are together."""
    for how in (0x4E, 0xB1):
        code.quarters(other, register, register, how)
        code.vector(opcode, register, register, other)
    for how in (0x4E, 0xB1):
        code.vector(0xC6, other, register, register)
        code.text.append(how)
        code.vector(opcode, register, register, other)


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
