"""Convolutions and pools of pictures of any size, by machine code that is the same for all."""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.window_code import kernel
from polydevice_cpu.algorithms.by_machine.window_tiles import (
    BLOCK,
    OF_LOGISTIC,
    Function,
    Terms,
    Tile,
)

TILES = {1: Tile(1, 12), 2: Tile(2, 12), 3: Tile(3, 8)}
"""Blocks of channels → what is computed at once."""

OWN_TILE = Tile(1, 8)
"""The same of channels with a source each: with more positions it takes up to half as long again,
as the blocks of a position, which lie next to each other, are then read further apart."""

OF_ONE = 8
"""So many blocks are computed at once of one position, as of a mean over all: one of 96x48x336
takes 213 us so, 545 block by block, and 209 by oneDNN's code."""

SLOWEST = 8
"""Fewer positions take as long: each sum waits for the one before."""

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
        return (weights, bias), (slopes - bias, *shares, *OF_LOGISTIC)


def _both(first: float, second: float) -> int:
    """Two numbers of 4 bytes as one of 8."""
    return int.from_bytes(struct.pack("<ff", first, second), "little", signed=True)


class Arguments(NamedTuple):
    """What machine code is told besides addresses of numbers; see `kernel`.

    Attributes:
        tile: what it computes at once.
        first_source, first_result: how far behind the picture's they begin, in bytes.
        before: what is told before the bytes from bias to slopes, and behind addresses.
        sizes: what is told behind them.
        kinds: of rows and columns.
    """

    tile: Tile
    first_source: int
    first_result: int
    before: tuple[int, ...]
    sizes: tuple[int, ...]
    kinds: tuple[int, ...]

    def numbers(self, constants: Constants) -> bytes:
        """All numbers; addresses of source and result are to be added."""
        (weights, bias), (to_slopes, *shares) = constants.told
        first = self.first_result
        places = self.first_source, first, weights + first, bias + first
        told = *places, *self.before, to_slopes, *self.sizes
        return array("q", (*told, *shares, *self.kinds)).tobytes()


class TileCalls(NamedTuple):
    """How machine code is called for all tiles.

    Attributes:
        calls: what it is told, for each.
        steps: how many vectors are computed for each element of each window, about.
    """

    calls: tuple[Arguments, ...]
    steps: int


STEP_NS = 0.19
"""How long a step takes: 0.13 for two blocks of 12 positions at best."""


def taken_us(told: TileCalls, step_ns: float = STEP_NS) -> float:
    """Return how long it takes, about; or how much longer than something else."""
    return told.steps * step_ns / 1e3


class Functions:
    """Machine code for a chain of functions, emitted when a tile is computed for the first time."""

    def __init__(self, chain: Sequence[Function], *, terms: Terms, has_bias: bool) -> None:
        """Emit nothing yet."""
        self._chain, self._terms, self._has_bias = tuple(chain), terms, has_bias
        self._found: dict[Tile, Any] = {}

    def of(self, tile: Tile) -> Any | None:
        """Return a function that computes a tile at once; None where there cannot be any."""
        found = self._found.get(tile)
        if found is None:
            code = _code(tile, self._chain, self._terms, self._has_bias)
            found = self._found[tile] = function_of(code)
        return found


@lru_cache(maxsize=256)
def _code(tile: Tile, chain: tuple[Function, ...], terms: Terms, has_bias: bool) -> bytes:
    return kernel(tile, chain, terms=terms, has_bias=has_bias)


