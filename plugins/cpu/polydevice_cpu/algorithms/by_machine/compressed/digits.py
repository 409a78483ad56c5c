"""Machine code that makes digits of rows, and multiplies them with bytes of a matrix (VNNI).

Each block of a row becomes integers of 24 bits, with a factor of its own, and these three digits of
8 bits with a sign; or integers of 8 bits, where a model allows that. Sums of products of digits and
bytes are exact. They begin with what has to be subtracted because bytes have no sign.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from functools import lru_cache

from polydevice_cpu.algorithms.by_machine.compressed.packing import (
    CENTERS,
    COLUMNS,
    TOGETHER,
    VECTORS,
)
from polydevice_cpu.algorithms.by_machine.functions import AND
from polydevice_cpu.algorithms.by_machine.instructions import (
    DIVIDE,
    LOAD,
    MAX,
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
    RSP,
    STORE,
    Instructions,
)

LIMITS = {1: 127, 3: 8_350_000}
"""The largest integer of so many digits; of three a little less, as rounding may exceed it."""

HEAD = 16
"""Bytes of what is known of a block: its factor, and what the sum of each digit begins with."""

_TINY, _INFINITE = 2.0**-100, 0x7F800000

ADDRESSES = 3
"""Of rows, results and room."""

# What both functions are told behind these: how many rows there are, bytes from one to the next in
# rows, in digits and in heads, where digits and heads begin in the room, how many blocks there are
# and how many terms each has.
ROWS, ROW, DIGITS_ROW, HEADS_ROW, DIGITS, HEADS, BLOCKS, TERMS = range(ADDRESSES, ADDRESSES + 8)
_CONSTANTS = ADDRESSES + 8

_ABSOLUTE, _LIMIT, _SHARE, _SMALLEST, _HALF, _CENTER, _NOTHING = range(25, 32)
_NUMBERS = "absolute", "limit", "share", "smallest", "half", "center", "infinite"
_LAST, _FIRST = 1, 2
"""Masks: which numbers of a block's last vector there are, and the first number alone."""

_MAX_OF_WORDS, _SUBTRACT, _ADD_WORDS, _TIMES = 0x3F, 0xFA, 0xFE, 0x40


def constants(bits: int, digits: int) -> tuple[int, ...]:
    """Return what `of_rows` is told behind sizes."""
    limit = LIMITS[digits]
    packed = struct.pack(
        "<IfffiiII",
        *(0x7FFFFFFF, limit, 1 / limit, _TINY, 128, -CENTERS[bits], _INFINITE, 0),
    )
    return struct.unpack("<4q", packed)


class _Rows(Instructions):
    """Code that makes digits of rows."""

    def __init__(self, digits: int, rest: int) -> None:
        super().__init__()
        self.digits, self.rest = digits, rest
        self.refusals: list[int] = []

    def whole(self, opcode: int, register: int, first: int, second: int, kind: int = 1) -> None:
        """An instruction on integers: register = first and second."""
        self.vector(opcode, register, first, second, kind=kind, prefix=1, is_memory=False)

    def through(self, item: Callable[[int], None]) -> None:
        """Go through a block: whole vectors, and what is left; RAX points to its numbers."""
        self.load(RBX, RDI, TERMS)
        self.raw("48c1eb04")  # shr rbx, 4
        is_short = self.ahead("0f84")
        start = len(self.text)
        item(0)
        self.again(RBX, start)
        self.here(is_short)
        if self.rest:
            item(_LAST)

    def across(self, register: int, spare: int, opcode: int, kind: int = 2) -> None:
        """Combine all numbers of a vector; each place has the result."""
        for how in (0x4E, 0xB1):  # vshufi64x2
            self.vector(
                0x43, spare, register, register, kind=3, prefix=1, is_memory=False, wide=True
            )
            self.text.append(how)
            self.whole(opcode, register, register, spare, kind)
        for how in (0x4E, 0xB1):  # vpshufd
            self.vector(0x70, spare, 0, register, prefix=1, is_memory=False, last_byte=how)
            self.whole(opcode, register, register, spare, kind)


