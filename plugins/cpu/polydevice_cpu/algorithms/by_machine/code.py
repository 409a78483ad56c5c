"""Code: calls of machine code for some sizes, which are still to be told addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import CALL, Calls, calls_at


class Told(NamedTuple):
    """A function, and what it is told.

    Attributes:
        function: takes the address of numbers of 8 bytes, which begin with addresses.
        addresses: how many these are.
        numbers: the others.
    """

    function: Any
    addresses: int
    numbers: tuple[int, ...]


_PER_CALL = CALL.itemsize // 8


@dataclass(frozen=True, eq=False)
class Code:
    """Calls of functions with the same values; who has other memory takes a copy of the numbers.

    Attributes:
        numbers: calls as of type `CALL`, and behind them what each function is told.
        starts: where that begins, of each.
        kept: what code reads besides.
    """

    numbers: Array
    starts: tuple[int, ...]
    kept: object = None

    @classmethod
    def of(cls, told: Sequence[Told], kept: object = None) -> Code:
        """Return calls one after the other."""
        found: list[int] = []
        for each in told:
            found += each.function.address, 0, 0, 0, 0
        starts = []
        for each in told:
            starts.append(len(found))
            found += [0] * each.addresses
            found += each.numbers
        return cls(np.array(found, np.int64), tuple(starts), kept)

    def bound(self, addresses: Sequence[int]) -> CodeCall:
        """Return a call on memory at these addresses."""
        numbers = self.numbers.copy()
        begin: int = numbers.__array_interface__["data"][0]
        for number, start in enumerate(self.starts):
            numbers[_PER_CALL * number + 1] = begin + 8 * start
            numbers[start : start + len(addresses)] = addresses
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
    numbers: Array

    def places(self, value: int) -> list[int]:
        """Return where in the numbers the address of a value is."""
        return [start + value for start in self.code.starts]
