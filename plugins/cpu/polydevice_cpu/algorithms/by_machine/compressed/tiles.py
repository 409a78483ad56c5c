"""Machine code that multiplies rows with a matrix of few bits in the processor's tiles (AMX).

A number of f32 is the sum of three with 8 bits each, which tiles hold, as they do integers of 8
bits; they multiply both exactly, and add up in f32. So a result is as exact as one of f32.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import for_good
from polydevice_cpu.algorithms.by_machine.amx.instructions import ROWS, TileInstructions
from polydevice_cpu.algorithms.by_machine.compressed.packing import CENTERS, COLUMNS, VECTORS
from polydevice_cpu.algorithms.by_machine.compressed.parts import ADDRESSES, PARTS
from polydevice_cpu.algorithms.by_machine.functions import OR
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    LOAD_WORDS,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    STORE,
    SUB,
)


@for_good
def kept_of(step: int) -> Array:
    """Return what code reads besides: sizes of tiles, and what integers of 4 bits stand for.

    Tiles are sums, some rows, and a part of the matrix. Of the table there are two alike, one after
    the other: the fifth bit that is looked up belongs to another integer.
    """
    made = np.zeros(128, np.uint8)
    made[0] = 1
    made[16:32].view(np.uint16)[:] = *[64] * 4, *[2 * step] * 2, *[64] * 2
    made[48:56] = *[ROWS] * 6, *[step // 2] * 2
    numbers = np.arange(16, dtype=np.float32) - np.float32(CENTERS[4])
    made[64:].view(np.uint16)[:] = np.tile(numbers, 2).view(np.uint32) >> 16
    return made


# What `product` is told behind addresses: where parts of rows, those of a panel, sums and totals
# begin in the room; how many rows there are, and bytes from one to the next in results; what a
# tile's rows take, with all terms; how often a panel is unpacked, blocks that are then and steps of
# each; integers and scales; how many panels there are; which columns of the last one there are, as
# bits; and `kept_of`.
PARTS_AT, PANEL_AT, SUMS_AT, TOTALS_AT, RESULT_ROWS = range(ADDRESSES, ADDRESSES + 5)
RESULT_ROW, TILE_ROW, PIECES, BLOCKS, BLOCK_STEPS = range(ADDRESSES + 5, ADDRESSES + 10)
INTEGERS, SCALES, PANELS, LAST, KEPT = range(ADDRESSES + 10, ADDRESSES + 15)
_RESULT, _ROOM = 1, 2

_SUMS_OF_BLOCK = 2 * ROWS * 2 * 64
SUMS_BYTES = 2 * _SUMS_OF_BLOCK
"""Sums of two tiles of rows and two of columns, of two blocks: those of one are added to totals
while the next one is multiplied, as what a tile is stored to is read some hundred cycles later."""

TOTAL_BYTES = 4 * COLUMNS
"""Totals of a row and a panel. In results, rows may lie 4096 bytes apart, and push each other out
of the first cache."""

(_LEFT, _PIECES_LEFT, _OF_INTEGERS, _OF_SCALES, _OF_RESULT, _OF_ROWS, _NEXT_SUMS, _LAST_SUMS) = (
    range(8)
)
_SLOTS = 8
"""Slots of the stack: panels and pieces left; where integers, scales, results and parts of rows of
a piece are, and where the next sums go and the last ones went."""


def bytes_of_panel(terms: int) -> int:
    """Return what a panel's terms take as tiles."""
    return 2 * COLUMNS * terms


@lru_cache(maxsize=16)
def product(bits: int, step: int) -> bytes:
    """Return code that multiplies parts of rows with panels, one after the other, in tiles.

    Args:
        bits: of the matrix: 4 or 8.
        step: terms that are multiplied at once.
    """
    code = TileInstructions()
    code.begin(_SLOTS)
    code.load(RAX, RDI, KEPT)
    code.begin_tiles(RAX)
    _append_constants(code, bits)
    panels = (_OF_INTEGERS, INTEGERS), (_OF_SCALES, SCALES), (_OF_RESULT, _RESULT), (_LEFT, PANELS)
    for slot, place in panels:
        code.copy(slot, RDI, place)
    _append_place(code, _NEXT_SUMS, SUMS_AT)
    code.step(RAX, _SUMS_OF_BLOCK)
    code.store(RAX, RSP, _LAST_SUMS)
    panel = len(code.text)
    _append_zeros(code)
    _append_place(code, _OF_ROWS, PARTS_AT)
    code.copy(_PIECES_LEFT, RDI, PIECES)
    piece = len(code.text)
    _append_unpacked(code, bits, step)
    for half in range(2):
        _append_half(code, half, step)
    # RCX: steps of a piece.
    code.load(RCX, RDI, BLOCKS)
    code.move(RAX, RCX)
    code.times(RCX, RDI, BLOCK_STEPS)
    code.raw(f"48c1e0{TOTAL_BYTES.bit_length() - 1:02x}")  # shl rax, …
    code.plain(0x01, RAX, RSP, 8 * _OF_SCALES)  # add [rsp + …], rax
    code.raw("4869c1")  # imul rax, rcx, …
    code.text += struct.pack("<i", 32 * step * PARTS)
    code.plain(0x01, RAX, RSP, 8 * _OF_ROWS)
    code.again(RSP, piece, _PIECES_LEFT)
    _append_written(code)
    code.again(RSP, panel, _LEFT)
    code.end_tiles()
    code.end(_SLOTS)
    return code.assembled()


