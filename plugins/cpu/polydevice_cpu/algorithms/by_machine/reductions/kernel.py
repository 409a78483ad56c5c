"""Code that reduces numbers along some of up to six loops, a vector of them at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.instructions import (
    DIVIDE,
    LOAD,
    R8,
    R9,
    R10,
    R11,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSP,
    STORE,
    Instructions,
)

AT_ONCE = 8
"""Vectors that are added to: a sum waits four cycles for the one before."""

_BLOCKS = 8, 4
"""Vectors of columns at once; of fewer the last one may not be whole."""


class How(Enum):
    """What becomes of numbers."""

    SUM = "sum"
    MEAN = "mean"
    PRODUCT = "product"
    LARGEST = "largest"
    SMALLEST = "smallest"
    L1 = "sum of absolute values"
    L2 = "root of the sum of squares"


class Kind(NamedTuple):
    """A type of numbers: `f` or `i`, and how many bytes one has."""

    letter: str
    item_bytes: int

    @property
    def lanes(self) -> int:
        """Numbers of a vector."""
        return 64 // self.item_bytes

    @property
    def wide(self) -> bool:
        """Whether numbers have 8 bytes."""
        return self.item_bytes == 8

    @property
    def is_float(self) -> bool:
        """Whether they may be none."""
        return self.letter == "f"


class Read(Enum):
    """How numbers lie that make one vector of results."""

    ROWS = "behind each other: a row is reduced to one number, or to few that alternate"
    COLUMNS = "beside each other, in each of which one is reduced"
    APART = "beside each other, at a distance"


class Form(NamedTuple):
    """What code is emitted for.

    Attributes:
        how: what becomes of numbers.
        kind: of them.
        read: how they lie.
        left: of rows, how many numbers each is reduced to: a power of 2 below a vector's.
    """

    how: How
    kind: Kind
    read: Read
    left: int = 1


KEPT, REDUCED = 3, 3
"""Loops over what is kept, and over what is reduced, the innermost first."""

NUMBERS = (
    *("source", "result", "kept0", "kept1", "kept2", "step0", "step1", "step2"),
    *("reduced0", "reduced1", "reduced2", "by0", "by1", "by2"),
    *("length", "line_bytes", "begin", "count", "nan"),
)
"""What code is told, in numbers of 8 bytes: addresses; how often loops over what is kept run, bytes
between their parts, from the second on less those that the inner ones have gone; the same of what
is reduced, from one place on; numbers of a row, or columns; bytes between vectors of columns that
lie apart; what results begin with, and how many numbers one is made of; how NaN is passed on.
Behind them are the places of a vector's columns that lie apart."""

AT = {name: number for number, name in enumerate(NUMBERS)}
_SLOTS = "kept0", "kept1", "kept2"
_ON_STACK = {name: number for number, name in enumerate(_SLOTS)}

_PART, _BEGIN, _COUNT, _NAN, _ABSOLUTE, _PLACES = 8, 16, 17, 18, 19, 20
_REST, _SOME, _IS_NAN = 1, 2, 3
"""Vectors: of 8 each, results and what is read; constants. Masks: the last part of a row or of
columns, and what is needed besides: numbers that a row is reduced to, or places to be read; and
where there is NaN."""

_ADDED = {("f", 4): 0x58, ("f", 8): 0x58, ("i", 4): 0xFE, ("i", 8): 0xD4}
_OF_FLOATS = {How.PRODUCT: 0x59, How.LARGEST: 0x5F, How.SMALLEST: 0x5D}
_OF_INTEGERS = {How.PRODUCT: 0x40, How.LARGEST: 0x3D, How.SMALLEST: 0x39}
_EXTREMES = How.LARGEST, How.SMALLEST


