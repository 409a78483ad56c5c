"""Products of small f64 matrices, for processors with AVX-512: oneDNN has none.

NumPy takes 5 us for one of 70x11 and 11x24, most of it around OpenBLAS, and this 1.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    STORE,
    Instructions,
)

MOST, MOST_TERMS = 1 << 18, 512
"""Multiplications of all matrices at most, and of a sum: of more, OpenBLAS takes as long."""

LANES, ROWS, MOST_VECTORS = 8, 6, 4
"""Numbers of a vector, rows that are computed at once, and vectors of each."""

(FIRST, SECOND, RESULT) = range(3)
(BATCHES, FIRST_BATCH, SECOND_BATCH, RESULT_BATCH) = range(3, 7)
(PANELS, PANEL_BYTES, TILES, REST, TERMS) = range(7, 12)
(FIRST_ROW, SECOND_ROW, RESULT_ROW, MASK) = range(12, 16)
"""What code is told: addresses; how many matrices there are and bytes from one to the next; how
many panels of columns there are, their bytes, tiles of rows, rows left, and terms; bytes from row
to row, and the mask of a panel's last vector."""

_BATCHES_LEFT, _PANELS_LEFT, _FIRST_NOW, _SECOND_NOW, _RESULT_NOW = range(5)
_SECOND_PANEL, _RESULT_PANEL = 5, 6
"""Numbers on the stack."""

_FACTOR, _COLUMNS, _SOME = 31, 24, 1


class Sides(NamedTuple):
    """Bytes from row to row, and from matrix to matrix."""

    row: int
    batch: int


