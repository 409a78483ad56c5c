"""One number where indices say, and another elsewhere, by machine code.

NumPy takes 16 us for few of them: it finds which indices are inside, and where.
"""

from __future__ import annotations

import math
from functools import lru_cache

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told
from polydevice_cpu.algorithms.by_machine.indexed.elements import INDEX_BYTES
from polydevice_cpu.algorithms.by_machine.instructions import (
    R8,
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
    RSI,
    Instructions,
)

_INDICES, _ON, _OFF, _RESULT = range(4)
_COUNT, _BEFORE, _BEHIND, _DEPTH, _ROW_BYTES, _PART_BYTES = range(4, 10)
"""What it is told: addresses; numbers of the result; parts, indices of each, and what they are
below; bytes between two numbers along the new axis, and of a part."""

_LOAD = {1: "0fb6", 2: "0fb7", 4: "8b", 8: "488b"}
"""movzx or mov eax or rax, followed by 06 for [rsi]; or edx or rdx, by 16."""
_FILL = {1: "f3aa", 2: "f366ab", 4: "f3ab", 8: "f348ab"}
"""rep stosb, stosw, stosd, stosq."""
_PUT = {1: "41881407", 2: "6641891407", 4: "41891407", 8: "49891407"}
"""mov [r15 + rax], dl, dx, edx or rdx."""


@lru_cache(maxsize=16)
def _emitted(item_bytes: int, index_bytes: int, *, wraps: bool) -> bytes:
    code = Instructions()
    code.begin(0)
    code.load(R8, RDI, _INDICES)
    code.load(R10, RDI, _RESULT)
    code.load(RSI, RDI, _ON)
    code.raw(_LOAD[item_bytes] + "16")
    code.load(RSI, RDI, _OFF)
    code.raw(_LOAD[item_bytes] + "06")
    code.load(RCX, RDI, _COUNT)
    code.move(RBX, RDI)
    code.move(RDI, R10)
    code.raw(_FILL[item_bytes])
    code.move(RDI, RBX)
    code.load(R11, RDI, _DEPTH)
    code.load(R12, RDI, _BEHIND)
    code.load(R13, RDI, _BEFORE)
    code.load(RBP, RDI, _ROW_BYTES)
    part = len(code.text)
    code.move(R14, R12)
    code.move(R15, R10)
    element = len(code.text)
    if index_bytes == INDEX_BYTES[0]:
        code.plain(0x63, RAX, R8, 0)  # movsxd
    else:
        code.load(RAX, R8)
    code.step(R8, index_bytes)
    if wraps:
        code.move(RCX, RAX)
        code.raw("48c1f93f4c21d9")  # sar rcx, 63; and rcx, r11
        code.add(RAX, RCX)
    code.plain(0x3B, RAX, R11)  # cmp
    outside = code.ahead("0f83")  # jae, where it is below 0, too
    code.times(RAX, RBP)
    code.raw(_PUT[item_bytes])
    code.here(outside)
    code.step(R15, item_bytes)
    code.again(R14, element)
    code.add(R10, RDI, _PART_BYTES)
    code.again(R13, part)
    code.end(0)
    return code.assembled()


def prepared(shape: tuple[int, ...], axis: int, sizes: tuple[int, int], *, wraps: bool) -> Told:
    """Return the function and what it is told but for addresses.

    It is told those of indices, of both numbers, and of the result.

    Args:
        shape: of the result, row-major, without sizes of 0.
        axis: which of its axes is new.
        sizes: bytes of a number, 1, 2, 4 or 8, and of an index.
        wraps: whether negative indices count from the end; else they match nothing.
    """
    before, depth, behind = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    item = sizes[0]
    numbers = before * depth * behind, before, behind, depth, item * behind, item * depth * behind
    return function_of(_emitted(*sizes, wraps=wraps)), (0, 0, 0, 0, *numbers)
