"""Products of matrices of any size, by machine code that is the same for all."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from polydevice.processor.machine_code import function_of
from polydevice.symbolic_size import decided
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.code import Told, has_avx512
from polydevice_cpu.algorithms.by_machine.matrix_code import (
    BLOCK,
    LEVELS,
    ROWS,
    Columns,
    Function,
    Link,
    Scope,
    numbers,
    product,
)

MOST_TERMS = 512
"""So many products oneDNN adds one by one; of more, it adds sums of some of them."""

MOST_STACK = 1 << 15
"""So many bytes of the second matrix are laid next to each other at once, on the stack."""

FEW_VECTORS = 160
"""So many vectors of the second matrix are read where they lie, time and again: more of them
displace each other in the first cache, where other numbers lie between."""

WIDEST = max(ROWS)

FEW_ROWS = 4
"""So many of fewer than 12 rows are computed at once; of still fewer, each by itself."""

Shape = tuple[int, ...]


class Seen(NamedTuple):
    """How numbers of 4 bytes lie in memory: [.., .., rows, columns], strides in elements."""

    shape: Shape
    strides: Shape

    def turned(self) -> Seen:
        """The same with rows for columns."""
        *shape, rows, columns = self.shape
        *strides, down, across = self.strides
        return Seen((*shape, columns, rows), (*strides, across, down))


def products(
    first: Seen,
    second: Seen,
    result: Seen,
    functions: tuple[tuple[Function, Seen | tuple[float, float]], ...],
    parts: int = 1,
) -> tuple[Told, ...] | None:
    """Return calls that multiply matrices; None where there is no code for them.

    Args:
        first: [.., .., rows, terms]; as `second` and what follows, of 1 where they are alike.
        second: [.., .., terms, columns].
        result: [.., .., rows, columns].
        functions: what follows, with how the operand lies, or two constants.
        parts: up to so many calls compute some of the matrices each.
    """
    if current_trace() is None:
        return _known_products(first, second, result, functions, parts)
    return _products(first, second, result, functions, parts)  # of formulas, which serve no other


def _products(
    first: Seen,
    second: Seen,
    result: Seen,
    functions: tuple[tuple[Function, Seen | tuple[float, float]], ...],
    parts: int,
) -> tuple[Told, ...] | None:
    rows, columns = result.shape[2:]
    terms = first.shape[3]
    if 0 in result.shape:
        return None
    is_turned = second.strides[3] != 1
    if first.strides[3] != 1 or result.strides[3] != 1 or (is_turned and second.strides[2] != 1):
        return None
    if not 2 <= terms <= MOST_TERMS:
        return None
    if min(WIDEST // 2, columns // BLOCK) > MOST_STACK // (4 * BLOCK * terms):
        return None
    links: list[Link] = []
    others: list[Seen] = []
    constants: list[int] = []
    for function, operand in functions:
        if isinstance(operand, Seen):
            scope = _scope(operand, rows, columns)
            if scope is None:
                return None
            links.append((function, scope))
            others.append(operand)
        else:
            links.append((function, Scope.ALL))
            constants.append(int.from_bytes(struct.pack("<ff", *operand), "little", signed=True))
    found = []
    for width, start, count in _parts(columns, terms):
        how, at_once = _how(terms, width, is_turned=is_turned), _at_once(rows, width)
        turned = decided(min(columns, BLOCK)) if is_turned else BLOCK
        code = _function(width, how, tuple(links), at_once, turned)
        if code is None:
            return None
        for sides, behind in _shares([first, second, *others, result], parts):
            told = _numbers(sides, links, constants, (width, at_once), start, count, how)
            found.append((code, (*behind, *told)))
    return tuple(found)


_known_products = lru_cache(maxsize=64)(_products)


def _shares(sides: Sequence[Seen], parts: int) -> Iterator[tuple[Sequence[Seen], Sequence[int]]]:
    """Yield up to so many parts of the matrices, and how many bytes they lie behind the first."""
    axis = 0 if sides[-1].shape[0] > sides[-1].shape[1] else 1
    matrices = sides[-1].shape[axis]
    ends = [matrices * number // min(parts, matrices) for number in range(min(parts, matrices) + 1)]
    for start, end in itertools.pairwise(ends):
        own, behind = [], []
        for shape, strides in sides:
            are_many = shape[axis] > 1
            sizes = [*shape]
            sizes[axis] = end - start if are_many else 1
            own.append(Seen(tuple(sizes), strides))
            behind.append(4 * start * strides[axis] if are_many else 0)
        yield own, behind


@lru_cache(maxsize=256)
def _function(
    width: int, how: Columns, chain: tuple[Link, ...], at_once: int, turned: int
) -> Any | None:
    code = product(width, how, chain, at_once, turned)
    return function_of(code) if has_avx512() else None


def _at_once(rows: int, width: int) -> int:
    """How many rows are computed at once: for other numbers of few, there would be more code."""
    if rows >= max(ROWS.values()):
        return ROWS[width]
    return FEW_ROWS if rows >= FEW_ROWS else 1


def _how(terms: int, width: int, *, is_turned: bool) -> Columns:
    if is_turned:
        return Columns.TURNED
    return Columns.COPIED if terms * width > FEW_VECTORS else Columns.IN_PLACE


def _scope(operand: Seen, rows: int, columns: int) -> Scope | None:
    """What a number of an operand is for; None where there is no code for it."""
    high, wide = operand.shape[2:]
    if wide == 1:
        return Scope.ALL if high == 1 else None
    if wide != columns or operand.strides[3] != 1:
        return None
    return Scope.EACH if high == rows else Scope.COLUMN


def _parts(columns: int, terms: int) -> list[tuple[int, int, int]]:
    """(vectors, the first column, how often): the last columns may be computed twice."""
    width = decided(min(WIDEST, columns // BLOCK, MOST_STACK // (4 * BLOCK * terms)))
    if not width:
        return [(1, 0, 1)]
    found = [(width, 0, columns // (BLOCK * width))]
    left = columns % (BLOCK * width)
    if left:
        last = decided(-(-left // BLOCK))
        found.append((last, columns - BLOCK * last, 1))
    return found


def _numbers(
    sides: Sequence[Seen],
    links: Sequence[Link],
    constants: Sequence[int],
    tile: tuple[int, int],
    start: int,
    count: int,
    how: Columns,
) -> tuple[int, ...]:
    """What code is told behind the addresses; see `matrix_code`.

    `tile` is how many vectors of how many rows are computed at once.
    """
    rows, columns = sides[-1].shape[2:]
    terms, (width, at_once) = sides[0].shape[3], tile
    tiles = -(-rows // at_once)
    scopes = [scope for function, scope in links if function is not Function.LINEAR]
    of_operands = [0 if each is Scope.ALL else 4 for each in scopes]
    across = [0, 4 * sides[1].strides[3], *of_operands, 4]
    down = [4 * each.strides[2] if each.shape[2] > 1 else 0 for each in sides]
    down[1] = 0
    outer, inner = (
        [4 * each.strides[axis] if each.shape[axis] > 1 else 0 for each in sides] for axis in (0, 1)
    )
    each_row = [*down]
    each_row[1] = 4 * sides[1].strides[3 if how is Columns.TURNED else 2]
    row_bytes, packed = 4 * BLOCK * width, -(-terms // BLOCK)
    back = max(packed * BLOCK - terms, 0) if terms > BLOCK else 0
    addresses, _ = numbers(links)
    stack = 8 * ((LEVELS + 1) * addresses + LEVELS) + 128
    if how is not Columns.IN_PLACE:
        stack += max(terms, BLOCK) * row_bytes
    return (
        *[start * step for step in across],
        *outer,
        *inner,
        *[BLOCK * width * step for step in across],
        *[at_once * step for step in down],
        *[(rows - (tiles - 1) * at_once) * step for step in down],
        *each_row,
        *(*sides[-1].shape[:2], count, tiles, terms),
        (1 << min(columns, BLOCK)) - 1,
        *(stack, packed, (1 << min(terms, BLOCK)) - 1),
        *(4 * BLOCK, 4 * (BLOCK - back)),
        *(BLOCK * row_bytes, (BLOCK - back) * row_bytes),
        *constants,
    )
