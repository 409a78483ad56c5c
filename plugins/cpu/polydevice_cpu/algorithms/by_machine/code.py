"""Code: calls of machine code for some sizes, which are still to be told addresses."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from polydevice.processor.machine_code import CALL, Calls, calls_at

Told = tuple[Any, "bytes | tuple[int, ...]"]
"""A function, and what it is told the address of, as bytes or numbers of 8 bytes: first there is
room of 8 bytes for each address, which holds what is added to that, most often 0."""

_PER_CALL = CALL.itemsize // 8


class Code(NamedTuple):
    """Calls of functions with the same values; who has other memory takes a copy of the numbers.

    Attributes:
        numbers: calls as of type `CALL`, and behind them what each function is told.
        starts: where that begins, of each.
        kept: what code reads besides.
    """

    numbers: array[int]
    starts: tuple[int, ...]
    kept: object = None

    @classmethod
    def of(cls, told: Sequence[Told], kept: object = None) -> Code:
        """Return calls one after the other."""
        found = array("q")
        for function, _ in told:
            found.extend((function.address, 0, 0, 0, 0))
        starts = []
        for _, numbers in told:
            starts.append(len(found))
            if isinstance(numbers, tuple):
                found.extend(numbers)
            else:
                found.frombytes(numbers + bytes(-len(numbers) % 8))
        return cls(found, tuple(starts), kept)

    def bound(self, addresses: Sequence[int]) -> CodeCall:
        """Return a call on memory at these addresses."""
        numbers = self.numbers[:]
        begin, _ = numbers.buffer_info()
        for number, start in enumerate(self.starts):
            numbers[_PER_CALL * number + 1] = begin + 8 * start
            for place, address in enumerate(addresses, start):
                numbers[place] += address
        call = calls_at(begin, len(self.starts), CodeCall)
        assert call is not None  # there is the code that it calls
        call.code, call.numbers = self, numbers
        return call


class CodeCall(Calls):
    """Machine code on memory: a call that returns 0.

    Attributes:
        code: what it runs.
        numbers: what that is told; addresses may be changed between calls.
    """

    __slots__ = ("code", "numbers")
    code: Code
    numbers: array[int]

    def places(self, value: int) -> list[tuple[int, int]]:
        """Return where in the numbers the address of a value is, and what is added to it there."""
        before = self.code.numbers
        return [(start + value, before[start + value]) for start in self.code.starts]