@lru_cache(maxsize=32)
def arguments(source: Shape, result: Shape, windows: Windows) -> TileCalls | None:
    """Return what machine code is told.

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
    read, written = 4 * given, 4 * channels
    row, of_row = width * read, wide * written
    is_own, across = windows.is_depthwise, windows.sizes[1]
    (down, along), (gap, left_out), (above, before) = windows[1:4]
    each, tap = (1, (left_out + 1) * read) if is_own else (given, read)
    if any(first >= last for _, _, first, last in (*rows, *columns)):
        return None
    lines, taps = (
        sum(n * (last - first) for _, n, first, last in axis) for axis in (rows, columns)
    )
    sizes = (
        *(pictures, height * row, high * of_row, 0, len(rows), len(columns), down * row, of_row),
        *(along * read, written, (gap + 1) * row, tap, across * each, each),
    )
    kinds = tuple(itertools.chain(*rows, *columns))
    first = -above * row - before * read
    at_once = high * wide * (OF_ONE if is_own else 2)
    steps = -(-channels // BLOCK) * pictures * lines * taps * each * max(SLOWEST // at_once, 1)
    element = tap if is_own else 4
    is_one = high * wide == 1
    return _told(first, channels, element, sizes, kinds, steps, is_own=is_own, is_one=is_one)


def of_rows(rows: int, weights: Shape, positions: int) -> TileCalls:
    """Return what machine code is told of [rows, positions, C] times [A, C, N]: [rows, A, …, N].

    Args:
        rows: how many.
        weights: [A, C, N].
        positions: of a row.
    """
    matrices, given, channels = weights
    read, written = 4 * given, 4 * channels
    sizes = (
        *(matrices, 0, positions * written, given * written, 1, 1),
        *(positions * read, matrices * positions * written, read, written, 0, read, given, given),
    )
    kinds = 0, rows, 0, 1, 0, positions, 0, 1
    steps = -(-channels // BLOCK) * matrices * rows * positions * given
    return _told(0, channels, 4, sizes, kinds, steps, is_own=False)


def _told(
    first: int,
    channels: int,
    element: int,
    sizes: tuple[int, ...],
    kinds: tuple[int, ...],
    steps: int,
    *,
    is_own: bool,
    is_one: bool = False,
) -> TileCalls:
    """What tiles of channels are told, and those of blocks that are left.

    Args:
        first: where the window of the first position begins, in bytes.
        channels: of the result.
        element: bytes between two elements of a window.
        sizes: see `Arguments`.
        kinds: likewise.
        steps: see `TileCalls`.
        is_own: whether channels have a source each.
        is_one: whether the result is one position.
    """
    blocks, row = -(-channels // BLOCK), 4 * channels
    last, all_ = (1 << (channels - 1) % BLOCK + 1) - 1, (1 << BLOCK) - 1
    if not is_own:
        is_odd = blocks % 2
        pairs = (blocks - 3 * is_odd) // 2 if blocks > 2 else blocks // 2
        tiles = [(TILES[2], pairs), (TILES[3 if blocks > 2 else 1], is_odd)]
    elif is_one:
        tiles = [(Tile(OF_ONE, 1), blocks // OF_ONE), (Tile(blocks % OF_ONE, 1), 1)]
    else:
        tiles = [(OWN_TILE, blocks)]
    calls, begin = [], 0
    for tile, count in tiles:
        computed = tile.blocks * count
        if computed:
            blocks -= computed
            before = count, element, row, all_ if blocks else last
            source = first + begin if is_own else first
            calls.append(Arguments(tile, source, begin, before, sizes, kinds))
            begin += 4 * BLOCK * computed
    return TileCalls(tuple(calls), steps)


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


def code_of(made: Functions, given: TileCalls, constants: Constants) -> Code | None:
    """Return code that is to be told addresses of a source and a result.

    Args:
        made: functions of tiles.
        given: what they are told.
        constants: what they read besides.

    Returns:
        None where there cannot be any.
    """
    functions = [made.of(each.tile) for each in given.calls]
    if None in functions:
        return None
    numbers = [each.numbers(constants) for each in given.calls]
    return Code.of(list(zip(functions, numbers, strict=True)), constants)


def _address(array: Array) -> int:
    start: int = array.__array_interface__["data"][0]
    return start
