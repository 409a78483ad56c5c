"""Inputs and outputs whose memory the caller provides, and what follows them when it moves."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn.engine import Memories, address_of
from polydevice_cpu.plan.value import Value

NOWHERE: Array = np.empty(0, np.uint8)
"""In the place of an array whose memory the caller has yet to provide."""


class MovingPlace:
    """An input or output whose memory the caller provides, and what must follow when it moves."""

    __slots__ = ("_of_plan", "address", "addresses", "memories", "tables", "views")

    def __init__(self, of_plan: Memories) -> None:
        """Begin with nothing that follows; `of_plan` has the memory objects."""
        self._of_plan = of_plan
        self.address = -1
        self.memories: list[tuple[int, int]] = []
        self.addresses: list[tuple[list[int] | array[int], int, int]] = []
        self.tables: list[tuple[Array, Array, Array]] = []
        self.views: list[Callable[[Array | None], None]] = []

    def move(self, array: Array) -> None:
        """Let everything follow to this array."""
        if array.dtype.hasobject:
            for update in self.views:
                update(array)
            return
        address = address_of(array)
        if address == self.address:
            return
        self.address = -1  # Ctrl-C may leave some of them behind
        for memory, offset in self.memories:
            self._of_plan.point(memory, address + offset)
        for addresses, position, offset in self.addresses:
            addresses[position] = address + offset
        for table, places, offsets in self.tables:
            table[places] = offsets + address
        if self.views:
            data = array.reshape(-1).view(np.uint8)
            for update in self.views:
                update(data)
        self.address = address

    def leave(self) -> None:
        """Keep no array in the memory, which may serve others.

        Addresses stay, of what may be nobody's: `move` comes before they are used again.
        """
        if self.views:
            self.address = -1
            for update in self.views:
                update(None)


def view_of(value: Value, data: Array) -> Array:
    """Return the value in the bytes of its storage."""
    return data if value.dtype.hasobject else value.array(data)
