"""Assigns places in one arena to storages, by the steps during which they live."""

from __future__ import annotations

from collections.abc import Iterable

from polydevice_cpu.onednn.engine import ALIGNMENT_BYTES
from polydevice_cpu.plan.value import Storage


def assign(storages: Iterable[Storage]) -> int:
    """Set `offset_bytes` of every storage; return the arena's size in bytes.

    Storages whose lives (`first` to `last`, inclusive) overlap never share bytes. Walks the steps
    in order and puts each new storage into the smallest free gap that holds it.
    """
    by_start = sorted(storages, key=lambda s: (s.first, -s.size_bytes))
    alive: list[tuple[int, int, int]] = []  # (offset, end, last step), by offset
    total = 0
    for storage in by_start:
        alive = [block for block in alive if block[2] >= storage.first]
        size = -(-max(storage.size_bytes, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        best: tuple[int, int] | None = None  # (gap, offset)
        cursor = 0
        for offset, end, _ in alive:
            gap = offset - cursor
            if gap >= size and (best is None or gap < best[0]):
                best = (gap, cursor)
            cursor = max(cursor, end)
        place = cursor if best is None else best[1]
        storage.offset_bytes = place
        alive.append((place, place + size, storage.last))
        alive.sort()
        total = max(total, place + size)
    return total
