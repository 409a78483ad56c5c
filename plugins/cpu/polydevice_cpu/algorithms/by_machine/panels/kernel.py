"""Machine code that makes numbers of a panel of a matrix of integers, and multiplies by them.

A panel is 64 columns of the matrix. Of few rows it multiplies four at once by each number as it is
made. For many the panel's numbers are put into room that stays in a core's cache, and all rows are
multiplied by them; then the next panel's take their place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    MUL,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    STORE,
    Instructions,
)

LANES, VECTORS = 16, 4
COLUMNS = LANES * VECTORS
"""Of a panel."""

ADDRESSES = 4
"""Of a source, of the same once more, of a result, and of room, as code of windows has them."""

ROOM = 3
PACKED, SCALES, BLOCKS, TERMS, CONSTANTS = range(ADDRESSES, ADDRESSES + 5)
UNPACKING = ADDRESSES + 5
"""Numbers that unpacking is told: addresses of integers and scales; how many blocks of how many
terms; and two of 4 bytes: 15, and what is added to integers, as a float."""

UNPACK, MULTIPLY, COUNT, NEXT_PACKED, NEXT_SCALES, NEXT_RESULT = range(6)
DRIVING = 6
"""Numbers that the loop over panels is told: addresses of two functions, how many panels there are,
and bytes from one to the next, of integers, scales and results. Behind them is what unpacking is
told, and then what multiplying is."""

_RESULT = 2
_NUMBERS, _SCALE, _SHIFT, _FACTOR, _LOW_BITS, _ADDED = 16, 20, 24, 28, 30, 31
"""Vectors besides the sums, which are the first ones."""


def bytes_of_term(bits: int) -> int:
    """Return what the integers of a term of a panel take."""
    return COLUMNS * bits // 8


FEW = 4
"""Rows that are multiplied at once."""

ROWS, ROW, RESULT_ROW, PANELS, PANEL_PACKED, PANEL_SCALES, LAST = range(UNPACKING, UNPACKING + 7)
OF_FEW = UNPACKING + 7
"""Numbers that `of_few` is told: those of unpacking; how many rows, and bytes from one to the next,
of what is read and of results; how many panels, and bytes from one to the next, of integers and of
scales; and which columns of the last one there are, as bits."""


class _Unpacking(Instructions):
    """Code that makes numbers of a panel's integers; R10, R11: they and scales."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def append_constants(self) -> None:
        """Load what is told of integers."""
        self.spread(_LOW_BITS, RDI, behind=2 * CONSTANTS)
        self.spread(_ADDED, RDI, behind=2 * CONSTANTS + 1)

    def append_blocks(self, term: Callable[[], None]) -> None:
        """Go through all blocks, and terms of each; what is given is behind each one's numbers."""
        self.load(RCX, RDI, BLOCKS)
        block = len(self.text)
        for vector in range(VECTORS):
            self.vector(LOAD, _SCALE + vector, 0, R11, behind=vector)
            self.of_vectors(MUL, _SHIFT + vector, _SCALE + vector, _ADDED)
        self.load(RBX, RDI, TERMS)
        start = len(self.text)
        self._append_integers()
        for vector in range(VECTORS):
            number = _NUMBERS + vector
            self.vector(0x5B, number, 0, number, is_memory=False)  # vcvtdq2ps
            scaled = number, _SCALE + vector, _SHIFT + vector
            self.vector(0xA8, *scaled, kind=2, prefix=1, is_memory=False)  # vfmadd213ps
        term()
        self.step(R10, bytes_of_term(self.bits))
        self.again(RBX, start)
        self.step(R11, 4 * COLUMNS)
        self.again(RCX, block)

    def _append_integers(self) -> None:
        """Load the 64 integers of a term."""
        if self.bits == 8:
            for vector in range(VECTORS):  # vpmovsxbd
                self.vector(0x21, _NUMBERS + vector, 0, R10, behind=vector, kind=2, prefix=1)
            return
        lower, upper = (range(first, first + 2) for first in (_NUMBERS, _NUMBERS + 2))
        for half, low in enumerate(lower):  # vpmovzxbd
            self.vector(0x31, low, 0, R10, behind=half, kind=2, prefix=1)
        for low, high in zip(lower, upper, strict=True):  # vpsrld
            self.vector(0x72, 2, high, low, prefix=1, is_memory=False, last_byte=4)
        for low in lower:  # vpandd
            self.vector(0xDB, low, low, _LOW_BITS, prefix=1, is_memory=False)


