"""The watch over inferences that hang: what ends in time, what is left behind, and its thread."""

from __future__ import annotations

import threading
import time

from polydevice_auto.watch import Watch, Watched


class Call(Watched):
    def __init__(self) -> None:
        self.left = threading.Event()

    def leave_behind(self) -> None:
        self.left.set()


def test_what_does_not_end_is_left_behind_once() -> None:
    watch, hanging, quick = Watch(), Call(), Call()
    watch.begin(quick, 3600)
    watch.begin(hanging, 0.01)  # the thread sleeps until the other is over
    assert hanging.left.wait(60)
    assert not watch.end(hanging)
    assert watch.end(quick)
    assert not quick.left.is_set()
    assert not watch.end(quick)


def test_the_thread_ends_when_nothing_runs_and_starts_again() -> None:
    watch = Watch()
    for _ in range(3):
        call, ended = Call(), Call()
        watch.begin(ended, 0.01)
        in_time = watch.end(ended)
        watch.begin(call, 0.02)
        assert call.left.wait(60)
        assert not (in_time and ended.left.is_set())
        end = time.monotonic() + 60
        while watch.is_looking and time.monotonic() < end:
            time.sleep(0.01)
        assert not watch.is_looking


def test_a_system_without_more_threads(monkeypatch) -> None:
    """Nothing is watched there; what begins once it has some is."""
    watch, call, later = Watch(), Call(), Call()

    def refuse(self) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        watch.begin(call, 0.01)
        assert not watch.is_looking
    watch.begin(later, 0.02)
    assert later.left.wait(60)
    assert call.left.wait(60)


def test_many_calls_from_many_threads_are_ended_by_one_side_only() -> None:
    watch, sides = Watch(), []

    def work(seed: int) -> None:
        for number in range(200):
            call = Call()
            watch.begin(call, 0.001 * (number % 3))
            time.sleep(0.0005 * ((number + seed) % 4))
            mine = watch.end(call)
            sides.append(mine != (call.left.wait(0 if mine else 60)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sides) == 800
    assert all(sides)
