"""Room for parts of sources with borders around them, which one call at a time takes.

Code of AMX reads 16 positions at once, a fixed distance apart. So that this holds at the ends of
rows too, rows of a source and what lies beside them are copied to such a room. Calls may run in any
number of threads: each takes a room that nobody has, as long as it runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import for_good

ROOM_BYTES, SLACK_BYTES = 1 << 20, 8192
"""Of a room, half a core's second cache; and what code may read or write behind what it counts."""

COUNT = 64
"""Rooms; the system gives memory to those alone that are written."""


class Rooms(NamedTuple):
    """Where rooms are.

    Attributes:
        locks: a number of 8 bytes for each, which is not 0 while it is taken.
        memory: of them.
    """

    locks: Array
    memory: Array

    @property
    def addresses(self) -> tuple[int, int]:
        """Where locks and memory begin; the latter at a multiple of 64 bytes."""
        locks, memory = (each.__array_interface__["data"][0] for each in self)
        return locks, -(-memory // 64) * 64


@for_good
def rooms() -> Rooms:
    """Return those of the process."""
    size = COUNT * (ROOM_BYTES + SLACK_BYTES) + 64
    return Rooms(np.zeros(COUNT, np.int64), np.empty(size, np.uint8))
