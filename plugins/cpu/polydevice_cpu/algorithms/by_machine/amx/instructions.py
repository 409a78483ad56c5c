"""Instructions on AMX tiles, of up to 16 rows of 64 bytes, and whether there are any."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.instructions import Instructions
from polydevice_cpu.onednn.library import has_instructions

ROWS, LANE = 16, 64
"""Rows of a tile, and bytes of one."""

_AMX = 0xFEF
"""oneDNN's bits of an instruction set with AMX as Sapphire Rapids has it."""

_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18


def has_tiles(*beyond: str) -> bool:
    """Whether there are tiles: oneDNN uses them, and the system lets the process.

    Args:
        beyond: what the processor must have besides, by the system's names, such as amx_int8.
    """
    return has_instructions(_AMX) and has_avx512("amx_tile", *beyond) and _may_use_tiles()


def has_tiles_of_bytes() -> bool:
    """Whether there are tiles of bytes. Processors that have them all copy short rows fast."""
    return has_tiles("amx_int8", "fsrm")


@cache
def _may_use_tiles() -> bool:
    """Ask Linux for tiles, for all threads that there will be."""
    if sys.platform != "linux":
        return False
    numbers = map(ctypes.c_long, (_ARCH_PRCTL, _REQUEST, _TILE_DATA))
    status: int = ctypes.CDLL(None).syscall(*numbers)
    return status == 0


class TileInstructions(Instructions):
    """Instructions, those on tiles among them."""

    def begin_tiles(self, base: int, number: int = 0) -> None:
        """Tell which rows and columns tiles have, in 64 bytes that begin at this number of 8."""
        self._vex(0, 0, 0, base)
        self.text.append(0x49)
        self._operand(0, base, 8 * number, is_far=True)

    def end_tiles(self) -> None:
        """Let tiles go."""
        self.raw("c4e27849c0")

    def clear_tile(self, tile: int) -> None:
        """Fill a tile with zeros."""
        self.text += bytes((0xC4, 0xE2, 0x7B, 0x49, 0xC0 | tile << 3))

    def load_tile(self, tile: int, base: int, step: int, offset_bytes: int = 0) -> None:
        """Load rows that lie so far apart as a register says."""
        self._moved(tile, base, step, offset_bytes, 3)

    def store_tile(self, tile: int, base: int, step: int, offset_bytes: int = 0) -> None:
        """Store rows so."""
        self._moved(tile, base, step, offset_bytes, 2)

    def _moved(self, tile: int, base: int, step: int, offset_bytes: int, prefix: int) -> None:
        self._vex(prefix, 0, step, base)
        self.text += bytes((0x4B, 0x84 | tile << 3, (step & 7) << 3 | base & 7))
        self.text += offset_bytes.to_bytes(4, "little")

    def _vex(self, prefix: int, first: int, index: int, base: int) -> None:
        self.text.append(0xC4)
        self.text.append(0xE2 ^ (index >> 3 << 6 | base >> 3 << 5))
        self.text.append(0x78 ^ first << 3 | prefix)

    def multiply_bytes(self, sums: int, first: int, second: int, *, are_signed: bool) -> None:
        """Add products of four bytes of rows with four bytes with a sign of columns.

        Args:
            sums: a tile of 32 bits.
            first: a tile of rows.
            second: a tile of columns.
            are_signed: whether bytes of rows have a sign.
        """
        self._vex(3 if are_signed else 1, second, 0, 0)
        self.text += bytes((0x5E, 0xC0 | sums << 3 | first))

    def multiply_halves(self, sums: int, first: int, second: int) -> None:
        """Add products of two numbers of bfloat16 of rows with two of columns, in f32."""
        self._vex(2, second, 0, 0)
        self.text += bytes((0x5C, 0xC0 | sums << 3 | first))
