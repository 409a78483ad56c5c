"""Copying rows of a source, with borders between them, to where AMX tiles read them."""

from __future__ import annotations

from polydevice_cpu.algorithms.by_machine.amx.instructions import LANE
from polydevice_cpu.algorithms.by_machine.amx.tiles import TileCode
from polydevice_cpu.algorithms.by_machine.instructions import (
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RBP,
    RBX,
    RCX,
    RDI,
    RSI,
    RSP,
    STORE,
)
from polydevice_cpu.algorithms.by_machine.windows.integers import Integers
from polydevice_cpu.algorithms.by_machine.windows.window_code import AT

_BLANK = 31
"""Vector with what is in borders."""


def append_copied(code: TileCode, given: Integers, digits: int) -> None:
    """Copy what a slab's windows read: those rows of each phase that a step down leaves out.

    Of several digits, each lies in pictures of its own, and is copied to a part of the room.
    """
    code.load(RDI, RSP, AT["given"])
    for digit in range(digits):
        if given.has_zero:
            code.given(R8, "zero")
            code.vector(0x78, _BLANK, 0, R8, offset_bytes=4 * digit, kind=2, prefix=1)
        else:
            code.clear(_BLANK)
        _append_phases(code, digit)


def _append_phases(code: TileCode, digit: int) -> None:
    """Copy all phases of a digit.

    RBP has the phase, RBX how many rows are left, R10 where the next one goes, R12 which of a
    picture's it is, R13 which of the source's, R14 the picture, and R15 how many of these are left.
    """
    code.raw("31ed")  # ebp = 0
    next_phase = len(code.text)
    code.move(R10, RBP)
    code.times(R10, RDI, code.places["phase_bytes"])
    code.more(R10, "room")
    for _ in range(digit):
        code.add(R10, RDI, code.places["digit_room"])
    code.slot(R12, "picture_row")
    code.move(R13, R12)
    code.times(R13, RDI, code.places["down"])
    code.add(R13, RBP)
    code.subtract(R13, RDI, code.places["above"])
    code.slot(R14, "picture")
    for _ in range(digit):
        code.add(R14, RDI, code.places["digit_source"])
    code.slot(R15, "pictures_left")
    code.slot(RBX, "rows")
    code.add(RBX, RDI, code.places["more_rows"])
    next_row = len(code.text)
    _append_row(code)
    code.step(R12, 1)
    code.add(R13, RDI, code.places["down"])
    code.plain(0x3B, R12, RDI, 8 * code.places["tall"])
    is_same = code.ahead("0f8c")  # jl
    code.raw("4531e4")  # r12d = 0
    code.move(R13, RBP)
    code.subtract(R13, RDI, code.places["above"])
    code.add(R14, RDI, code.places["picture_source"])
    code.step(R15, -1)
    code.here(is_same)
    code.again(RBX, next_row)
    code.step(RBP, 1)
    code.plain(0x3B, RBP, RDI, 8 * code.places["phases"])
    code.jump(next_phase, "0f8c")


def _append_row(code: TileCode) -> None:
    """Copy a row and what lies beside it, or write one that is blank; R10 goes on."""
    code.move(R8, R10)
    code.add(R10, RDI, code.places["line_bytes"])
    code.compare(R15, 0)
    are_none = code.ahead("0f8e")  # jle
    code.plain(0x3B, R13, RDI, 8 * code.places["height"])
    is_blank = code.ahead("0f83")  # jae: also where it is negative
    code.move(R11, R8)
    code.move(R9, R8)
    code.add(R9, RDI, code.places["border"])
    _append_filled(code)
    code.given(RCX, "row_bytes")
    code.move(RSI, R13)
    code.times(RSI, RCX)
    code.add(RSI, R14)
    code.add(R11, RDI, code.places["border"])
    code.move(RDI, R11)
    code.raw("f3a4")  # rep movsb
    code.move(R8, RDI)
    code.load(RDI, RSP, AT["given"])
    code.here(are_none)
    code.here(is_blank)
    code.move(R9, R10)
    _append_filled(code)


def _append_filled(code: TileCode) -> None:
    """Fill from R8 to R9 with what is in borders, and up to 63 bytes more."""
    next_lane = len(code.text)
    code.against(R8, R9)
    is_done = code.ahead("0f83")  # jae
    code.vector(STORE, _BLANK, 0, R8)
    code.step(R8, LANE)
    code.jump(next_lane)
    code.here(is_done)
