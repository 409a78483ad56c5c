"""Devices get one request for each stream where that is faster, found by turns; hand-worked."""

from __future__ import annotations

import time

import pytest

from polydevice.infer_queue import InferQueue
from polydevice_auto import narrowing
from polydevice_auto.narrowing import Narrowing
from tests.auto.conftest import right


class Ends:
    """Inferences that end one after the other, by a clock that nothing else moves."""

    def __init__(self, wide: float, narrow: float) -> None:
        self.wide, self.narrow = wide, narrow
        self.now = 0.0
        self.narrowing = Narrowing(lambda: self.now)

    def end(self, number: int, *, ran_out: bool = False) -> list[bool]:
        """Let some end; return for each whether the next one is of one request at a time."""
        found = []
        for _ in range(number):
            self.now += self.narrow if self.narrowing.is_on else self.wide
            self.narrowing.ended(ran_out=ran_out)
            found.append(self.narrowing.is_on)
        return found


def test_ways_take_turns_and_the_quicker_one_stays() -> None:
    """64 before, then 40 of each way three times; from the last on, the narrow way."""
    ends = Ends(wide=3.0, narrow=2.0)
    turns = [False] * 63 + 3 * ([False] * 40 + [True] * 40)
    assert ends.end(303) == turns
    assert ends.end(2000) == [True] * 2000
    assert ends.narrowing.was_faster


def test_what_is_hardly_faster_changes_nothing() -> None:
    ends = Ends(wide=1.0, narrow=0.96)
    ends.end(304)
    assert ends.end(1000) == [False] * 1000


def test_what_else_the_machine_does_in_a_turn() -> None:
    """A turn of ten times the time counts for nothing, whichever way it was."""
    for slow in range(6):
        ends = Ends(wide=3.0, narrow=2.0)
        ends.end(64)
        for turn in range(6):
            before = ends.wide, ends.narrow
            if turn == slow:
                ends.wide, ends.narrow = 30.0, 20.0
            ends.end(40)
            ends.wide, ends.narrow = before
        assert ends.narrowing.was_faster


def test_devices_that_run_out_of_requests_begin_anew() -> None:
    ends = Ends(wide=3.0, narrow=2.0)
    ends.end(64 + 40 + 7)
    assert ends.narrowing.is_on
    assert ends.end(1, ran_out=True) == [False]
    assert ends.end(63) == [False] * 63
    assert ends.end(41)[-1]  # the narrow way's first turn again
    ends.end(200)
    assert ends.narrowing.was_faster
    assert ends.end(1, ran_out=True) == [True]  # what was found is kept


def test_another_trial_may_find_the_opposite() -> None:
    """As when a GPU runs the network as one launch by then."""
    ends = Ends(wide=3.0, narrow=2.0)
    ends.end(304)
    ends.wide, ends.narrow = 1.0, 2.0
    assert all(ends.end(9_999))
    ends.end(1 + 240)
    assert not any(ends.end(9_000))


@pytest.mark.parametrize(
    ("seconds", "beside", "wanted"),
    [
        (0.001, 0.1, "1 at a time, which was faster than 2"),
        (0.02, 0.0, "2 at a time"),
    ],
)
def test_a_device_whose_requests_keep_each_other(
    seconds, beside, wanted, core, troubles, network, rng, monkeypatch
) -> None:
    for name, value in {"BEFORE": 2, "SETTLING": 2, "COUNTED": 4, "TURNS": 2}.items():
        monkeypatch.setattr(narrowing, name, value)
    trouble = troubles["SHAKY"]
    trouble.seconds, trouble.beside, trouble.optimal = seconds, beside, 2
    executable = core.load_network(network, "MULTI:SHAKY")
    assert executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 2
    queue, x = InferQueue(executable, 4), rng.standard_normal(5).astype("f4")
    wrong = []
    queue.set_callback(
        lambda request, _: (request.get_blob("y").array == right(x)).all() or wrong.append(request)
    )
    end = time.monotonic() + 60
    while executable.schedule._narrowing._left < 1000 and time.monotonic() < end:  # then it rests
        queue.start_async({"x": x})
    queue.wait_all()
    assert not wrong
    assert wanted in executable.explain()


def test_what_the_user_says_stays(core, troubles, network) -> None:
    troubles["SHAKY"].optimal = 4
    executable = core.load_network(network, "MULTI:SHAKY(2)")
    (member,) = executable.schedule.members
    assert (member.fewest, member.slots, member.width) == (2, 2, 2)
