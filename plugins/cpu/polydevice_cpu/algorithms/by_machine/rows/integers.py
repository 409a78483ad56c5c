"""Few integers reduced along an axis, by machine code.

NumPy takes 3 us for it, and ten times that where others' code ran before.
"""

from __future__ import annotations

import math
from functools import lru_cache

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told
from polydevice_cpu.algorithms.by_machine.instructions import (
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    RAX,
    RBX,
    RCX,
    RDI,
    Instructions,
)

MOST = 1 << 12
"""Elements; of more, NumPy takes less time for each."""

_SOURCE, _RESULT, _PARTS, _BEHIND, _LENGTH, _STEP, _REST = range(7)
"""What it is told: addresses; parts; elements behind each; the axis' size; bytes between two of its
elements, and from behind the first of a part's elements to the next part."""

_JOIN = {
    "sum": "4801c8",  # add rax, rcx
    "product": "480fafc1",  # imul rax, rcx
    "largest": "4839c1480f4fc1",  # cmp rcx, rax; cmovg rax, rcx
    "smallest": "4839c1480f4cc1",  # cmp rcx, rax; cmovl rax, rcx
}
ITEMS = (4, 8)
"""Bytes of elements, which have a sign."""


@lru_cache(maxsize=8)
def _reducing(how: str, item_bytes: int) -> bytes:
    code = Instructions()
    code.begin(0)
    code.load(R8, RDI, _SOURCE)
    code.load(R9, RDI, _RESULT)
    code.load(R10, RDI, _STEP)
    code.load(R11, RDI, _PARTS)
    is_wide = item_bytes == ITEMS[1]
    part = len(code.text)
    code.load(R12, RDI, _BEHIND)
    element = len(code.text)
    code.move(RBX, R8)
    code.load(R13, RDI, _LENGTH)
    code.plain(0x8B if is_wide else 0x63, RAX, RBX, 0)  # mov, or movsxd
    code.plain(0xFF, 1, R13)  # dec
    whole = code.ahead("0f84")  # je
    term = len(code.text)
    code.add(RBX, R10)
    code.plain(0x8B if is_wide else 0x63, RCX, RBX, 0)
    code.raw(_JOIN[how])
    code.again(R13, term)
    code.here(whole)
    code.raw("498901" if is_wide else "418901")  # mov [r9], rax or eax
    code.step(R8, item_bytes)
    code.step(R9, item_bytes)
    code.again(R12, element)
    code.add(R8, RDI, _REST)
    code.again(R11, part)
    code.end(0)
    return bytes(code.text)


def prepared(shape: tuple[int, ...], axis: int, item_bytes: int, how: str) -> Told | None:
    """Return the function that reduces along an axis, and what it is told but for addresses.

    Args:
        shape: of integers with a sign, row-major.
        axis: which.
        item_bytes: of an element, one of `ITEMS`.
        how: `sum`, `product`, `largest` or `smallest`; what is too large wraps around.

    Returns:
        None where there are too many elements, or none.
    """
    before, size, behind = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if not 0 < before * size * behind <= MOST:
        return None
    rest = (size - 1) * behind * item_bytes
    told = 0, 0, before, behind, size, behind * item_bytes, rest
    return function_of(_reducing(how, item_bytes)), told
