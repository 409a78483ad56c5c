"""Products of any number of rows with matrices of 4 or 8 bits, by machine code."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import (
    PARTS,
    Code,
    Phase,
    Within,
    may_share,
)
from polydevice_cpu.algorithms.by_machine.panels import kernel
from polydevice_cpu.algorithms.by_machine.panels.kernel import COLUMNS, DRIVING, UNPACKING
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.sums import (
    Constants,
    Functions,
    of_positions,
    told_of,
)
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms

MOST_TERMS = 2048
"""Of a panel at once: its numbers take 512 KB then, and stay in the second cache."""

MOST_ROOM_BYTES = 16 << 20
"""Of all threads' parts; each thread has one at least."""

MOST_FEW = 16
"""Rows for which a panel is unpacked once for every four of them: with 16 it takes as long as to
put its numbers into room."""

_CONSTANTS = Constants(None, None, None, []), Constants(None, None, None, [(0.0, 0.0)])
"""Of sums, and of those that are added to what there is."""


class _Piece(NamedTuple):
    """Terms that are unpacked at once.

    Attributes:
        start: the first one.
        blocks: how many scales they have.
        terms: of each block.
    """

    start: int
    blocks: int
    terms: int


@dataclass(frozen=True, eq=False)
class Panels:
    """A matrix of integers as code reads it: (q - center) * scales, of [columns, terms].

    Attributes:
        bits: of an integer.
        integers: [panels, terms, bytes], u8.
        scales: [panels, blocks, 64] f32; 0 of columns that there are not.
        columns: how many there are.
    """

    bits: int
    integers: Array
    scales: Array
    columns: int

    @property
    def terms(self) -> int:
        """How many terms there are."""
        terms: int = self.integers.shape[1]
        return terms

    @property
    def block(self) -> int:
        """How many terms have one scale."""
        blocks: int = self.scales.shape[1]
        return self.terms // blocks

    @property
    def pieces(self) -> list[_Piece]:
        """What is unpacked at once: some blocks, or a part of a long one."""
        block, found = self.block, list[_Piece]()
        each = min(block, MOST_TERMS)
        together = max(MOST_TERMS // block, 1) * block
        for first in range(0, self.terms, together):
            end = min(first + together, self.terms)
            if block > each:
                found += [_Piece(at, 1, min(each, end - at)) for at in range(first, end, each)]
            else:
                found.append(_Piece(first, (end - first) // block, block))
        return found


def packed(q: Array, bits: int, center: int) -> Array:
    """Return integers [columns, terms] as `Panels` has them.

    Args:
        q: one a byte, with or without a sign.
        bits: 4 or 8.
        center: what is to be subtracted; then they fit into signed ones of as many bits.
    """
    columns, terms = q.shape
    panels = -(-columns // COLUMNS)
    whole = np.zeros((panels * COLUMNS, terms), np.uint8)
    least = center - 8 if bits == 4 else center
    np.subtract(q, np.array(least).astype(q.dtype), out=whole[:columns].view(q.dtype))
    turned = whole.reshape(panels, COLUMNS, terms).swapaxes(1, 2)
    if bits == 8:
        return np.ascontiguousarray(turned)
    half = COLUMNS // 2
    return np.ascontiguousarray(turned[..., :half] | turned[..., half:] << 4)


def spread(scales: Array) -> Array:
    """Return scales [columns, blocks] as `Panels` has them."""
    columns, blocks = scales.shape
    panels = -(-columns // COLUMNS)
    whole = np.zeros((panels * COLUMNS, blocks), np.float32)
    whole[:columns] = scales
    return np.ascontiguousarray(whole.reshape(panels, COLUMNS, blocks).swapaxes(1, 2))


def room(panels: Panels, threads: int) -> int:
    """Return how many numbers of room the code takes."""
    return len(_lanes(panels, _in_room(panels, threads))) * _numbers_of_lane(panels)


def _numbers_of_lane(panels: Panels) -> int:
    longest: int = max(piece.blocks * piece.terms for piece in panels.pieces)
    return longest * COLUMNS


def _in_room(panels: Panels, threads: int) -> int:
    """How many parts of the work may have room of their own."""
    most = MOST_ROOM_BYTES // (4 * _numbers_of_lane(panels))
    return min(threads * PARTS, max(most, threads)) if threads > 1 else 1


def code_of(panels: Panels, rows: int, threads: int) -> Code | None:
    """Return code that is told where rows, the same, results and room are; None without any.

    Args:
        panels: the matrix.
        rows: [rows, terms], f32; how many, which a formula may tell.
        threads: how many share the work.
    """
    threads = threads if may_share() else 1
    if rows <= MOST_FEW:
        return _of_few(panels, rows, threads)
    lanes, size = _lanes(panels, _in_room(panels, threads)), _numbers_of_lane(panels)
    phases: list[Phase] = []
    for piece in panels.pieces:
        calls: Phase = []
        for lane, columns in enumerate(lanes):
            own = _calls(panels, rows, piece, columns, 4 * size * lane)
            if own is None:
                return None
            calls += own
        phases.append(calls)
    return Code.in_phases(phases, threads, panels)


def _of_few(panels: Panels, rows: int, threads: int) -> Code | None:
    """The same of few rows."""
    function = function_of(kernel.of_few(panels.bits))
    if function is None:
        return None
    terms, blocks = panels.terms, panels.scales.shape[1]
    of_panel = kernel.bytes_of_term(panels.bits) * terms, 4 * COLUMNS * blocks
    told = []
    for first, end in _lanes(panels, threads * PARTS if threads > 1 else 1):
        panel, count = first // COLUMNS, -(-(end - first) // COLUMNS)
        last = (1 << (end - first - 1) % COLUMNS + 1) - 1
        numbers = (
            *(0, 0, 4 * first, 0, panels.integers.ctypes.data + panel * of_panel[0]),
            *(panels.scales.ctypes.data + panel * of_panel[1], blocks, panels.block),
            *(_constants(panels.bits), rows, 4 * terms, 4 * panels.columns, count, *of_panel),
            last if last < 1 << (COLUMNS - 1) else -1,
        )
        told.append((function, numbers))
    return Code.shared(told, threads, panels)


def _constants(bits: int) -> int:
    """What unpacking is told of integers: bits of the lower one of a byte, and what is added."""
    added = -8.0 if bits == 4 else 0.0
    return int.from_bytes(struct.pack("<if", 15, added), "little", signed=True)


def _lanes(panels: Panels, most: int) -> list[tuple[int, int]]:
    """Which columns each part of the work computes: whole panels, and the last one's rest."""
    whole, rest = divmod(panels.columns, COLUMNS)
    parts = min(most, whole)
    ends = [whole * part // parts * COLUMNS for part in range(parts + 1)] if parts else []
    found = list(itertools.pairwise(ends))
    return [*found, (whole * COLUMNS, panels.columns)] if rest else found


def _calls(
    panels: Panels, rows: int, piece: _Piece, columns: tuple[int, int], behind: int
) -> Phase | None:
    """Calls for some columns and terms; None where there is no code.

    Args:
        panels: the matrix.
        rows: how many.
        piece: the terms.
        columns: from which one on to which, of whole panels or of one that is not.
        behind: how many bytes behind the room's begin that is which is used.
    """
    (start, blocks, terms), (first, end) = piece, columns
    panel = first // COLUMNS
    count, wide = max((end - first) // COLUMNS, 1), min(end - first, COLUMNS)
    size = kernel.bytes_of_term(panels.bits)
    unpack, drive = (
        function_of(text) for text in (kernel.unpacking(panels.bits), kernel.driving())
    )
    given = of_positions(blocks * terms, panels.columns, slice(first, first + wide), COLUMNS, rows)
    sizes = list(given.behind)
    sizes[2] = 4 * panels.terms
    given = given._replace(first=4 * start, behind=tuple(sizes))
    told = told_of(_functions(start > 0), given, _CONSTANTS[start > 0])
    if told is None or unpack is None or drive is None:
        return None
    place = panel * panels.terms + start
    integers = panels.integers.ctypes.data + size * place
    scales = panels.scales.ctypes.data + 4 * COLUMNS * (place // panels.block)
    unpacking = 0, 0, 0, behind, integers, scales, blocks, terms, _constants(panels.bits)
    calls: Phase = []
    for function, numbers in told:
        multiplying = list(numbers)
        multiplying[kernel.ROOM] += behind
        driving = (
            *(unpack.address, function.address, count),
            *(size * panels.terms, 4 * COLUMNS * panels.scales.shape[1], 4 * COLUMNS),
        )
        numbers = *driving, *unpacking, *multiplying
        calls.append(Within(drive, numbers, (DRIVING, DRIVING + UNPACKING)))
    return calls


@lru_cache(maxsize=2)
def _functions(adds: bool) -> Functions:
    """Sums, which may be added to what there is."""
    chain = [Function.SUM] if adds else []
    return Functions(chain, terms=Terms.ALL_CHANNELS, has_bias=False)


def multiplied(panels: Panels, x: Array, y: Array) -> None:
    """Multiply rows [..., terms] by a matrix into results [..., columns] with NumPy."""
    integers = panels.integers
    if panels.bits == 4:
        halves = integers & 15, integers >> 4
        numbers = np.concatenate(halves, axis=2).astype(np.float32) - np.float32(8)
    else:
        numbers = integers.view(np.int8).astype(np.float32)
    matrix = numbers * panels.scales.repeat(panels.block, axis=1)
    whole = matrix.swapaxes(0, 1).reshape(panels.terms, -1)[:, : panels.columns]
    np.matmul(x, whole, out=y)
