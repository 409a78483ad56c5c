"""Instructions on AMX tiles of 16 rows of 64 bytes, and on what they are told."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice_cpu.algorithms.by_machine.windows.integers import Held
from polydevice_cpu.algorithms.by_machine.windows.window_code import SLOTS, WindowCode

ROWS, LANE = 16, 64
"""Rows of a tile, and bytes of one."""

_PRODUCTS = {Held.UNSIGNED: 1, Held.SIGNED: 3}
"""The prefix of the instruction that multiplies by bytes with a sign, by what is multiplied."""


class TileCode(WindowCode):
    """Instructions on tiles besides others, and slots of its own on the stack.

    Attributes:
        slots: places on the stack, by name, in numbers of 8 bytes from its top.
    """

    def __init__(
        self,
        sizes: tuple[Sequence[str], int, Sequence[str]],
        slots: Sequence[str],
        loads: tuple[int | None, int | None],
        shift: int,
    ) -> None:
        """Begin without instructions.

        Args:
            sizes: names of those before numbers of functions, how many these are, and names of
                those behind them.
            slots: names of own places on the stack.
            loads: see `WindowCode`.
            shift: likewise.
        """
        before, numbers, behind = sizes
        super().__init__(before, *loads, shift)
        start = len(before) + numbers
        self.places |= {name: number for number, name in enumerate(behind, start)}
        self.slots = {name: number for number, name in enumerate((*SLOTS, *slots))}

    def slot(self, register: int, name: str) -> None:
        """Load a number from the stack."""
        self.load(register, 4, self.slots[name])

    def keep(self, name: str, register: int) -> None:
        """Store one there."""
        self.store(register, 4, self.slots[name])

    def more(self, register: int, name: str) -> None:
        """Add what the stack has."""
        self.add(register, 4, self.slots[name])

    def less(self, register: int, name: str) -> None:
        """Subtract what the stack has."""
        self.subtract(register, 4, self.slots[name])

    def against(self, register: int, other: int) -> None:
        """Compare two registers, for a jump that follows."""
        self.plain(0x3B, register, other)

    def against_slot(self, register: int, name: str) -> None:
        """Compare a register with what the stack has."""
        self.plain(0x3B, register, 4, 8 * self.slots[name])

    def least(self, register: int, other: int) -> None:
        """Let a register have the smaller number of both."""
        self.against(register, other)
        is_less = self.ahead("0f8e")  # jle
        self.move(register, other)
        self.here(is_less)

    def begin_tiles(self, base: int, number: int) -> None:
        """Tell which rows and columns tiles have, in the 64 bytes at this place."""
        self._vex(0, 0, 0, base)
        self.text.append(0x49)
        self._operand(0, base, 8 * number, is_far=True)

    def end_tiles(self) -> None:
        """Let tiles go."""
        self.raw("c4e27849c0")

    def clear_tile(self, tile: int) -> None:
        """Fill a tile with zeros."""
        self.text += bytes((0xC4, 0xE2, 0x7B, 0x49, 0xC0 | tile << 3))

    def load_tile(self, tile: int, base: int, step: int) -> None:
        """Load rows that lie so far apart as a register says."""
        self._moved(tile, base, step, 0, 3)

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

    def multiply_tiles(self, sums: int, first: int, second: int, held: Held) -> None:
        """Add products of four bytes of rows of the first with four of columns of the second."""
        self._vex(_PRODUCTS[held], second, 0, 0)
        self.text += bytes((0x5E, 0xC0 | sums << 3 | first))