class _Code(Instructions):
    """Instructions on numbers of a kind."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.how, self.kind = form.how, form.kind
        is_float = form.kind.letter == "f"
        self.compares = is_float and form.how in _EXTREMES
        self.prefix = int(form.kind.wide or not is_float)
        self.opcode, self.map = _ADDED[form.kind], 1
        if form.how in _OF_FLOATS:
            self.opcode = (_OF_FLOATS if is_float else _OF_INTEGERS)[form.how]
            self.map = 1 if is_float else 2

    def moved(self, opcode: int, register: int, base: int, behind: int = 0, mask: int = 0) -> None:
        """Append a load or a store."""
        wide = self.kind.wide
        self.vector(opcode, register, 0, base, behind=behind, prefix=wide, mask=mask, wide=wide)

    def copied(self, to: int, register: int) -> None:
        """Append what copies a vector."""
        self.vector(0x28, to, 0, register, is_memory=False)

    def constant(self, register: int, name: str) -> None:
        """Fill a vector with a number that is told."""
        if self.kind.wide:
            given = 0x19, register, 0, RDI
            self.vector(*given, behind=AT[name], kind=2, prefix=1, wide=True)
        else:
            self.spread(register, RDI, behind=2 * AT[name])

    def joined(self, to: int, other: int, mask: int = 0) -> None:
        """Append to = both of two results; NaN, if either is."""
        first, second = (other, to) if self.compares else (to, other)
        given = self.opcode, to, first, second
        about = self.map, self.prefix, False, mask
        self._append(given, *about)
        if self.compares:  # which passes on the second one where one is NaN
            self._pass_on(to, other, mask)

    def _pass_on(self, to: int, other: int, mask: int) -> None:
        """Append what lets a result be NaN where another one is."""
        if self.is_halved:
            self.vector(0xC2, _IS_NAN, other, other, is_memory=False, mask=mask, last_byte=3)
            self.vector(0x28, to, 0, other, is_memory=False, mask=_IS_NAN)
        else:
            self._append((0x54, to, other, _NAN), 3, 1, False, mask, last_byte=0)  # vfixupimm

    def taken(self, to: int, part: int, mask: int = 0) -> None:
        """Append what takes numbers that were read into a result; may change them."""
        if self.how is How.L1:
            self._append((0xDB, part, part, _ABSOLUTE), 1, 1, False, 0)  # vpand
        if self.how is How.L2:
            self._append((0xB8, to, part, part), 2, 1, False, mask)  # to += part * part
        else:
            self.joined(to, part, mask)

    def read(self, to: int, part: int, base: int, behind: int, mask: int = 0) -> None:
        """Append what takes numbers at an address into a result."""
        if self.compares or self.how in (How.L1, How.L2):
            self.moved(LOAD, part, base, behind, mask)
            self.taken(to, part, mask)
            return
        given = self.opcode, to, to, base
        self.vector(
            *given, behind=behind, kind=self.map, prefix=self.prefix, mask=mask, wide=self.kind.wide
        )

    def finished(self, register: int) -> None:
        """Append what makes results of what is read."""
        if self.how is How.MEAN:
            self._append((DIVIDE, register, register, _COUNT), 1, self.prefix, False, 0)
        if self.how is How.L2:
            self._append((0x51, register, 0, register), 1, self.prefix, False, 0)  # vsqrt

    def _append(
        self,
        given: tuple[int, int, int, int],
        map_: int,
        prefix: int,
        is_memory: bool,
        mask: int,
        last_byte: int | None = None,
    ) -> None:
        self.vector(
            *given,
            kind=map_,
            prefix=prefix,
            is_memory=is_memory,
            mask=mask,
            wide=self.kind.wide,
            last_byte=last_byte,
        )

    def over(self, sizes: range) -> list[int]:
        """Begin loops over what is reduced: the outermost first. RAX goes from part to part."""
        registers = (RDX, RBP, RBX)
        starts = []
        for number in reversed(sizes):
            self.load(registers[number], RDI, AT[f"reduced{number}"])
            starts.append(len(self.text))
        return starts[::-1]

    def again_over(self, sizes: range, starts: list[int]) -> None:
        """End these loops."""
        registers = (RDX, RBP, RBX)
        for number, start in zip(sizes, starts, strict=True):
            self.add(RAX, RDI, AT[f"by{number}"])
            self.again(registers[number], start)


@lru_cache(maxsize=128)
def emitted(form: Form) -> bytes:
    """Return the code.

    R8: where what is reduced to the next results begins; R9: these; RAX: what is read.
    """
    code = _Code(form)
    code.begin(len(_SLOTS))
    _append_constants(code, form)
    code.load(R8, RDI, AT["source"])
    code.load(R9, RDI, AT["result"])
    starts = []
    for number in reversed(range(KEPT)):
        code.copy(_ON_STACK[f"kept{number}"], RDI, AT[f"kept{number}"])
        starts.append(len(code.text))
    if form.read is Read.ROWS:
        _append_row(code, form)
    else:
        _append_columns(code, form)
    for number, start in enumerate(reversed(starts)):
        code.add(R8, RDI, AT[f"step{number}"])
        code.again(RSP, start, _ON_STACK[f"kept{number}"])
    code.end(len(_SLOTS))
    return code.assembled()


def _append_constants(code: _Code, form: Form) -> None:
    code.constant(_BEGIN, "begin")
    code.spread(_NAN, RDI, behind=2 * AT["nan"])
    if form.how is How.L1 and code.is_halved:
        code.fill_bits(_ABSOLUTE, 0x7FFFFFFF)
    elif form.how is How.L1:
        given = 0x25, _ABSOLUTE, _ABSOLUTE, _ABSOLUTE  # vpternlogd: all bits
        code.vector(*given, kind=3, prefix=1, is_memory=False, last_byte=0xFF)
        shift = 0x73 if code.kind.wide else 0x72  # vpsrlq, vpsrld: without signs
        code.vector(
            shift,
            2,
            _ABSOLUTE,
            _ABSOLUTE,
            prefix=1,
            is_memory=False,
            wide=code.kind.wide,
            last_byte=1,
        )
    if form.how is How.MEAN:
        wide = code.kind.wide
        code.clear(0)
        code.vector(0x2A, 0, 0, RDI, behind=AT["count"], prefix=2 + wide, wide=True)  # vcvtsi2ss
        code.vector(0x18 + wide, _COUNT, 0, 0, kind=2, prefix=1, is_memory=False, wide=wide)
    if form.read is Read.APART:
        code.vector(LOAD, _PLACES, 0, RDI, offset_bytes=8 * len(NUMBERS))
    if form.read is Read.ROWS:
        # The numbers of the last part of a row: mov ecx, [length]; and ecx, lanes - 1
        code.load(RCX, RDI, AT["length"])
        code.text += bytes((0x83, 0xE1, form.kind.lanes - 1))
        code.raw("b8ffffffffc4e270f5c0")  # mov eax, -1; bzhi eax, eax, ecx
        code.set_mask(_REST, RAX)
        code.text += b"\xb8" + struct.pack("<i", (1 << form.left) - 1)  # mov eax, …
        code.set_mask(_SOME, RAX)


def _append_row(code: _Code, form: Form) -> None:
    """Append what reduces rows to one number, or to as many as alternate."""
    lanes, item = form.kind.lanes, form.kind.item_bytes
    code.copied(0, _BEGIN)
    code.move(RAX, R8)
    loops = range(REDUCED)
    starts = code.over(loops)
    code.load(RCX, RDI, AT["length"])
    _append_at_once(code, AT_ONCE * lanes, lambda number: code.read(number, _PART, RAX, number))
    one = len(code.text)
    code.step(RCX, -lanes)
    rest = code.ahead("0f8c")  # jl
    code.read(0, _PART, RAX, 0)
    code.step(RAX, 64)
    code.jump(one)
    code.here(rest)
    code.step(RCX, lanes)
    none = code.ahead("0f84")
    code.read(0, _PART, RAX, 0, _REST)
    code.scaled(RAX, RAX, RCX, item)
    code.here(none)
    code.again_over(loops, starts)
    _append_fold(code, form)
    code.finished(0)
    code.moved(STORE, 0, R9, 0, _SOME)
    code.step(R9, item * form.left)


def _append_at_once(code: _Code, numbers: int, read: Callable[[int], None]) -> None:
    """Append what takes so many numbers of RCX at once, if there are as many, into the first."""
    code.plain(0x81, 7, RCX)  # cmp
    code.text += struct.pack("<i", numbers)
    too_few = code.ahead("0f8c")  # jl
    for register in range(1, AT_ONCE):
        code.copied(register, _BEGIN)
    again = len(code.text)
    for register in range(AT_ONCE):
        read(register)
    code.step(RAX, 64 * AT_ONCE)
    code.step(RCX, -numbers)
    code.plain(0x81, 7, RCX)
    code.text += struct.pack("<i", numbers)
    code.jump(again, "0f8d")  # jge
    _append_joined(code, AT_ONCE, 1)
    code.here(too_few)


def _append_joined(code: _Code, count: int, results: int) -> None:
    """Append what joins vectors to as few as there are results."""
    while count > results:
        count //= 2
        for register in range(count):
            code.joined(register, count + register)


def _append_fold(code: _Code, form: Form) -> None:
    """Append what joins the numbers of a vector to the first ones."""
    left = form.left
    # By so many bytes: vshuff32x4, and vpshufd.
    for distance, (opcode, map_, how) in (
        (32, (0x23, 3, 0x4E)),
        (16, (0x23, 3, 0xB1)),
        (8, (0x70, 1, 0x4E)),
        (4, (0x70, 1, 0xB1)),
    ):
        if distance < left * form.kind.item_bytes:
            break
        code.vector(opcode, _PART, 0, 0, kind=map_, prefix=1, is_memory=False, last_byte=how)
        code.joined(0, _PART)


def _append_columns(code: _Code, form: Form) -> None:
    """Append what reduces all columns, whole blocks of vectors first."""
    lanes, item = form.kind.lanes, form.kind.item_bytes
    code.move(R10, R8)
    code.load(R15, RDI, AT["length"])
    code.load(R11, RDI, AT["by0"])
    blocks = _BLOCKS if form.read is Read.COLUMNS else (1,)
    for vectors in blocks:
        block = len(code.text)
        code.plain(0x81, 7, R15)  # cmp
        code.text += struct.pack("<i", lanes * vectors)
        too_few = code.ahead("0f8c")  # jl
        _append_block(code, form, vectors)
        code.step(R15, -lanes * vectors)
        code.jump(block)
        code.here(too_few)
    code.compare(R15, 0)
    done = [code.ahead("0f84")]
    for vectors in range(1, blocks[-1] + 1):  # of which the last one is not whole, perhaps
        code.compare(R15, lanes * vectors)
        are_more = code.ahead("0f8f")  # jg
        code.move(RCX, R15)
        code.step(RCX, lanes - lanes * vectors)
        code.raw("b8ffffffffc4e270f5c0")  # mov eax, -1; bzhi eax, eax, ecx
        code.set_mask(_REST, RAX)
        _append_block(code, form, vectors, _REST)
        code.scaled(R9, R9, R15, item)
        code.step(R9, -64 * vectors)
        done.append(code.ahead())
        code.here(are_more)
    for each in done:
        code.here(each)


def _append_block(code: _Code, form: Form, vectors: int, mask: int = 0) -> None:
    """Append what reduces so many vectors of columns; of the last one, those of a mask."""
    times = AT_ONCE // vectors
    for register in range(vectors):
        code.copied(register, _BEGIN)
    code.move(RAX, R10)
    loops = range(1, REDUCED)
    starts = code.over(loops)
    code.load(RCX, RDI, AT["reduced0"])
    done = []
    if times > 1:
        code.compare(RCX, times)
        too_few = code.ahead("0f8c")  # jl
        for register in range(vectors, times * vectors):
            code.copied(register, _BEGIN)
        again = len(code.text)
        for first in range(0, times * vectors, vectors):
            _append_line(code, form, first, vectors, mask)
        code.step(RCX, -times)
        code.compare(RCX, times)
        code.jump(again, "0f8d")  # jge
        _append_joined(code, times * vectors, vectors)
        code.compare(RCX, 0)
        done.append(code.ahead("0f84"))
        code.here(too_few)
    line = len(code.text)
    _append_line(code, form, 0, vectors, mask)
    code.again(RCX, line)
    for each in done:
        code.here(each)
    code.again_over(loops, starts)
    for register in range(vectors):
        code.finished(register)
        code.moved(STORE, register, R9, register, mask if register + 1 == vectors else 0)
    code.step(R9, 64 * vectors)
    if form.read is Read.COLUMNS:
        code.step(R10, 64 * vectors)
    else:
        code.add(R10, RDI, AT["line_bytes"])


def _append_line(code: _Code, form: Form, first: int, vectors: int, mask: int) -> None:
    """Append what takes a vector of each column into the results from the first on."""
    for vector in range(vectors):
        if form.read is Read.COLUMNS:
            of_last = mask if vector + 1 == vectors else 0
            code.read(first + vector, _PART + vector, RAX, vector, of_last)
            continue
        if mask:
            code.copy_mask(2, 1)
        else:
            code.fill_mask(2)
        code.clear(_PART + first)
        code.gather(_PART + first, RAX, _PLACES, _SOME)
        code.taken(first, _PART + first, mask)
    code.add(RAX, R11)
