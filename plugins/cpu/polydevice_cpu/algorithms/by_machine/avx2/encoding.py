"""Instructions of AVX2 and FMA as bytes: with a prefix called VEX, on vectors of 8 numbers."""

from __future__ import annotations

import struct
from typing import NamedTuple

RSP = 4

BEHIND = -1
"""In place of a base: what lies behind the code; the distance is told later."""

DISTANCE_BYTES = 4


class Place(NamedTuple):
    """An address: base + scaled * times + so many bytes; of constants `BEHIND` code, a number."""

    base: int
    scaled: int | None = None
    times: int = 1
    offset_bytes: int = 0


def encoded(
    opcode: int,
    register: int,
    first: int | None,
    last: int | Place,
    *,
    kind: int = 1,
    prefix: int = 0,
    wide: bool = False,
    is_short: bool = False,
) -> bytes:
    """Return an instruction: register = first and last.

    Args:
        opcode: of the instruction.
        register: where the result goes, what is stored, or a part of the opcode.
        first: another vector; None where the instruction has none.
        last: a third one, or where it is in memory.
        kind: of the opcode: which table it is in.
        prefix: the same: 1 for 66, 2 for F3, 3 for F2.
        wide: whether numbers are of 8 bytes, where the instruction asks.
        is_short: whether vectors are of 16 bytes.
    """
    index, base = 0, last
    if isinstance(last, Place):
        index, base = last.scaled or 0, last.base
    assert isinstance(base, int)
    is_behind = base == BEHIND
    if is_behind:
        base = 0
    high = (register >> 3 ^ 1) << 7 | (index >> 3 ^ 1) << 6 | (base >> 3 ^ 1) << 5 | kind
    other = 0 if first is None else first
    second = wide << 7 | (~other & 15) << 3 | (not is_short) << 2 | prefix
    row = (register & 7) << 3
    if not isinstance(last, Place):
        return bytes((0xC4, high, second, opcode, 0xC0 | row | base & 7))
    if is_behind:
        return bytes((0xC4, high, second, opcode, 5 | row, *bytes(DISTANCE_BYTES)))
    offset = last.offset_bytes
    is_near = -128 <= offset <= 127
    mode = (0x40 if is_near else 0x80) | row
    if last.scaled is not None or base & 7 == RSP:
        place = RSP if last.scaled is None else index & 7
        scale = (last.times.bit_length() - 1) << 6
        text = bytes((0xC4, high, second, opcode, mode | RSP, scale | place << 3 | base & 7))
    else:
        text = bytes((0xC4, high, second, opcode, mode | base & 7))
    return text + struct.pack("<b" if is_near else "<i", offset)