@lru_cache(maxsize=2)
def unpacking(bits: int) -> bytes:
    """Return code that makes numbers of integers: (q + added) * scale, [terms, 64].

    It takes the address of `UNPACKING` numbers. Integers of 4 bits have no sign: a byte has one of
    the first 32 columns in its lower half, and one of the others above; those of 8 have one.
    """
    code = _Unpacking(bits)
    code.begin(0)
    for register, place in ((R10, PACKED), (R11, SCALES), (R9, ROOM)):
        code.load(register, RDI, place)
    code.append_constants()

    def stored() -> None:
        for vector in range(VECTORS):
            code.vector(STORE, _NUMBERS + vector, 0, R9, behind=vector)
        code.step(R9, 4 * COLUMNS)

    code.append_blocks(stored)
    code.end(0)
    return code.assembled()


@lru_cache(maxsize=2)
def of_few(bits: int) -> bytes:
    """Return code that multiplies rows by panels as it unpacks them, for every few rows anew.

    It takes the address of `OF_FEW` numbers; see `unpacking`.
    """
    code = _Unpacking(bits)
    code.begin(0)
    code.append_constants()
    # R12, R13, R14: a panel's integers, scales and results; RBP: panels left.
    for register, place in ((R12, PACKED), (R13, SCALES), (R14, _RESULT), (RBP, PANELS)):
        code.load(register, RDI, place)
    code.load(RDX, RDI, ROW)
    code.scaled(RSI, RDX, RDX, 2)
    panel = len(code.text)
    code.raw("48c7c0ffffffff")  # mov rax, -1
    code.compare(RBP, 1)
    code.set_if_equal(RAX, RDI, 8 * LAST)
    for vector in range(VECTORS):
        code.set_mask(1 + vector, RAX)
        code.raw("48c1e810")  # shr rax, 16
    # R8, R9: some rows, and their results; R15: rows left.
    code.load(R8, RDI, 0)
    code.move(R9, R14)
    code.load(R15, RDI, ROWS)
    next_rows = len(code.text)
    ends = []
    for rows in range(FEW, 0, -1):
        code.compare(R15, rows)
        fewer = code.ahead("0f8c")  # jl
        _append_rows(code, rows)
        code.step(R15, -rows)
        for _ in range(rows):
            code.add(R8, RDX)
        code.move(R9, RAX)
        if rows == FEW:
            code.jump(next_rows)
        else:
            ends.append(code.ahead())
        code.here(fewer)
    for each in ends:
        code.here(each)
    code.add(R12, RDI, PANEL_PACKED)
    code.add(R13, RDI, PANEL_SCALES)
    code.step(R14, 4 * COLUMNS)
    code.again(RBP, panel)
    code.end(0)
    return code.assembled()


def _append_rows(code: _Unpacking, rows: int) -> None:
    """Append what multiplies some rows by a panel; RAX then has where the next ones' results go."""
    code.move(R10, R12)
    code.move(R11, R13)
    code.move(RAX, R8)
    for sum_ in range(rows * VECTORS):
        code.clear(sum_)
    places = (RAX,), (RAX, RDX, 1), (RAX, RDX, 2), (RAX, RSI, 1)

    def multiplied() -> None:
        for row, place in enumerate(places[:rows]):
            code.spread(_FACTOR, *place)
            for vector in range(VECTORS):  # vfmadd231ps
                product = row * VECTORS + vector, _FACTOR, _NUMBERS + vector
                code.vector(0xB8, *product, kind=2, prefix=1, is_memory=False)
        code.step(RAX, 4)

    code.append_blocks(multiplied)
    code.move(RAX, R9)
    for row in range(rows):
        for vector in range(VECTORS):
            sum_ = row * VECTORS + vector
            code.vector(STORE, sum_, 0, RAX, behind=vector, mask=1 + vector)
        code.add(RAX, RDI, RESULT_ROW)


@lru_cache(maxsize=1)
def driving() -> bytes:
    """Return code that unpacks and multiplies panel after panel, and leaves what it was told."""
    code = Instructions()
    code.begin(0)
    code.move(RBX, RDI)
    code.load(RBP, RBX, COUNT)
    moved = (
        (DRIVING + PACKED, NEXT_PACKED),
        (DRIVING + SCALES, NEXT_SCALES),
        (DRIVING + UNPACKING + _RESULT, NEXT_RESULT),
    )
    panel = len(code.text)
    for function, told in ((UNPACK, DRIVING), (MULTIPLY, DRIVING + UNPACKING)):
        code.move(RDI, RBX)
        code.step(RDI, 8 * told)
        code.plain(0xFF, 2, RBX, 8 * function)  # call [rbx + …]
    for place, by in moved:
        code.load(RAX, RBX, by)
        code.plain(0x01, RAX, RBX, 8 * place)  # add [rbx + …], rax
    code.again(RBP, panel)
    code.load(RCX, RBX, COUNT)
    for place, by in moved:
        code.load(RDX, RBX, by)
        code.times(RDX, RCX)
        code.plain(0x29, RDX, RBX, 8 * place)  # sub [rbx + …], rdx
    code.end(0)
    return code.assembled()
