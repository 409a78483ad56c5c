"""Convolutions and products of bytes in AMX tiles: what machine code is told of some sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import cache_bytes, function_of
from polydevice.symbolic_size import Number, is_within, largest, smallest
from polydevice_cpu.algorithms.by_machine.amx.instructions import LANE, ROWS
from polydevice_cpu.algorithms.by_machine.amx.kernel import (
    MORE_SIZES,
    SIZES,
    Form,
    kernel,
)
from polydevice_cpu.algorithms.by_machine.amx.rooms import ROOM_BYTES, SLACK_BYTES, Rooms, rooms
from polydevice_cpu.algorithms.by_machine.amx.sums import TOGETHER
from polydevice_cpu.algorithms.by_machine.code import PARTS, Code, Told
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.integers import TOGETHER as FOUR
from polydevice_cpu.algorithms.by_machine.windows.sums import Constants
from polydevice_cpu.algorithms.by_machine.windows.tiles import BLOCK

WIDE = 2 * BLOCK
"""Channels of a group."""

_ADDRESSES = 5

FEW = 1 << 24
"""Fewer products, which take some 20 us, are not shared by threads."""


class Lines(NamedTuple):
    """How what a window reads is cut into parts that lie in one piece.

    Attributes:
        number: of lines.
        size: bytes of one.
        chunks: parts of a line, of which the last one may begin within the one before.
        fours: of each, four bytes each.
    """

    number: int
    size: int
    chunks: int
    fours: int

    @classmethod
    def of(cls, window: Sequence[int], channels: int, gap: int) -> Lines:
        """Return those of a window: its rows, or its elements where these lie apart."""
        high, wide = window
        count, size = (high, wide * channels) if not gap or wide == 1 else (high * wide, channels)
        chunks = -(-size // LANE)
        each = -(-size // chunks)
        return cls(count, size, chunks, -(-each // FOUR))

    @property
    def starts(self) -> list[int]:
        """Where chunks begin."""
        chunk = FOUR * self.fours
        return [min(number * chunk, max(self.size - chunk, 0)) for number in range(self.chunks)]


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights as code reads them.

    Attributes:
        lines: of a window.
        tiles: by groups of channels of the result, lines, chunks, blocks, fours, and channels.
        sums: of the weights of each channel of the result.
        channels, results: of source and result.
        source: what they were made of, as long as that is there.
    """

    lines: Lines
    tiles: Array
    sums: Array
    channels: int
    results: int
    source: ref[Array]