def code_of(
    sizes: tuple[int, int, int, int], first: Sides, second: Sides, result: Sides
) -> Code | None:
    """Return code that is told where two matrices and their product are; None without.

    Args:
        sizes: matrices, rows, terms and columns.
        first: how the first one lies; elements of a row lie next to each other.
        second: likewise.
        result: likewise.
    """
    batches, rows, terms, columns = sizes
    if not 0 < math.prod(sizes) <= MOST or terms > MOST_TERMS or not has_avx512():
        return None
    batch = (batches, first.batch, second.batch, result.batch)
    down = (*divmod(rows, ROWS), terms, first.row, second.row, result.row)
    told: list[Told] = []
    vectors = -(-columns // LANES)
    whole, width = divmod(vectors, MOST_VECTORS)
    if columns % LANES and not width:  # the last panel has a mask
        whole, width = whole - 1, MOST_VECTORS
    for number, panels, begin in (
        (MOST_VECTORS, whole, 0),
        (width, 1, whole * MOST_VECTORS * LANES),
    ):
        if not number or not panels:
            continue
        left = min(columns - begin - (number - 1) * LANES, LANES)
        numbers = (0, 8 * begin, 8 * begin, *batch, panels, 8 * LANES * number, *down)
        told.append((function_of(_code(number)), (*numbers, (1 << left) - 1)))
    return Code.of(told)


@lru_cache(maxsize=4)
def _code(vectors: int) -> bytes:
    return _Product(vectors).code()


class _Product(Instructions):
    """Code for panels of so many vectors of columns.

    R8, R9, R10: the first matrix' row, the second's panel, and the result's; R11, RSI: from row to
    row of the first, and the result; R12, R13: tiles and rows left; R14: from row to row of the
    second.
    """

    def __init__(self, vectors: int) -> None:
        super().__init__()
        self.vectors = vectors

    def code(self) -> bytes:
        """All of it."""
        self.begin(7)
        for slot, number in (
            (_BATCHES_LEFT, BATCHES),
            (_FIRST_NOW, FIRST),
            (_SECOND_NOW, SECOND),
            (_RESULT_NOW, RESULT),
        ):
            self.copy(slot, RDI, number)
        self.load(RAX, RDI, MASK)
        self.set_mask(_SOME, RAX)
        self.load(R11, RDI, FIRST_ROW)
        self.load(R14, RDI, SECOND_ROW)
        batch = len(self.text)
        self.copy(_PANELS_LEFT, RDI, PANELS)
        self.copy(_SECOND_PANEL, RSP, _SECOND_NOW)
        self.copy(_RESULT_PANEL, RSP, _RESULT_NOW)
        panel = len(self.text)
        self.panel()
        self.forward(_SECOND_PANEL, RDI, PANEL_BYTES)
        self.forward(_RESULT_PANEL, RDI, PANEL_BYTES)
        self.again(RSP, panel, _PANELS_LEFT)
        for slot, number in (
            (_FIRST_NOW, FIRST_BATCH),
            (_SECOND_NOW, SECOND_BATCH),
            (_RESULT_NOW, RESULT_BATCH),
        ):
            self.forward(slot, RDI, number)
        self.again(RSP, batch, _BATCHES_LEFT)
        self.end(7)
        return self.assembled()

    def panel(self) -> None:
        """Append tiles of rows, then the rows that are left."""
        self.load(R8, RSP, _FIRST_NOW)
        self.load(R9, RSP, _SECOND_PANEL)
        self.load(R10, RSP, _RESULT_PANEL)
        self.load(RSI, RDI, RESULT_ROW)
        for number, rows, counter in ((TILES, ROWS, R12), (REST, 1, R13)):
            self.load(counter, RDI, number)
            self.compare(counter, 0)
            none = self.ahead("0f84")
            start = len(self.text)
            self.tile(rows)
            self.again(counter, start)
            self.here(none)

    def rows_at(self, rows: int, step: int) -> list[tuple[int, int | None, int]]:
        """Return where rows are: RAX is at the first one, RBX at the fourth."""
        behind = (None, 1), (step, 1), (step, 2)
        return [((RAX, RBX)[row // 3], *behind[row % 3]) for row in range(rows)]

    def point(self, base: int, step: int, rows: int) -> None:
        """Append RAX = base, RBX = base + 3 steps, if there are so many rows."""
        self.move(RAX, base)
        if rows > 3:
            self.scaled(RBX, RAX, step, 2)
            self.add(RBX, step)

    def tile(self, rows: int) -> None:
        """Append the sums of some rows, and what goes on to the next ones."""
        for sum_ in range(rows * self.vectors):
            self.clear(sum_)
        self.point(R8, R11, rows)
        self.move(RDX, R9)
        self.load(RCX, RDI, TERMS)
        term = len(self.text)
        for vector in range(self.vectors):
            mask = _SOME if vector == self.vectors - 1 else 0
            given = LOAD, _COLUMNS + vector, 0, RDX
            self.vector(*given, behind=vector, prefix=1, wide=True, mask=mask)
        for row, (base, index, times) in enumerate(self.rows_at(rows, R11)):
            self.vector(0x19, _FACTOR, 0, base, index, times, kind=2, prefix=1, wide=True)
            for vector in range(self.vectors):
                terms = row * self.vectors + vector, _FACTOR, _COLUMNS + vector
                self.vector(0xB8, *terms, kind=2, prefix=1, is_memory=False, wide=True)
        self.step(RAX, 8)
        if rows > 3:
            self.step(RBX, 8)
        self.add(RDX, R14)
        self.again(RCX, term)
        self.point(R10, RSI, rows)
        for row, (base, index, times) in enumerate(self.rows_at(rows, RSI)):
            self.store_row(row * self.vectors, base, index, times)
        for register, step in ((R8, R11), (R10, RSI)):
            if rows == 1:
                self.add(register, step)
            else:  # rows are 6
                self.scaled(register, register, step, 4)
                self.scaled(register, register, step, 2)

    def store_row(self, first: int, base: int, index: int | None, times: int) -> None:
        """Append what stores the sums of a row, the last ones by the mask."""
        self.move(RBP, base)
        if index is not None:
            self.scaled(RBP, RBP, index, times)
        for vector in range(self.vectors):
            mask = _SOME if vector == self.vectors - 1 else 0
            given = STORE, first + vector, 0, RBP
            self.vector(*given, behind=vector, prefix=1, wide=True, mask=mask)
