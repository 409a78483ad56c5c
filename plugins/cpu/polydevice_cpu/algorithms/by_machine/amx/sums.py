"""Summing products of bytes in AMX tiles: up to 32 positions of up to 32 channels at once.

Numbers of 16 bits are two digits of 8 bits. Each has sums of its own, which are exact; 256 times
those of the upper digits, and those of the lower ones, are added up in f32.
"""

from __future__ import annotations

from polydevice_cpu.algorithms.by_machine.amx.instructions import LANE, ROWS
from polydevice_cpu.algorithms.by_machine.amx.tiles import TileCode
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
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
    RDI,
    RDX,
    RSI,
)
from polydevice_cpu.algorithms.by_machine.windows.following import AS_FLOATS
from polydevice_cpu.algorithms.by_machine.windows.tiles import Tile

TOGETHER = 2 * ROWS
"""Positions, and channels, that are summed at once."""

SUMS_BYTES = TOGETHER * 2 * LANE
"""What these sums take."""

MOVED = (20, 21), (18, 19)
"""Vectors with what zero points add to sums, by digits and blocks of channels."""

_LOWER, _PLACE_VALUE = 16, 17
_SUBTRACT = 0xFA
_256 = 0x43800000
"""256 in f32."""


def append_sums(
    code: TileCode,
    blocks: int,
    halves: int,
    lines: int,
    digits: int,
    are_signed: bool,
) -> None:
    """Sum up to 16 or 32 positions: line by line, chunk by chunk; leave where weights end in RDX.

    Args:
        code: where to; R15 goes on from line to line, RBP has a chunk of the first positions, RSI
            that of the others, RDX and R8 weights.
        blocks: of channels: 1 or 2.
        halves: 2 where there are more than 16 positions.
        lines: where, in numbers of 8 bytes, it is told where lines of a window begin. Of two
            digits, there is one for each.
        digits: of a number; the same weights meet all of them.
        are_signed: whether bytes of a source have a sign.
    """
    code.given(RAX, "stride")
    code.given(R11, "tile")
    code.given(R12, "chunk")
    code.move(R15, RDI)
    code.plain(0x81, 0, R15)  # add r15, …
    code.text += (8 * lines).to_bytes(4, "little")
    code.given(R14, "second")
    for digit in range(digits):
        for tile in range(2 * halves):
            if tile % 2 < blocks:
                code.clear_tile(tile)
        code.slot(RDX, "weights_at")
        code.raw("41ba40000000")  # r10d = 64
        code.given(R9, "lines")
        _append_lines(code, blocks, halves, are_signed=are_signed)
        _append_stored(code, blocks, halves, digit)


def _append_lines(code: TileCode, blocks: int, halves: int, *, are_signed: bool) -> None:
    """Add all lines."""
    next_line = len(code.text)
    code.slot(RBP, "start")
    code.add(RBP, R15, 0)
    code.given(R13, "chunks")
    next_chunk = len(code.text)
    code.load_tile(4, RBP, RAX)
    code.load_tile(6, RDX, R10)
    code.multiply_bytes(0, 4, 6, are_signed=are_signed)
    if halves > 1:
        code.scaled(RSI, RBP, R14, 1)
        code.load_tile(5, RSI, RAX)
        code.multiply_bytes(2, 5, 6, are_signed=are_signed)
    if blocks > 1:
        code.scaled(R8, RDX, R11, 1)
        code.load_tile(7, R8, R10)
        code.multiply_bytes(1, 4, 7, are_signed=are_signed)
        if halves > 1:
            code.multiply_bytes(3, 5, 7, are_signed=are_signed)
    code.scaled(RDX, RDX, R11, blocks)
    code.add(RBP, R12)
    code.step(R13, -1)
    is_done = code.ahead("0f84")
    code.compare(R13, 1)
    code.jump(next_chunk, "0f85")
    code.add(RBP, RDI, code.places["fix"])
    code.jump(next_chunk)
    code.here(is_done)
    code.step(R15, 8)
    code.again(R9, next_line)


def _append_stored(code: TileCode, blocks: int, halves: int, digit: int) -> None:
    """Store sums of a digit."""
    code.slot(R8, "sums")
    if digit:
        code.step(R8, digit * SUMS_BYTES)
    code.text += bytes((0x41, 0xBA))  # r10d = …
    code.text += (LANE * blocks).to_bytes(4, "little")
    for block in range(blocks):
        code.store_tile(block, R8, R10, LANE * block)
    if halves < 2:
        return
    code.given(R13, "second_row")
    if blocks > 1:
        code.scaled(R8, R8, R13, 2)
    else:
        code.add(R8, R13)
    for block in range(blocks):
        code.store_tile(2 + block, R8, R10, LANE * block)


def append_moved(code: TileCode, blocks: int, *, digits: int, has_zero: bool) -> None:
    """Find what zero points add to sums of the channels that mask 1 and the bias' place say."""
    sums = 22
    for moved in MOVED[:digits]:
        for block in range(blocks):
            code.clear(moved[block])
    if not has_zero:
        return
    code.given(R8, "zero")
    code.given(R9, "sums")
    code.add(R9, RBX)
    for digit, moved in enumerate(MOVED[:digits]):
        code.spread(moved[0], R8, behind=digit)
        if blocks > 1:
            code.spread(moved[1], R8, behind=digit)
        for block in range(blocks):
            code.vector(LOAD, sums, 0, R9, behind=block, mask=int(block == blocks - 1))
            multiply = 0x40  # vpmulld
            code.vector(
                multiply, moved[block], moved[block], sums, kind=2, prefix=1, is_memory=False
            )


def append_loaded(code: TileCode, tile: Tile, digits: int) -> None:
    """Load sums of so many positions that R9 points to; those of two digits become floats."""
    if digits > 1:
        code.fill_bits(_PLACE_VALUE, _256)
    for position in range(tile.width):
        for block in range(tile.blocks):
            behind, sum_ = position * tile.blocks + block, block * tile.width + position
            code.vector(LOAD, sum_, 0, R9, behind=behind)
            if digits > 1:
                lower = behind + SUMS_BYTES // LANE
                code.vector(LOAD, _LOWER, 0, R9, behind=lower)
                for each, moved in zip((sum_, _LOWER), MOVED, strict=True):
                    given = _SUBTRACT, each, each, moved[block]
                    code.vector(*given, prefix=1, is_memory=False)
                    code.vector(AS_FLOATS, each, 0, each, is_memory=False)
                fused = 0xA8, sum_, _PLACE_VALUE, _LOWER  # vfmadd213ps
                code.vector(*fused, kind=2, prefix=1, is_memory=False)