@dataclass(frozen=True, eq=False)
class Matrices:
    """What is the same for all sizes.

    Attributes:
        weights: as code reads them.
        constants: what it reads besides.
        form: what code is emitted for.
    """

    weights: Weights
    constants: Constants
    form: Form

    def function(self, *, is_copied: bool) -> Any | None:
        """Return the machine code; None where there cannot be any."""
        is_odd = bool(-(-self.weights.results // BLOCK) % 2)
        return function_of(_code(self.form._replace(is_copied=is_copied, is_odd=is_odd)))


class Kept(NamedTuple):
    """What code keeps, by which it is known.

    Attributes:
        matrices: what it reads.
        rooms: what it takes.
    """

    matrices: Matrices
    rooms: Rooms


@lru_cache(maxsize=128)
def _code(form: Form) -> bytes:
    return kernel(form)


def packed(weights: Array, gap: int, source: Array) -> Weights:
    """Return weights as code reads them.

    Args:
        weights: [rows, columns, channels of the source, channels of the result], bytes with a sign.
        gap: elements that are left out between two of a row of a window.
        source: what they are made of.
    """
    *window, channels, results = weights.shape
    lines = Lines.of(window, channels, gap)
    plain = weights.reshape(lines.number, lines.size, results)
    chunk = FOUR * lines.fours
    groups = -(-results // WIDE)
    whole = np.zeros((lines.number, lines.chunks, chunk, groups * WIDE), np.int8)
    for number, start in enumerate(lines.starts):
        first, end = number * chunk, min(start + chunk, lines.size)
        whole[:, number, first - start : end - start, :results] = plain[:, first:end]
    fours = whole.reshape(lines.number, lines.chunks, lines.fours, FOUR, groups, 2, BLOCK)
    made = np.ascontiguousarray(fours.transpose(4, 0, 1, 5, 2, 6, 3))
    tiles = made.reshape(-1)
    if -(-results // BLOCK) % 2:
        tiles = np.concatenate([made[:-1].reshape(-1), made[-1][:, :, 0].reshape(-1)])
    sums = plain.sum(axis=(0, 1), dtype=np.int32)
    return Weights(lines, tiles, sums, channels, results, ref(source))


def code_at_positions(given: Matrices, positions: Number, threads: int) -> Code | None:
    """Return code for windows of one element at so many positions; None without any.

    Args:
        given: of a window of one element.
        positions: one or more, one behind the other.
        threads: how many share the work.
    """
    told = calls_at_positions(given, positions, threads)
    return None if told is None else _shared(told, threads, given)


def calls_at_positions(given: Matrices, positions: Number, threads: int) -> list[Told] | None:
    """Return the calls of that code, in any order; see there."""
    if given.weights.channels % FOUR and given.weights.channels < LANE:
        return None
    function = given.function(is_copied=False)
    if function is None:
        return None
    written = given.form.integers.result.size_bytes * given.weights.results
    channels, digits = given.weights.channels, given.form.digits
    read = channels * given.form.integers.source.size_bytes * digits
    slab = max(cache_bytes(2, default=1 << 20) // 3 // read // TOGETHER, 1) * TOGETHER
    rows = smallest([positions, ROWS])
    second = largest([smallest([positions - ROWS, ROWS]), 0])
    may_repeat = smallest([positions // TOGETHER, 1])
    numbers = {
        "stride": read,
        "second": second * read,
        "second_row": second * LANE,
        "may_repeat": may_repeat,
        "slab": slab,
        "apart": written,
    }
    parts = threads * PARTS if threads > 1 else 1
    products = digits * channels * given.weights.results
    if parts > 1 and not is_within(2 * TOGETHER * parts + FEW // products - positions, 0):
        parts = 1
    lines = [digit * channels for digit in range(digits)]
    return [
        _told(given, function, numbers, rows, (first, end - first), lines)
        for first, end in _parts(positions, parts)
    ]


def _parts(count: Number, parts: int) -> list[tuple[Number, Number]]:
    ends = [count * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(ends))


def _shared(told: Sequence[Told], threads: int, given: Matrices) -> Code:
    kept = Kept(given, rooms())
    return Code.of(told, kept) if len(told) == 1 else Code.shared(told, threads, kept)


def code_of_pictures(
    given: Matrices,
    source: Sequence[Number],
    result: Sequence[Number],
    windows: Windows,
    threads: int,
) -> Code | None:
    """Return code for pictures, whose rows are copied; None where a row is too long for a room.

    Args:
        given: what is the same for all sizes.
        source: [N, C, H, W], whose channels lie next to each other.
        result: likewise.
        windows: where they lie.
        threads: how many share the work.
    """
    told = calls_of_pictures(given, source, result, windows, threads)
    return None if told is None else _shared(told, threads, given)


def calls_of_pictures(
    given: Matrices,
    source: Sequence[Number],
    result: Sequence[Number],
    windows: Windows,
    threads: int,
) -> list[Told] | None:
    """Return the calls of that code, in any order; see there. Digits have pictures each."""
    function = given.function(is_copied=True)
    if function is None or min(windows.pads) < 0:
        return None
    (pictures, channels, height, width), (*_, high, wide) = source, result
    tall, pitch = (
        largest([-(-(pad + size) // step), -(-((count - 1) * step + reach - pad) // step), count])
        for pad, size, step, count, reach in (
            (windows.pads[0], height, windows.steps[0], high, _reach(windows, 0)),
            (windows.pads[1], width, windows.steps[1], wide, _reach(windows, 1)),
        )
    )
    (down, along), (above, before) = windows.steps, windows.pads
    phases = min(down, _reach(windows, 0))
    stride, line = along * channels, pitch * along * channels
    more = (_reach(windows, 0) - 1) // down + 1
    left = (pictures - 1) * tall + high
    behind = TOGETHER * stride + given.weights.lines.size + LANE + SLACK_BYTES
    digits = given.form.digits
    least = digits * phases * (more + 1) * line + behind
    if not is_within(least, ROOM_BYTES):
        return None
    most = largest([(ROOM_BYTES - behind) // (digits * phases * line) - more, 1])
    products = given.weights.lines.number * given.weights.lines.size * given.weights.results
    parts = threads * PARTS if threads > 1 else 1
    if parts > 1 and not is_within(FEW // products + parts - left * pitch, 0):
        parts = 1
    each = smallest([most, -(-left // parts)])
    phase = (each + more) * line
    written = given.form.integers.result.size_bytes * given.weights.results
    numbers = {
        "stride": stride,
        "second": ROWS * stride,
        "second_row": ROWS * LANE,
        "slab": each,
        "wide": wide,
        "pitch": pitch,
        "high": high,
        "tall": tall,
        "apart": written,
        "row_result": wide * written,
        "picture_end": (high - tall) * wide * written,
        "pictures": pictures,
        "picture_source": height * width * channels,
        "picture_result": high * wide * written,
        "row_bytes": width * channels,
        "border": before * channels,
        "line_bytes": line,
        "phases": phases,
        "phase_bytes": phase,
        "height": height,
        "above": above,
        "down": down,
        "more_rows": more,
        "digit_source": pictures * height * width * channels,
        "digit_room": phases * phase,
    }
    starts = _starts(given.weights.lines, windows, phase, line, channels)
    lines = [digit * phases * phase + start for digit in range(digits) for start in starts]
    return [
        _told(given, function, numbers, ROWS, (first, end - first), lines)
        for first, end in _parts(left, parts)
    ]


def is_in_tiles(code: Code) -> bool:
    """Whether this is such code."""
    return isinstance(code.kept, Kept)


def _reach(windows: Windows, axis: int) -> int:
    """Rows or columns from the first to the last element of a window."""
    return (windows.sizes[axis] - 1) * (windows.gaps[axis] + 1) + 1


def _starts(
    lines: Lines, windows: Windows, phase: Number, line: Number, channels: int
) -> list[Number]:
    """Where lines of a window begin."""
    high, wide = windows.sizes
    starts = []
    for row in range(high):
        behind, of_phase = divmod(row * (windows.gaps[0] + 1), windows.steps[0])
        start = of_phase * phase + behind * line
        columns = range(wide if lines.number > high else 1)
        starts += [start + column * (windows.gaps[1] + 1) * channels for column in columns]
    return starts


def _told(
    given: Matrices,
    function: Any,
    numbers: dict[str, Number],
    rows: Number,
    part: tuple[Number, Number],
    lines: Sequence[Number],
) -> Told:
    """What the code is told of a part of the rows or positions."""
    constants, cut = given.constants, given.weights.lines
    chunk = FOUR * cut.fours
    locks, memory = rooms().addresses
    bias = _address(given.weights.sums if constants.bias is None else constants.bias)
    blocks = -(-given.weights.results // BLOCK)
    known = {
        "weights": _address(given.weights.tiles),
        "bias": bias,
        "slopes": 0 if constants.slopes is None else _address(constants.slopes) - bias,
        "scales": 0 if constants.scales is None else _address(constants.scales) - bias,
        "sums": _address(given.weights.sums) - bias,
        "groups": -(-blocks // 2),
        "last_block": _last_block(given.weights.results, blocks),
        "lines": cut.number,
        "chunks": cut.chunks,
        "chunk": chunk,
        "fix": cut.starts[-1] - (cut.chunks - 1) * chunk,
        "tile": LANE * cut.fours,
        "start_row": part[0],
        "left": part[1],
        "locks": locks,
        "rooms": memory,
        "room_bytes": ROOM_BYTES + SLACK_BYTES,
        "tiles 0": 1,
        "tiles 2": LANE * 0x1_0001_0001_0001,
        "tiles 3": LANE * 0x1_0001_0000_0000 + chunk * 0x1_0001,
        "tiles 6": rows * 0x0101_0101_0101 + (cut.fours * 0x0101 << 48),
        **numbers,
    }
    words, more = (
        [known.get(name, 0) for name in names] for names in (SIZES[_ADDRESSES:], MORE_SIZES)
    )
    return function, (*[0] * _ADDRESSES, *words, *constants.told, *more, *lines)


def _last_block(results: int, blocks: int) -> int:
    return (1 << (results - 1) % BLOCK + 1) - 1 if blocks else 0


def _address(array: Array) -> int:
    start: int = array.__array_interface__["data"][0]
    return start
