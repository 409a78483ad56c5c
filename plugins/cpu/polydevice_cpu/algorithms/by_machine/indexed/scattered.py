"""Elements and rows put where indices say, by machine code for AVX-512.

NumPy takes 10 to 30 us for few of them, which is what it takes to find out where they go.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from polydevice.processor.machine_code import function_of
from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.algorithms.by_machine.code import Told, told
from polydevice_cpu.algorithms.by_machine.indexed.elements import INDEX_BYTES
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    LOAD,
    MAX,
    MIN,
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
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    STORE,
    Instructions,
)

# size_t copy(numbers* rdi): 0. What a result begins with.
_COPY = bytes.fromhex(
    "f30f1efa488b37488b4f20"  # endbr64; mov rsi, [rdi]; mov rcx, [rdi+32]
    "488b7f18f3a431c0c3"  # mov rdi, [rdi+24]; rep movsb; xor eax, eax; ret
)

MOST_COORDINATES = 6
"""Of a row's place."""

_INDICES, _UPDATES, _RESULT = 1, 2, 3
"""All are told addresses of what is copied, indices, updates and the result."""

_BEFORE, _COUNT, _BEHIND, _SIZE, _PART_BYTES = range(4, 9)
"""And for elements: parts of the result; indices along the axis; elements behind each; the axis'
size; bytes of a part."""

_WHOLE = 9, 10, 11
_ALIKE = 12, 13, 14
"""Of the elements behind each index, and of their indices: blocks of 64 bytes, which numbers of 4
bytes the last one has, and bytes. 0 blocks of indices: rows are never put as a whole."""

_ROWS, _COORDINATES, _BLOCKS, _MASK, _ROW_BYTES, _SIZES = range(4, 10)
"""And for rows: how many; coordinates of a place; blocks of 64 bytes; which numbers of 4 bytes the
last one has; bytes of a row; for each coordinate what it may reach."""

_ONE, _NAN = 1, 2
_UNLIKE = _NAN
_OF_ROWS = (4, 8)
"""Bytes of the elements that are put by rows."""
_LEAST_BYTES = 64
"""Rows of less are put element by element: to see that their indices are one takes 2 ns."""

_PUT = {1: "41881407", 2: "6641891447", 4: "41891487", 8: "498914c7"}
"""mov [r15 + rax * n], dl, dx, edx or rdx."""
_JOIN = {
    ("add", 4): "41031487",  # add edx, [r15+rax*4]
    ("add", 8): "490314c7",  # add rdx, [r15+rax*8]
    ("multiply", 4): "410faf1487",  # imul edx, [r15+rax*4]
    ("multiply", 8): "490faf14c7",  # imul rdx, [r15+rax*8]
    ("largest", 4): "418b1c8739d30f4fd3",  # mov ebx, [r15+rax*4]; cmp ebx, edx; cmovg edx, ebx
    ("largest", 8): "498b1cc74839d3480f4fd3",  # mov rbx, [r15+rax*8]; cmp rbx, rdx; cmovg rdx, rbx
    ("smallest", 4): "418b1c8739d30f4cd3",  # mov ebx, [r15+rax*4]; cmp ebx, edx; cmovl edx, ebx
    ("smallest", 8): "498b1cc74839d3480f4cd3",  # mov rbx, [r15+rax*8]; cmp rbx, rdx; cmovl rdx, rbx
}
"""What integers become with those that are there."""
_OF_FLOATS = {"add": ADD, "multiply": MUL, "largest": MAX, "smallest": MIN}
_OF_INTEGERS = {"multiply": 0x40, "largest": 0x3D, "smallest": 0x39}
_GET = {1: "410fb612", 2: "410fb712", 4: "418b12", 8: "498b12"}
"""edx or rdx = [r10]."""


def copying(size_bytes: int) -> Told:
    """Return the function that copies so many bytes, and what it is told but for addresses."""
    return function_of(_COPY), told(struct.Struct("@5q").pack, 0, 0, 0, 0, size_bytes)


class Meeting(NamedTuple):
    """How updates meet what is there.

    Attributes:
        how: `add`, `multiply`, `largest` or `smallest`; empty where they replace it.
        letter: `f` for floats of 4 bytes, `i` for integers of 4 or 8 with a sign.
    """

    how: str = ""
    letter: str = ""


