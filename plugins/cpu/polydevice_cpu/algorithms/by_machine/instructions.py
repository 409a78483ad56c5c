"""Instructions of x86-64 with AVX-512 as bytes, as far as code that is emitted here needs them.

Where the processor has AVX2 alone, `Instructions.assembled` makes others of them; see `avx2`.
"""

from __future__ import annotations

import struct

from polydevice_cpu.algorithms.by_machine.avx2.encoding import BEHIND
from polydevice_cpu.algorithms.by_machine.avx2.halves import MissingInstructionError, halved
from polydevice_cpu.algorithms.by_machine.avx2.homes import ROOM_BYTES
from polydevice_cpu.algorithms.by_machine.avx2.operations import (
    Masks,
    OnMask,
    Vector,
    read_bytes,
)
from polydevice_cpu.algorithms.by_machine.code import has_avx512

RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 = range(16)
KEPT = (RBX, RBP, R12, R13, R14, R15)
"""Registers that a function has to keep."""

LOAD, STORE, ADD, MUL, SUB, MIN, DIVIDE, MAX = 0x10, 0x11, 0x58, 0x59, 0x5C, 0x5D, 0x5E, 0x5F
LOAD_WORDS, STORE_WORDS, EXPAND = 0x6F, 0x7F, 0x88


_PLACE = b"\xcc"
"""What is in the text for an instruction that others are made of."""


