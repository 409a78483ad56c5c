"""Products of any number of rows with matrices of 4 or 8 bits, on integers or in tiles."""

from __future__ import annotations

import itertools

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice.symbolic_size import largest
from polydevice_cpu.algorithms.by_machine.amx.instructions import ROWS, has_tiles
from polydevice_cpu.algorithms.by_machine.code import (
    PARTS,
    Code,
    Phase,
    Within,
    has_avx512,
    may_share,
)
from polydevice_cpu.algorithms.by_machine.compressed import digits, parts, tiles
from polydevice_cpu.algorithms.by_machine.compressed.packing import (
    COLUMNS,
    TOGETHER,
    Matrix,
    as_floats,
    size_of_blocks,
)

MOST_FEW, LEAST_BLOCK = 16, 32
"""Rows and terms of a block up to which, and below which, digits take less time than tiles: 64 rows
by 1024x1024 of 4 bits in blocks of 128, 64 and 32 take 0.71, 0.76 and 0.87 ms by digits, and 0.55,
0.57 and 0.71 in tiles; 16 rows 0.18 to 0.21 and 0.20 to 0.22 (a Xeon with AMX, others at work)."""

PIECE = 256
"""Terms of a panel that are made tiles at once: they take 32 KB then, and stay in a cache."""


_LONGEST = 1 << 16
"""Terms of a block whose sums of products of bytes surely fit into 32 bits."""


def has_code(bits: int, block: int) -> bool:
    """Whether there is code for blocks of so many terms."""
    is_whole = block % 8 == 0 and block % TOGETHER[bits] == 0
    return is_whole and size_of_blocks(block) <= _LONGEST and has_avx512("avx512_vnni")


def room(matrix: Matrix, rows: int, digits_of_each: int, threads: int) -> int:
    """Return how many bytes of room the code takes.

    Args:
        matrix: what is multiplied by.
        rows: how many; a formula may tell.
        digits_of_each: of a number: 1 or 3.
        threads: how many share the work.
    """
    few = rows * (digits.HEAD * matrix.blocks + digits_of_each * matrix.terms)
    if not _may_be_in_tiles(matrix, digits_of_each):
        return few
    tall = -(-rows // ROWS) * ROWS
    lanes = len(_lanes(matrix, threads))
    many = tall * parts.bytes_of_row(matrix.terms) + lanes * _lane_bytes(matrix, rows)
    size: int = largest([few, many])
    return size


def _may_be_in_tiles(matrix: Matrix, digits_of_each: int) -> bool:
    return (
        digits_of_each > 1 and matrix.block >= LEAST_BLOCK and has_tiles("avx512_vnni", "amx_bf16")
    )


def code_of(matrix: Matrix, rows: int, digits_of_each: int, threads: int) -> Code | None:
    """Return code that is told where rows, results and room are; None without any.

    It refuses rows with infinity or NaN, and does not keep the matrix.

    Args:
        matrix: what is multiplied by.
        rows: [rows, terms], f32; how many, which a formula may tell.
        digits_of_each: of a number: 3, so that results are as exact as those of f32, or 1.
        threads: how many share the work.
    """
    threads = threads if may_share() else 1
    if _may_be_in_tiles(matrix, digits_of_each) and rows > MOST_FEW:
        return _in_tiles(matrix, rows, threads)
    return _of_digits(matrix, rows, digits_of_each, threads)


def _of_digits(matrix: Matrix, rows: int, count: int, threads: int) -> Code | None:
    """Code on integers."""
    terms, blocks = matrix.terms, matrix.blocks
    split = function_of(digits.of_rows(count, matrix.block % 16))
    multiply = function_of(digits.product(matrix.bits, count))
    if split is None or multiply is None:
        return None
    heads_row, digits_row = digits.HEAD * blocks, count * terms
    sizes = rows, 4 * terms, digits_row, heads_row, rows * heads_row, 0, blocks, matrix.block
    made = Within(split, (0, 0, 0, *sizes, *digits.constants(matrix.bits, count)), (0,))
    calls: Phase = []
    for first, end in _lanes(matrix, threads):
        panel, count, last = _panels_of(first, end)
        own = (
            matrix.integers.ctypes.data + panel * matrix.integers.strides[0],
            matrix.scales.ctypes.data + panel * matrix.scales.strides[0],
            *(count, matrix.integers.strides[0], matrix.scales.strides[0], 4 * matrix.columns),
            last,
        )
        calls.append(Within(multiply, (0, 4 * first, 0, *sizes, *own), (0,)))
    return Code.in_phases([[made], calls], threads)


def _in_tiles(matrix: Matrix, rows: int, threads: int) -> Code | None:
    """Code in tiles."""
    terms, step = matrix.terms, parts.step_of(matrix.block)
    split = function_of(parts.parts_of_rows(step))
    multiply = function_of(tiles.product(matrix.bits, step))
    if split is None or multiply is None:
        return None
    calls: Phase = []
    tile_row = ROWS * parts.bytes_of_row(terms)
    behind = -(-rows // ROWS) * tile_row
    blocks = _blocks_of_piece(matrix)
    sums_at = tiles.bytes_of_panel(blocks * matrix.block)
    for lane, (first, end) in enumerate(_lanes(matrix, threads)):
        panel, count, last = _panels_of(first, end)
        place = behind + lane * _lane_bytes(matrix, rows)
        told = (
            *(0, 4 * first, 0, 0, place, place + sums_at, place + sums_at + tiles.SUMS_BYTES),
            *(rows, 4 * matrix.columns, tile_row, matrix.blocks // blocks, blocks),
            matrix.block // step,
            matrix.integers.ctypes.data + panel * matrix.integers.strides[0],
            matrix.scales.ctypes.data + panel * matrix.scales.strides[0],
            *(count, last, tiles.kept_of(step).ctypes.data),
        )
        calls.append(Within(multiply, told, (0,)))
    made = Within(split, (0, 0, 0, rows, 4 * terms, 0, terms // step), (0,))
    return Code.in_phases([[made], calls], threads)


def _blocks_of_piece(matrix: Matrix) -> int:
    """How many blocks are made tiles at once: as many as divide all, of `PIECE` terms or one."""
    most = max(PIECE // matrix.block, 1)
    return next(each for each in range(most, 0, -1) if matrix.blocks % each == 0)


def _lane_bytes(matrix: Matrix, rows: int) -> int:
    """What a part of the work has for itself."""
    panel = tiles.bytes_of_panel(_blocks_of_piece(matrix) * matrix.block)
    return panel + tiles.SUMS_BYTES + rows * tiles.TOTAL_BYTES


def _panels_of(first: int, end: int) -> tuple[int, int, int]:
    """The first panel of some columns, how many there are, and which columns the last one has."""
    last = (1 << (end - first - 1) % COLUMNS + 1) - 1
    return first // COLUMNS, -(-(end - first) // COLUMNS), last if last < 1 << 63 else -1


def _lanes(matrix: Matrix, threads: int) -> list[tuple[int, int]]:
    """Which columns each part of the work computes: whole panels, the last one perhaps not."""
    most = threads * PARTS if threads > 1 else 1
    count = min(most, matrix.panels)
    ends = [matrix.panels * part // count * COLUMNS for part in range(count)]
    return list(itertools.pairwise([*ends, matrix.columns]))


def multiplied(matrix: Matrix, x: Array, y: Array) -> None:
    """Multiply rows [..., terms] by a matrix into results [..., columns] with NumPy."""
    np.matmul(x, as_floats(matrix).T, out=y)
