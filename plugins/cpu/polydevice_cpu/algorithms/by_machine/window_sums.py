"""Convolutions and pools of pictures of any size, by machine code that is the same for all."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.window_code import (
    BLOCK,
    GIVEN,
    ROWS,
    Function,
    Terms,
    kernel,
)

WIDTHS = (8, 4, 1)
"""How many positions of a row are computed at once, where windows do not reach over its ends."""

Shape = tuple[int, ...]
_Kind = tuple[int, int, int, int]
"""The first place, how many there are, the first element of their windows that is in the picture,
and the first behind it."""


class Windows(NamedTuple):
    """Where windows lie, by axis: rows and columns.

    Attributes:
        sizes: of a window.
        steps: between two.
        gaps: elements left out between those of one.
        pads: how far the first one reaches over the beginning.
        is_depthwise: whether each channel of the result has one of the source. Else it has all,
            and there are no gaps between columns.
    """

    sizes: Shape
    steps: Shape
    gaps: Shape
    pads: Shape
    is_depthwise: bool


@dataclass(frozen=True, eq=False)
class Constants:
    """What is read besides a source.

    Attributes:
        weights: [elements of a window, channels of the result], dense, if there are any.
        bias: one number for each channel of the result, if there is one.
        slopes: the same, for `Function.PRELU`.
        shares: the two numbers of each function that follows.
        first: two numbers before these.
    """

    weights: Array | None
    bias: Array | None
    slopes: Array | None
    shares: Sequence[tuple[float, float]]
    first: tuple[float, float] = (1.0, 0.0)

    @cached_property
    def told(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What machine code is told of them: before what depends on sizes, and behind it."""
        weights, bias, slopes = (
            0 if each is None else _address(each) for each in (self.weights, self.bias, self.slopes)
        )
        shares = [_both(*each) for each in (self.first, *self.shares)]
        return (weights, bias), (slopes - bias, *shares)


def _both(first: float, second: float) -> int:
    """Two numbers of 4 bytes as one of 8."""
    return int.from_bytes(struct.pack("<ff", first, second), "little", signed=True)


@dataclass(frozen=True, eq=False)
class Arguments:
    """What machine code is told besides addresses of numbers; see `kernel`.

    Attributes:
        fixed: what lies between the addresses and the rows.
        rows, columns: how many kinds of them there are.
        kinds: what they are.
        last_block: which elements of it there are, as bits.
        steps: how often the innermost step is made.
    """

    fixed: tuple[int, ...]
    rows: int
    columns: int
    kinds: tuple[int, ...]
    last_block: int
    steps: int

    def numbers(self, constants: Constants) -> Array:
        """All numbers; what is pointed to lies behind them."""
        before, behind = constants.told
        count = GIVEN - 1 + len(behind)
        found = np.empty(count + len(self.kinds), np.int64)
        start = _address(found) + 8 * count
        of_rows, of_columns = (start, self.rows), (start + 8 * ROWS * self.rows, self.columns)
        head = 0, 0, *before, *self.fixed, *of_rows, *of_columns, self.last_block, *behind
        struct.pack_into(f"<{len(found)}q", found.data, 0, *head, *self.kinds)
        return found


STEP_NS = 1.5
"""How long the innermost step takes, for 8 positions, 4 or 1."""

PER_STEP = 11
"""So many positions oneDNN's code computes at the same time."""


def taken_us(told: Mapping[int, Arguments], *, more_than_onednn: bool = False) -> float:
    """Return how long it takes, about, or how much longer than oneDNN's code."""
    taken = 0.0
    for width, each in told.items():
        part = 1 - width / PER_STEP if more_than_onednn else 1
        taken += each.steps * STEP_NS * part
    return taken / 1e3


def functions(chain: Sequence[Function], *, terms: Terms, has_bias: bool) -> dict[int, Any] | None:
    """Return functions by how many positions they compute; None where there cannot be any."""
    found = {}
    for width in WIDTHS:
        found[width] = function_of(_code(width, tuple(chain), terms, has_bias))
    return None if None in found.values() else found


@lru_cache(maxsize=64)
def _code(
    width: int,
    chain: tuple[Function, ...],
    terms: Terms,
    has_bias: bool,
) -> bytes:
    return kernel(width, chain, terms=terms, has_bias=has_bias)


