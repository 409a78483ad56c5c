"""Which pieces of memory share a block; needs no device."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.runtime.arena import Life
from polydevice_gpu.graph import GpuGraph, Memory, Place, Value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.passes.placing.plan_memory import ArenaPlan, place, plan_memory
from polydevice_gpu.runtime.plan import scratch_memory
from tests.gpu.graphs import compiled
from tests.gpu.test_random_graphs import Drawing


def _lives(count: int, length: int, seed: int) -> dict[Memory, Life]:
    source = random.Random(seed)
    found = {}
    for _ in range(count):
        first = source.randint(-1, length)
        memory = Memory(Place.ARENA, source.randint(0, 9) * 16, ElementType.f32)
        found[memory] = Life(first, first + source.choice([0, 1, 2, 5, 30]), memory.bytes)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_a_block_never_live_at_the_same_time(seed: int) -> None:
    lives = _lives(80, 60, seed)
    plan = place(lives)
    assert set(plan.places) == set(lives)
    for block, size in enumerate(plan.blocks):
        inside = sorted(
            (lives[m].first, lives[m].last) for m, number in plan.places.items() if number == block
        )
        assert inside, "an empty block"
        assert all(a[1] < b[0] for a, b in itertools.pairwise(inside))
        assert size >= max(m.bytes for m, number in plan.places.items() if number == block)
    steps = range(-1, 100)
    alive = [
        sum(max(m.bytes, 1) for m, v in lives.items() if v.first <= s <= v.last) for s in steps
    ]
    assert plan.live_bytes == max(alive)
    assert plan.live_bytes <= plan.size_bytes < plan.sum_bytes


def test_thousands_of_pieces_are_placed_in_a_moment() -> None:
    """An LSTM of 1,000 steps in both directions has more; comparing all pairs took a minute."""
    begin = time.process_time()
    place(_lives(20_000, 20_000, 1))
    assert time.process_time() - begin < 5


TARGETS = [
    {},
    {"scalar_lanes": 32, "local_memory_bytes": 1 << 15, "compute_units": 16},
    {"scalar_lanes": 32, "local_memory_bytes": 1 << 17, "compute_units": 132, "async_copy": True},
]


@st.composite
def networks(draw) -> Network:
    """Branches, views over views, concatenations, several readers and several outputs."""
    return Drawing(draw).network()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.sampled_from(TARGETS), st.booleans())
def test_whoever_reads_finds_what_was_written(
    network: Network, target: dict[str, int], side_by_side: bool
) -> None:
    """Plays every step on the blocks themselves, knowing nothing of lives."""
    graph = compiled(network, **target)
    scratch = scratch_of(graph, Target(**target))
    plan = plan_memory(graph, scratch, side_by_side=side_by_side)
    owners: dict[int, Memory] = {}
    written: set[Memory] = set()

    def pieces(values: list[Value]) -> list[Memory]:
        found = [value.memory for value in values]
        return [m for m in found if m is not None and m.place is Place.ARENA]

    def write(memory: Memory) -> None:
        block = plan.places[memory]
        assert plan.blocks[block] >= memory.bytes
        assert memory not in written or owners[block] is memory, f"{memory.name} lost a part"
        owners[block] = memory
        written.add(memory)

    def read(memory: Memory, who: str) -> None:
        assert owners[plan.places[memory]] is memory, f"{who} reads {memory.name}, overwritten"

    for memory in pieces(list(graph.inputs.values())):
        write(memory)
    for step, node in enumerate(graph.nodes):
        inputs, own = pieces(node.inputs), scratch.get(step, [])
        for memory in inputs:
            read(memory, node.name)
        for memory in (*own, *pieces(node.outputs)):
            write(memory)
        for memory in (*inputs, *own, *pieces(node.outputs)):
            read(memory, node.name)  # nothing of one step lies where something else of it lies
    for memory in pieces(list(graph.outputs.values())):
        read(memory, "the caller")
    check_size(plan)
    if side_by_side:
        check_neighbours(graph, plan, scratch, pieces)


def check_neighbours(graph, plan, scratch, pieces) -> None:
    """Steps that wait for none since the last one that did touch no block of each other's."""
    reads: set[Memory] = set()
    writes: set[Memory] = set()
    for step, node in enumerate(graph.nodes):
        if node.is_view:
            continue
        mine, made = set(pieces(node.inputs)), set(pieces(node.outputs))
        if writes & (mine | made) or reads & made:
            reads, writes = set(), set()
        made.update(scratch.get(step, []))
        for one, others in ((made, reads | writes), (mine, writes)):
            for memory in one:
                block = plan.places[memory]
                assert all(plan.places[m] != block for m in others - {memory}), node.name
        reads |= mine
        writes |= made


def scratch_of(graph: GpuGraph, target: Target) -> dict[int, list[Memory]]:
    """Return the scratch memory of every step."""
    found: dict[int, list[Memory]] = {}
    for step, node in enumerate(graph.nodes):
        if node.choice is not None and not node.is_view:
            kernel = node.choice.kernel
            launches = kernel.launches(node, kernel.modes[node.choice.mode], target)
            found[step] = list(scratch_memory(launches).values())
    return found


def check_size(plan: ArenaPlan) -> None:
    assert plan.live_bytes <= plan.size_bytes <= plan.sum_bytes