class Indexing(Instructions):
    """Code that reads indices, and returns 1 where one lies outside."""

    def __init__(self, index_bytes: int) -> None:
        """Begin with indices of so many bytes."""
        super().__init__()
        self.index_bytes = index_bytes
        self.outside: list[int] = []

    def index(self, register: int, other: int, *size: int) -> None:
        """Append what reads the next index, from R9; `size` is a register, or a place."""
        if self.index_bytes == INDEX_BYTES[0]:
            self.plain(0x63, register, R9, 0)  # movsxd
        else:
            self.load(register, R9)
        self.step(R9, self.index_bytes)
        self.move(other, register)
        self.plain(0xC1, 7, other)
        self.text.append(63)  # sar other, 63
        self.plain(0x23, other, *size)  # and
        self.add(register, other)
        self.plain(0x3B, register, *size)  # cmp
        self.outside.append(self.ahead("0f83"))  # jae

    def place(self, coordinates: int, sizes: int, row_bytes: int) -> None:
        """Append what reads a place's coordinates: RAX is how many bytes it lies behind the first.

        Args:
            coordinates: what is told of how many there are, by its number; RDI: all of it.
            sizes: the same of what each may reach, from here on.
            row_bytes: the same of bytes of each row.
        """
        self.raw("31c0")  # xor eax, eax
        self.load(RCX, RDI, coordinates)
        self.plain(0x8D, R15, RDI, 8 * sizes)  # lea

        def coordinate() -> None:
            self.index(RDX, RBX, R15, 0)
            self.times(RAX, R15, 0)
            self.add(RAX, RDX)
            self.step(R15, 8)

        self.repeated(RCX, coordinate)
        self.times(RAX, RDI, row_bytes)

    def repeated(self, counter: int, body: Callable[[], None]) -> None:
        """Append what runs as often as a register says, once at least."""
        start = len(self.text)
        body()
        self.again(counter, start)

    def joined(self, meeting: Meeting, item_bytes: int) -> None:
        """Append what joins vectors of updates and of what is there, 0 and 1, in vector 0."""
        how = meeting.how
        if meeting.letter == "i":
            wide = item_bytes == INDEX_BYTES[1]
            opcode, kind = (0xD4 if wide else 0xFE, 1) if how == "add" else (_OF_INTEGERS[how], 2)
            given = opcode, 0, 0, 1
            self.vector(*given, kind=kind, prefix=1, is_memory=False, wide=wide)
            return
        if how in ("add", "multiply"):
            self.of_vectors(_OF_FLOATS[how], 0, 1, 0)
            return
        # The larger one of both is the second one where one is NaN.
        self.vector(0xC2, _NAN, 0, 0, is_memory=False, last_byte=3)
        self.of_vectors(_OF_FLOATS[how], 1, 0, 1)
        self.vector(0x28, 1, 0, 0, is_memory=False, mask=_NAN)
        self.vector(0x28, 0, 0, 1, is_memory=False)

    def finished(self) -> bytes:
        """All of it."""
        self.end(0)
        for jump in self.outside:
            self.here(jump)
        self.end(0, status=1)
        return self.assembled()


class _Putting(Indexing):
    """Code that puts updates, which R10 points to, into a result, which R8 points to."""

    def __init__(self, item_bytes: int, index_bytes: int, meeting: Meeting) -> None:
        super().__init__(index_bytes)
        self.item_bytes, self.meeting = item_bytes, meeting

    def _mask(self, counter: int, last: int) -> None:
        """Append what has a mask of a block: of the last one, as told at a place, or all."""
        self.raw("b8ffff0000")  # mov eax, 0xffff
        self.compare(counter, 1)
        self.set_if_equal(RAX, RDI, 8 * last)
        self.set_mask(_ONE, RAX)

    def row(self, blocks: int, last: int, width: int) -> None:
        """Append what joins a row with the one that lies RAX bytes behind the first.

        Args:
            blocks: what is told of how many blocks of 64 bytes there are, by its number.
            last: the same of which numbers of 4 bytes the last one has.
            width: the same of bytes.
        """
        self.move(RSI, R8)
        self.add(RSI, RAX)
        self.move(RBX, R10)
        self.load(R15, RDI, blocks)

        def block() -> None:
            self._mask(R15, last)
            self.vector(LOAD, 0, 0, RBX, mask=_ONE)
            if self.meeting.how:
                self.vector(LOAD, 1, 0, RSI, mask=_ONE)
                self.joined(self.meeting, self.item_bytes)
            self.vector(STORE, 0, 0, RSI, mask=_ONE)
            self.step(RBX, 64)
            self.step(RSI, 64)

        self.repeated(R15, block)
        self.add(R10, RDI, width)

    def elements(self) -> None:
        """Append what joins each of R12 elements with the one that its index says."""
        if self.meeting.letter == "f":
            self.raw("b801000000")  # mov eax, 1
            self.set_mask(_ONE, RAX)
        self.move(R15, R8)
        self.move(RCX, R12)
        self.repeated(RCX, self._element)

    def _element(self) -> None:
        item_bytes, meeting = self.item_bytes, self.meeting
        self.index(RAX, RDX, R11)
        self.times(RAX, R12)
        if meeting.letter == "f":
            self.vector(LOAD, 0, 0, R10, mask=_ONE)
            self.vector(LOAD, 1, 0, R15, RAX, item_bytes, mask=_ONE)
            self.joined(meeting, item_bytes)
            self.vector(STORE, 0, 0, R15, RAX, item_bytes, mask=_ONE)
        else:
            self.raw(_GET[item_bytes])
            if meeting.how:
                self.raw(_JOIN[meeting.how, item_bytes])
            self.raw(_PUT[item_bytes])
        self.step(R10, item_bytes)
        self.step(R15, item_bytes)

    def unless_alike(self) -> list[int]:
        """Append what finds out whether R12 indices are one; return jumps to what puts elements."""
        blocks, last, _ = _ALIKE
        self.load(RCX, RDI, blocks)
        self.plain(0x85, RCX, RCX)  # test
        jumps = [self.ahead("0f84")]  # je
        is_wide = self.index_bytes == INDEX_BYTES[1]
        self.vector(0x59 if is_wide else 0x58, 2, 0, R9, kind=2, prefix=1, wide=is_wide)
        self.move(RBX, R9)

        def block() -> None:
            self._mask(RCX, last)
            self.vector(LOAD, 3, 0, RBX, mask=_ONE)
            self.vector(
                0x1F, _UNLIKE, 3, 2, kind=3, prefix=1, is_memory=False, mask=_ONE, last_byte=4
            )  # vpcmpd: not equal
            self.test_any(2)
            jumps.append(self.ahead("0f85"))  # jne
            self.step(RBX, 64)

        self.repeated(RCX, block)
        return jumps


