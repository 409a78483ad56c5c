"""Which pieces of memory share a block; needs no device."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from polydevice.dtype import ElementType
from polydevice_gpu.graph import Memory, Place
from polydevice_gpu.passes.plan_memory import Life, place


def _lives(count: int, length: int, seed: int) -> dict[Memory, Life]:
    source = random.Random(seed)
    found = {}
    for _ in range(count):
        first = source.randint(-1, length)
        memory = Memory(Place.ARENA, source.randint(0, 9) * 16, ElementType.f32)
        found[memory] = Life(first, first + source.choice([0, 1, 2, 5, 30]))
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
    assert plan.size_bytes < plan.sum_bytes


def test_thousands_of_pieces_are_placed_in_a_moment() -> None:
    """An LSTM of 1,000 steps in both directions has more; comparing all pairs took a minute."""
    begin = time.process_time()
    place(_lives(20_000, 20_000, 1))
    assert time.process_time() - begin < 5
