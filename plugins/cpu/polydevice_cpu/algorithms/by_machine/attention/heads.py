"""Attention of many positions by blocks of rows, whose scores stay in a cache.

Six heads of 1,500 positions have 54 MB of scores, which are written, read and written to become
shares, and read once more: all at once takes 40 ms, by blocks of 168 rows 31.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.attention.relay import Relay
from polydevice_cpu.algorithms.by_machine.code import (
    PARTS,
    Code,
    Phase,
    Told,
    as_numbers,
    may_share,
)
from polydevice_cpu.algorithms.by_machine.matrices import Seen, products
from polydevice_cpu.algorithms.by_machine.matrix_code import Function
from polydevice_cpu.algorithms.by_machine.rows import elementwise, shares
from polydevice_cpu.algorithms.by_machine.windows.sums import (
    Constants,
    Functions,
    of_positions,
    told_of,
)
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms

SCORES_BYTES = 1 << 20
"""Of a block: half a second cache."""

ROWS = 12
"""That are computed at once, so that blocks have so many times a number of rows."""

_ITEM = 4
_SUMS = Functions([], terms=Terms.ALL_CHANNELS, has_bias=False)
_NOTHING = Constants(None, None, None, [])
_WEIGHTS_AT = 3
"""Where, among what code of windows is told, the address of weights is."""


class Heads(NamedTuple):
    """What there is to compute: (softmax(functions(queries keys)) values), in each of two axes.

    Attributes:
        queries: [.., .., rows, size].
        keys: [.., .., size, positions].
        values: [.., .., positions, columns]; a row of one position without gaps.
        result: [.., .., rows, columns], likewise.
        functions: what becomes of scores, with how operands lie.
    """

    queries: Seen
    keys: Seen
    values: Seen
    result: Seen
    functions: tuple[tuple[Function, Seen | tuple[float, float]], ...]

    @property
    def operands(self) -> list[Seen]:
        """What functions read."""
        return [operand for _, operand in self.functions if isinstance(operand, Seen)]

    @property
    def positions(self) -> int:
        """Whose values are mixed."""
        return self.keys.shape[3]

    @property
    def rows_of_block(self) -> int:
        """How many rows' scores are there at a time."""
        few = SCORES_BYTES // (_ITEM * self.positions) // ROWS * ROWS
        return min(max(few, ROWS), self.result.shape[2])


def room_numbers(heads: Heads, threads: int) -> int:
    """Return how many numbers of room the code takes."""
    return len(_lanes(heads, threads)) * _room(heads)


def code_of(heads: Heads, threads: int) -> Code | None:
    """Return code that is told where queries, keys, values, operands, result and room are.

    Args:
        heads: what there is to compute.
        threads: how many share the work.

    Returns:
        None where there is none.
    """
    calls: Phase = []
    for lane, blocks in enumerate(_lanes(heads, threads)):
        relay = _Blocks(heads, _ITEM * _room(heads) * lane)
        if not relay.compute(blocks):
            return None
        call = relay.made()
        if call is None:
            return None
        calls.append(call)
    return Code.in_phases([calls], threads)


_Block = tuple[int, int, int, int]
"""Places along both axes, the first row, and how many rows."""


def _blocks(heads: Heads) -> Iterator[_Block]:
    outer, inner, rows, _ = heads.result.shape
    each = heads.rows_of_block
    for one, other, first in itertools.product(range(outer), range(inner), range(0, rows, each)):
        yield one, other, first, min(each, rows - first)


