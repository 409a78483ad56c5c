"""Windows over numbers of 16 bits, which are multiplied as two digits of 8 bits."""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.amx.kernel import Form
from polydevice_cpu.algorithms.by_machine.amx.layer import (
    Kept,
    Matrices,
    Weights,
    calls_at_positions,
    calls_of_pictures,
)
from polydevice_cpu.algorithms.by_machine.amx.rooms import rooms
from polydevice_cpu.algorithms.by_machine.code import PARTS, Code, Phase, Told, Within, as_numbers
from polydevice_cpu.algorithms.by_machine.indexed.levels import (
    Grid,
    append_constants,
    append_level,
)
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    R8,
    R9,
    R10,
    R11,
    R12,
    RAX,
    RCX,
    RDI,
    RSI,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.following import Link
from polydevice_cpu.algorithms.by_machine.windows.integers import Held, Integers
from polydevice_cpu.algorithms.by_machine.windows.sums import Constants

DIGITS = 2
"""Of a number; the upper ones of a position, or of all pictures, come first."""

_LANES, _FEW = 16, 1 << 16
"""Numbers of a vector; and numbers that are not shared by threads: they take some 10 us."""

_ADDRESSES = 5
"""Of floats, what is added, zero point, results and digits."""
_FLOATS, _DIGITS = 0, 4
_ROWS, _ROW_STEP, _LOWER, _WHOLE, _MASK, _REST, _PAIR_1, _PAIR_2 = range(_ADDRESSES, _ADDRESSES + 8)
"""What it is told: rows; bytes from the digits of one to the next one's, and from upper digits to
lower ones; whole vectors of a row, the mask of what is behind them, and how many numbers that is;
limits, one by the scale and the zero point."""


@dataclass(frozen=True, eq=False)
class Digits:
    """A layer whose source has been rounded to 16 bits, and its weights to 8.

    Attributes:
        grid: of the source.
        matrices: what is the same for all sizes.
    """

    grid: Grid
    matrices: Matrices

    @classmethod
    def of(
        cls,
        grid: Grid,
        weights: Weights,
        factors: Array,
        bias: Array | None,
        links: Sequence[Link],
    ) -> Digits:
        """Prepare.

        Args:
            grid: of the source.
            weights: of windows.
            factors: what these are multiplied by, [channels of the result], f32.
            bias: of each channel of the result, f32.
            links: what follows.
        """
        scales = np.float32(grid.scale) * factors
        integers = Integers(Held.UNSIGNED, Held.FLOATS, has_zero=True)
        chain = tuple(link[0] for link in links)
        form = Form(False, False, bias is not None, integers, chain, DIGITS)
        constants = Constants(None, bias, None, [link[1:] for link in links], scales=scales)
        return cls(grid, Matrices(weights, constants, form))

    @property
    def zero(self) -> Array:
        """The zero point's digits, which code reads."""
        return np.array(divmod(self.grid.moved, 256), np.int32)

    def room(self, positions: int) -> int:
        """Return how many bytes digits of so many positions of a source take."""
        return positions * DIGITS * self.matrices.weights.channels

    def code(self, positions: int, threads: int) -> Code | None:
        """Return code of windows of one element.

        It is told floats, what is added, zero point, results and digits.

        Args:
            positions: how many.
            threads: how many share the work.
        """
        channels = self.matrices.weights.channels
        calls = calls_at_positions(self.matrices, positions, threads)
        step = DIGITS * channels
        splits = [
            self._told((4 * first * channels, first * step), (count, channels), step, channels)
            for first, count in _parts(positions, channels, threads)
        ]
        return self._phases(splits, calls, threads)

    def code_of_pictures(
        self,
        source: tuple[int, ...],
        result: tuple[int, ...],
        windows: Windows,
        threads: int,
    ) -> Code | None:
        """Return code of pictures, which is told the same; None where rows are too long.

        Args:
            source: [N, C, H, W], whose channels lie next to each other.
            result: likewise.
            windows: where they lie.
            threads: how many share the work.
        """
        calls = calls_of_pictures(self.matrices, source, result, windows, threads)
        numbers = math.prod(source)
        splits = [
            self._told((4 * first * _LANES, first * _LANES), (1, own), 0, numbers)
            for first, count in _parts(-(-numbers // _LANES), _LANES, threads)
            for own in (min(count * _LANES, numbers - first * _LANES),)
        ]
        return self._phases(splits, calls, threads)

    def _phases(
        self, splits: Sequence[tuple[int, ...]], calls: Sequence[Told] | None, threads: int
    ) -> Code | None:
        """Code that finds digits, and then multiplies them."""
        split = function_of(_split())
        if calls is None or split is None:
            return None
        first: Phase = [Within(split, numbers, (0,)) for numbers in splits]
        then = [Within(function, as_numbers(numbers), (0,)) for function, numbers in calls]
        return Code.in_phases([first, then], threads, Kept(self.matrices, rooms()))

    def _told(
        self, begins: tuple[int, int], sizes: tuple[int, int], step: int, lower: int
    ) -> tuple[int, ...]:
        """What code is told that finds digits of some rows of so many numbers."""
        rows, count = sizes
        rest = count % _LANES
        numbers = struct.pack("<fffi", *self.grid.constants)
        told = rows, step, lower, count // _LANES, (1 << rest) - 1, rest
        return begins[0], 0, 0, 0, begins[1], *told, *struct.unpack("<qq", numbers)


def _parts(rows: int, numbers: int, threads: int) -> list[tuple[int, int]]:
    """The first row of each part of the work, of rows of so many numbers, and how many it has."""
    parts = min(threads * PARTS, rows) if threads > 1 and rows * numbers > _FEW else 1
    ends = [rows * part // parts for part in range(parts + 1)]
    return [(start, end - start) for start, end in itertools.pairwise(ends)]


@functools.cache
def _split() -> bytes:
    """Return code that finds both digits of numbers, row by row."""
    upper, level = 1, 0
    code = Instructions()
    code.begin(0)
    code.load(RSI, RDI, _FLOATS)
    code.load(R8, RDI, _DIGITS)
    code.load(R9, RDI, _LOWER)
    code.load(R10, RDI, _ROWS)
    code.load(RAX, RDI, _MASK)
    code.set_mask(1, RAX)
    append_constants(code, 2 * _PAIR_1)

    def append(mask: int) -> None:
        code.vector(LOAD, level, 0, RSI, mask=mask)
        append_level(code, level)
        code.shifted(upper, level, 8)
        for digit, place in ((upper, R11), (level, R12)):
            code.vector(0x31, digit, 0, place, kind=2, prefix=2, mask=mask)  # vpmovdb

    next_row = len(code.text)
    code.load(RCX, RDI, _WHOLE)
    code.move(R11, R8)
    code.scaled(R12, R8, R9, 1)
    code.add(R8, RDI, _ROW_STEP)
    code.compare(RCX, 0)
    are_few = code.ahead("0f84")
    next_vector = len(code.text)
    append(0)
    for register, size_bytes in ((RSI, 4 * _LANES), (R11, _LANES), (R12, _LANES)):
        code.step(register, size_bytes)
    code.again(RCX, next_vector)
    code.here(are_few)
    code.compare(RAX, 0)
    is_whole = code.ahead("0f84")
    append(1)
    code.load(RCX, RDI, _REST)
    code.scaled(RSI, RSI, RCX, 4)
    code.here(is_whole)
    code.again(R10, next_row)
    code.end(0)
    return code.assembled()
