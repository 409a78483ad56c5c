"""plan_memory: give everything that lives during an inference a block of the arena.

Two pieces of memory share a block when one is dead before the other is born. The largest pieces are
placed first, each in the smallest block that is free while it lives, or in a new one of its size.

Blocks are allocations of their own. Pieces of one large allocation would take less, a sixth on
average over the models of the tests, but would have to be sub-buffers: with NVIDIA's driver a
launch on sub-buffers costs the host 34 µs and on whole buffers 10 (60 launches of a ResNet-50 on an
H100), and every launch then waits 20 µs for the one before. Also, drivers limit what one allocation
may have, often to a quarter of the device's memory.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from polydevice_gpu.graph import GpuGraph, Memory, Place


@dataclass(frozen=True)
class ArenaPlan:
    """Where each piece of memory lies.

    Attributes:
        blocks: bytes of each block.
        places: the number of each piece's block, at whose beginning it lies.
        sum_bytes: what the blocks would be together without reuse.
        live_bytes: most bytes that are alive at the same time, which no arena can undercut.
    """

    blocks: tuple[int, ...]
    places: dict[Memory, int]
    sum_bytes: int
    live_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(self.blocks)


@dataclass
class Life:
    """The first and last step at which a piece of memory is used."""

    first: int
    last: int


def plan_memory(
    graph: GpuGraph,
    scratch: dict[int, list[Memory]],
    reuse: bool = True,
    outside: AbstractSet[Memory] = frozenset(),
) -> ArenaPlan:
    """Return the blocks of the arena.

    Args:
        graph: with memory decided.
        scratch: step → pieces that live during that step only.
        reuse: whether pieces may share bytes at all.
        outside: pieces that lie somewhere else.
    """
    lives: dict[Memory, Life] = {}

    def use(memory: Memory | None, step: int) -> None:
        if memory is None or memory.place is not Place.ARENA or memory in outside:
            return
        life = lives.setdefault(memory, Life(step, step))
        life.first, life.last = min(life.first, step), max(life.last, step)

    for value in graph.inputs.values():
        use(value.memory, -1)
    for step, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.outputs):
            use(value.memory, step)
        for memory in scratch.get(step, ()):
            use(memory, step)
    for value in graph.outputs.values():
        use(value.memory, len(graph.nodes))
    if not reuse:
        lives = {memory: Life(-1, len(graph.nodes)) for memory in lives}
    return place(lives)


@dataclass
class _Block:
    """Pieces of memory that share bytes, ordered by time; the largest came first."""

    bytes: int
    lives: list[tuple[int, int]]
    pieces: list[Memory]

    def take(self, memory: Memory, life: Life) -> bool:
        """Add a piece unless another is alive at the same time; in logarithmic time."""
        behind = bisect.bisect(self.lives, (life.last, math.inf))
        if behind and self.lives[behind - 1][1] >= life.first:
            return False
        self.lives.insert(behind, (life.first, life.last))
        self.pieces.append(memory)
        return True


def place(lives: dict[Memory, Life]) -> ArenaPlan:
    """Give pieces of memory with known lives their blocks."""
    blocks: list[_Block] = []
    for memory in sorted(lives, key=lambda m: (-m.bytes, lives[m].first)):
        life = lives[memory]
        # The first piece of a block is its largest, and later blocks are no larger.
        if not any(block.take(memory, life) for block in reversed(blocks)):
            first = [(life.first, life.last)]
            blocks.append(_Block(max(memory.bytes, 1), first, [memory]))
    places = {memory: number for number, block in enumerate(blocks) for memory in block.pieces}
    sizes = tuple(block.bytes for block in blocks)
    sum_bytes = sum(max(memory.bytes, 1) for memory in lives)
    return ArenaPlan(sizes, places, sum_bytes, _most_alive(lives))


def _most_alive(lives: dict[Memory, Life]) -> int:
    """Return the most bytes that are alive at the same time."""
    changes: dict[int, int] = {}
    for memory, life in lives.items():
        bytes_ = max(memory.bytes, 1)
        changes[life.first] = changes.get(life.first, 0) + bytes_
        changes[life.last + 1] = changes.get(life.last + 1, 0) - bytes_
    return max(itertools.accumulate(changes[step] for step in sorted(changes)), default=0)
