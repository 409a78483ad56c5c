"""Functions of numbers that have been rounded to 16 bits: looked up, as there are 65536 of these.

A look takes 5 ns for 16 numbers by machine code, most of it for memory; a logistic function with a
rounding behind it and before it takes 11, GELU with four 20.
"""

from __future__ import annotations

import functools
import struct
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import PARTS, Code, Told
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    MAX,
    MIN,
    MUL,
    R8,
    R9,
    RAX,
    RCX,
    RDI,
    RDX,
    STORE,
    Instructions,
)
from polydevice_cpu.onednn.engine import address_of

LEVELS = 1 << 16

_SHARED = 1 << 16
"""From so many numbers on threads share them: they take some 20 us."""

_LANES = 16
_NUMBERS = struct.Struct("<5q3fi")
"""Numbers, results, whole vectors, which of the last one's numbers there are, the table, limits,
one by the scale, and the level of 0."""


class Grid(NamedTuple):
    """What numbers have been rounded to: (level - zero) * scale.

    Attributes:
        scale: above 0.
        zero: the zero point.
        least: the lowest level; there are 65536.
    """

    scale: float
    zero: int
    least: int

    @property
    def moved(self) -> int:
        """The zero point of levels that begin with 0."""
        return self.zero - self.least

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest number."""
        scale = np.float32(self.scale)
        least, most = (np.float32(n) * scale for n in (-self.moved, LEVELS - 1 - self.moved))
        return float(least), float(most)

    @property
    def numbers(self) -> Array:
        """All of them, ascending: [65536] f32."""
        levels = np.arange(-self.moved, LEVELS - self.moved).astype(np.float32)
        numbers: Array = levels * np.float32(self.scale) + np.float32(0)  # no zero is negative
        return numbers

    @property
    def constants(self) -> tuple[float, float, float, int]:
        """What code finds levels with: the limits, one by the scale, and the level of 0."""
        return *self.limits, 1 / self.scale, self.moved


def looked_up(grid: Grid, table: Array, x: Array) -> Array:
    """Return table[level of x]; NaN is taken for the least number.

    Args:
        grid: of x.
        table: [65536].
        x: any shape, f32.
    """
    least, most = grid.limits
    kept = np.clip(np.where(np.isnan(x), np.float32(least), x), least, most)
    levels = np.rint(kept / np.float32(grid.scale)).astype(np.int32) + grid.moved
    return np.asarray(table.take(levels, mode="clip"))


def code(grid: Grid, table: Array, count: int, threads: int) -> Code | None:
    """Return code that is told where so many numbers and their results are; None without any.

    Args:
        grid: of the numbers.
        table: [65536] f32.
        count: of numbers; 1 or more.
        threads: how many may share the work.
    """
    function = function_of(_look())
    if function is None:
        return None
    each = count
    if threads > 1 and count >= _SHARED:
        each = -(-count // (threads * PARTS * _LANES)) * _LANES
    told: list[Told] = []
    for first in range(0, count, each):
        own = min(each, count - first)
        sizes = 4 * first, 4 * first, own // _LANES, (1 << own % _LANES) - 1, address_of(table)
        told.append((function, _NUMBERS.pack(*sizes, *grid.constants)))
    return Code.shared(told, threads, table)


_CONSTANTS = _LEAST, _MOST, _INVERSE, _MOVED = range(16, 20)
"""Vectors with `Grid.constants`."""


def append_constants(code: Instructions, behind: int) -> None:
    """Append what loads a grid's constants, so many numbers of 4 bytes behind RDI."""
    for number, register in enumerate(_CONSTANTS):
        code.spread(register, RDI, behind=behind + number)


def append_level(code: Instructions, register: int) -> None:
    """Append what makes numbers their levels, which begin with 0; NaN becomes the least one."""
    code.of_vectors(MAX, register, register, _LEAST)
    code.of_vectors(MIN, register, register, _MOST)
    code.of_vectors(MUL, register, register, _INVERSE)
    code.vector(0x5B, register, 0, register, prefix=1, is_memory=False)  # vcvtps2dq
    code.vector(0xFE, register, register, _MOVED, prefix=1, is_memory=False)  # vpaddd


@functools.cache
def _look() -> bytes:
    """Return code that looks numbers up; see `_NUMBERS`."""
    result, level = 1, 0
    code = Instructions()
    code.begin(0)
    for number, register in enumerate((R8, R9, RCX, RAX, RDX)):
        code.load(register, RDI, number)
    append_constants(code, 10)
    code.set_mask(2, RAX)

    def append(mask: int) -> None:
        code.vector(LOAD, level, 0, R8, mask=mask)
        append_level(code, level)
        code.copy_mask(1, mask) if mask else code.fill_mask(1)
        code.clear(result)  # or each look would wait for the one before
        code.gather(result, RDX, level, 1)
        code.vector(STORE, result, 0, R9, mask=mask)

    code.compare(RCX, 0)
    are_few = code.ahead("0f84")
    next_vector = len(code.text)
    append(0)
    code.step(R8, 4 * _LANES)
    code.step(R9, 4 * _LANES)
    code.again(RCX, next_vector)
    code.here(are_few)
    code.compare(RAX, 0)
    is_done = code.ahead("0f84")
    append(2)
    code.here(is_done)
    code.end(0)
    return code.assembled()