@lru_cache(maxsize=8)
def of_rows(digits: int, rest: int) -> bytes:
    """Return code that makes digits of rows; it returns 1 where a number is none, or infinite.

    It takes the address of the numbers named above and of `constants`.

    Args:
        digits: 1 or 3.
        rest: how many terms a block has behind whole vectors of 16; 4, 8, 12 or none.
    """
    code = _Rows(digits, rest)
    code.begin(0)
    for number in range(len(_NUMBERS)):
        code.spread(_ABSOLUTE + number, RDI, behind=2 * _CONSTANTS + number)
    for mask, bits in ((_LAST, (1 << rest) - 1), (_FIRST, 1)):
        code.set_bits(bits)
        code.set_mask(mask, RAX)
    # RSI: a row; R8, R9: its digits and heads; R12: rows left.
    code.load(RSI, RDI, 0)
    code.load(R8, RDI, 2)
    code.add(R8, RDI, DIGITS)
    code.load(R9, RDI, 2)
    code.add(R9, RDI, HEADS)
    code.load(R12, RDI, ROWS)
    code.load(RDX, RDI, TERMS)
    code.plain(0x85, R12, R12)  # test
    are_none = code.ahead("0f84")
    row = len(code.text)
    code.move(RAX, RSI)
    code.move(R10, R8)
    code.move(R11, R9)
    code.load(RCX, RDI, BLOCKS)
    block = len(code.text)
    _append_block(code)
    code.again(RCX, block)
    for register, step in ((RSI, ROW), (R8, DIGITS_ROW), (R9, HEADS_ROW)):
        code.add(register, RDI, step)
    code.again(R12, row)
    code.here(are_none)
    code.end(0)
    for jump in code.refusals:
        code.here(jump)
    code.end(0, status=1)
    return code.assembled()


def _append_block(code: _Rows) -> None:
    """Make digits of a block: its largest number first, then integers, and sums of them."""
    largest, spare, inverse = 0, 1, 2
    sums = range(4, 4 + code.digits)
    code.clear(largest)
    code.move(R13, RAX)

    def compare(mask: int) -> None:
        code.vector(LOAD, spare, 0, RAX, mask=mask)
        code.whole(AND, spare, spare, _ABSOLUTE)
        code.whole(_MAX_OF_WORDS, largest, largest, spare, 2)
        code.step(RAX, 64 if not mask else 4 * code.rest)

    code.through(compare)
    code.across(largest, spare, _MAX_OF_WORDS)
    code.vector(
        0x1E, 7, largest, _NOTHING, kind=3, prefix=1, is_memory=False, last_byte=5
    )  # vpcmpud k7, not below
    code.test_any(7)
    code.refusals.append(code.ahead("0f85"))
    code.of_vectors(MAX, largest, largest, _SMALLEST)
    code.of_vectors(DIVIDE, inverse, _LIMIT, largest)
    code.of_vectors(MUL, largest, largest, _SHARE)
    code.vector(STORE, largest, 0, R11, mask=_FIRST)
    for each in sums:
        code.clear(each)
    # RBP, R14, R15: where digits of this block go, the lowest first.
    code.move(RAX, R13)
    places = (RBP, R14, R15)[: code.digits]
    code.move(places[0], R10)
    for before, place in itertools.pairwise(places):
        code.scaled(place, before, RDX, 1)

    def convert(mask: int) -> None:
        code.vector(LOAD, 8, 0, RAX, mask=mask)
        code.of_vectors(MUL, 8, 8, inverse)
        code.vector(0x5B, 8, 0, 8, prefix=1, is_memory=False)  # vcvtps2dq
        for number, place in enumerate(places):
            code.whole(_ADD_WORDS, sums[number], sums[number], 8)
            code.vector(0x31, 8, 0, place, kind=2, prefix=2, mask=mask)  # vpmovdb
            if number < code.digits - 1:
                code.whole(_ADD_WORDS, 8, 8, _HALF)
                code.shifted(8, 8, 8, is_signed=True)
            code.step(place, 16 if not mask else code.rest)
        code.step(RAX, 64 if not mask else 4 * code.rest)

    code.through(convert)
    code.move(R10, places[-1])
    # What is left of a sum without those of higher digits, times the center.
    for number, each in enumerate(sums):
        if number < code.digits - 1:
            code.vector(
                0x72, 6, spare, sums[number + 1], prefix=1, is_memory=False, last_byte=8
            )  # vpslld
            code.whole(_SUBTRACT, each, each, spare)
        code.across(each, spare, _ADD_WORDS, 1)
        code.whole(_TIMES, each, each, _CENTER, 2)
        code.vector(STORE, each, 0, R11, behind=0, offset_bytes=4 + 4 * number, mask=_FIRST)
    code.step(R11, HEAD)