@lru_cache(maxsize=32)
def arguments(source: Shape, result: Shape, windows: Windows) -> Mapping[int, Arguments] | None:
    """Return what machine code is told, by how many positions it computes at once.

    Args:
        source: [N, C, H, W], whose channels lie next to each other.
        result: likewise.
        windows: where they lie.

    Returns:
        None where a window has nothing to read.
    """
    pictures, given, height, width = source
    _, channels, high, wide = result
    rows, columns = _kinds(0, high, height, windows), _kinds(1, wide, width, windows)
    if any(first >= last for _, _, first, last in (*rows, *columns)):
        return None
    blocks, across = -(-channels // BLOCK), windows.sizes[1]
    read, written = 4 * given, 4 * channels
    of_row, of_column = ((gap + 1) * read for gap in windows.gaps)
    of_row *= width
    each, apart = (1, of_column) if windows.is_depthwise else (given, 4)
    found_rows = [
        (
            (picture * height + start * windows.steps[0] - windows.pads[0]) * width * read
            + first * of_row,
            (picture * high + start) * wide * written,
            first * across * each * written,
            last - first,
            count,
        )
        for picture in range(pictures)
        for start, count, first, last in rows
    ]
    by_width: dict[int, list[tuple[int, ...]]] = {}
    step, before = windows.steps[1] * read, windows.pads[1] * read
    for start, count, first, last in columns:
        there, taken = of_column * first - before, last - first
        left = of_row - taken * of_column, (across - taken) * each * written
        begin, elements = first * each * written, taken * each
        is_whole = taken == across
        for at_once, place, times in _at_once(start, count) if is_whole else [(1, start, count)]:
            at = place * step + there, place * written, begin, elements, times
            by_width.setdefault(at_once, []).append((*at, *left))
    fixed = blocks, written, step, apart, windows.steps[0] * width * read, wide * written
    last_block = (1 << (channels - 1) % BLOCK + 1) - 1
    lines = blocks * sum(row[3] * row[4] for row in found_rows)
    return {
        at_once: Arguments(
            *(fixed, len(found_rows), len(found)),
            tuple(itertools.chain.from_iterable((*found_rows, *found))),
            last_block,
            lines * sum(column[3] * column[4] for column in found),
        )
        for at_once, found in by_width.items()
    }


def _kinds(axis: int, count: int, size: int, windows: Windows) -> Sequence[_Kind]:
    """What there is of rows (0) or columns (1) of the result."""
    each = (windows.sizes, windows.steps, windows.gaps, windows.pads)
    return _kinds_of(count, size, *[numbers[axis] for numbers in each])


@lru_cache(maxsize=256)
def _kinds_of(
    count: int, size: int, taps: int, step: int, left_out: int, pad: int
) -> Sequence[_Kind]:
    """Places of an axis whose windows reach over the same end equally far."""
    gap = left_out + 1
    first = min(-(-pad // step), count)
    last = max(min((size - 1 - (taps - 1) * gap + pad) // step + 1, count), first)
    found = [(first, last - first, 0, taps)] if last > first else []
    for place in (*range(first), *range(last, count)):
        start = place * step - pad
        found.append((place, 1, max(0, -(start // gap)), min(taps, -((start - size) // gap))))
    return found


def _at_once(start: int, count: int) -> list[tuple[int, int, int]]:
    """(positions at once, the first place, how often); some places may be computed twice."""
    width = next(n for n in WIDTHS if n <= count)
    found = [(width, start, count // width)]
    if count % width:
        found.append((width, start + count - width, 1))
    return found


def starter(
    made: Mapping[int, Any], given: Mapping[int, Arguments], constants: Constants
) -> Callable[[object], Callable[[Array, Array], tuple[()]]]:
    """Return what makes the function of a source and a result, for one request each.

    Args:
        made: functions by how many positions they compute at once.
        given: what they are told.
        constants: what they read besides.
    """

    def start(_: object) -> Callable[[Array, Array], tuple[()]]:
        told = [each.numbers(constants) for each in given.values()]
        calls = [
            (made[width], c_void_p(_address(each))) for width, each in zip(given, told, strict=True)
        ]

        def compute(source: Array, target: Array) -> tuple[()]:
            for each in told:
                each[0], each[1] = _address(source), _address(target)
            for function, place in calls:
                function(place)
            return ()

        compute.kept = constants  # type: ignore[attr-defined]
        return compute

    return start


def _address(array: Array) -> int:
    start: int = array.__array_interface__["data"][0]
    return start
