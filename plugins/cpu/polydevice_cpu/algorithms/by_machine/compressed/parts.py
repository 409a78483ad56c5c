"""Machine code that splits numbers of rows into three parts of 8 bits, for tiles (AMX)."""

from __future__ import annotations

from functools import lru_cache

from polydevice_cpu.algorithms.by_machine.amx.instructions import ROWS
from polydevice_cpu.algorithms.by_machine.functions import AND
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    R8,
    R9,
    R10,
    R12,
    R13,
    R15,
    RAX,
    RCX,
    RDI,
    RSI,
    SUB,
    Instructions,
)

PARTS = 3
"""Of a number of f32: each has 8 of its bits."""

STEPS = 32, 16, 8
"""Terms that one instruction may multiply: as many as divide a block."""

ADDRESSES = 3
"""Of rows, results and room."""

_MAX_OF_WORDS, _SUBTRACT_FLOATS = 0x3F, SUB


def step_of(block: int) -> int:
    """Return how many terms of a block are multiplied at once; 0 where none are."""
    return next((step for step in STEPS if block % step == 0), 0)


# What `parts_of_rows` is told behind addresses: how many rows there are, bytes from one to the
# next, where parts begin in the room, and how many steps a row has.
GIVEN_ROWS, ROW, PARTS_AT, ROW_STEPS = range(ADDRESSES, ADDRESSES + 4)

_UPPER, _WITHOUT_SIGN, _LARGEST, _INFINITE = range(28, 32)


def bytes_of_row(terms: int) -> int:
    """Return what parts of a row take."""
    return 2 * PARTS * terms


@lru_cache(maxsize=8)
def parts_of_rows(step: int) -> bytes:
    """Return code that splits rows; it returns 1 where a number is none, or infinite.

    Of 16 rows, a step has a tile for each part; terms two and three of four change places.

    Args:
        step: terms that are multiplied at once.
    """
    code = Instructions()
    code.begin(0)
    for register, number in (
        *((_UPPER, 0xFFFF0000), (_WITHOUT_SIGN, 0x7FFFFFFF)),
        (_INFINITE, 0x7F800000),
    ):
        code.fill_bits(register, number)
    code.clear(_LARGEST)
    code.set_bits(255)
    code.set_mask(1, RAX)
    tile_bytes = 2 * step * ROWS
    # RSI: a row; R8: its parts; R12: rows left; R13: of this tile.
    code.load(RSI, RDI, 0)
    code.load(R8, RDI, 2)
    code.add(R8, RDI, PARTS_AT)
    code.load(R12, RDI, GIVEN_ROWS)
    code.load(R15, RDI, ROW_STEPS)
    code.plain(0x85, R12, R12)  # test
    are_none = code.ahead("0f84")
    tile = len(code.text)
    code.raw("41bd10000000")  # mov r13d, 16
    row = len(code.text)
    for register, of in ((R9, RSI), (R10, R8), (RCX, R15)):
        code.move(register, of)
    next_step = len(code.text)
    _append_split(code, step, tile_bytes)
    code.step(R9, 4 * step)
    code.step(R10, PARTS * tile_bytes)
    code.again(RCX, next_step)
    code.add(RSI, RDI, ROW)
    code.step(R8, 2 * step)
    code.step(R12, -1)
    are_all = code.ahead("0f84")
    code.again(R13, row)
    # From behind the last row of a tile's first step to the next tile.
    code.step(R10, -2 * step * (ROWS - 1))
    code.move(R8, R10)
    code.jump(tile)
    code.here(are_all)
    code.vector(
        0x1E, 7, _LARGEST, _INFINITE, kind=3, prefix=1, is_memory=False, last_byte=5
    )  # vpcmpud k7, not below
    code.test_any(7)
    is_wild = code.ahead("0f85")
    code.here(are_none)
    code.end(0)
    code.here(is_wild)
    code.end(0, status=1)
    return code.assembled()


def _append_split(code: Instructions, step: int, tile_bytes: int) -> None:
    """Split the numbers of a step that R9 points to; R10 says where to."""
    mask = 1 if step < 16 else 0
    for half in range(max(step // 16, 1)):
        x, upper = 0, 1
        code.vector(LOAD, x, 0, R9, behind=half, mask=mask)
        code.vector(AND, upper, x, _WITHOUT_SIGN, prefix=1, is_memory=False)
        larger = _LARGEST, _LARGEST, upper
        code.vector(_MAX_OF_WORDS, *larger, kind=2, prefix=1, is_memory=False)
        code.vector(0x04, x, 0, x, kind=3, prefix=1, is_memory=False, last_byte=0xD8)  # vpermilps
        for part in range(PARTS):
            if part < PARTS - 1:
                code.vector(AND, upper, x, _UPPER, prefix=1, is_memory=False)
                code.of_vectors(_SUBTRACT_FLOATS, x, x, upper)
            own = upper if part < PARTS - 1 else x
            code.shifted(own, own, 16)
            place = part * tile_bytes + 32 * half
            code.vector(0x33, own, 0, R10, offset_bytes=place, kind=2, prefix=2, mask=mask)