# What `product` is told behind the sizes: addresses of integers and scales; how many panels there
# are, and bytes from one to the next; bytes from one row of results to the next; and which columns
# of the last panel there are, as bits.
INTEGERS, SCALES, PANELS, PANEL_INTEGERS, PANEL_SCALES, RESULT_ROW, LAST = range(
    ADDRESSES + 8, ADDRESSES + 15
)
RESULT = 1

_LOW_BITS, _BASE = 30, 31
_BLOCKS_LEFT, _RESULTS, _PANELS_LEFT, _SLOTS = range(4)
"""Slots of the stack; where results of some rows are, besides what is left."""

MOST_ROWS = {1: 4, 3: 3}
"""Rows that are multiplied at once, by digits, with half a panel: what is unpacked serves all, and
there are sums of each digit and totals in registers. One row is multiplied with a whole panel."""


class _Product(Instructions):
    """Code that multiplies some rows by a panel.

    Attributes:
        bits: of the matrix.
        digits: of a number.
        rows: at once.
    """

    def __init__(self, bits: int, digits: int) -> None:
        super().__init__()
        self.bits, self.digits, self.rows = bits, digits, 1

    @property
    def vectors(self) -> int:
        """Vectors of columns at once."""
        return VECTORS // 2 if self.rows > 1 else VECTORS

    def sum_of(self, row: int, digit: int, vector: int) -> int:
        """Which vector a sum is."""
        return (row * self.digits + digit) * self.vectors + vector

    def total_of(self, row: int, vector: int) -> int:
        """Which vector a total is."""
        return self.sum_of(self.rows, 0, 0) + row * self.vectors + vector

    @property
    def weights(self) -> int:
        """The first vector of what is unpacked."""
        return self.total_of(self.rows, 0)


@lru_cache(maxsize=4)
def product(bits: int, digits: int) -> bytes:
    """Return code that multiplies digits of rows by panels, some rows after the others.

    Args:
        bits: of the matrix: 4 or 8.
        digits: 1 or 3.
    """
    code, most = _Product(bits, digits), MOST_ROWS[digits]
    code.begin(_SLOTS)
    for register, number in ((_LOW_BITS, 0x0F0F0F0F), (_BASE, 0x43800000)):  # 256.0
        code.fill_bits(register, number)
    # R12, R13, R14: a panel's integers, scales and results; RDX: terms.
    for register, place in ((R12, INTEGERS), (R13, SCALES), (R14, RESULT), (RDX, TERMS)):
        code.load(register, RDI, place)
    code.copy(_PANELS_LEFT, RDI, PANELS)
    panel = len(code.text)
    code.raw("48c7c0ffffffff")  # mov rax, -1
    code.load(RCX, RSP, _PANELS_LEFT)
    code.compare(RCX, 1)
    code.set_if_equal(RAX, RDI, 8 * LAST)
    for vector in range(VECTORS):
        code.set_mask(1 + vector, RAX)
        code.raw("48c1e810")  # shr rax, 16
    # R8, R9: digits and heads of rows; RSI: their results; R15: rows left.
    code.load(R8, RDI, 2)
    code.add(R8, RDI, DIGITS)
    code.load(R9, RDI, 2)
    code.add(R9, RDI, HEADS)
    code.move(RSI, R14)
    code.load(R15, RDI, ROWS)
    next_rows, ends = len(code.text), []
    for rows in range(most, 0, -1):
        code.rows = rows
        code.compare(R15, rows)
        fewer = code.ahead("0f8c")  # jl
        for first in range(0, VECTORS, code.vectors):
            _append_rows(code, first)
        for register, step in ((R8, DIGITS_ROW), (R9, HEADS_ROW), (RSI, RESULT_ROW)):
            for _ in range(rows):
                code.add(register, RDI, step)
        code.step(R15, -rows)
        if rows == most:
            code.jump(next_rows)
        else:
            ends.append(code.ahead())
        code.here(fewer)
    for end in ends:
        code.here(end)
    code.add(R12, RDI, PANEL_INTEGERS)
    code.add(R13, RDI, PANEL_SCALES)
    code.step(R14, 4 * COLUMNS)
    code.again(RSP, panel, _PANELS_LEFT)
    code.end(_SLOTS)
    return code.assembled()


