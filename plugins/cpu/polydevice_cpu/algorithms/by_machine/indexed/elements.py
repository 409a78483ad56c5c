"""Elements taken by indices along an axis, and sums up to each position, by machine code.

NumPy takes 6 to 10 us for few elements, most of it to find out where they lie; this 2 ns for each.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import lru_cache

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told, told
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    LOAD,
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
    STORE,
    Instructions,
)

INDEX_BYTES = (4, 8)
"""What indices with a sign may have."""

_SOURCE, _INDICES, _RESULT, _BEFORE, _COUNT, _BEHIND, _SIZE, _PART_BYTES = range(8)
"""What taking is told: addresses; parts of the source; indices along the axis; elements behind
each; the axis' size; bytes of a part."""

_FROM, _TO, _OUTER, _BLOCKS, _LENGTH, _STEP, _PART, _START, _MASK = range(9)
"""What summing is told: addresses; parts; blocks of columns; the axis' size; bytes between two of
its elements, of a part, and up to the first element; which columns the last block has."""

_TAKEN, _SUMMED = struct.Struct("@8q").pack, struct.Struct("@9q").pack
_MASKED = 1
_SUM, _NUMBER = 0, 1


@lru_cache(maxsize=8)
def _taking(item_bytes: int, index_bytes: int) -> bytes:
    """Code that returns 1 where an index lies outside."""
    code = Instructions()
    code.begin(0)
    code.load(R8, RDI, _SOURCE)
    code.load(R9, RDI, _INDICES)
    code.load(R10, RDI, _RESULT)
    code.load(R11, RDI, _SIZE)
    code.load(R12, RDI, _BEHIND)
    code.load(R13, RDI, _BEFORE)
    part = len(code.text)
    code.load(R14, RDI, _COUNT)
    row = len(code.text)
    code.move(R15, R8)
    code.move(RCX, R12)
    element = len(code.text)
    if index_bytes == INDEX_BYTES[0]:
        code.plain(0x63, RAX, R9, 0)  # movsxd
    else:
        code.load(RAX, R9)
    code.step(R9, index_bytes)
    code.move(RDX, RAX)
    code.raw("48c1fa3f4c21da")  # sar rdx, 63; and rdx, r11
    code.add(RAX, RDX)
    code.plain(0x3B, RAX, R11)  # cmp
    outside = code.ahead("0f83")  # jae
    code.times(RAX, R12)
    index = {1: 0, 2: 0x40, 4: 0x80, 8: 0xC0}[item_bytes] | 7  # [r15 + rax * item_bytes]
    load = {1: "410fb614", 2: "410fb714", 4: "418b14", 8: "498b14"}[item_bytes]
    code.raw(load)
    code.text.append(index)
    store = {1: "418812", 2: "66418912", 4: "418912", 8: "498912"}[item_bytes]
    code.raw(store)  # [r10], dl, dx, edx or rdx
    for register in (R10, R15):
        code.step(register, item_bytes)
    code.again(RCX, element)
    code.again(R14, row)
    code.add(R8, RDI, _PART_BYTES)
    code.again(R13, part)
    code.end(0)
    code.here(outside)
    code.end(0, status=1)
    return code.assembled()


def taking(shape: tuple[int, ...], axis: int, count: int, sizes: tuple[int, int]) -> Told:
    """Return the function that takes elements, and what it is told but for addresses.

    It is told those of the source, the indices and the result, which has their shape.

    Args:
        shape: the source's; row-major, as all is. The indices' differs along the axis alone.
        axis: that they count along; negative ones from the end.
        count: how many there are along it.
        sizes: bytes of an element, and of an index.
    """
    before, size, behind = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    numbers = before, count, behind, size, size * behind * sizes[0]
    return function_of(_taking(*sizes)), told(_TAKEN, 0, 0, 0, *numbers)


@lru_cache(maxsize=8)
def _summing(kind: str, *, exclusive: bool) -> bytes:
    code = Instructions()
    code.begin(0)
    code.load(R8, RDI, _FROM)
    code.load(R9, RDI, _TO)
    for register in (R8, R9):
        code.add(register, RDI, _START)
    code.load(R10, RDI, _STEP)
    code.load(R11, RDI, _OUTER)

    def repeated(counter: int, body: Callable[[], None]) -> None:
        start = len(code.text)
        body()
        code.again(counter, start)

    def add() -> None:
        if kind == "f32":
            code.of_vectors(ADD, _SUM, _SUM, _NUMBER)
        else:
            wide = kind == "i64"
            opcode = 0xD4 if wide else 0xFE  # vpaddq, vpaddd
            code.vector(*(opcode, _SUM, _SUM, _NUMBER), prefix=1, is_memory=False, wide=wide)

    def position() -> None:
        code.vector(LOAD, _NUMBER, 0, RAX, mask=_MASKED)
        if not exclusive:
            add()
        code.vector(STORE, _SUM, 0, RBX, mask=_MASKED)
        if exclusive:
            add()
        code.add(RAX, R10)
        code.add(RBX, R10)

    def block() -> None:
        code.raw("b8ffff0000")  # mov eax, 0xffff
        code.compare(R12, 1)
        code.set_if_equal(RAX, RDI, 8 * _MASK)
        code.set_mask(_MASKED, RAX)
        code.clear(_SUM)
        code.move(RAX, R13)
        code.move(RBX, R14)
        code.load(RCX, RDI, _LENGTH)
        repeated(RCX, position)
        code.step(R13, 64)
        code.step(R14, 64)

    def part() -> None:
        code.move(R13, R8)
        code.move(R14, R9)
        code.load(R12, RDI, _BLOCKS)
        repeated(R12, block)
        code.add(R8, RDI, _PART)
        code.add(R9, RDI, _PART)

    repeated(R11, part)
    code.end(0)
    return code.assembled()


KINDS = {"f": {4: "f32"}, "i": {4: "i32", 8: "i64"}, "u": {4: "i32", 8: "i64"}}
"""Elements that are summed, by NumPy's kind and their bytes."""


def summing(
    shape: tuple[int, ...], axis: int, kind: str, *, exclusive: bool, reverse: bool
) -> Told:
    """Return the function that sums up to each position, and what it is told but for addresses.

    Args:
        shape: of what is summed, row-major, without sizes of 0.
        axis: along which.
        kind: of the elements, of `KINDS`.
        exclusive: whether a sum lacks the element at its position.
        reverse: whether it begins at the end.
    """
    item = 8 if kind == "i64" else 4
    lanes = 64 // item
    before, size, behind = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    blocks = -(-behind // lanes)
    step, part = behind * item, size * behind * item
    first = (size - 1) * step if reverse else 0
    left = (behind - (blocks - 1) * lanes) * (item // 4)
    # Vectors are loaded and stored by elements of 4 bytes, whatever is added.
    numbers = told(
        *(_SUMMED, 0, 0, before, blocks, size, -step if reverse else step, part, first),
        (1 << left) - 1,
    )
    return function_of(_summing(kind, exclusive=exclusive)), numbers
