"""Instructions on AMX tiles of bytes, and on what they are told."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice_cpu.algorithms.by_machine.amx.instructions import TileInstructions
from polydevice_cpu.algorithms.by_machine.windows.window_code import SLOTS, WindowCode


class TileCode(WindowCode, TileInstructions):
    """Instructions on tiles besides others, and slots of its own on the stack.

    Attributes:
        slots: places on the stack, by name, in numbers of 8 bytes from its top.
        slot_count: how many there are.
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
        names = *SLOTS, *slots  # some are in both: those of the latter count
        self.slots = {name: number for number, name in enumerate(names)}
        self.slot_count = len(names)

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