def _append_rows(code: _Product, first: int) -> None:
    """Multiply some rows by some vectors of a panel's columns, of which this is the first."""
    # RAX, R10: digits and heads; R11, RBX: integers and scales; RCX: blocks left.
    for register, of in ((RAX, R8), (R10, R9), (R11, R12), (RBX, R13)):
        code.move(register, of)
    code.store(RSI, RSP, _RESULTS)
    code.load(RSI, RDI, DIGITS_ROW)
    code.load(RCX, RDI, BLOCKS)
    every = [(row, vector) for row in range(code.rows) for vector in range(code.vectors)]
    for each in every:
        code.clear(code.total_of(*each))
    block = len(code.text)
    code.store(RCX, RSP, _BLOCKS_LEFT)
    _at_rows(code, R10, HEADS_ROW, lambda row, place: _append_begin(code, row, place))
    together = TOGETHER[code.bits]
    code.move(RCX, RDX)
    code.raw(f"48c1e9{together.bit_length() - 1:02x}")  # shr rcx, …
    some = len(code.text)
    _append_terms(code, first)
    code.step(RAX, together)
    code.again(RCX, some)
    for _ in range(code.digits - 1):
        code.add(RAX, RDX)
    for row, vector in every:
        sums = [code.sum_of(row, digit, vector) for digit in range(code.digits)]
        for sum_ in sums:
            code.vector(0x5B, sum_, 0, sum_, is_memory=False)  # vcvtdq2ps
        for lower, higher in reversed(list(itertools.pairwise(sums))):  # vfmadd231ps
            code.vector(0xB8, lower, higher, _BASE, kind=2, prefix=1, is_memory=False)
        code.vector(MUL, sums[0], sums[0], RBX, behind=first + vector)

    def append_total(row: int, place: int) -> None:
        for vector in range(code.vectors):
            total = code.total_of(row, vector), code.sum_of(row, 0, vector), place
            code.vector(0xB8, *total, kind=2, prefix=1, is_one=True)

    _at_rows(code, R10, HEADS_ROW, append_total)
    code.step(RBX, 4 * COLUMNS)
    code.step(R10, HEAD)
    code.load(RCX, RSP, _BLOCKS_LEFT)
    code.again(RCX, block)
    code.load(RSI, RSP, _RESULTS)

    def append_stored(row: int, place: int) -> None:
        for vector in range(code.vectors):
            at = first + vector
            code.vector(STORE, code.total_of(row, vector), 0, place, behind=at, mask=1 + at)

    _at_rows(code, RSI, RESULT_ROW, append_stored)


def _at_rows(code: _Product, start: int, step: int, access: Callable[[int, int], None]) -> None:
    """Access each row's place: the first one's, and others' by way of RCX."""
    access(0, start)
    for row in range(1, code.rows):
        if row == 1:
            code.move(RCX, start)
        code.add(RCX, RDI, step)
        access(row, RCX)


def _append_begin(code: _Product, row: int, place: int) -> None:
    """Let sums of a row begin with what its head says."""
    for digit in range(code.digits):
        for vector in range(code.vectors):
            code.spread(code.sum_of(row, digit, vector), place, behind=1 + digit)


def _append_terms(code: _Product, first: int) -> None:
    """Add the products of terms that are unpacked at once."""
    fours = [code.weights]
    for vector in range(code.vectors):
        code.vector(LOAD, code.weights + vector, 0, R11, behind=first + vector)
    if code.bits == 4:
        fours.append(code.weights + code.vectors)
        for vector in range(code.vectors):
            weights, upper = (each + vector for each in fours)
            code.shifted(upper, weights, 4)
            for each in (weights, upper):
                code.vector(AND, each, each, _LOW_BITS, prefix=1, is_memory=False)
    code.step(R11, 64 * VECTORS)
    digit = _LOW_BITS - 1
    for row in range(code.rows):
        # The place of the second digit is RDX behind that of the first, and the third's twice.
        base = RAX if not row else RBP
        if row == 1:
            code.move(RBP, RAX)
        if row:
            code.add(RBP, RSI)
        places = (base,), (base, RDX, 1), (base, RDX, 2)
        for number, weights in enumerate(fours):
            for which, place in enumerate(places[: code.digits]):
                code.spread(digit, *place, behind=number)
                for vector in range(code.vectors):  # vpdpbusd
                    sums = code.sum_of(row, which, vector), weights + vector, digit
                    code.vector(0x50, *sums, kind=2, prefix=1, is_memory=False)
