"""The first few of rows that lie side by side, 16 rows at a time, by AVX-512.

Of each row the first ones so far are kept in order; an element that comes before the last of them
moves those behind it.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512, parts_of
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    LOAD_WORDS,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    STORE_WORDS,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.ranking.keys import (
    HIGHEST,
    KINDS,
    NAN,
    append_key,
    pair,
    turn_of,
)
from polydevice_cpu.onednn.engine import address_of

LANES = 16
FEW = 16
"""So many are kept at most."""

_IN_REGISTERS = 4
"""Up to so many floats are kept in registers, in order without a jump: three of 6,400 rows of 80
take 137 us so, and 433."""

LEAST = 8
"""So many rows lie side by side at least: of fewer each is ranked for itself."""

SHARED = 1 << 13
"""From so many elements on threads share rows."""

_NUMBERS = (
    *("x", "index", "values", "outer", "rows", "length", "count", "step", "outer_bytes"),
    *("index_step", "index_outer", "value_step", "value_outer", "kept", "kept_bytes"),
    *("turn_highest", "times_nan"),
)
"""What code is told, in numbers of 8 bytes: addresses; how often rows lie behind each other, and
beside; elements of each, how many come first, bytes between elements, and from rows to those behind
them, the same of indices and values; where keys are kept, and how many bytes behind these their
indices; in pairs of 4 bytes what turns the order, the largest number, how far elements lie apart,
and NaN's number. Behind them are the numbers of 16 rows."""

_AT = {name: number for number, name in enumerate(_NUMBERS)}
_SLOTS = "outer", "x", "index", "values", "rows"
_ON_STACK = {name: number for number, name in enumerate(_SLOTS)}
_TURN, _HIGHEST, _NAN, _ZERO, _ROWS, _TIMES, _ONE = range(20, 27)
_KEY, _NUMBER, _BEFORE, _NUMBER_BEFORE = 1, 2, 3, 4
_LIVE, _OTHER, _HERE, _NEXT, _HIGH = 1, 2, 3, 4, 5
"""Masks: the rows that there are; of any use; those whose element comes before the one that is
looked at, and before the next; the upper half."""


