"""Ctrl-C leaves no lock behind, whose next user would wait for ever."""

from __future__ import annotations

import random
import signal
import threading

import pytest

from polydevice.locks import Condition, Lock, RLock

TIMES = 30
"""Of 30 interrupts some 20 leave Python 3.14's own locks taken."""


@pytest.fixture
def interrupts():
    """Return a function that has this thread interrupted once, at a random moment."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGVTALRM, interrupt)  # pytest-timeout has the other clock
    yield lambda: signal.setitimer(signal.ITIMER_VIRTUAL, random.uniform(1e-5, 3e-4))
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def is_free(lock) -> bool:
    """Whether another thread gets it at once."""
    found: list[bool] = []

    def ask() -> None:
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        found.append(taken)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows interrupts by no clock")
@pytest.mark.parametrize("kind", [Lock, RLock, Condition])
def test_a_block_that_is_interrupted_gives_its_lock_back(interrupts, kind) -> None:
    lock = kind()
    for number in range(TIMES):
        try:
            interrupts()
            while True:
                with lock:
                    pass
                with lock:
                    pass
        except KeyboardInterrupt:
            assert is_free(lock), number


@pytest.mark.parametrize("kind", [RLock, Condition])
def test_who_holds_a_lock_takes_it_again(kind) -> None:
    lock = kind()
    with lock:
        with lock:
            assert not is_free(lock)
        assert not is_free(lock)
    assert is_free(lock)


def test_others_wait_for_it() -> None:
    lock, entered = Lock(), threading.Event()

    def enter() -> None:
        with lock:
            entered.set()

    with lock:
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.05)
    assert entered.wait(10)
    thread.join()