@lru_cache(maxsize=32)
def _elements(item_bytes: int, index_bytes: int, meeting: Meeting) -> bytes:
    code = _Putting(item_bytes, index_bytes, meeting)
    code.begin(0)
    for register, number in (
        (R8, _RESULT), (R9, _INDICES), (R10, _UPDATES), (R11, _SIZE), (R12, _BEHIND),
        (R13, _BEFORE),
    ):  # fmt: skip
        code.load(register, RDI, number)

    def row() -> None:
        if item_bytes not in _OF_ROWS:
            code.elements()
            return
        differ = code.unless_alike()
        code.index(RAX, RDX, R11)
        code.step(R9, -index_bytes)
        code.add(R9, RDI, _ALIKE[-1])
        code.times(RAX, RDI, _WHOLE[-1])
        code.row(*_WHOLE)
        done = code.ahead()
        for jump in differ:
            code.here(jump)
        code.elements()
        code.here(done)

    def part() -> None:
        code.load(R14, RDI, _COUNT)
        code.repeated(R14, row)
        code.add(R8, RDI, _PART_BYTES)

    code.repeated(R13, part)
    return code.finished()


@lru_cache(maxsize=32)
def _rows(item_bytes: int, index_bytes: int, meeting: Meeting) -> bytes:
    code = _Putting(item_bytes, index_bytes, meeting)
    code.begin(0)
    for register, number in ((R8, _RESULT), (R9, _INDICES), (R10, _UPDATES), (R13, _ROWS)):
        code.load(register, RDI, number)

    def row() -> None:
        code.place(_COORDINATES, _SIZES, _ROW_BYTES)
        code.row(_BLOCKS, _MASK, _ROW_BYTES)

    code.repeated(R13, row)
    return code.finished()


def elements(
    shape: tuple[int, ...], axis: int, count: int, sizes: tuple[int, int], meeting: Meeting
) -> Told:
    """Return the function that puts elements into the result, and what it is told but addresses.

    Args:
        shape: the result's, row-major, as all is. That of indices and updates differs along the
            axis alone.
        axis: that indices count along; negative ones from the end.
        count: how many there are along it.
        sizes: bytes of an element, and of an index.
        meeting: how they meet what is there.
    """
    before, size, behind = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    numbers = before, count, behind, size, size * behind * sizes[0]
    is_row = not is_symbolic(behind) and sizes[0] in _OF_ROWS and behind * sizes[0] >= _LEAST_BYTES
    each = [_blocks(behind * item) if is_row else (0, 0, 0) for item in sizes]
    return function_of(_elements(*sizes, meeting)), told(
        struct.Struct("@15q").pack, 0, 0, 0, 0, *numbers, *each[0], *each[1]
    )


def _blocks(width: int) -> tuple[int, int, int]:
    """Blocks of 64 bytes, which numbers of 4 bytes the last one has, and the bytes of all."""
    blocks = -(-width // 64)
    return blocks, (1 << (width - 64 * (blocks - 1)) // 4) - 1, width


def rows(
    shape: tuple[int, ...], coordinates: int, count: int, sizes: tuple[int, int], meeting: Meeting
) -> Told:
    """Return the same for rows, which some coordinates tell the place of.

    Args:
        shape: the result's.
        coordinates: how many of its axes they are for, up to `MOST_COORDINATES`.
        count: rows.
        sizes: bytes of an element, 4 or 8, and of an index.
        meeting: how they meet what is there.
    """
    blocks, last, width = _blocks(math.prod(shape[coordinates:]) * sizes[0])
    numbers = count, coordinates, blocks, last, width, *shape[:coordinates]
    pack = struct.Struct(f"@{4 + len(numbers)}q").pack
    return function_of(_rows(*sizes, meeting)), told(pack, 0, 0, 0, 0, *numbers)
