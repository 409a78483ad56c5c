"""How a Fourier transform is computed by machine code: its factors, and what rows it is told."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, parts_of
from polydevice_cpu.algorithms.by_machine.fourier.kernel import (
    BEGINNING,
    LANES,
    MOST_VECTORS,
    Kind,
    transform,
)
from polydevice_cpu.onednn.engine import address_of

MOST_STACK = 1 << 16
"""Bytes that both sums take of the stack at most."""

MOST_FACTORS = 1 << 18
"""Bytes of the factors of points at most, which are read for every row."""

SHARED = 1 << 18
"""Instructions from which threads share rows."""

_AT_ONCE, _PER_POINT, _NUMPY = 2.6, 20, 60_000
"""Instructions that a processor begins in a cycle; cycles that NumPy takes for a point, with what
is before and behind its transform, and for a call."""

_UNIT = int(np.float64(1).view(np.int64))


class Line(NamedTuple):
    """A transform along one axis.

    Attributes:
        size: how many points are transformed.
        points: how many there are; zeros follow.
        results: how many are wanted, from the first one on.
        inverse: whether it is the inverse, divided by the size.
        of_pairs: whether points are of two numbers each; else they are real.
        to_pairs: whether results are; else their real parts are wanted.
        weights: factors of points as bytes of f64, or nothing.
    """

    size: int
    points: int
    results: int
    inverse: bool
    of_pairs: bool
    to_pairs: bool
    weights: bytes = b""


class Side(NamedTuple):
    """How rows lie in memory: bytes from point to point and from row to row, on two levels."""

    step: int
    outer: int
    inner: int
    wide: bool


class _Plan(NamedTuple):
    """How a line is computed.

    Attributes:
        instructions: about how many it takes.
        factor: N1 of N1 N2 = N; 0 where there is one sum alone.
        vectors: of k1.
        sums: how many first sums there are, of vectors.
        rows: of k1 that are wanted.
    """

    instructions: int
    factor: int
    vectors: int
    sums: int
    rows: int


class _Tables(NamedTuple):
    first: Array
    counts: Array
    second: Array


def code_of(
    line: Line, outer: int, inner: int, source: Side, result: Side, threads: int
) -> Code | None:
    """Return code that is told where a source and the result are; None where NumPy is faster.

    Args:
        line: what is done with each row.
        outer: how many rows of rows there are.
        inner: how many rows each has.
        source: how they lie.
        result: likewise.
        threads: how many may share the work.
    """
    plan = _planned(line)
    rows = outer * inner
    if plan is None or not _is_worth_it(line, plan, rows):
        return None
    tables = _tables(line)
    side_by_side = line.to_pairs and result.step == (16 if result.wide else 8)
    in_two = plan.factor > 0
    kind = Kind(plan.vectors, line.of_pairs, source.wide, result.wide, in_two, side_by_side)
    function = function_of(transform(kind))
    step = source.step * (plan.sums if in_two else 1)
    behind = 64 * plan.vectors * plan.sums
    taken = 64 + behind + 16 * plan.rows * plan.factor + 64 * plan.vectors + 128
    vectors, left = divmod(line.results, LANES)
    numbers = (
        *(plan.sums, source.step if in_two else 0, step),
        *(plan.rows, plan.sums, 16 * plan.factor),
        *(vectors, (1 << left * (4 if result.wide else 2)) - 1),
        *(line.results, result.step, (1 << (1 + line.to_pairs) * (1 + result.wide)) - 1),
        *(_UNIT, taken + BEGINNING, BEGINNING + behind),
    )
    told = []
    addresses = [address_of(each) for each in tables]
    first, second, counts = addresses[0], addresses[2], addresses[1]
    is_worth_it = rows * plan.instructions >= SHARED
    for at, strides, sizes in _shares(outer, inner, source, result, threads, is_worth_it):
        told.append((function, (*at, first, second, counts, *sizes, *strides, *numbers)))
    return Code.shared(told, threads, tables)


def _shares(
    outer: int, inner: int, source: Side, result: Side, threads: int, is_worth_it: bool
) -> Iterator[tuple[tuple[int, int], tuple[int, ...], tuple[int, int]]]:
    """Yield where parts begin, from row to row, and how many rows they have."""
    strides = source.outer, source.inner, result.outer, result.inner
    if outer >= inner:
        for start, end in parts_of(outer, threads, is_worth_it=is_worth_it):
            yield (start * source.outer, start * result.outer), strides, (end - start, inner)
    else:
        for start, end in parts_of(inner, threads, is_worth_it=is_worth_it):
            yield (start * source.inner, start * result.inner), strides, (outer, end - start)


def _is_worth_it(line: Line, plan: _Plan, rows: int) -> bool:
    return rows * (plan.instructions / _AT_ONCE - _PER_POINT * line.size) < _NUMPY


@lru_cache(maxsize=64)
def _planned(line: Line) -> _Plan | None:
    """Return what takes the fewest instructions; None where factors or sums are too many."""
    plans = [*_in_one(line), *_in_two(line)]
    return min(plans, default=None)


def _in_one(line: Line) -> Iterator[_Plan]:
    parts = 1 + line.of_pairs
    for vectors in range(1, min(MOST_VECTORS, -(-line.results // LANES)) + 1):
        sums = -(-line.results // (LANES * vectors))
        work = sums * (8 + line.points * (3 + parts + vectors * (1 + parts)))
        if _fits(sums * line.points * vectors, sums * vectors):
            yield _Plan(work, 0, vectors, sums, 0)


def _in_two(line: Line) -> Iterator[_Plan]:
    parts = 1 + line.of_pairs
    for factor in range(2, min(LANES * MOST_VECTORS, line.size - 1) + 1):
        if line.size % factor:
            continue
        vectors, sums, rows = -(-factor // LANES), line.size // factor, -(-line.results // factor)
        work = sums * 8 + line.points * (3 + parts + vectors * (1 + parts))
        work += rows * (8 + 4 * vectors + sums * (5 + 3 * vectors))
        if _fits(line.points * vectors, sums * vectors + rows * -(-factor // LANES)):
            yield _Plan(work, factor, vectors, sums, rows)


def _fits(factors: int, sums: int) -> bool:
    """Whether there are few enough of these vectors."""
    return 64 * factors <= MOST_FACTORS and 64 * sums <= MOST_STACK


@lru_cache(maxsize=16)
def _tables(line: Line) -> _Tables:
    """Return [n2, n1, k1] of the points there are, how many n1 each n2 has, and [k2, n2]."""
    plan = _planned(line)
    assert plan is not None
    columns, points = np.arange(LANES * plan.vectors), np.arange(line.points)
    weights = np.frombuffer(line.weights) if line.weights else np.ones(line.points)
    weights = weights / line.size if line.inverse else weights
    if plan.factor:
        order = np.lexsort((points, points % plan.sums))
        first = _turns(line, points[order, None] * columns, line.size) * weights[order, None]
        first[:, plan.factor :] = 0
        counts = (line.points - np.arange(plan.sums) + plan.sums - 1) // plan.sums
        rows = np.arange(plan.rows)[:, None] * np.arange(plan.sums)
        second = _turns(line, rows, plan.sums)
    else:
        blocks = np.arange(plan.sums)[:, None] * len(columns) + columns
        turns = _turns(line, blocks[:, None] * points[:, None], line.size)
        first = turns * weights[:, None]
        counts, second = np.full(plan.sums, line.points), np.zeros(1, np.complex128)
    return _Tables(first.copy(), counts.astype(np.int64), second)


def _turns(line: Line, number: Array, size: int) -> Array:
    """Return exp(-2 pi i number / size), or of the inverse."""
    sign = 2j if line.inverse else -2j
    return np.asarray(np.exp(sign * math.pi * (number % size) / size))
