"""Products of few rows with a matrix, and what follows, in the order in which oneDNN adds up.

A primitive takes 0.2 to 0.5 us besides what it computes, and twice that where others' code ran
before.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told, has_avx512
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
    RBP,
    RBX,
    RCX,
    RDX,
    STORE,
)
from polydevice_cpu.algorithms.by_machine.rows.chain import Chain, Operand, Step
from polydevice_cpu.algorithms.by_machine.small import Form

LANES = 16
PART = 64
"""Columns of a part of packed weights, which lie next to each other for each term."""

MOST_TERMS = 512
"""Of more, oneDNN adds sums of some."""

ROWS, VECTORS, OF_ONE = 6, 4, 16
"""Rows and vectors of them that are computed at once; of one row, so many vectors."""

MOST, MOST_GATHERED = 1 << 17, 256
"""Numbers that are multiplied, and vectors of a matrix that are gathered from columns which lie
next to each other, row by row: of more, oneDNN takes less."""

MOST_CALLS = 16
"""That compute a product together."""

_ROWS_AT, _OPERANDS_AT = (R8, R9, R10, R11, R12, R13), (R8, R9, R10, R11, R12, R13, RBX)
_PARTS_AT = RBX, RBP, R15, RDX
_WEIGHTS, _SPREAD, _LANES, _SOME = 24, 24, 30, 1
_UNROLLED = 4
_FUSED = 0xB8
"""Register += first * second."""


class Side(NamedTuple):
    """How rows of numbers lie, in bytes.

    Attributes:
        begin: where the first one begins, behind its address.
        row: from one to the next; of weights from term to term.
        is_row: whether a row has a number for each column; else one for all.
    """

    begin: int
    row: int
    is_row: bool = True


class Tile(NamedTuple):
    """What is computed by one call.

    Attributes:
        rows, columns, terms: how many.
        part: bytes between parts of the weights: of `PART` columns, or `LANES` turned ones.
        across: bytes between columns of these.
        source, weights, result: how they lie.
        operands: what the chain reads.
    """

    rows: int
    columns: int
    terms: int
    part: int
    across: int
    source: Side
    weights: Side
    operands: tuple[Side, ...]
    result: Side


class Weights(NamedTuple):
    """How a matrix lies.

    Attributes:
        form: its sizes, and strides in bytes; as they would be, if it is packed.
        part: bytes between parts of `PART` columns, if it is packed; else 0.
    """

    form: Form
    part: int = 0


def prepared(
    source: Form, weights: Weights, operands: Sequence[Form], result: Form, steps: Sequence[Step]
) -> list[Told] | None:
    """Return code that is told addresses of source, weights, operands and result.

    Args:
        source: [..., rows, terms]; see `Form`.
        weights: [..., terms, columns].
        operands: what the steps read; sizes are those of the result or 1.
        result: [..., rows, columns].
        steps: what is done to sums.

    Returns:
        None where there are too many numbers, or they lie otherwise than rows do.
    """
    sizes, _ = result
    *outer, rows, columns = sizes
    terms = source[0][-1]
    if terms > MOST_TERMS or not 0 < math.prod(sizes) * terms <= MOST:
        return None
    sides = [_side(form, sizes) for form in operands]
    across = _step(weights.form, 1)
    is_turned = across not in (0, 4)
    are_rows = all(form[0][-1] == 1 or form[1][-1] == 4 for form in (source, result))
    is_stretched = weights.form[0][-1] > 1 and not across
    if not are_rows or is_stretched or None in sides:
        return None
    if is_turned and abs(across) * LANES > 1 << 31:  # code is told it as numbers of 4 bytes
        return None
    gathered = math.prod(outer) * -(-rows // ROWS) * terms * -(-columns // LANES)
    if is_turned and gathered > MOST_GATHERED:
        return None
    width = LANES * (OF_ONE if rows == 1 and not is_turned else VECTORS)
    places = itertools.product(
        itertools.product(*map(range, outer)), range(0, rows, ROWS), range(0, columns, width)
    )
    each = across * PART if is_turned else weights.part or 4 * PART
    part = across * LANES if is_turned else each
    found: list[Told] = []
    for number, (outside, row, column) in enumerate(places):
        tile = Tile(
            *(min(ROWS, rows - row), min(width, columns - column), terms),
            *(part, across),
            Side(_begin(source, outside) + row * _step(source, 2), _step(source, 2)),
            Side(_begin(weights.form, outside) + column // PART * each, _step(weights.form, 2)),
            tuple(side.behind(outside, row, column) for side in sides if side is not None),
            Side(_begin(result, outside) + row * _step(result, 2) + 4 * column, _step(result, 2)),
        )
        told = _told(tile, tuple(steps)) if number < MOST_CALLS else None
        if told is None:
            return None
        found.append(told)
    return found


def _told(tile: Tile, steps: tuple[Step, ...]) -> Told | None:
    """What a tile's code is told; None where there is none."""
    sides = [*tile.operands, tile.result]
    if len(sides) > len(_OPERANDS_AT) or not has_avx512():
        return None
    vectors, are_rows = -(-tile.columns // LANES), tuple(side.is_row for side in tile.operands)
    is_turned = tile.across not in (0, 4)
    function, constants = _function(tile.rows, vectors, is_turned, are_rows, steps)
    if function is None:
        return None
    numbers = [side.begin for side in (tile.source, tile.weights, *sides)]
    mask = (1 << (tile.columns - 1) % LANES + 1) - 1
    numbers += [*divmod(tile.terms, _UNROLLED), mask, tile.source.row, tile.weights.row, tile.part]
    numbers += [side.row for side in sides]
    if is_turned:
        lanes = [lane * tile.across for lane in range(LANES)]
        constants = struct.pack(f"<{LANES}i", *lanes) + constants
    return function, struct.pack(f"<{len(numbers)}q", *numbers) + constants


def _step(form: Form, axis: int) -> int:
    """The step along an axis, counted from the last one; 0 along one of size 1."""
    sizes, strides = form
    return 0 if len(sizes) < axis or sizes[-axis] == 1 else strides[-axis]


def _begin(form: Form, outside: Sequence[int]) -> int:
    """Where a matrix begins, by its place along the outer axes."""
    sizes, strides = form
    own = len(sizes) - 2
    pairs = zip(outside[len(outside) - own :], sizes[:own], strides[:own], strict=True)
    return sum(place * stride for place, size, stride in pairs if size > 1)


class _Operand(NamedTuple):
    """An operand of all tiles."""

    form: Form
    is_row: bool

    def behind(self, outside: Sequence[int], row: int, column: int) -> Side:
        """Return how it lies for a tile."""
        step = _step(self.form, 2)
        begin = _begin(self.form, outside) + row * step + 4 * column * self.is_row
        return Side(begin, step, self.is_row)


def _side(form: Form, result: Sequence[int]) -> _Operand | None:
    """An operand as it is read; None where that is not by rows."""
    missing = len(result) - len(form[0])
    form = (1,) * missing + form[0], (0,) * missing + form[1]
    wide, step = form[0][-1], _step(form, 1)
    if wide == 1:
        return _Operand(form, is_row=False)
    return _Operand(form, is_row=True) if step == 4 else None


@lru_cache(maxsize=256)
def _function(
    rows: int,
    vectors: int,
    is_turned: bool,
    are_rows: tuple[bool, ...],
    steps: tuple[Step, ...],
) -> tuple[Any | None, bytes]:
    code = _Product(rows, vectors, are_rows, steps, is_turned=is_turned)
    return function_of(code.emitted()), code.told()


class _Product(Chain):
    """Code of a tile: two loops over terms, several at once and one by one, and the chain."""

    def __init__(
        self,
        rows: int,
        vectors: int,
        are_rows: Sequence[bool],
        steps: Sequence[Step],
        *,
        is_turned: bool,
    ) -> None:
        super().__init__(steps)
        self._is_turned, self._each = is_turned, 1 if is_turned else VECTORS
        self._count, self._vectors, self._are_rows = rows, vectors, are_rows
        self._sides = len(are_rows) + 1
        self._sizes = 2 + self._sides

    def emitted(self) -> bytes:
        """Emit all of it, and return it."""
        sizes = self._sizes
        whole, single, mask, source, row, part = range(sizes, sizes + 6)
        self.begin(0)
        lanes = sizes + 6 + self._sides
        self.point(lanes + (LANES // 2 if self._is_turned else 0))
        if self._is_turned:
            self.vector(LOAD, _LANES, 0, R14, offset_bytes=8 * lanes)
        self.load(RAX, R14, mask)
        self.set_mask(_SOME, RAX)
        rows, parts = _ROWS_AT[: self._count], _PARTS_AT[: -(-self._vectors // self._each)]
        for places, first, step in ((rows, 0, source), (parts, 1, part)):
            self.load(places[0], R14, first)
            for before, after in itertools.pairwise(places):
                self.move(after, before)
                self.add(after, R14, step)
        self.load(RAX, R14, row)
        for sum_ in range(self._count * self._vectors):
            self.clear(sum_)
        for number, count in ((whole, _UNROLLED), (single, 1)):
            self.load(RCX, R14, number)
            self.compare(RCX, 0)
            none = self.ahead("0f84")
            start = len(self.text)
            for term in range(count):
                self._append_term(rows, parts, term)
                for pointer in parts:
                    self.add(pointer, RAX)
            for pointer in rows:
                self.step(pointer, 4 * count)
            self.again(RCX, start)
            self.here(none)
        self._append_rest()
        self.end(0)
        return self.assembled()

    def _mask(self, vector: int) -> int:
        return _SOME if vector == self._vectors - 1 else 0

    def _append_term(self, rows: Sequence[int], parts: Sequence[int], term: int) -> None:
        """Add the products of one number of each row."""
        own = self._each
        places = [(parts[each // own], each % own) for each in range(self._vectors)]
        if len(rows) == 1 and not self._is_turned:
            self.spread(_SPREAD, rows[0], behind=term)
            for sum_, (pointer, behind) in enumerate(places):
                self.vector(
                    *(_FUSED, sum_, _SPREAD, pointer), behind=behind, kind=2, prefix=1,
                    mask=self._mask(sum_),
                )  # fmt: skip
            return
        for number, (pointer, behind) in enumerate(places):
            weights, mask = _WEIGHTS + number, self._mask(number)
            if self._is_turned:
                self.copy_mask(2, mask) if mask else self.fill_mask(2)
                self.vector(*(0x92, weights, 16, pointer, _LANES - 16), kind=2, prefix=1, mask=2)
            else:
                self.vector(LOAD, weights, 0, pointer, behind=behind, mask=mask)
        for row, pointer in enumerate(rows):
            for number in range(self._vectors):
                self.vector(
                    *(_FUSED, row * self._vectors + number, _WEIGHTS + number, pointer),
                    behind=term, kind=2, prefix=1, is_one=True,
                )  # fmt: skip

    def _append_rest(self) -> None:
        """Append what follows, and store rows."""
        pointers = _OPERANDS_AT[: self._sides]
        for place, pointer in enumerate(pointers):
            self.load(pointer, R14, 2 + place)
        *others, result = pointers
        operands: list[Operand] = list(zip(others, self._are_rows, strict=True))
        for row in range(self._count):
            for number in range(self._vectors):
                sum_, mask = row * self._vectors + number, self._mask(number)
                self.append_steps(sum_, operands, result, mask, number)
                self.vector(STORE, sum_, 0, result, behind=number, mask=mask)
            for place, pointer in enumerate(pointers if row < self._count - 1 else ()):
                self.add(pointer, R14, self._sizes + 6 + place)
