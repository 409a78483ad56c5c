"""Which inferences are recorded for a trace, and what that adds to their time."""

from __future__ import annotations

import itertools

import pytest

from polydevice_gpu.runtime.recording_rate import RecordingRate


def shown(rate: RecordingRate, count: int, cost: float, plans: int = 1) -> list[int]:
    """Run inferences of 1 s, in turn of so many plans; return which were recorded."""
    found = []
    for number in range(count):
        recorded = rate.next()
        if recorded:
            found.append(number)
        first = 10.0 if number == 0 else 0.0
        rate.note(number % plans, recorded, 1 + cost * recorded + first)
    return found


@pytest.mark.parametrize(
    ("cost", "every"), [(0.57, 114), (0.73, 146), (0.048, 10), (0.0025, 1), (-0.3, 1)]
)
def test_recording_takes_one_part_in_two_hundred(cost: float, every: int) -> None:
    found = shown(RecordingRate(), 3000, cost)
    assert found[:2] == [0, 2], "the first one, and others until the cost is known"
    assert {b - a for a, b in itertools.pairwise(found[5:])} == {every}
    assert len(found) * max(cost, 0) <= 0.0055 * 3000 + 4 * cost


def test_who_begins_to_look_sees_the_next_one() -> None:
    rate = RecordingRate()
    shown(rate, 500, 0.6)
    assert not rate.next()
    rate.restart()
    assert [rate.next() for _ in range(4)] == [True, False, False, False]


def test_plans_are_not_compared_with_each_other() -> None:
    found = shown(RecordingRate(), 1000, 0.6, plans=7)
    assert max(found[:16]) < 32
    assert {b - a for a, b in itertools.pairwise(found[16:])} == {32}


@pytest.mark.parametrize("every", [1, 4])
def test_what_is_asked_for(every: int) -> None:
    assert shown(RecordingRate(every), 20, 0.9) == list(range(0, 20, every))
