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

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from polydevice.dataclass import dataclass
from polydevice.runtime.arena import Life, most_alive, place_in_blocks
from polydevice_gpu.graph import GpuGraph, Memory, Place


@dataclass(frozen=True)
class ArenaPlan:
    """Where each piece of memory lies.

    Attributes:
        blocks: bytes of each block.
        places: the number of each piece's block, at whose beginning it lies.
        lives: returns the lives of the pieces; nobody asks but who explains a plan.
        more_bytes: what bodies would take beyond their blocks without reuse.
    """

    blocks: tuple[int, ...]
    places: dict[Memory, int]
    lives: Callable[[], Sequence[Life]]
    more_bytes: int = 0

    @property
    def sum_bytes(self) -> int:
        """What the blocks would be together without reuse."""
        return sum(max(life.size_bytes, 1) for life in self.lives()) + self.more_bytes

    @property
    def live_bytes(self) -> int:
        """Most bytes that are alive at the same time, which no arena can undercut."""
        return most_alive(self.lives())

    @property
    def size_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(self.blocks)


def plan_memory(
    graph: GpuGraph,
    scratch: dict[int, list[Memory]],
    reuse: bool = True,
    outside: AbstractSet[Memory] = frozenset(),
    side_by_side: bool = False,
) -> ArenaPlan:
    """Return the blocks of the arena; see `lives_of`."""
    used = lives_of(graph, scratch, reuse, outside, side_by_side)
    return place({memory: Life(*steps, memory.bytes) for memory, steps in used.items()})


def lives_of(
    graph: GpuGraph,
    scratch: dict[int, list[Memory]],
    reuse: bool = True,
    outside: AbstractSet[Memory] = frozenset(),
    side_by_side: bool = False,
) -> dict[Memory, tuple[int, int]]:
    """Return when pieces of memory are used: first and last step.

    Args:
        graph: with memory decided.
        scratch: step → pieces that live during that step only.
        reuse: whether pieces may share bytes at all.
        outside: pieces that lie somewhere else.
        side_by_side: whether neighbours that do not wait for each other may run at the same time:
            they share no bytes then.
    """
    first: dict[Memory, int] = {}
    last: dict[Memory, int] = {}

    def use(memory: Memory | None, step: int) -> None:
        """Note a use; steps come in order."""
        if memory is None or memory.place is not Place.ARENA or memory in outside:
            return
        first.setdefault(memory, step)
        last[memory] = step

    for value in graph.inputs.values():
        use(value.memory, -1)
    for step, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.outputs):
            use(value.memory, step)
        for memory in scratch.get(step, ()):
            use(memory, step)
    for value in graph.outputs.values():
        use(value.memory, len(graph.nodes))
    if side_by_side:
        times = [*_intervals(graph), len(graph.nodes), -1]  # before all steps comes last
        first, last = ({m: times[step] for m, step in each.items()} for each in (first, last))
    if not reuse:
        first, last = dict.fromkeys(first, -1), dict.fromkeys(first, len(graph.nodes))
    return {memory: (step, last[memory]) for memory, step in first.items()}


def _intervals(graph: GpuGraph) -> list[int]:
    """Return a number for each node, which grows where one waits for those since it last grew."""
    numbers: list[int] = []
    reads: set[Memory] = set()
    writes: set[Memory] = set()
    for node in graph.nodes:
        if node.is_view:
            numbers.append(numbers[-1] if numbers else 0)
            continue
        mine = {value.memory for value in node.inputs if value.memory is not None}
        made = {value.memory for value in node.outputs if value.memory is not None}
        number = numbers[-1] if numbers else 0
        if not writes.isdisjoint(mine | made) or not reads.isdisjoint(made):
            number += 1
            reads, writes = set(), set()
        reads |= mine
        writes |= made
        numbers.append(number)
    return numbers


def place(lives: Mapping[Memory, Life]) -> ArenaPlan:
    """Give pieces of memory with known lives their blocks."""
    known = list(lives.values())
    return place_as(lives, known, lambda: known)


def place_as(
    memories: Iterable[Memory], lives: Sequence[Life], again: Callable[[], Sequence[Life]]
) -> ArenaPlan:
    """Give pieces of memory their blocks.

    Args:
        memories: the pieces.
        lives: of each, in the same order.
        again: returns them once more.
    """
    numbers, sizes = place_in_blocks(lives)
    return ArenaPlan(tuple(sizes), dict(zip(memories, numbers, strict=True)), again)
