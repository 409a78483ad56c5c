"""Arenas: pieces that live at the same time share no bytes, and little is wasted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydevice.runtime.arena import Life, most_alive, place_in_blocks, place_in_one
from polydevice.runtime.layer_times import LayerTime, LayerTimes

LIVES = st.lists(
    st.builds(
        lambda first, length, size: Life(first, first + length, size),
        st.integers(-1, 20),
        st.integers(0, 9),
        st.integers(0, 300),
    ),
    max_size=40,
)


def together(one: Life, other: Life) -> bool:
    return one.first <= other.last and other.first <= one.last


@given(LIVES, st.sampled_from([1, 16, 64]))
def test_pieces_of_one_block_keep_apart(lives: list[Life], alignment: int) -> None:
    offsets, size = place_in_one(lives, alignment)
    assert all(offset % alignment == 0 for offset in offsets)
    ends = [offset + max(life.size_bytes, 1) for offset, life in zip(offsets, lives, strict=True)]
    assert size >= max(ends, default=0)
    for n, life in enumerate(lives):
        for m in range(n):
            if together(life, lives[m]):
                assert ends[n] <= offsets[m] or ends[m] <= offsets[n]


@given(LIVES)
def test_pieces_that_live_together_have_blocks_of_their_own(lives: list[Life]) -> None:
    numbers, sizes = place_in_blocks(lives)
    assert set(numbers) == set(range(len(sizes)))
    for n, life in enumerate(lives):
        assert life.size_bytes <= sizes[numbers[n]]
        for m in range(n):
            assert not (together(life, lives[m]) and numbers[n] == numbers[m])


def test_a_chain_needs_two_places_and_a_gap_is_used_again() -> None:
    chain = [Life(step, step + 1, 100) for step in range(10)]
    assert place_in_one(chain, 1) == ([0, 100] * 5, 200)
    assert place_in_blocks(chain) == ([0, 1] * 5, [100, 100])
    assert most_alive(chain) == 200
    gaps = [Life(0, 9, 60), Life(0, 9, 10), Life(0, 3, 40), Life(0, 9, 10), Life(4, 9, 30)]
    offsets, size = place_in_one(gaps, 1)  # 60, 40, 10, 10 by size; 30 fits where 40 was
    assert (offsets, size) == ([0, 100, 60, 110, 60], 120)


@pytest.mark.parametrize("seed", range(5))
def test_one_block_is_little_more_than_what_lives(seed: int) -> None:
    source = random.Random(seed)
    starts = [source.randrange(200) for _ in range(400)]
    lives = [Life(n, n + source.randrange(20), source.randrange(1, 5000)) for n in starts]
    assert most_alive(lives) <= place_in_one(lives, 1)[1] <= 1.3 * most_alive(lives)


def test_times_are_averages_of_all_inferences() -> None:
    times = LayerTimes[str]()
    assert (times.averages(), times.inferences) == ({}, 0)
    times.add({"a": LayerTime(3, 1), "b": LayerTime(5, 5)})
    times.add({"a": LayerTime(5, 2)})
    assert times.averages() == {"a": (4, 1.5), "b": (2.5, 2.5)}
    assert times.inferences == 2