class Instructions:
    """What has been emitted so far; `text` has the bytes.

    Attributes:
        is_halved: whether other instructions are made of those on vectors and masks.
        lanes: numbers of a vector: 16, or where they would be in halves, 8 for who asks for that.
    """

    def __init__(self, *, is_short: bool = False) -> None:
        """Begin with nothing.

        Args:
            is_short: whether vectors are of 8 numbers where they would be in halves, of which there
                are as many registers.
        """
        self.text = bytearray()
        self.is_halved = not has_avx512()
        self.lanes = 8 if is_short and self.is_halved else 16
        self._halved: list[Vector | OnMask] = []
        self._jumps: dict[int, int] = {}

    def assembled(self) -> bytes:
        """Return all of it; nothing if the processor lacks instructions that it needs."""
        if not self.is_halved:
            return bytes(self.text)
        try:
            return halved(self.text, self._halved, self._jumps, self.lanes // 8)
        except MissingInstructionError:
            return b""

    def raw(self, text: str) -> None:
        """Add bytes."""
        self.text += bytes.fromhex(text)

    def begin(self, numbers: int) -> None:
        """Begin a function that has room for numbers of 8 bytes on the stack."""
        self.raw("f30f1efa")  # endbr64
        for register in KEPT:
            self.raw(f"{'41' if register > 7 else ''}{0x50 | register & 7:02x}")
        if not self.is_halved:
            self._room(numbers)
            return
        self.move(RAX, RSP)
        self._room(numbers + (ROOM_BYTES + 64) // 8)
        self.raw("4883e4c0")  # and rsp, -64
        self.store(RAX, RSP, numbers)

    def end(self, numbers: int, status: int = 0) -> None:
        """Return a status from 0 to 127."""
        if self.is_halved:
            self.load(RSP, RSP, numbers)
        else:
            self._room(-numbers)
        for register in reversed(KEPT):
            self.raw(f"{'41' if register > 7 else ''}{0x58 | register & 7:02x}")
        self.raw("c5f87731c0")  # vzeroupper; eax = 0
        if status:
            self.text += bytes((0xB0, status))  # mov al, status
        self.raw("c3")  # ret

    def _room(self, numbers: int) -> None:
        self.plain(0x81, 0, RSP)
        self.text += struct.pack("<i", -8 * numbers)

    # -- on 64 bits ---------------------------------------------------------------------------

    def plain(self, opcode: int, register: int, base: int, offset: int | None = None) -> None:
        """Add an instruction on 64 bits: of two registers, or one and [base + offset]."""
        self.text += bytes((0x48 | register >> 3 << 2 | base >> 3, opcode))
        self._operand(register, base, offset)

    def _operand(
        self, register: int, base: int, offset: int | None, *, is_far: bool = False
    ) -> None:
        if base == RSP and offset is not None and self.is_halved:
            offset += ROOM_BYTES
        is_far = is_far or (offset is not None and offset > 127)
        mode = 0xC0 if offset is None else 0x80 if is_far else 0x40
        self.text.append(mode | (register & 7) << 3 | base & 7)
        if offset is not None:
            if base & 7 == RSP:
                self.text.append(0x24)
            self.text += struct.pack("<i" if is_far else "<b", offset)

    def move(self, register: int, other: int) -> None:
        """Copy a register."""
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

    def subtract(self, register: int, base: int, number: int | None = None) -> None:
        """Subtract a register, or the number of 8 bytes at this place."""
        self.plain(0x2B, register, base, None if number is None else 8 * number)

    def times(self, register: int, base: int, number: int | None = None) -> None:
        """Multiply by a register, or by the number of 8 bytes at this place."""
        self.text += bytes((0x48 | register >> 3 << 2 | base >> 3, 0x0F, 0xAF))
        self._operand(register, base, None if number is None else 8 * number)

    def compare(self, register: int, value: int) -> None:
        """Compare with a constant from -128 to 127, for a jump that follows."""
        self.plain(0x83, 7, register)
        self.text += struct.pack("<b", value)

    def copy(self, slot: int, base: int, number: int) -> None:
        """Copy a number of 8 bytes to the stack, by way of RSI."""
        self.load(RSI, base, number)
        self.store(RSI, RSP, slot)

    def forward(self, slot: int, base: int, number: int) -> None:
        """Add a number of 8 bytes to one on the stack, by way of RSI."""
        self.load(RSI, base, number)
        self.plain(0x01, RSI, RSP, 8 * slot)

    def step(self, register: int, size_bytes: int) -> None:
        """Add a constant."""
        is_short = -128 <= size_bytes < 128
        self.plain(0x83 if is_short else 0x81, 0, register)
        self.text += struct.pack("<b" if is_short else "<i", size_bytes)

    def set_if_equal(self, register: int, base: int, offset: int) -> None:
        """Load a number where what was compared is equal."""
        self.text += bytes((0x48 | register >> 3 << 2 | base >> 3, 0x0F, 0x44))
        self._operand(register, base, offset)

    def set_mask(self, mask: int, register: int) -> None:
        """Set a mask of 16 elements from the bits of a register."""
        self._on_mask(Masks.SET, mask, register, (0xC4, 0xC1, 0x78, 0x92) if register > 7 else ())

    def copy_mask(self, mask: int, other: int) -> None:
        """Set a mask to another one."""
        self._on_mask(Masks.COPY, mask, other)

    def fill_mask(self, mask: int) -> None:
        """Set all elements of a mask."""
        self._on_mask(Masks.FILL, mask, mask, (0xC5, 0x84 | (~mask & 15) << 3, 0x46))

    def get_mask(self, register: int, mask: int) -> None:
        """Set one of the first eight registers to the bits of a mask."""
        self._on_mask(Masks.BITS, mask, register, (0xC5, 0xF8, 0x93), is_result=True)

    def test_any(self, mask: int) -> None:
        """Test whether a mask has an element, for a jump that follows: jz where it has none."""
        self._on_mask(Masks.NONE, mask, mask)

    def test_all(self, mask: int) -> None:
        """Test whether it has all of them: jnc where it has not."""
        self._on_mask(Masks.ALL, mask, mask)

    def _on_mask(
        self,
        what: Masks,
        mask: int,
        other: int,
        opcode: tuple[int, ...] = (),
        *,
        is_result: bool = False,
    ) -> None:
        if self.is_halved:
            self._halved.append(OnMask(len(self.text), what, mask, other))
            self.text += _PLACE
            return
        known = {Masks.SET: 0x92, Masks.COPY: 0x90, Masks.NONE: 0x98, Masks.ALL: 0x98}
        first, last = (other, mask) if is_result else (mask, other & 7)
        self.text += bytes(opcode or (0xC5, 0xF8, known[what]))
        self.text.append(0xC0 | first << 3 | last)

    def scaled(self, register: int, base: int, index: int, times: int) -> None:
        """Register = base + index * times."""
        rex = 0x48 | register >> 3 << 2 | index >> 3 << 1 | base >> 3
        place = (times.bit_length() - 1) << 6 | (index & 7) << 3 | base & 7
        self.text += bytes((rex, 0x8D, 0x44 | (register & 7) << 3, place, 0))

    def again(self, register: int, start: int, number: int | None = None) -> None:
        """Count a register, or the number at this place, down; go to the start unless it is 0."""
        self.plain(0xFF, 1, register, None if number is None else 8 * number)
        self.jump(start, "0f85")

    def jump(self, to: int, kind: str = "e9") -> None:
        """Go to a place that was emitted before."""
        self.raw(kind)
        self.text += struct.pack("<i", to - len(self.text) - 4)
        self._jumps[len(self.text)] = to

    def ahead(self, kind: str = "e9") -> int:
        """Go to a place that `here` tells; return what it wants to know."""
        self.raw(kind)
        self.text += bytes(4)
        return len(self.text)

    def ahead_unless(self, base: int, number: int) -> int:
        """Do the same if the number at this place is 0."""
        self.plain(0x83, 7, base, 8 * number)
        self.text += b"\0"
        return self.ahead("0f84")  # je

    def here(self, jump: int) -> None:
        """Let a jump lead here."""
        self.text[jump - 4 : jump] = struct.pack("<i", len(self.text) - jump)
        self._jumps[jump] = len(self.text)

    # -- on vectors of 16 numbers -------------------------------------------------------------

    def vector(
        self,
        opcode: int,
        register: int,
        first: int,
        base: int,
        index: int | None = None,
        times: int = 1,
        *,
        behind: int = 0,
        offset_bytes: int | None = None,
        kind: int = 1,
        prefix: int = 0,
        is_memory: bool = True,
        mask: int = 0,
        is_one: bool = False,
        wide: bool = False,
        last_byte: int | None = None,
    ) -> None:
        """Add an instruction on vectors: register = first and [base + index * times].

        Args:
            opcode: of the instruction.
            register: where the result goes, or what is stored.
            first: another vector; 0 where the instruction has none.
            base: of an address; or a third vector, if `is_memory` is false.
            index: of the address.
            times: of the index.
            behind: how many vectors behind this address; of single numbers, how many of these. Up
                to 127.
            offset_bytes: how many bytes behind it, instead; not with an index.
            kind: of the opcode, as EVEX has it.
            prefix: the same.
            is_memory: whether there is an address.
            mask: which of the masks says what elements there are; 0 for all. The others are 0 in
                what is loaded, and stay elsewhere.
            is_one: whether there is one number in memory, for all elements.
            wide: whether elements are of 8 bytes.
            last_byte: what an instruction is told by a constant.

        Raises:
            ValueError: it is too far behind the address.
        """
        if not -128 <= behind <= 127:
            raise ValueError(f"{behind} vectors behind an address are too far; use offset_bytes")
        if self.is_halved:
            offset = offset_bytes
            if offset is None:
                size_bytes = read_bytes(opcode, kind, self.lanes, is_one=is_one, wide=wide)
                offset = behind * size_bytes
            offset += ROOM_BYTES if base == RSP and is_memory else 0
            self._halved.append(
                Vector(
                    *(len(self.text), opcode, register, first, base, index, times, offset),
                    *(kind, prefix, is_memory, mask, is_one, wide, last_byte),
                )
            )
            self.text += _PLACE
            return
        high = base >> 4 if not is_memory else (0 if index is None else index) >> 3
        row = 0xF0 ^ (
            (register >> 3 & 1) << 7 | high << 6 | (base >> 3 & 1) << 5 | (register >> 4) << 4
        )
        last = 0x40 | (8 ^ first >> 4 << 3) | is_one << 4 | mask
        last |= 0x80 if opcode in {LOAD, LOAD_WORDS, EXPAND} and mask else 0
        second = wide << 7 | (~first & 15) << 3 | 4 | prefix
        self.text += bytes((0x62, row | kind, second, last, opcode))
        if not is_memory:
            self.text.append(0xC0 | (register & 7) << 3 | base & 7)
        elif offset_bytes is not None:
            self._operand(register, base, offset_bytes, is_far=True)
        elif index is None:
            self._operand(register, base, behind)
        else:
            place = (times.bit_length() - 1) << 6 | (index & 7) << 3 | base & 7
            self.text += struct.pack("<BBb", 0x44 | (register & 7) << 3, place, behind)
        if last_byte is not None:
            self.text.append(last_byte)

    def literal(
        self, opcode: int, register: int, first: int, bits: int, *, kind: int = 1, prefix: int = 0
    ) -> None:
        """Add an instruction, where vectors are in halves: register = first and 32 bits throughout.

        They lie behind the code in all elements of a vector, so that no register has to hold them:
        an instruction less than with one number in memory.
        """
        at = Vector(
            *(len(self.text), opcode, register, first, BEHIND, None, 1, bits),
            *(kind, prefix, True, 0, True, False, None),
        )
        self._halved.append(at)
        self.text += _PLACE

    def of_vectors(self, opcode: int, register: int, first: int, second: int) -> None:
        """Register = first and second."""
        self.vector(opcode, register, first, second, is_memory=False)

    def all_across(self, opcode: int, register: int, spare: int) -> None:
        """Let all elements of a vector be what a function of two makes of them, all in all."""
        ways = [(0x23, 0x4E), (0x23, 0xB1)] if self.lanes == 16 else [(0x06, 1)]
        for kind, how in (*ways, (0x04, 0x4E), (0x04, 0xB1)):
            first = register if kind != 0x04 else 0
            place = kind, spare, first, register
            self.vector(*place, kind=3, prefix=1, is_memory=False, last_byte=how)
            self.of_vectors(opcode, register, register, spare)

    def clear(self, register: int) -> None:
        """Fill a vector with zeros."""
        self.vector(0xEF, register, register, register, prefix=1, is_memory=False)

    def spread(self, register: int, *place: int, behind: int = 0) -> None:
        """Fill a vector with a number of 4 bytes from memory."""
        self.vector(0x18, register, 0, *place, behind=behind, kind=2, prefix=1)

    def set_bits(self, bits: int) -> None:
        """Set RAX to 32 bits."""
        self.text += struct.pack("<BI", 0xB8, bits)

    def fill_bits(self, register: int, bits: int) -> None:
        """Fill a vector with a number of 4 bytes, by way of RAX."""
        self.set_bits(bits)
        self.vector(0x7C, register, 0, RAX, kind=2, prefix=1, is_memory=False)  # vpbroadcastd

    def shifted(
        self, register: int, source: int, bits: int, *, words: bool = False, is_signed: bool = False
    ) -> None:
        """Shift integers of 4 bytes to the right, or of 2; with the sign or without."""
        opcode, kind = 0x71 if words else 0x72, 4 if is_signed else 2
        self.vector(opcode, kind, register, source, prefix=1, is_memory=False, last_byte=bits)

    def gather(self, register: int, base: int, index: int, mask: int, *, behind: int = 0) -> None:
        """Load numbers of 4 bytes at [base + 4 * index], and so many behind, where a mask holds.

        The mask is empty then. Other elements stay.
        """
        # The index' fifth bit is where others have that of a first vector.
        given = 0x92, register, index & 16, base, index & 15, 4
        self.vector(*given, behind=behind, kind=2, prefix=1, mask=mask)

    def not_above(self, mask: int, first: int, second: int) -> None:
        """Set a mask where one vector is below another, or equal."""
        self.vector(0xC2, mask, first, second, is_memory=False, last_byte=2)
