"""TurnLock: in order, cancellable, and passed on when its holder gives way."""

from __future__ import annotations

import threading
import time

import pytest

from polydevice.bounds import Bounds, within
from polydevice.errors import InferTimeoutError
from polydevice_gpu.cl.queues.turn_lock import TurnLock


def wait_for(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_in_the_order_of_asking() -> None:
    lock, order, threads = TurnLock(), [], []

    def take(number: int) -> None:
        with lock:
            order.append(number)

    lock.acquire()
    for number in range(5):
        threads.append(threading.Thread(target=take, args=[number]))
        threads[-1].start()
        wait_for(lambda number=number: len(lock._waiting) == number + 1)
    assert lock.is_wanted
    lock.release()
    lock.acquire()  # behind those that waited
    assert order == [0, 1, 2, 3, 4]
    assert not lock.is_wanted
    lock.release()
    for thread in threads:
        thread.join()


def test_who_gives_up_waiting_is_passed_over() -> None:
    lock, failed = TurnLock(), []

    def give_up() -> None:
        with within(Bounds(20)), pytest.raises(InferTimeoutError):
            lock.acquire()
        lock.release()  # it does not hold the lock
        failed.append(True)

    with lock:
        thread = threading.Thread(target=give_up)
        thread.start()
        thread.join()
        assert failed
        assert not lock.is_wanted
    with lock:
        pass


def test_one_holder_at_a_time() -> None:
    lock, inside, most = TurnLock(), [], []

    def work() -> None:
        for _ in range(200):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 1200
