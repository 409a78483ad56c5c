"""Machine code for convolutions and pools of pictures of any size, for processors with AVX-512.

oneDNN generates its own for every size. Numbers are added in the order in which oneDNN does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

BLOCK = 16
"""Channels that are computed at once."""

GIVEN, ROWS, COLUMNS = 16, 5, 7
"""Numbers of 8 bytes in what the code reads; see `kernel`."""

LONGEST = 8
"""Functions that may follow: code for 13 does not fit into a page."""


class Terms(Enum):
    """What is added up for a channel of the result, or compared."""

    ALL_CHANNELS = "each element of a window, of all channels, times a weight"
    OWN_CHANNEL = "each element of a window, of this channel, times a weight"
    PLAIN = "each element of a window, of this channel"
    LARGEST = "the largest element of a window, of this channel; NaN is none"


class Function(Enum):
    """What may follow, of two numbers, as oneDNN computes it."""

    LINEAR = "linear"
    HARDSWISH = "hardswish"
    RELU = "relu"
    PRELU = "prelu"
    """Of a slope for each channel."""
    QUOTIENT = "quotient"


RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 = range(16)
_KEPT = (RBX, RBP, R12, R13, R14, R15)
"""Registers that a function has to keep."""

_GIVEN, _ROW, _ROW_KINDS, _ROWS, _ROW_SOURCE, _ROW_RESULT, _ROW_WEIGHTS, _LINES = range(8)
_COLUMN, _COLUMN_KINDS, _ITEMS, _SOURCE, _RESULT, _WEIGHTS, _NEXT_SOURCE, _NEXT_WEIGHTS = range(
    8, 16
)
_SLOTS = 16
"""What lies on the stack, in numbers of 8 bytes from its top, and how many these are."""

_LOAD, _STORE, _ADD, _MUL, _MIN, _DIVIDE, _MAX = 0x10, 0x11, 0x58, 0x59, 0x5D, 0x5E, 0x5F
_THERE, _NEGATIVE = 1, 2
"""Masks: which channels of a block there are, and where a sum is below 0."""

_ZERO, _ONE, _SHARE, _MOVED, _FACTOR, _COPY, _LEAST = 15, 14, 13, 12, 11, 10, 9
"""Vectors besides the sums, which are the first ones."""


class _Code:
    """Instructions."""

    def __init__(self) -> None:
        self.text = bytearray()

    def raw(self, text: str) -> None:
        """Add bytes."""
        self.text += bytes.fromhex(text)

    def plain(self, opcode: int, register: int, base: int, offset: int | None = None) -> None:
        """Add an instruction on 64 bits: of two registers, or one and [base + offset]."""
        self.text += bytes((0x48 | register >> 3 << 2 | base >> 3, opcode))
        self._operand(register, base, offset)

    def _operand(self, register: int, base: int, offset: int | None) -> None:
        mode = 0xC0 if offset is None else 0x40
        self.text.append(mode | (register & 7) << 3 | base & 7)
        if offset is not None:
            if base & 7 == RSP:
                self.text.append(0x24)
            self.text.append(offset)  # below 128

    def move(self, register: int, other: int) -> None:
        self.plain(0x8B, register, other)

    def load(self, register: int, base: int, number: int = 0) -> None:
        """Load the number of 8 bytes at this place."""
        self.plain(0x8B, register, base, 8 * number)

    def store(self, register: int, base: int, number: int) -> None:
        """Store it as the number of 8 bytes at this place."""
        self.plain(0x89, register, base, 8 * number)

    def add(self, register: int, base: int, number: int | None = None) -> None:
        """Add a register, or the number of 8 bytes at this place."""
        self.plain(0x03, register, base, None if number is None else 8 * number)

    def copy(self, slot: int, base: int, number: int) -> None:
        """Copy a number of 8 bytes to the stack, by way of RSI."""
        self.load(RSI, base, number)
        self.store(RSI, RSP, slot)

    def forward(self, slot: int, base: int, number: int) -> None:
        """Add a number of 8 bytes to one on the stack, by way of RSI."""
        self.load(RSI, base, number)
        self.plain(0x01, RSI, RSP, 8 * slot)

    def room(self, numbers: int) -> None:
        """Make room for numbers of 8 bytes on the stack, or give it back."""
        self.plain(0x81, 0, RSP)
        self.text += struct.pack("<i", -8 * numbers)

    def step(self, register: int, size_bytes: int) -> None:
        """Add a constant below 128."""
        self.plain(0x83, 0, register)
        self.text.append(size_bytes)

    def scaled(self, register: int, base: int, index: int, times: int) -> None:
        """Register = base + index * times."""
        rex = 0x48 | register >> 3 << 2 | index >> 3 << 1 | base >> 3
        place = (times.bit_length() - 1) << 6 | (index & 7) << 3 | base & 7
        self.text += bytes((rex, 0x8D, 0x44 | (register & 7) << 3, place, 0))

    def again(self, register: int, start: int, number: int | None = None) -> None:
        """Count a register, or the number at this place, down; go to the start unless it is 0."""
        self.plain(0xFF, 1, register, None if number is None else 8 * number)
        self.raw("0f85")
        self.text += struct.pack("<i", start - len(self.text) - 4)

    def vector(
        self,
        opcode: int,
        register: int,
        first: int,
        base: int,
        index: int | None = None,
        times: int = 1,
        *,
        kind: int = 1,
        prefix: int = 0,
        is_memory: bool = True,
        mask: int = 0,
        is_one: bool = False,
    ) -> None:
        """Add an instruction on vectors: register = first and [base + index * times].

        Args:
            opcode: of the instruction.
            register: where the result goes, or what is stored.
            first: another vector; 0 where the instruction has none.
            base: of an address; or a third vector, if `is_memory` is false.
            index: of the address.
            times: of the index.
            kind: of the opcode, as EVEX has it.
            prefix: the same.
            is_memory: whether there is an address.
            mask: which of the masks says what elements there are; 0 for all. The others are 0 in
                what is loaded, and stay elsewhere.
            is_one: whether there is one number in memory, for all elements.
        """
        high = (0 if index is None else index) >> 3
        row = 0xF0 ^ (register >> 3 << 7 | high << 6 | base >> 3 << 5)
        last = 0x48 | is_one << 4 | mask | (0x80 if opcode == _LOAD and mask else 0)
        self.text += bytes((0x62, row | kind, (~first & 15) << 3 | 4 | prefix, last, opcode))
        if not is_memory:
            self.text.append(0xC0 | (register & 7) << 3 | base & 7)
        elif index is None:
            self._operand(register, base, 0)
        else:
            place = (times.bit_length() - 1) << 6 | (index & 7) << 3 | base & 7
            self.text += bytes((0x44 | (register & 7) << 3, place, 0))

    def of_vectors(self, opcode: int, register: int, first: int, second: int) -> None:
        """Register = first and second."""
        self.vector(opcode, register, first, second, is_memory=False)

    def clear(self, register: int) -> None:
        """Fill a vector with zeros."""
        self.vector(0xEF, register, register, register, prefix=1, is_memory=False)

    def number(self, register: int, base: int, offset_bytes: int) -> None:
        """Fill a vector with a number of 4 bytes from below 512 bytes behind a base."""
        row = 0xF2 ^ (register >> 3 << 7 | base >> 3 << 5)
        place = 0x40 | (register & 7) << 3 | base & 7
        self.text += bytes((0x62, row, 0x7D, 0x48, 0x18, place, offset_bytes // 4))

    def below(self, mask: int, first: int, second: int) -> None:
        """Set a mask where one vector is below another."""
        self.vector(0xC2, mask, first, second, is_memory=False)
        self.text.append(1)

    def mask_of_block(self) -> None:
        """Set the mask of elements that there are; in R12 is how many blocks are left."""
        self.load(R8, RDI, 14)
        self.raw("4983fc017406")  # if R12 == 1, leave the next one out
        self.raw("41b8ffff0000")  # R8 = 0xffff
        self.raw("c4c17892c8")  # kmovw k1, r8d


def kernel(width: int, chain: Sequence[Function], *, terms: Terms, has_bias: bool) -> bytes:
    """Return code that computes so many positions in a row at once: 8, 4 or 1.

    It takes the address of 16 numbers: the addresses of source, result, weights (a row of channels
    for each element of a window) and bias; how many blocks of channels there are;
    bytes between two positions of the result, between what they read, between two elements of a
    window, between two rows' sources and their results; the address of kinds of rows and how many
    there are; the same of columns; which elements of the last block there are, as bits; and the
    bytes from bias to slopes. Behind them are floats: 1 and 0 (the least number of all, where the
    largest is looked for), and two for each function that follows. A kind of rows is: where source,
    result and weights of the first one begin, in bytes; how many lines of the window are in the
    picture, and how many rows there are. A kind of columns: the same, of elements in a line and of
    items, and the bytes from behind a line of the window to the next one, in the source and in the
    weights.

    Args:
        width: how many positions.
        chain: what follows.
        terms: what is added up.
        has_bias: whether there is a bias.
    """
    code = _Code()
    code.raw("f30f1efa")  # endbr64
    for register in _KEPT:
        code.raw(f"{'41' if register > 7 else ''}{0x50 | register & 7:02x}")
    code.room(_SLOTS)
    code.store(RDI, RSP, _GIVEN)
    code.load(R11, RDI, 5)
    code.load(RAX, RDI, 6)
    code.load(R10, RDI, 7)
    code.scaled(R15, RAX, RAX, 2)
    code.copy(_ROW, RDI, 10)
    code.copy(_ROW_KINDS, RDI, 11)
    next_kind = len(code.text)
    code.load(RDI, RSP, _GIVEN)
    code.load(RBP, RSP, _ROW)
    for number, place in enumerate((_ROW_SOURCE, _ROW_RESULT, _ROW_WEIGHTS)):
        code.load(RSI, RDI, number)
        code.add(RSI, RBP, number)
        code.store(RSI, RSP, place)
    code.copy(_LINES, RBP, 3)
    code.copy(_ROWS, RBP, 4)
    code.step(RBP, 8 * ROWS)
    code.store(RBP, RSP, _ROW)
    next_row = len(code.text)
    code.load(RDI, RSP, _GIVEN)
    code.copy(_COLUMN, RDI, 12)
    code.copy(_COLUMN_KINDS, RDI, 13)
    next_column = len(code.text)
    code.load(RBP, RSP, _COLUMN)
    for number, (place, row) in enumerate(
        ((_SOURCE, _ROW_SOURCE), (_RESULT, _ROW_RESULT), (_WEIGHTS, _ROW_WEIGHTS))
    ):
        code.load(RSI, RSP, row)
        code.add(RSI, RBP, number)
        code.store(RSI, RSP, place)
    code.load(R9, RBP, 3)
    for number, place in ((4, _ITEMS), (5, _NEXT_SOURCE), (6, _NEXT_WEIGHTS)):
        code.copy(place, RBP, number)
    code.step(RBP, 8 * COLUMNS)
    code.store(RBP, RSP, _COLUMN)
    next_item = len(code.text)
    code.load(RDI, RSP, _GIVEN)
    code.load(RBX, RDI, 3)
    code.load(R12, RDI, 4)
    for register, place in ((RSI, _SOURCE), (RCX, _RESULT), (RDX, _WEIGHTS)):
        code.load(register, RSP, place)
    next_block = len(code.text)
    code.load(RDI, RSP, _GIVEN)
    code.mask_of_block()
    _append_sums(code, width, chain, terms=terms, has_bias=has_bias)
    for register in (RCX, RDX, RBX, *[RSI] * (terms is not Terms.ALL_CHANNELS)):
        code.step(register, 4 * BLOCK)
    code.again(R12, next_block)
    for place, register in ((_SOURCE, RAX), (_RESULT, R11)):
        code.load(RSI, RSP, place)
        code.scaled(RSI, RSI, register, width)
        code.store(RSI, RSP, place)
    code.again(RSP, next_item, _ITEMS)
    code.again(RSP, next_column, _COLUMN_KINDS)
    code.load(RDI, RSP, _GIVEN)
    code.forward(_ROW_SOURCE, RDI, 8)
    code.forward(_ROW_RESULT, RDI, 9)
    code.again(RSP, next_row, _ROWS)
    code.again(RSP, next_kind, _ROW_KINDS)
    code.room(-_SLOTS)
    for register in reversed(_KEPT):
        code.raw(f"{'41' if register > 7 else ''}{0x58 | register & 7:02x}")
    code.raw("c5f87731c0c3")  # vzeroupper; eax = 0; ret
    return bytes(code.text)


def _append_sums(
    code: _Code, width: int, chain: Sequence[Function], *, terms: Terms, has_bias: bool
) -> None:
    """Compute a block of channels of some positions, and store it."""
    if terms is Terms.LARGEST:
        code.load(R8, RSP, _GIVEN)
        code.number(_LEAST, R8, 8 * GIVEN)
    for sum_ in range(width):
        if terms is Terms.LARGEST:
            code.of_vectors(_MAX, sum_, _LEAST, _LEAST)
        else:
            code.clear(sum_)
    code.move(RBP, RSI)
    code.move(RDI, RDX)
    code.load(R14, RSP, _LINES)
    next_line = len(code.text)
    code.move(R13, R9)
    next_element = len(code.text)
    code.move(R8, RBP)
    if terms is Terms.PLAIN:
        _at_positions(
            *(code, width, R8, RAX, R15),
            lambda sum_, *place: code.vector(_ADD, sum_, sum_, *place, mask=_THERE),
        )
    elif terms is Terms.LARGEST:
        _at_positions(code, width, R8, RAX, R15, partial(_append_larger, code))
    else:
        code.vector(_LOAD, _FACTOR, 0, RDI, mask=_THERE)
        how = {"is_one": True} if terms is Terms.ALL_CHANNELS else {"mask": _THERE}
        _at_positions(
            *(code, width, R8, RAX, R15),
            lambda sum_, *place: code.vector(0xB8, sum_, _FACTOR, *place, kind=2, prefix=1, **how),
        )
    code.add(RBP, R10)
    code.add(RDI, R11)
    code.again(R13, next_element)
    code.add(RBP, RSP, _NEXT_SOURCE)
    code.add(RDI, RSP, _NEXT_WEIGHTS)
    code.again(R14, next_line)
    for sum_ in range(width if has_bias else 0):
        code.vector(_ADD, sum_, sum_, RBX, mask=_THERE)
    code.load(RDI, RSP, _GIVEN)
    for number, function in enumerate(chain):
        _append(code, width, function, 8 * (GIVEN + 1 + number))
    code.scaled(RDI, R11, R11, 2)
    code.move(R8, RCX)
    _at_positions(
        *(code, width, R8, R11, RDI),
        lambda sum_, *place: code.vector(_STORE, sum_, 0, *place, mask=_THERE),
    )


def _append_larger(code: _Code, largest: int, *place: int) -> None:
    """Keep the larger one; of NaN and a number, and of equal ones, the instruction gives the last.

    oneDNN takes an element where the largest so far is below it, which is the same.
    """
    code.vector(_LOAD, _FACTOR, 0, *place, mask=_THERE)
    code.of_vectors(_MAX, largest, _FACTOR, largest)


def _at_positions(
    code: _Code, width: int, start: int, step: int, steps: int, access: Callable[..., None]
) -> None:
    """Access so many places, `step` apart; `steps` is three times as much. Moves the start."""
    for first in range(0, width, 4):
        if first:
            code.scaled(start, start, step, 4)
        places = ((start,), (start, step, 1), (start, step, 2), (start, steps, 1))
        for sum_, place in zip(range(first, min(first + 4, width)), places, strict=False):
            access(sum_, *place)


def _append(code: _Code, width: int, function: Function, offset_bytes: int) -> None:
    """Compute a function of all sums, in the steps in which oneDNN does."""
    code.clear(_ZERO)
    if function is Function.PRELU:
        code.load(R8, RDI, GIVEN - 1)
        code.vector(_LOAD, _SHARE, 0, RBX, R8, mask=_THERE)
    else:
        code.number(_ONE, RDI, 8 * GIVEN)
        code.number(_SHARE, RDI, offset_bytes)
        code.number(_MOVED, RDI, offset_bytes + 4)
    for sum_ in range(width):
        if function is Function.LINEAR:
            code.vector(0xA8, sum_, _SHARE, _MOVED, kind=2, prefix=1, is_memory=False)
        elif function is Function.RELU:
            code.of_vectors(_MAX, sum_, sum_, _ZERO)
        elif function is Function.QUOTIENT:
            code.of_vectors(_DIVIDE, sum_, sum_, _SHARE)
        elif function is Function.PRELU:
            code.below(_NEGATIVE, sum_, _ZERO)
            code.vector(_MUL, sum_, sum_, _SHARE, is_memory=False, mask=_NEGATIVE)
        else:
            code.of_vectors(_MUL, _COPY, sum_, _SHARE)
            code.of_vectors(_ADD, _COPY, _COPY, _MOVED)
            code.of_vectors(_MIN, _COPY, _COPY, _ONE)
            code.of_vectors(_MAX, _COPY, _COPY, _ZERO)
            code.of_vectors(_MUL, sum_, _COPY, sum_)
