"""A call that calls others one after the other, and tells each where to read and write."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Within
from polydevice_cpu.algorithms.by_machine.instructions import (
    R12,
    RAX,
    RBP,
    RBX,
    RDI,
    RDX,
    Instructions,
)

_WORDS = 3
"""Of an entry: bytes from the begin to an address, bytes to where it is told, and bytes that are
added; or -1, bytes to what a function is told, and the function."""


class Relay:
    """What such a call is told.

    Each function's numbers are there once; where it reads and writes is told before each call.
    """

    def __init__(self, addresses: int) -> None:
        """Begin with no calls.

        Args:
            addresses: how many it is told itself.
        """
        self._addresses = addresses
        self._entries: list[tuple[int, int, int]] = []
        self._numbers: list[int] = []
        self._told: dict[int, tuple[int, int]] = {}

    def told(self, numbers: tuple[int, ...]) -> int:
        """Keep what a function is told, and return where."""
        place = len(self._numbers)
        self._numbers += numbers
        return place

    def tell(self, place: int, address: int, behind: int) -> None:
        """Let a number be one of the addresses, and so many bytes behind; unless it is by then."""
        if self._told.get(place) != (address, behind):
            self._told[place] = address, behind
            self._entries.append((8 * address, 8 * place, behind))

    def call(self, function: Any, place: int) -> None:
        """Call a function that is told the numbers from this place on."""
        self._entries.append((-1, 8 * place, function.address))

    def made(self) -> Within | None:
        """Return the call; None where there cannot be any."""
        function = function_of(_relaying(self._addresses))
        if function is None:
            return None
        begin = self._addresses + 1 + _WORDS * len(self._entries)
        entries = [
            word
            for what, place, third in self._entries
            for word in (what, place + 8 * begin, third)
        ]
        numbers = (*[0] * self._addresses, len(self._entries), *entries, *self._numbers)
        return Within(function, numbers, (0,))


@lru_cache(maxsize=16)
def _relaying(addresses: int) -> bytes:
    """RBX: the begin; R12: the next entry; RBP: entries left."""
    code = Instructions()
    code.begin(0)
    code.move(RBX, RDI)
    code.load(RBP, RBX, addresses)
    code.move(R12, RBX)
    code.step(R12, 8 * (addresses + 1))
    entry = len(code.text)
    code.load(RAX, R12)
    code.load(RDX, R12, 1)
    code.add(RDX, RBX)
    code.compare(RAX, 0)
    is_call = code.ahead("0f8c")  # jl
    code.add(RAX, RBX)
    code.load(RAX, RAX)
    code.add(RAX, R12, 2)
    code.store(RAX, RDX, 0)
    told = code.ahead()
    code.here(is_call)
    code.move(RDI, RDX)
    code.plain(0xFF, 2, R12, 16)  # call [r12 + 16]
    code.here(told)
    code.step(R12, 8 * _WORDS)
    code.again(RBP, entry)
    code.end(0)
    return code.assembled()
