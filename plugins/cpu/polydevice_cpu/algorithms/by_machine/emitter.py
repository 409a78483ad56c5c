"""Instructions of x86-64 with AVX-512 as bytes, for code that is written here."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 = range(16)
_KEPT = (RBX, R12, R13, R14, R15)
"""Registers that a function has to keep, besides those of the stack."""

LOAD, STORE, MUL, ADD, SUB, MIN, DIV, MAX = 0x10, 0x11, 0x59, 0x58, 0x5C, 0x5D, 0x5E, 0x5F
"""What is done with vectors of numbers of 4 bytes."""


@dataclass(frozen=True)
class Place:
    """[base + index * times + offset] in memory."""

    base: int
    offset: int = 0
    index: int | None = None
    times: int = 1


class Emitter:
    """Instructions, appended one by one."""

    def __init__(self) -> None:
        """Begin a function that takes the address of its arguments in RDI."""
        self.text = bytearray()
        self.raw("f30f1efa55 4889e5")  # endbr64; push rbp; mov rbp, rsp
        for register in _KEPT:
            self.raw(f"{'41' if register > 7 else ''}{0x50 | register & 7:02x}")

    def end(self) -> bytes:
        """Return 0; give back the stack."""
        self.plain(0x8D, RSP, Place(RBP, -8 * len(_KEPT)))
        for register in reversed(_KEPT):
            self.raw(f"{'41' if register > 7 else ''}{0x58 | register & 7:02x}")
        self.raw("5dc5f87731c0c3")  # pop rbp; vzeroupper; xor eax, eax; ret
        return bytes(self.text)

    def raw(self, text: str) -> None:
        """Append bytes."""
        self.text += bytes.fromhex(text)

    # -- numbers of 8 bytes -------------------------------------------------------------------

    def plain(self, opcode: int, register: int, other: int | Place) -> None:
        """Append an instruction on 64 bits: of two registers, or one and memory."""
        place = other if isinstance(other, Place) else Place(other)
        base, index = place.base, place.index or 0
        rex = 0x48 | register >> 3 << 2 | index >> 3 << 1 | base >> 3
        self.text += bytes((rex, opcode))
        self._operand(register, other)

    def _operand(self, register: int, other: int | Place, scale: int = 1) -> None:
        """The second operand; `scale`: what an offset of one byte is multiplied by."""
        low = (register & 7) << 3
        if not isinstance(other, Place):
            self.text.append(0xC0 | low | other & 7)
            return
        is_short = other.offset % scale == 0 and -128 <= other.offset // scale < 128
        low |= 0x40 if is_short else 0x80
        if other.index is not None:
            scaled = (other.times.bit_length() - 1) << 6 | (other.index & 7) << 3
            self.text += bytes((low | 4, scaled | other.base & 7))
        elif other.base & 7 == RSP:
            self.text += bytes((low | 4, 0x24))
        else:
            self.text.append(low | other.base & 7)
        offset = other.offset // scale if is_short else other.offset
        self.text += struct.pack("<b" if is_short else "<i", offset)

    def move(self, register: int, other: int | Place) -> None:
        """Set a register."""
        self.plain(0x8B, register, other)

    def keep(self, register: int, place: Place) -> None:
        """Store a register."""
        self.plain(0x89, register, place)

    def add(self, register: int, other: int | Place) -> None:
        """Add to a register."""
        self.plain(0x03, register, other)

    def address(self, register: int, place: Place) -> None:
        """Set a register to an address."""
        self.plain(0x8D, register, place)

    def constant(self, register: int, opcode: int, number: int) -> None:
        """Add (0), and (4) or subtract (5) a constant of 4 bytes."""
        self.text += bytes((0x48 | register >> 3, 0x81, 0xC0 | opcode << 3 | register & 7))
        self.text += struct.pack("<i", number)

    def times(self, counter: int | Place, body: Callable[[], None]) -> None:
        """Append what runs as often as a counter says, once at least, and counts it down."""
        start = len(self.text)
        body()
        self.plain(0xFF, 1, counter)
        self.raw("0f85")
        self.text += struct.pack("<i", start - len(self.text) - 4)

    def if_equal(self, counter: int, number: int, register: int, other: int | Place) -> None:
        """Set a register to something else where a counter is a number below 128."""
        self.plain(0x83, 7, counter)
        self.text.append(number)
        base = other.base if isinstance(other, Place) else other
        self.text += bytes((0x48 | register >> 3 << 2 | base >> 3, 0x0F, 0x44))
        self._operand(register, other)

    def mask(self, number: int, register: int) -> None:
        """Set a mask of 16 elements from the bits of a register below 8."""
        self.text += bytes((0xC5, 0xF8, 0x92, 0xC0 | number << 3 | register))

    # -- vectors of 16 numbers of 4 bytes ------------------------------------------------------

    def vector(
        self,
        opcode: int,
        register: int,
        first: int,
        second: int | Place,
        *,
        kind: int = 1,
        prefix: int = 0,
        mask: int = 0,
        keeps: bool = False,
        wide: int = 0,
        unit: int = 64,
    ) -> None:
        """Append an instruction: register = first and second.

        Args:
            opcode: of the instruction.
            register: where the result goes, or what is stored.
            first: another vector; 0 where the instruction has none.
            second: the third vector, or memory.
            kind: of the opcode, as EVEX has it.
            prefix: the same.
            mask: which of the masks says what elements there are; 0 for all.
            keeps: whether the others stay as they are, or become 0.
            wide: 1 for instructions on numbers of 8 bytes.
            unit: how many bytes there are in memory, which short offsets count.
        """
        if isinstance(second, Place):
            low, high = second.base >> 3, (second.index or 0) >> 3
        else:
            low, high = second >> 3 & 1, second >> 4
        row = (register >> 3 & 1) << 7 | high << 6 | low << 5 | register >> 4 << 4
        zeros = 0x80 if mask and not keeps else 0
        self.text += bytes(
            (
                *(0x62, (row ^ 0xF0) | kind, wide << 7 | (~first & 15) << 3 | 4 | prefix),
                *(zeros | 0x40 | (~first >> 4 & 1) << 3 | mask, opcode),
            )
        )
        self._operand(register, second, unit)

    def load(self, register: int, place: Place, mask: int = 0) -> None:
        """Load a vector; elements that there are not become 0."""
        self.vector(LOAD, register, 0, place, mask=mask)

    def store(self, register: int, place: Place, mask: int = 0) -> None:
        """Store the elements that there are."""
        self.vector(STORE, register, 0, place, mask=mask, keeps=True)

    def spread(self, register: int, place: Place) -> None:
        """Fill a vector with one number from memory."""
        self.vector(0x18, register, 0, place, kind=2, prefix=1, unit=4)

    def multiply_add(self, register: int, first: int, second: int) -> None:
        """Register += first * second, rounded once."""
        self.vector(0xB8, register, first, second, kind=2, prefix=1)

    def clear(self, register: int) -> None:
        """Fill a vector with zeros."""
        self.vector(0xEF, register, register, register, prefix=1)

    def unpack(self, register: int, first: int, second: int, *, high: bool, wide: bool) -> None:
        """Register = elements of both by turns, of 4 or 8 bytes, from halves of every 16 bytes."""
        self.vector(0x14 + high, register, first, second, prefix=wide, wide=wide)

    def quarters(self, register: int, first: int, second: int, how: int) -> None:
        """Register = two times 16 bytes of each of both, which a byte says."""
        self.vector(0x23, register, first, second, kind=3, prefix=1)
        self.text.append(how)
