"""Products of matrices of any size, by machine code that is the same for all."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from polydevice.processor.machine_code import function_of
from polydevice.symbolic_size import always_equal, is_symbolic, largest, smallest
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.code import Told, has_vectors
from polydevice_cpu.algorithms.by_machine.matrix_code import (
    BLOCK,
    LEVELS,
    OF_OPERANDS,
    Columns,
    Function,
    Link,
    Scope,
    numbers,
    product,
    rows_at_once,
)

MOST_TERMS = 512
"""So many products oneDNN adds one by one; of more, it adds sums of some of them."""

MOST_STACK = 1 << 15
"""So many bytes of the second matrix are laid next to each other at once, on the stack."""

FEW_VECTORS = 160
"""So many vectors of the second matrix are read where they lie, time and again: more of them
displace each other in the first cache, where other numbers lie between."""

FEW_ROWS = 4
"""So many of fewer rows than 12 are computed at once, or than 5 in halves of vectors; of still
fewer, each by itself."""

Shape = tuple[int, ...]


_Kind = tuple[bool, bool, tuple[Link, ...]]
"""Whether the second matrix is turned, whether terms of the first lie apart, and what follows."""


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
    is_apart = first.strides[3] != 1
    if result.strides[3] != 1 or (is_turned and second.strides[2] != 1):
        return None
    if is_apart and first.strides[2] != 1:
        return None
    if not 2 <= terms <= MOST_TERMS:
        return None
    widest = max(rows_at_once())
    if smallest([max(widest // 2, 1), columns // BLOCK]) > MOST_STACK // (4 * BLOCK * terms):
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
    stored: int = 0
    for width, start, count in _parts(columns, terms):
        kind = is_turned, is_apart, tuple(links)
        code = _code(rows, columns, terms, width, kind)
        if code is None:
            return None
        at_once = _by_formula(_at_once, rows, width)
        for sides, behind in _shares([first, second, *others, result], parts):
            tile, place = (largest([width, 1]), at_once), (start, count, stored)
            told = _numbers(sides, links, constants, tile, place, is_turned)
            found.append((code, (*behind, *told)))
        stored += BLOCK * width * count
    return tuple(found)


_known_products = lru_cache(maxsize=64)(_products)


def _shares(sides: Sequence[Seen], parts: int) -> Iterator[tuple[Sequence[Seen], Sequence[int]]]:
    """Yield up to so many parts of the matrices, and how many bytes they lie behind the first."""
    if parts == 1:
        yield sides, [0] * len(sides)
        return
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


class _ByFormula(NamedTuple):
    """A function of which a formula tells where it is."""

    address: int


IDLE = bytes.fromhex("f30f1efa31c0c3")  # endbr64; xor eax, eax; ret
"""What is called where a formula finds nothing left to multiply."""


@lru_cache(maxsize=256)
def _function(
    width: int, how: Columns, chain: tuple[Link, ...], at_once: int, turned: int, is_apart: bool
) -> Any | None:
    if not width:
        return function_of(IDLE)
    code = product(width, how, chain, at_once, turned, is_apart=is_apart)
    return function_of(code) if has_vectors() else None


def _code(rows: int, columns: int, terms: int, width: int, kind: _Kind) -> Any | None:
    """Return the function for `width` vectors, for formulas one that depends on all sizes."""
    sizes = rows, columns, terms, width
    if not any(map(is_symbolic, sizes)):
        return _function_for(kind, *sizes)
    address = _by_formula(_address_of(kind), *sizes)
    return None if address == 0 else _ByFormula(address)


def _function_for(kind: _Kind, rows: int, columns: int, terms: int, width: int) -> Any | None:
    is_turned, is_apart, chain = kind
    how, at_once = _how(terms, width, is_turned=is_turned), _at_once(rows, width)
    turned = min(columns, BLOCK) if is_turned and width else BLOCK
    return _function(width, how, chain, at_once, turned, is_apart)


@lru_cache(maxsize=256)
def _address_of(kind: _Kind) -> Callable[[int, int, int, int], int]:
    """Return what gives the address of code, of numbers that may be out of all bounds; 0 of none.

    It is one function for a chain, so that formulas ask it once for layers that are alike.
    """

    def address(rows: int, columns: int, terms: int, width: int) -> int:
        if not 0 <= width <= max(rows_at_once()) or columns < 1:
            return 0
        function = _function_for(kind, rows, columns, terms, width)
        return 0 if function is None else function.address

    return address


def _by_formula(function: Callable[..., int], *sizes: int) -> int:
    trace = current_trace()
    return function(*sizes) if trace is None else trace.computed_by(function, *sizes)


def _at_once(rows: int, width: int) -> int:
    """How many rows are computed at once: for other numbers of few, there would be more code."""
    known = rows_at_once()
    if rows >= max(known.values()):
        return known.get(width, 1)
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
    """(vectors, the first column, how often): the last columns may be computed twice.

    There may be no vectors of them, where formulas tell.
    """
    most = smallest([max(rows_at_once()), columns // BLOCK, MOST_STACK // (4 * BLOCK * terms)])
    width = largest([most, 1])
    count = largest([columns // (BLOCK * width), 1])
    left = largest([columns - BLOCK * width * count, 0])
    found = [(width, 0, count)]
    if is_symbolic(left) or left:
        last = -(-left // BLOCK)
        found.append((last, columns - BLOCK * last, 1))
    return found


def _step(side: Seen, result: Seen, axis: int) -> int:
    """Bytes from one number to the next one of an axis; 0 of one for all that a result has."""
    size, step = side.shape[axis], 4 * side.strides[axis]
    return step if always_equal(size, result.shape[axis]) or size > 1 else 0


def _numbers(
    sides: Sequence[Seen],
    links: Sequence[Link],
    constants: Sequence[int],
    tile: tuple[int, int],
    place: tuple[int, int, int],
    is_turned: bool,
) -> tuple[int, ...]:
    """What code is told behind the addresses; see `matrix_code`.

    `tile` is how many vectors of how many rows are computed at once; `place` is the first column,
    how many times so many there are, and how many columns are computed before.
    """
    start, count, stored = place
    rows, columns = sides[-1].shape[2:]
    terms, (width, at_once) = sides[0].shape[3], tile
    tiles = -(-rows // at_once)
    scopes = [scope for function, scope in links if function in OF_OPERANDS]
    of_operands = [0 if each is Scope.ALL else 4 for each in scopes]
    across = [0, 4 * sides[1].strides[3], *of_operands, 4]
    outer, inner, down = ([_step(each, sides[-1], axis) for each in sides] for axis in range(3))
    down[1] = 0
    each_row = [*down]
    each_row[1] = 4 * sides[1].strides[3 if is_turned else 2]
    row_bytes, packed = 4 * BLOCK * width, -(-terms // BLOCK)
    back = (packed * BLOCK - terms) * smallest([packed - 1, 1])
    addresses, _ = numbers(links)
    stack = 8 * ((LEVELS + 1) * addresses + LEVELS) + 128 + largest([terms, BLOCK]) * row_bytes
    return (
        *[start * step for step in across],
        *outer,
        *inner,
        *[BLOCK * width * step for step in across],
        *[at_once * step for step in down],
        *[(rows - (tiles - 1) * at_once) * step for step in down],
        *each_row,
        *(*sides[-1].shape[:2], count, tiles, terms),
        (1 << smallest([columns, BLOCK])) - 1,
        *(stack, packed, (1 << smallest([terms, BLOCK])) - 1),
        *(4 * BLOCK, 4 * (BLOCK - back)),
        *(BLOCK * row_bytes, (BLOCK - back) * row_bytes),
        4 * sides[0].strides[3],
        (1 << smallest([columns, BLOCK])) - (1 << (stored - start)),
        tiles * at_once - rows,
        *constants,
    )
