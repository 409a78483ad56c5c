"""Where what lives at the same time lies, by formulas of sizes."""

from __future__ import annotations

import itertools
import random

import pytest

from polydevice.runtime.arena import Life
from polydevice.symbolic_size import is_symbolic, number_of
from polydevice.symbolic_trace import tracing
from polydevice_cpu.onednn.engine import ALIGNMENT_BYTES
from polydevice_cpu.plan.tables.making import places


@pytest.mark.parametrize("seed", range(30))
def test_places_by_formulas_never_overlap(seed):
    """Of pieces that live at the same time, whatever their sizes."""
    rng = random.Random(seed)
    lives = []
    for _ in range(rng.randrange(1, 25)):
        first = rng.randrange(20)
        lives.append(Life(first, first + rng.randrange(6), 0))
    with tracing() as trace:
        given = [
            trace.input(rng.choice([0, *[rng.randrange(1, 5000)] * 9]))
            if rng.random() < 0.8
            else rng.randrange(5000)
            for _ in lives
        ]
        offsets, total = places(lives, given)
    formulas = trace.formulas([*offsets, total, *given])
    drawn = [number_of(size) for size in given if is_symbolic(size)]
    for _ in range(5):
        # What is of no bytes decides, and stays so.
        found = formulas([number and rng.randrange(1, 5000) for number in drawn])
        assert found is not None
        numbers = found[0]
        placed, all_bytes = numbers[: len(lives)], numbers[len(lives)]
        pieces = list(zip(lives, placed, numbers[len(lives) + 1 :], strict=True))
        for _, offset, size in pieces:
            assert offset % ALIGNMENT_BYTES == 0
            assert offset + size <= all_bytes
            assert offset >= 0
        for (one, at, size), (other, place, bytes_) in itertools.combinations(pieces, 2):
            if one.first <= other.last and other.first <= one.last:
                assert at + size <= place or place + bytes_ <= at
