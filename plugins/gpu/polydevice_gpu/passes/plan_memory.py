"""plan_memory: place everything that lives during an inference in one arena.

Two pieces of memory share bytes when one is dead before the other is born. The largest pieces are
placed first, each at the lowest offset where nothing that lives at the same time lies.
"""

from __future__ import annotations

from dataclasses import dataclass

from polydevice_gpu.graph import GpuGraph, Memory, Place


@dataclass(frozen=True)
class ArenaPlan:
    """Where each piece of memory lies.

    Attributes:
        offsets: bytes from the start of the arena.
        size_bytes: of the whole arena.
        sum_bytes: what it would be without reuse.
    """

    offsets: dict[Memory, int]
    size_bytes: int
    sum_bytes: int


@dataclass
class Life:
    """The first and last step at which a piece of memory is used."""

    first: int
    last: int


def plan_memory(
    graph: GpuGraph, scratch: dict[int, list[Memory]], alignment_bytes: int, reuse: bool = True
) -> ArenaPlan:
    """Return offsets for the arena.

    Args:
        graph: with memory decided.
        scratch: step → pieces that live during that step only.
        alignment_bytes: offsets are multiples of it.
        reuse: whether pieces may share bytes at all.
    """
    lives: dict[Memory, Life] = {}

    def use(memory: Memory | None, step: int) -> None:
        if memory is None or memory.place is not Place.ARENA:
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
    return place(lives, alignment_bytes)


def place(lives: dict[Memory, Life], alignment_bytes: int) -> ArenaPlan:
    """Assign offsets to pieces of memory with known lives."""

    def rounded(memory: Memory) -> int:
        return -(-max(memory.bytes, 1) // alignment_bytes) * alignment_bytes

    offsets: dict[Memory, int] = {}
    placed: list[Memory] = []
    for memory in sorted(lives, key=lambda m: (-rounded(m), lives[m].first)):
        life = lives[memory]
        neighbours = sorted(
            (offsets[other], offsets[other] + rounded(other))
            for other in placed
            if lives[other].first <= life.last and life.first <= lives[other].last
        )
        offset = 0
        for start, end in neighbours:
            if offset + rounded(memory) <= start:
                break
            offset = max(offset, end)
        offsets[memory] = offset
        placed.append(memory)
    size = max((offsets[m] + rounded(m) for m in placed), default=0)
    return ArenaPlan(offsets, size, sum(rounded(m) for m in placed))
