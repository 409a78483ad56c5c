"""Calls of code on arrays, kept by thread: to make code anew takes 20 us, where few numbers take 1.

What runs node by node gets other arrays every time, but mostly of sizes that it has had before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence

from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine.code import Code, CodeCall
from polydevice_cpu.onednn.engine import address_of

KEPT = 32
"""Calls of each thread at most; then all are forgotten, of which some may come no more."""

SMALL = 1 << 16
"""Elements that arrays have at most for their call to be kept, with its memory."""


class KeptCalls(threading.local):
    """Calls by what they are for: each thread has its own, as code has memory that it writes."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[Hashable, tuple[CodeCall, list[tuple[int, int, int]]]] = {}

    def run(
        self, key: Hashable, make: Callable[[], Code | None], arrays: Sequence[Array]
    ) -> int | None:
        """Call code on arrays; return what it returns, None where there is none.

        Args:
            key: what the code depends on.
            make: returns it.
            arrays: what it is told the addresses of; they are contiguous.
        """
        addresses = [address_of(each) for each in arrays]
        known = self._known.get(key)
        if known is not None:
            call, places = known
            numbers = call.numbers
            for value, place, behind in places:
                numbers[place] = behind + addresses[value]
            return call()
        code = make()
        if code is None:
            return None
        call = code.bound(addresses)
        if sum(each.size for each in arrays) <= SMALL:
            if len(self._known) >= KEPT:
                self._known.clear()
            places = [(value, *at) for value in range(len(arrays)) for at in call.places(value)]
            self._known[key] = call, places
        return call()