def _lanes(heads: Heads, threads: int) -> list[list[_Block]]:
    """What each call computes."""
    blocks = list(_blocks(heads))
    count = min(threads * PARTS, len(blocks)) if threads > 1 and may_share() else 1
    ends = [len(blocks) * part // count for part in range(count + 1)]
    return [blocks[first:end] for first, end in itertools.pairwise(ends)]


def _room(heads: Heads) -> int:
    """Numbers of room that a lane takes: scores of a block, and values next to each other."""
    scores = heads.rows_of_block * heads.positions
    return -(-(scores + heads.positions * heads.values.shape[3]) // ROWS) * ROWS


def _at(seen: Seen, one: int, other: int, row: int = 0) -> int:
    """Where a matrix, or a row of it, begins; of one for all the same for each."""
    places = one, other, row
    return _ITEM * sum(
        place * step
        for place, step, size in zip(places, seen.strides, seen.shape, strict=False)
        if size > 1
    )


def _of_rows(seen: Seen, rows: int) -> Seen:
    """A matrix with so many rows; as few as it has, if that is one for all."""
    _, _, high, wide = seen.shape
    return Seen((1, 1, min(rows, high), wide), (0, 0, *seen.strides[2:]))


class _Blocks:
    """Calls for some blocks.

    Attributes:
        heads: what there is to compute.
        begin: where the room for these begins, in bytes.
    """

    def __init__(self, heads: Heads, begin: int) -> None:
        self.heads, self.begin = heads, begin
        operands = len(heads.operands)
        self._operands = range(3, 3 + operands)
        self._result, self._room = 3 + operands, 4 + operands
        self._relay = Relay(5 + operands)
        self.made = self._relay.made
        self._of_rows: dict[int, tuple[_Calls, ...]] = {}
        self._values = begin + _ITEM * heads.rows_of_block * heads.positions

    def compute(self, blocks: list[_Block]) -> bool:
        """Add the calls for blocks; whether there is code for them."""
        copy, latest = self._copy(), None
        if copy is None:
            return False
        for one, other, first, rows in blocks:
            made = self._made(rows)
            if made is None:
                return False
            if latest != (one, other):
                latest = one, other
                copy.tell(0, 2, _at(self.heads.values, one, other))
                copy.tell(1, self._room, self._values)
                copy.run()
            scores, of_rows, mixed = made
            self._tell_scores(scores, one, other, first)
            of_rows.tell(0, self._room, self.begin)
            of_rows.tell(1, self._room, self.begin)
            to = _at(self.heads.result, one, other, first)
            for number, address, behind in (
                (0, self._room, self.begin),
                (1, self._room, self.begin),
                (2, self._result, to),
                (_WEIGHTS_AT, self._room, self._values),
            ):
                mixed.tell(number, address, behind)
            for each in made:
                each.run()
        return True

    def _tell_scores(self, scores: _Calls, one: int, other: int, first: int) -> None:
        heads = self.heads
        scores.tell(0, 0, _at(heads.queries, one, other, first))
        scores.tell(1, 1, _at(heads.keys, one, other))
        number = 2
        for address, operand in zip(self._operands, heads.operands, strict=True):
            scores.tell(number, address, _at(operand, one, other, first))
            number += 1
        scores.tell(number, self._room, self.begin)

    def _copy(self) -> _Calls | None:
        """What lays the values of a head next to each other."""
        _, _, positions, columns = self.heads.values.shape
        row = _ITEM * self.heads.values.strides[2], _ITEM
        dense = (positions, columns), (_ITEM * columns, _ITEM)
        told = elementwise.copied(((positions, columns), row), dense, _ITEM)
        return None if told is None else _Calls(self._relay, [told])

    def _made(self, rows: int) -> tuple[_Calls, ...] | None:
        """Scores, shares and sums of so many rows; None where there is no code."""
        if rows in self._of_rows:
            return self._of_rows[rows]
        heads, positions = self.heads, self.heads.positions
        block = Seen((1, 1, rows, positions), (0, 0, positions, 1))
        functions = tuple(
            (function, _of_rows(operand, rows) if isinstance(operand, Seen) else operand)
            for function, operand in heads.functions
        )
        keys = Seen((1, 1, *heads.keys.shape[2:]), (0, 0, *heads.keys.strides[2:]))
        scores = products(_of_rows(heads.queries, rows), keys, block, functions)
        columns = heads.values.shape[3]
        sums = of_positions(positions, columns, slice(0, columns), columns, rows)
        sizes = list(sums.behind)
        sizes[3] = _ITEM * heads.result.strides[2]  # from one row to the next
        mixed = told_of(_SUMS, sums._replace(behind=tuple(sizes)), _NOTHING)
        if scores is None or mixed is None:
            return None
        of_rows = shares.told_of((rows, positions, 1))
        made = tuple(_Calls(self._relay, each) for each in (scores, [of_rows], mixed))
        self._of_rows[rows] = made
        return made


class _Calls:
    """Functions with the same addresses, one after the other."""

    def __init__(self, relay: Relay, told: Sequence[Told]) -> None:
        self._relay = relay
        words = [(function, as_numbers(numbers)) for function, numbers in told]
        self._calls = [(function, relay.told(numbers), numbers) for function, numbers in words]

    def tell(self, number: int, address: int, behind: int) -> None:
        """Tell all of them an address, besides what each begins behind."""
        for _, place, numbers in self._calls:
            self._relay.tell(place + number, address, behind + numbers[number])

    def run(self) -> None:
        """Call them."""
        for function, place, _ in self._calls:
            self._relay.call(function, place)
