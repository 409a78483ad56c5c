"""Convolutions and pools of pictures of any size, by machine code that is the same for all."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice.symbolic_size import largest, single_bits
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.code import PARTS, Code, Told
from polydevice_cpu.algorithms.by_machine.windows.covers import (
    FLOATS,
    OF_ONE,
    Cover,
    Numbers,
    Shape,
    Windows,
    cover_of,
)
from polydevice_cpu.algorithms.by_machine.windows.following import (
    OF_POWERS,
    Function,
    Share,
    others_of,
)
from polydevice_cpu.algorithms.by_machine.windows.integers import Integers
from polydevice_cpu.algorithms.by_machine.windows.kernel import kernel
from polydevice_cpu.algorithms.by_machine.windows.kinds import NUMBERS, Kinds, kinds_of
from polydevice_cpu.algorithms.by_machine.windows.tiles import BLOCK, Terms, Tile
from polydevice_cpu.algorithms.by_machine.windows.window_code import Bundle, lanes

SLOWEST = 8
"""Fewer positions take as long: each sum waits for the one before."""


class TileCalls(NamedTuple):
    """What machine code is told of some sizes; see `kernel`.

    Attributes:
        cover: what it computes.
        first: where the window of the first position begins, in bytes.
        before, behind: what is told of sizes before numbers of kinds, and behind them.
        rows, columns: what there is of these.
        steps: how many vectors are computed for each element of each window, about.
        at: where the first position of the result lies, in bytes.
    """

    cover: Cover
    first: int
    before: tuple[int, ...]
    behind: tuple[int, ...]
    rows: Kinds
    columns: Kinds
    steps: int
    at: int = 0

    def banded(self) -> TileCalls:
        """Return the same in the order in which it is computed where channels are in groups."""
        if self.cover.bundle is None:
            return self
        return self._replace(rows=self.rows.bands(self.before[1]))

    def parts(self, most: int) -> list[TileCalls]:
        """Return what computes up to so many parts of the rows, or of columns if they are more."""
        if sum(self.rows.numbers[1::NUMBERS]) >= sum(self.columns.numbers[1::NUMBERS]):
            return [self._replace(rows=part) for part in self.rows.parts(most)]
        return [self._replace(columns=part) for part in self.columns.parts(most)]


class _Head(NamedTuple):
    """What a function is told that sizes of pictures do not change.

    Attributes:
        function: it.
        begins: where in the source (if channels have their own) and in the result its first channel
            begins, in bytes.
        words: what is told between these addresses and the sizes.
    """

    function: Any
    begins: tuple[int, int]
    words: tuple[int, ...]


class _Made(NamedTuple):
    """Code for some sizes, of which that for others differs in some numbers.

    Attributes:
        code: it.
        first: see `TileCalls`.
        at: likewise.
    """

    code: Code
    first: int
    at: int


@dataclass(frozen=True, eq=False)
class Constants:
    """What is read besides a source.

    Attributes:
        weights: [elements of a window, channels of the result], dense, if there are any.
        bias: one number for each channel of the result, if there is one.
        slopes: the same, for each function `BY_CHANNEL` in turn, [functions, channels] if several.
        shares: what code is told of each function that follows.
        first: two numbers before these.
        scales: one number for each channel that sums of bytes are multiplied by.
    """

    weights: Array | None
    bias: Array | None
    slopes: Array | None
    shares: Sequence[Share]
    first: tuple[float, float] = (1.0, 0.0)
    scales: Array | None = None

    @cached_property
    def told(self) -> tuple[int, ...]:
        """What machine code is told behind what depends on sizes."""
        told = (each if isinstance(each, int) else _both(*each) for each in self.shares)
        return _both(*self.first), *told, *OF_POWERS

    @cached_property
    def codes(self) -> dict[tuple[Functions, Cover, int, int], _Made]:
        """What was made for some sizes, by what it computes and numbers of kinds."""
        return {}

    @cached_property
    def _known(self) -> dict[tuple[Functions, Cover], tuple[_Head, ...] | None]:
        return {}

    def heads(self, made: Functions, cover: Cover) -> tuple[_Head, ...] | None:
        """Return what is told of them for each tile; None where there cannot be any function."""
        if (made, cover) not in self._known:
            self._known[made, cover] = self._heads(made, cover)
        return self._known[made, cover]

    def _heads(self, made: Functions, cover: Cover) -> tuple[_Head, ...] | None:
        arrays = self.weights, self.bias, self.slopes, self.scales
        weights, bias, slopes, scales = (0 if each is None else _address(each) for each in arrays)
        block = lanes()
        left, begin, heads = -(-cover.channels // block), 0, []
        read, written = cover.numbers.source if cover.is_own else 0, cover.numbers.result
        last, all_ = (1 << (cover.channels - 1) % block + 1) - 1, (1 << block) - 1
        row = cover.row or cover.channels
        parts, bundle, more = cover.parts(), cover.bundle, tuple[int, ...]()
        nbytes = 0 if self.weights is None else self.weights.nbytes
        if made.integers is not None:
            more = (scales - bias,)
        elif bundle is not None:
            count = bundle.groups // bundle.size
            nbytes //= count
            more = count, 4 * bundle.size * bundle.given, 4 * cover.channels, nbytes
        for number, part in enumerate(parts):
            if self.weights is not None and len(parts) > 1:
                weights = _address(self.weights) + nbytes // len(parts) * number
            begin = row * number
            for tile, count in part.tiles():
                function = made.of(tile)
                if function is None:
                    return None
                left -= tile.blocks * count
                words: tuple[int, ...] = (
                    weights + 4 * (begin - row * number),
                    *(bias + 4 * begin, count, cover.element, 4 * row),
                    *(all_ if left else last, slopes - bias, *more),
                )
                heads.append(_Head(function, (begin * read, begin * written), words))
                begin += block * tile.blocks * count
        return tuple(heads)


def _both(first: float, second: float) -> int:
    """Two numbers of 4 bytes as one of 8."""
    return int.from_bytes(struct.pack("<ff", first, second), "little", signed=True)


MOST_CODES = 64
"""Of what constants keep; those of pools belong to no network."""

FEW_NS = 15_000.0
"""What takes less time is not shared: to begin and to end takes threads 3 us."""

STEP_NS = 0.19
"""How long a step takes: 0.13 for two blocks of 12 positions at best."""


def taken_us(told: TileCalls, step_ns: float = STEP_NS) -> float:
    """Return how long it takes, about; or how much longer than something else."""
    return told.steps * step_ns / 1e3


class Functions:
    """Machine code for a chain of functions, emitted when a tile is computed for the first time.

    Attributes:
        integers: how bytes are read and what becomes of their sums; None where there are floats.
        bundle: of groups of channels; None where there are no groups.
        chain: what follows.
        has_bias: whether there is a bias.
        others: how many addresses of what lies elsewhere are told.
        is_padded: whether rows of weights are whole vectors.
    """

    def __init__(
        self,
        chain: Sequence[Function],
        *,
        terms: Terms,
        has_bias: bool,
        integers: Integers | None = None,
        bundle: Bundle | None = None,
        is_padded: bool = False,
    ) -> None:
        """Emit nothing yet."""
        self.chain, self._terms, self.has_bias = tuple(chain), terms, has_bias
        self.is_padded = is_padded
        self.integers, self.bundle = integers, bundle
        self.others = others_of(self.chain)
        self._found: dict[Tile, Any] = {}

    def beside(self, place: int) -> int:
        """Return where in what is added that lies which belongs to a place of the result.

        Nowhere but at its start, if there is one number for each position.
        """
        if Function.MOVE in self.chain:
            return 0
        if self.integers is None:
            return place
        return place * self.integers.other.size_bytes // self.integers.result.size_bytes

    def of(self, tile: Tile) -> Any | None:
        """Return a function that computes a tile at once; None where there cannot be any."""
        found = self._found.get(tile)
        if found is None:
            what = self._terms, self.has_bias, self.integers, self.bundle, self.is_padded
            code = _code(tile, self.chain, *what)
            found = self._found[tile] = function_of(code)
        return found


@lru_cache(maxsize=256)
def _code(
    tile: Tile,
    chain: tuple[Function, ...],
    terms: Terms,
    has_bias: bool,
    integers: Integers | None,
    bundle: Bundle | None,
    is_padded: bool,
) -> bytes:
    what = partial(kernel, terms=terms, has_bias=has_bias, integers=integers, bundle=bundle)
    return what(tile, chain, is_padded=is_padded)


class Measures(NamedTuple):
    """What sizes of pictures and windows come to, by arithmetic alone: they may be formulas.

    Attributes:
        first: where the window of the first position begins, in bytes.
        before, behind: what machine code is told before numbers of kinds, and behind them.
        rows, columns: what `kinds_of` is told of each axis.
        work: vectors that are computed for each element of a window's row and column, about.
    """

    first: int
    before: tuple[int, ...]
    behind: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    work: int

    @classmethod
    def of(
        cls, source: Shape, result: Shape, windows: Windows, numbers: Numbers = FLOATS
    ) -> Measures:
        """Return those of pictures [N, C, H, W], whose channels lie next to each other."""
        pictures, given, height, width = source
        _, channels, high, wide = result
        taps, (down, along), (gap, left_out), (above, before), is_own, groups = windows
        read, written = numbers.source * given, numbers.result * channels
        row, of_row = width * read, wide * written
        together = -(-given // numbers.together) // groups
        tap = (left_out + 1) * read
        each, tap = (1, tap) if is_own else (together, tap if groups > 1 else read)
        return cls(
            -above * row - before * read,
            (pictures, height * row, high * of_row, 0),
            (down * row, of_row, along * read, written, (gap + 1) * row, tap, taps[1] * each, each),
            (high, height, taps[0], down, gap, above),
            (wide, width, taps[1], along, left_out, before),
            _vectors(given, channels, groups) * pictures * each,
        )

    def told(self, cover: Cover) -> TileCalls | None:
        """Return what machine code is told; None where a window has nothing to read."""
        rows, columns = kinds_of(*self.rows), kinds_of(*self.columns)
        if rows is None or columns is None:
            return None
        positions = self.rows[0] * self.columns[0]
        if positions == 1:
            cover = cover._replace(is_one=True)
        steps = self.work * rows.elements * columns.elements
        steps *= largest([SLOWEST // (positions * (OF_ONE if cover.is_own else 2)), 1])
        return TileCalls(cover, self.first, self.before, self.behind, rows, columns, steps)


def _vectors(given: int, channels: int, groups: int) -> int:
    """How many vectors are computed for each position, about."""
    if groups == 1:
        return -(-channels // BLOCK)
    bundle = Bundle.of(groups, given // groups, channels // groups)
    return groups // bundle.in_vector * -(-bundle.results // BLOCK)


def arguments(
    source: Shape, result: Shape, windows: Windows, numbers: Numbers = FLOATS
) -> TileCalls | None:
    """Return what machine code is told.

    Args:
        source: [N, C, H, W], whose channels lie next to each other.
        result: likewise.
        windows: where they lie.
        numbers: what these take.

    Returns:
        None where a window has nothing to read.
    """
    cover = cover_of(source[1], result[1], windows, numbers)
    return Measures.of(source, result, windows, numbers).told(cover)


def of_rows(rows: int, weights: Shape, positions: int) -> TileCalls:
    """Return what machine code is told of [rows, positions, C] times [A, C, N]: [rows, A, …, N].

    Args:
        rows: how many.
        weights: [A, C, N].
        positions: of a row.
    """
    matrices, given, channels = weights
    read, written = 4 * given, 4 * channels
    before = matrices, 0, positions * written, given * written
    row = matrices * positions * written
    behind = positions * read, row, read, written, 0, read, given, given
    kinds = Kinds.of([(0, rows, 0, 1)]), Kinds.of([(0, positions, 0, 1)])
    steps = -(-channels // BLOCK) * matrices * rows * positions * given
    return TileCalls(Cover(channels, 4, is_own=False), 0, before, behind, *kinds, steps)


def of_positions(
    given: int,
    results: int,
    part: slice,
    row: int,
    positions: int,
    numbers: Numbers = FLOATS,
    terms: slice | None = None,
) -> TileCalls:
    """Return what machine code is told of [positions, C] times [C, N], for a part of the result.

    Args:
        given: C.
        results: N.
        part: which channels of the result are computed.
        row: how many channels a row of the weights has, of which these are the first.
        positions: how many.
        numbers: what these take.
        terms: which channels of the source are added up, if not all.
    """
    channels, read = part.stop - part.start, numbers.source * given
    first, count = (0, given) if terms is None else (terms.start, terms.stop - terms.start)
    together, written = -(-count // numbers.together), numbers.result
    behind = 0, 0, read, written * results, 0, read, together, together
    kinds = Kinds((0, 1, 0, 1), 1, 1), Kinds((0, positions, 0, 1), 1, positions)
    steps = -(-channels // BLOCK) * positions * together
    cover = Cover(channels, numbers.source * numbers.together, False, row=row, numbers=numbers)
    begin = numbers.source * first
    return TileCalls(cover, begin, (1, 0, 0, 0), behind, *kinds, steps, written * part.start)


POSITIONS_AT = -3
"""Where, among the numbers of such a call, the one of positions is."""


_SIZES_AT, _SHARES_AT, _MORE_OF_BYTES, _MORE_OF_GROUPS = 10, 25, 3, 4
"""Where, among what a function is told, sizes begin, and numbers of functions that follow; and how
many numbers further of bytes, or of channels in groups."""


def told_of(made: Functions, given: TileCalls, constants: Constants) -> list[Told] | None:
    """Return calls that are to be told addresses of a source, of what is added, and of a result.

    Of bytes, before the result's, they are told those of a zero point, and of a factor. Where
    several tensors are added, they are told the address of each.

    Args:
        made: functions of tiles.
        given: what they are told.
        constants: what they read besides, which has to live as long.

    Returns:
        None where there cannot be any.
    """
    cover, first, before, behind, rows, columns, _, at = given
    heads = constants.heads(made, cover)
    if heads is None:
        return None
    rest = *before, rows.size, columns.size, *behind
    rest += *constants.told, *rows.numbers, *columns.numbers
    more = () if made.integers is None else (0, 0)
    found = list[Told]()
    for function, (source, result), words in heads:
        others = [made.beside(at + result)] * made.others
        found.append((function, (first + source, *others, *more, at + result, *words, *rest)))
    return found


def code_of(
    made: Functions, given: TileCalls, constants: Constants, threads: int = 1
) -> Code | None:
    """Return what `told_of` does as code, which so many threads share."""
    if threads > 1 and given.steps * STEP_NS >= FEW_NS:
        return code_of_all([(made, given, constants)], threads)
    given = given.banded()
    cover, first, before, behind, rows, columns, _, at = given
    key = made, cover, rows.size, columns.size
    known = None if current_trace() is not None else constants.codes.get(key)
    if known is None:
        told = told_of(made, given, constants)
        if told is None:
            return None
        if len(constants.codes) >= MOST_CODES:
            constants.codes.clear()
        made_first = Code.of(told)
        if current_trace() is not None:  # of formulas, which serve no other
            return made_first._replace(kept=constants)
        constants.codes[key] = _Made(made_first, first, at)
        return made_first._replace(kept=constants)
    numbers, starts, pointers, size, *_ = known.code
    numbers = numbers[:]  # all others are the same, which takes a third of the time
    sizes = array("q", (*before, rows.size, columns.size, *behind))
    kinds = array("q", rows.numbers + columns.numbers)
    end = len(numbers)
    is_plain, behind_others = made.integers is None, 1 + made.others
    more = _MORE_OF_GROUPS if made.bundle else 0 if is_plain else _MORE_OF_BYTES
    more += made.others - 1
    for start in reversed(starts):
        numbers[start] += first - known.first
        for place in range(start + 1, start + behind_others):
            numbers[place] += made.beside(at) - made.beside(known.at)
        numbers[start + behind_others + (0 if is_plain else 2)] += at - known.at
        numbers[start + _SIZES_AT + more : start + _SIZES_AT + more + len(sizes)] = sizes
        numbers[end - len(kinds) : end] = kinds
        end = start
    return Code(numbers, starts, pointers, size, constants)


def divided_by(code: Code, count: int) -> Code:
    """Let code of which `Function.QUOTIENT` follows first divide by a number, and return it."""
    share = single_bits(count)  # and 0.0 behind it
    for start in code.starts:
        code.numbers[start + _SHARES_AT] = share
    return code


def code_of_all(
    calls: Sequence[tuple[Functions, TileCalls, Constants]], threads: int = 1
) -> Code | None:
    """Return code that computes several things, in any order, which so many threads share."""
    kept, told = tuple(constants for *_, constants in calls), list[Told]()
    few = sum(given.steps for _, given, _ in calls) * STEP_NS < FEW_NS
    shared = 1 if few else threads
    parts = -(-shared * PARTS // len(calls))
    for made, given, constants in calls:
        for part in given.parts(parts) if shared > 1 else [given]:
            each = told_of(made, part.banded(), constants)
            if each is None:
                return None
            told += each
    return Code.of(told, kept) if shared == 1 else Code.shared(told, shared, kept)


def _address(array: Array) -> int:
    start: int = array.__array_interface__["data"][0]
    return start
