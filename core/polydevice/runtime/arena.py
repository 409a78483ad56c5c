"""arena: where values lie in working memory, so that those not alive together share bytes."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Lived(Protocol):
    """What has a life; see `Life`."""

    @property
    def first(self) -> int:
        """Number of the first step that uses it."""

    @property
    def last(self) -> int:
        """Number of the last one."""

    @property
    def size_bytes(self) -> int:
        """Its size."""


class Life(NamedTuple):
    """When a piece of memory is used, and how large it is.

    Attributes:
        first: number of the first step that uses it.
        last: number of the last one.
        size_bytes: its size.
    """

    first: int
    last: int
    size_bytes: int


def place_in_one(lives: Sequence[Lived], alignment: int) -> tuple[list[int], int]:
    """Place pieces in one block of memory.

    Walks the steps in order and puts each new piece into the smallest free gap that holds it.

    Args:
        lives: of the pieces.
        alignment: of their offsets, in bytes.

    Returns:
        The offset of each piece in bytes, and the size of the block.
    """
    offsets = [0] * len(lives)
    alive: list[tuple[int, int, int]] = []  # (offset, end, last step), by offset
    total, now = 0, -1
    order = [(life.first, -life.size_bytes, n, life.last) for n, life in enumerate(lives)]
    order.sort()
    for first, negative, number, last in order:
        if first > now:
            now = first
            alive = [block for block in alive if block[2] >= first]
        size = -(negative // alignment) * alignment or alignment
        place = least = -1
        cursor = behind = 0
        for index, (offset, end, _) in enumerate(alive):
            gap = offset - cursor
            if gap >= size and not 0 <= least <= gap:
                place, least, behind = cursor, gap, index
            cursor = end
        if place < 0:
            place, behind = cursor, len(alive)
            if cursor + size > total:
                total = cursor + size
        offsets[number] = place
        alive.insert(behind, (place, place + size, last))
    return offsets, total


def place_in_blocks(lives: Sequence[Life]) -> tuple[list[int], list[int]]:
    """Place pieces in blocks, each at the beginning of one.

    The largest pieces come first, each in the smallest block that is free while it lives, or in a
    new one of its size.

    Returns:
        The number of each piece's block, and the sizes of the blocks in bytes.
    """
    numbers = [0] * len(lives)
    sizes: list[int] = []
    taken: list[list[tuple[int, int]]] = []  # by block: (first, last) of its pieces, by time
    order = [(-size, first, n, last) for n, (first, last, size) in enumerate(lives)]
    order.sort()
    for negative, first, number, last in order:
        # The first piece of a block is its largest, and later blocks are no larger.
        for block in reversed(range(len(sizes))):
            behind = bisect.bisect(taken[block], (last, math.inf))
            if not behind or taken[block][behind - 1][1] < first:
                taken[block].insert(behind, (first, last))
                numbers[number] = block
                break
        else:
            numbers[number] = len(sizes)
            sizes.append(max(-negative, 1))
            taken.append([(first, last)])
    return numbers, sizes


def most_alive(lives: Sequence[Life]) -> int:
    """Return the most bytes that are alive at the same time, which no arena can undercut."""
    changes: dict[int, int] = {}
    for first, last, size_bytes in lives:
        changes[first] = changes.get(first, 0) + max(size_bytes, 1)
        changes[last + 1] = changes.get(last + 1, 0) - max(size_bytes, 1)
    return max(itertools.accumulate(changes[step] for step in sorted(changes)), default=0)