def code_of(
    shape: tuple[int, int, int],
    dtype: np.dtype[np.generic],
    count: int,
    index_bytes: int,
    *,
    descending: bool,
    threads: int = 1,
) -> Code | None:
    """Return code that does what that of `rows.code_of` does, where rows lie side by side."""
    outer, length, inner = shape
    kind = KINDS.get(dtype)
    if kind is None or not has_avx512() or inner < LEAST or not outer:
        return None
    if not 0 < count <= min(length, FEW) or length * inner >= 1 << 28:
        return None
    few = count if kind == "f4" and count <= _IN_REGISTERS else 0
    told, rooms = list[Told](), list[Array]()
    lines = -(-inner // LANES)  # whole vectors of rows
    is_much = outer * length * inner >= SHARED
    for part in parts_of(max(outer, lines), threads, is_worth_it=is_much):
        (first, behind), (left, right) = part, (0, inner)
        if outer < lines:
            (first, behind), (left, right) = (0, outer), part
            left, right = LANES * left, min(LANES * right, inner)
        room = np.empty(2 * count * LANES, np.int32)
        rooms.append(room)
        before = first * length * inner + left, first * count * inner + left
        lanes = np.arange(LANES, dtype=np.int32)
        numbers = (
            *(4 * before[0], index_bytes * before[1], 4 * before[1]),
            *(behind - first, right - left, length, count, 4 * inner, 4 * length * inner),
            *(index_bytes * inner, index_bytes * count * inner, 4 * inner, 4 * count * inner),
            *(address_of(room), 4 * LANES * count),
            *(pair(turn_of(descending=descending), HIGHEST), pair(inner, NAN)),
            *array("q", lanes.tobytes()),
        )
        told.append((function_of(_emitted(kind, index_bytes, few)), numbers))
    return Code.shared(told, threads, rooms)


@lru_cache(maxsize=16)
def _emitted(kind: str, index_bytes: int, few: int) -> bytes:
    """Code for such elements, of which so few are kept in registers, if any.

    R8: 16 rows; R9: their element of number RAX; R13: those kept, before their indices.
    """
    code = Instructions()
    code.begin(len(_SLOTS))
    for slot in _SLOTS[:4]:
        code.copy(_ON_STACK[slot], RDI, _AT[slot])
    constants = (
        (_TURN, "turn_highest", 0),
        (_HIGHEST, "turn_highest", 1),
        (_TIMES, "times_nan", 0),
        (_NAN, "times_nan", 1),
    )
    for register, name, behind in constants:
        code.spread(register, RDI, behind=2 * _AT[name] + behind)
    code.clear(_ZERO)
    code.vector(LOAD, _ROWS, 0, RDI, offset_bytes=8 * len(_NUMBERS))
    code.load(R13, RDI, _AT["kept"])
    code.load(R14, RDI, _AT["kept_bytes"])
    outer = len(code.text)
    for register, slot in ((R8, "x"), (R11, "index"), (R12, "values")):
        code.load(register, RSP, _ON_STACK[slot])
    code.load(R15, RDI, _AT["rows"])
    line = len(code.text)
    code.raw("beffffffff4983ff107305c4e200f5f6")  # mov esi, -1; cmp r15, 16; jae over; bzhi
    code.set_mask(_LIVE, RSI)
    _append_few(code, few) if few else _append_kept(code, kind)
    _append_results(code, index_bytes)
    code.step(R8, 4 * LANES)
    code.step(R11, index_bytes * LANES)
    code.step(R12, 4 * LANES)
    code.step(R15, -LANES)
    code.jump(line, "0f8f")  # jg
    steps = ("x", "outer_bytes"), ("index", "index_outer"), ("values", "value_outer")
    for slot, name in steps:
        code.forward(_ON_STACK[slot], RDI, _AT[name])
    code.again(RSP, outer, _ON_STACK["outer"])
    code.end(len(_SLOTS))
    return code.assembled()


def _append_kept(code: Instructions, kind: str) -> None:
    """Append what keeps the first ones of 16 rows."""
    code.move(R9, R8)
    code.raw("31c0")  # xor eax, eax
    element = len(code.text)
    code.vector(LOAD, _KEY, 0, R9, mask=_LIVE)
    append_key(code, kind, _KEY, _BEFORE, (_TURN, _HIGHEST, _NAN, _ZERO), _OTHER)
    # R10: where the last one of those kept is, or is put where there are fewer so far.
    code.load(R10, RDI, _AT["count"])
    code.plain(0x3B, RAX, R10)  # cmp
    code.raw("4c0f42d0")  # cmovb r10, rax
    are_fewer = code.ahead("0f82")  # jb
    code.step(R10, -1)
    code.raw("49c1e206")  # shl r10, 6
    code.add(R10, R13)
    code.vector(0x1E, _HERE, _KEY, R10, kind=3, prefix=1, mask=_LIVE, last_byte=6)  # vpcmpud, above
    code.test_any(3)
    worse = [code.ahead("0f84")]
    begins = code.ahead()
    code.here(are_fewer)
    code.raw("49c1e206")  # shl r10, 6
    code.add(R10, R13)
    code.copy_mask(3, 1)
    code.here(begins)
    code.vector(0x7C, _NUMBER, 0, RAX, kind=2, prefix=1, is_memory=False)  # vpbroadcastd
    worse.append(_append_moves(code))
    for each in worse:
        code.here(each)
    code.add(R9, RDI, _AT["step"])
    code.raw("48ffc0")  # inc rax
    code.plain(0x3B, RAX, RDI, 8 * _AT["length"])
    code.jump(element, "0f82")  # jb


def _append_few(code: Instructions, count: int) -> None:
    """Append what keeps the first few floats of 16 rows: none has the number 0."""
    kept, numbers = range(8, 8 + count), range(12, 12 + count)
    for register in (*kept, _NUMBER):
        code.clear(register)
    for register in numbers:
        code.clear(register)
    code.raw("b801000000")  # mov eax, 1
    code.vector(0x7C, _ONE, 0, RAX, kind=2, prefix=1, is_memory=False)  # vpbroadcastd
    code.move(R9, R8)
    code.load(RCX, RDI, _AT["length"])
    element = len(code.text)
    code.vector(LOAD, _KEY, 0, R9, mask=_LIVE)
    append_key(code, "f4", _KEY, _BEFORE, (_TURN, _HIGHEST, _NAN, _ZERO), _OTHER)
    for number, register in enumerate(kept):
        code.vector(
            0x1E, 2 + number, _KEY, register, kind=3, prefix=1, is_memory=False, last_byte=6
        )  # vpcmpud, above
    for place in reversed(range(count)):
        for registers, new in ((kept, _KEY), (numbers, _NUMBER)):
            moved = (2 + place, new), (1 + place, registers[place - 1])
            for mask, source in moved[: 1 + (place > 0)]:
                code.vector(0x28, registers[place], 0, source, is_memory=False, mask=mask)
    code.vector(0xFE, _NUMBER, _NUMBER, _ONE, prefix=1, is_memory=False)
    code.add(R9, RDI, _AT["step"])
    code.again(RCX, element)
    for number in range(count):
        code.vector(STORE_WORDS, numbers[number], 0, R13, R14, prefix=2, behind=number)


def _append_moves(code: Instructions) -> int:
    """Append what puts elements where they belong; return a jump behind it."""
    move = len(code.text)
    code.plain(0x3B, R10, R13)  # cmp
    is_first = code.ahead("0f84")
    code.vector(LOAD_WORDS, _BEFORE, 0, R10, prefix=2, behind=-1)
    code.vector(LOAD_WORDS, _NUMBER_BEFORE, 0, R10, R14, prefix=2, behind=-1)
    code.vector(
        0x1E, _NEXT, _KEY, _BEFORE, kind=3, prefix=1, is_memory=False, mask=_HERE, last_byte=6
    )
    _append_put(code, _BEFORE, _NUMBER_BEFORE)
    code.step(R10, -64)
    code.copy_mask(3, 4)
    code.test_any(3)
    code.jump(move, "0f85")
    done = code.ahead()
    code.here(is_first)
    code.raw("c5dc47e4")  # kxorw k4, k4, k4
    _append_put(code, _KEY, _NUMBER)
    code.here(done)
    return code.ahead()


def _append_put(code: Instructions, key: int, number: int) -> None:
    """Append what puts elements at R10, or others where those come before them, too."""
    for own, other, index in ((_KEY, key, None), (_NUMBER, number, R14)):
        code.vector(0x64, 5, own, other, kind=2, prefix=1, is_memory=False, mask=_NEXT)  # vpblendmd
        code.vector(STORE_WORDS, 5, 0, R10, index, prefix=2, mask=_HERE)


def _append_results(code: Instructions, index_bytes: int) -> None:
    """Append what writes indices of those kept of 16 rows, and the elements."""
    code.move(R10, R13)
    code.move(RSI, R11)
    code.move(RDX, R12)
    code.load(RCX, RDI, _AT["count"])
    code.raw("c4e3f930e908")  # kshiftrw k5, k1, 8
    kept = len(code.text)
    code.vector(LOAD_WORDS, 2, 0, R10, R14, prefix=2)
    code.vector(0x40, 3, 2, _TIMES, kind=2, prefix=1, is_memory=False)  # vpmulld
    code.vector(0xFE, 3, 3, _ROWS, prefix=1, is_memory=False)
    code.raw("c5f890d1")  # kmovw k2, k1
    code.clear(4)
    code.gather(4, R8, 3, _OTHER)
    code.vector(STORE_WORDS, 4, 0, RDX, prefix=2, mask=_LIVE)
    if index_bytes == 4:
        code.vector(STORE_WORDS, 2, 0, RSI, prefix=2, mask=_LIVE)
    else:
        code.vector(
            0x3B, 2, 0, 3, kind=3, prefix=1, is_memory=False, wide=True, last_byte=1
        )  # vextracti64x4
        for behind, (half, mask) in enumerate(((2, _LIVE), (3, _HIGH))):
            code.vector(0x35, half, 0, half, kind=2, prefix=1, is_memory=False)  # vpmovzxdq
            code.vector(STORE_WORDS, half, 0, RSI, behind=behind, prefix=2, mask=mask, wide=True)
    code.add(RSI, RDI, _AT["index_step"])
    code.add(RDX, RDI, _AT["value_step"])
    code.step(R10, 64)
    code.again(RCX, kept)