def _append_place(code: TileInstructions, slot: int, at: int) -> None:
    """Note a place in the room, which RAX has then."""
    code.load(RAX, RDI, _ROOM)
    code.add(RAX, RDI, at)
    code.store(RAX, RSP, slot)


_TABLE, _BYTE, _MAGIC, _OFFSET = 31, 30, 29, 28


def _append_constants(code: TileInstructions, bits: int) -> None:
    """Load what integers become numbers of 16 bits with."""
    if bits == 4:
        code.vector(LOAD, _TABLE, 0, RAX, behind=1)
        return
    magic = np.array([2**23 + CENTERS[8]], np.float32).view(np.uint32)
    code.fill_bits(_BYTE, 0xFF)
    code.fill_bits(_MAGIC, 0x4B000000)
    code.fill_bits(_OFFSET, int(magic[0]))


def _append_unpacked(code: TileInstructions, bits: int, step: int) -> None:
    """Make tiles of a piece: for each step those of 16 columns each; go to the next one."""
    code.load(RSI, RSP, _OF_INTEGERS)
    code.load(R9, RDI, _ROOM)
    code.add(R9, RDI, PANEL_AT)
    code.load(RCX, RDI, BLOCKS)
    code.times(RCX, RDI, BLOCK_STEPS)
    together = 8 if bits == 4 else 4
    tile_bytes = 32 * step
    next_step = len(code.text)
    for group in range(step // together):
        for vector in range(VECTORS):
            code.vector(LOAD, 0, 0, RSI, behind=vector)
            place = vector * tile_bytes + group * 32 * together
            (_append_four if bits == 4 else _append_eight)(code, place)
        code.step(RSI, 64 * VECTORS)
    code.step(R9, VECTORS * tile_bytes)
    code.again(RCX, next_step)
    code.store(RSI, RSP, _OF_INTEGERS)


def _append_four(code: TileInstructions, place: int) -> None:
    """Make pairs of 16 columns' eight terms of 4 bits, and store them."""
    for row, bits in enumerate((0, 8, 4, 12)):
        if bits:
            code.shifted(1, 0, bits, words=True)
        looked_up = 2, 1 if bits else 0, _TABLE  # vpermw
        code.vector(0x8D, *looked_up, kind=2, prefix=1, is_memory=False, wide=True)
        code.vector(STORE, 2, 0, R9, offset_bytes=place + 64 * row)


def _append_eight(code: TileInstructions, place: int) -> None:
    """Make pairs of 16 columns' four terms of 8 bits, and store them."""
    for row in range(2):
        for number, bits in enumerate((8 * row, 8 * row + 16), 1):
            if bits:
                code.shifted(number, 0, bits)
            else:
                code.vector(LOAD_WORDS, number, 0, 0, prefix=1, is_memory=False)
            # The byte, as what is behind 2^23 in a number of f32: (a & b) | c
            code.vector(
                0x25, number, _BYTE, _MAGIC, kind=3, prefix=1, is_memory=False, last_byte=0xEA
            )
            code.of_vectors(SUB, number, number, _OFFSET)
        code.shifted(1, 1, 16)
        code.vector(OR, 1, 1, 2, prefix=1, is_memory=False)
        code.vector(STORE, 1, 0, R9, offset_bytes=place + 64 * row)


def _append_zeros(code: TileInstructions) -> None:
    """Let totals of a panel be 0."""
    code.clear(0)
    _append_totals(code, lambda vector: code.vector(STORE, 0, 0, RBX, behind=vector))


def _append_totals(code: TileInstructions, access: Callable[[int], None]) -> None:
    """Go through all rows of totals, which RBX points to."""
    code.load(RBX, RDI, _ROOM)
    code.add(RBX, RDI, TOTALS_AT)
    code.load(RCX, RDI, RESULT_ROWS)
    row = len(code.text)
    for vector in range(VECTORS):
        access(vector)
    code.step(RBX, TOTAL_BYTES)
    code.add(RSI, RDI, RESULT_ROW)
    code.again(RCX, row)


def _append_written(code: TileInstructions) -> None:
    """Write totals of a panel to results, and go to the next ones."""
    code.raw("48c7c0ffffffff")  # mov rax, -1
    code.load(RCX, RSP, _LEFT)
    code.compare(RCX, 1)
    code.set_if_equal(RAX, RDI, 8 * LAST)
    for vector in range(VECTORS):
        code.set_mask(1 + vector, RAX)
        code.raw("48c1e810")  # shr rax, 16
    code.load(RSI, RSP, _OF_RESULT)

    def write(vector: int) -> None:
        code.vector(LOAD, 0, 0, RBX, behind=vector)
        code.vector(STORE, 0, 0, RSI, behind=vector, mask=1 + vector)

    _append_totals(code, write)
    code.load(RAX, RSP, _OF_RESULT)
    code.step(RAX, 4 * COLUMNS)
    code.store(RAX, RSP, _OF_RESULT)


_SUMS, _ROWS, _COLUMNS = 0, 4, 6
"""The first tiles of each: two by two, of two, and of two."""


def _append_half(code: TileInstructions, half: int, step: int) -> None:
    """Multiply all rows with a half of a panel: 32 of them at once, or what is left."""
    # R8: parts of rows; RSI: totals; R15: rows left; R10, R11, R13: bytes from row to row.
    code.load(R8, RSP, _OF_ROWS)
    code.load(RSI, RDI, _ROOM)
    code.add(RSI, RDI, TOTALS_AT)
    code.step(RSI, 128 * half)
    code.load(R15, RDI, RESULT_ROWS)
    for register, apart in ((0xBA, 2 * step), (0xBB, 64), (0xBD, 128)):
        code.raw(f"41{register:x}{apart:02x}000000")  # mov r10d, …
    rows = len(code.text)
    code.compare(R15, ROWS)
    are_few = code.ahead("0f8e")  # jle
    _append_blocks(code, half, step, 2)
    code.add(R8, RDI, TILE_ROW)
    code.add(R8, RDI, TILE_ROW)
    code.step(R15, -2 * ROWS)
    code.jump(rows, "0f8f")  # jg
    are_done = code.ahead()
    code.here(are_few)
    _append_blocks(code, half, step, 1)
    code.here(are_done)


def _append_blocks(code: TileInstructions, half: int, step: int, tiles: int) -> None:
    """Multiply so many tiles of rows with a half of a panel, block after block.

    RSI is behind their totals then.
    """
    tile_bytes = 32 * step
    # RBP: scales; RCX: blocks left; RDX: steps left; RAX, R12: parts of rows; R9: of the panel.
    code.load(RBP, RSP, _OF_SCALES)
    code.move(RAX, R8)
    code.move(R12, R8)
    code.add(R12, RDI, TILE_ROW)
    code.load(R9, RDI, _ROOM)
    code.add(R9, RDI, PANEL_AT)
    code.load(RCX, RDI, BLOCKS)
    block = len(code.text)
    for tile in range(2 * tiles):
        code.clear_tile(_SUMS + tile)
    code.load(RDX, RDI, BLOCK_STEPS)
    next_step = len(code.text)
    for column in range(2):
        code.load_tile(_COLUMNS + column, R9, R11, (2 * half + column) * tile_bytes)
    for part in range(PARTS):
        for row, place in enumerate((RAX, R12)[:tiles]):
            code.load_tile(_ROWS + row, place, R10, part * tile_bytes)
        for row in range(tiles):
            for column in range(2):
                code.multiply_halves(2 * row + column, _ROWS + row, _COLUMNS + column)
    code.step(RAX, PARTS * tile_bytes)
    code.step(R12, PARTS * tile_bytes)
    code.step(R9, VECTORS * tile_bytes)
    code.again(RDX, next_step)
    code.load(RBX, RSP, _NEXT_SUMS)
    for row in range(tiles):
        for column in range(2):
            place = 128 * ROWS * row + 64 * column
            code.store_tile(2 * row + column, RBX, R13, place)
    code.load(RDX, RSP, _LAST_SUMS)
    code.store(RBX, RSP, _LAST_SUMS)
    code.store(RDX, RSP, _NEXT_SUMS)
    code.plain(0x3B, RCX, RDI, 8 * BLOCKS)  # cmp
    is_first = code.ahead("0f84")  # je
    code.move(RBX, RDX)
    _append_sums(code, half, tiles)
    code.here(is_first)
    code.again(RCX, block)
    code.load(RBX, RSP, _LAST_SUMS)
    _append_sums(code, half, tiles)
    code.move(RSI, R14)


def _append_sums(code: TileInstructions, half: int, tiles: int) -> None:
    """Add sums, which RBX points to, times scales to totals; R14 is behind these then."""
    for column in range(2):
        code.vector(LOAD, 2 + column, 0, RBP, behind=2 * half + column)
    code.step(RBP, 4 * COLUMNS)
    code.move(R14, RSI)
    code.move(RDX, R15)
    code.compare(RDX, ROWS * tiles)
    are_fewer = code.ahead("0f8e")  # jle
    code.text += struct.pack("<BI", 0xBA, ROWS * tiles)  # mov edx, …
    code.here(are_fewer)
    row_at = len(code.text)
    for column in range(2):
        code.vector(LOAD, column, 0, RBX, behind=column)
        sums = 0xA8, column, 2 + column, R14  # vfmadd213ps
        code.vector(*sums, behind=column, kind=2, prefix=1)
        code.vector(STORE, column, 0, R14, behind=column)
    code.step(RBX, 128)
    code.step(R14, TOTAL_BYTES)
    code.again(RDX, row_at)
