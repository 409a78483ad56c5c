"""Where the largest or smallest along an axis of few elements is, by machine code.

NumPy takes 3 to 9 us for it. NaN is both, of where which is code knows nothing.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Any

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told, told
from polydevice_cpu.algorithms.by_machine.instructions import (
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
    Instructions,
)

MOST = 1 << 14
"""Elements; of more, other code takes less time for each."""

LANES = 16

_NINE = struct.Struct("@9q")

_SOURCE, _RESULT, _PARTS, _BLOCKS, _LENGTH, _STEP, _PART, _RESULT_PART, _MASK = range(9)
"""What columns are told: addresses; parts; blocks of columns; the axis' size; bytes between two of
its elements, of a part, and of its results; which columns the last block has."""

_LANES_THERE, _NAN, _HIGH, _BETTER = 1, 2, 4, 5
_BEST, _X, _PLACES, _NOW, _ONE = 0, 1, 2, 3, 4
_UNORDERED, _GREATER, _LESS = 3, 0x1E, 0x11


class _Extremes(Instructions):
    def __init__(self, *, largest: bool) -> None:
        super().__init__()
        self.largest = largest

    def found(self, mask: int, first: int, second: int, how: int) -> None:
        """Set a mask of elements for which something holds, among those that there are."""
        self.vector(0xC2, mask, first, second, is_memory=False, mask=_LANES_THERE, last_byte=how)


@lru_cache(maxsize=4)
def _where(*, largest: bool, is_wide: bool) -> bytes:
    """Of columns, the first place that has the best; 1 where there is NaN."""
    code = _Extremes(largest=largest)
    code.begin(0)
    code.load(R8, RDI, _SOURCE)
    code.load(R9, RDI, _RESULT)
    code.load(R10, RDI, _STEP)
    code.load(R11, RDI, _PARTS)
    code.raw("b801000000")  # mov eax, 1
    code.vector(0x7C, _ONE, 0, RAX, kind=2, prefix=1, is_memory=False)  # vpbroadcastd
    part = len(code.text)
    code.move(R13, R8)
    code.move(R14, R9)
    code.load(R12, RDI, _BLOCKS)
    block = len(code.text)
    code.raw("b8ffff0000")  # mov eax, 0xffff
    code.compare(R12, 1)
    code.set_if_equal(RAX, RDI, 8 * _MASK)
    code.set_mask(_LANES_THERE, RAX)
    code.vector(LOAD, _BEST, 0, R13, mask=_LANES_THERE)
    code.clear(_PLACES)
    code.clear(_NOW)
    code.move(RBX, R13)
    code.load(RCX, RDI, _LENGTH)
    code.raw("4531ff")  # xor r15d, r15d: whether there was NaN
    element = len(code.text)
    code.vector(LOAD, _X, 0, RBX, mask=_LANES_THERE)
    code.found(_NAN, _X, _X, _UNORDERED)
    code.get_mask(RAX, 2)
    code.plain(0x0B, R15, RAX)  # or
    code.found(_BETTER, _X, _BEST, _GREATER if largest else _LESS)
    code.vector(0x28, _BEST, 0, _X, is_memory=False, mask=_BETTER)
    code.vector(0x28, _PLACES, 0, _NOW, is_memory=False, mask=_BETTER)
    code.vector(0xFE, _NOW, _NOW, _ONE, prefix=1, is_memory=False)  # vpaddd
    code.add(RBX, R10)
    code.again(RCX, element)
    code.plain(0x85, R15, R15)  # test
    nan = code.ahead("0f85")  # jne
    if is_wide:
        code.vector(0x25, _X, 0, _PLACES, kind=2, prefix=1, is_memory=False)  # vpmovsxdq
        code.vector(0x7F, _X, 0, R14, prefix=2, wide=True, mask=_LANES_THERE)  # vmovdqu64
        code.raw("c4e3f930e108")  # kshiftrw k4, k1, 8
        code.vector(
            0x3B, _PLACES, 0, _X, kind=3, prefix=1, wide=True, is_memory=False, last_byte=1
        )  # vextracti64x4
        code.vector(0x25, _X, 0, _X, kind=2, prefix=1, is_memory=False)
        code.vector(0x7F, _X, 0, R14, behind=1, prefix=2, wide=True, mask=_HIGH)
    else:
        code.vector(0x7F, _PLACES, 0, R14, prefix=2, mask=_LANES_THERE)  # vmovdqu32
    code.step(R13, 4 * LANES)
    code.step(R14, (8 if is_wide else 4) * LANES)
    code.again(R12, block)
    code.add(R8, RDI, _PART)
    code.add(R9, RDI, _RESULT_PART)
    code.again(R11, part)
    code.end(0)
    code.here(nan)
    code.end(0, status=1)
    return code.assembled()


def where(shape: tuple[int, ...], axis: int, *, largest: bool, is_wide: bool) -> Told:
    """Return the function of where the first best element along an axis is, and what it is told.

    Addresses are left out. It returns 1 where there is NaN.

    Args:
        shape: of f32, row-major, without sizes of 0.
        axis: which.
        largest: whether the largest are wanted.
        is_wide: whether indices have 8 bytes, instead of 4.
    """
    before, size, behind = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    item = 8 if is_wide else 4
    numbers = _numbers((before, size, behind), behind, item * behind, size * behind * 4)
    return function_of(_where(largest=largest, is_wide=is_wide)), numbers


def _numbers(
    sizes: tuple[int, int, int], side_by_side: int, result_bytes: int, part_bytes: int
) -> Any:
    before, size, behind = sizes
    blocks = -(-side_by_side // LANES)
    mask = (1 << (side_by_side - (blocks - 1) * LANES)) - 1
    return told(_NINE.pack, 0, 0, before, blocks, size, 4 * behind, part_bytes, result_bytes, mask)
