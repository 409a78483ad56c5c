"""TurnLock: in order, cancellable, and passed on when its holder gives way."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from polydevice.bounds import Bounds, within
from polydevice.errors import DeviceLostError, InferTimeoutError
from polydevice_gpu import cl
from polydevice_gpu.cl.queues.turn_lock import TurnLock
from tests.cpu.models import build


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


def test_others_enqueue_while_one_waits_for_the_device(core, rng, monkeypatch) -> None:
    """Which ended in a deadlock if the first one kept the queue."""
    nodes = [("Mul", ["x", "x"], ["s"], {}), ("Add", ["s", "one"], ["y"], {})]
    model = build(nodes, {"x": (5, 7)}, ("y",), {"one": np.array([1], "f4")})
    executable = core.load_network(core.read_network(model), "GPU")
    first, second = executable.create_infer_request(), executable.create_infer_request()
    given, other = rng.standard_normal((2, 5, 7)).astype("f4")
    wait, inside = cl.Event.wait, []

    def wait_behind_another(event, *limits):
        if not inside:
            inside.append(threading.Thread(target=second.infer, args=[{"x": other}], daemon=True))
            inside[0].start()
            inside[0].join(60)
            assert not inside[0].is_alive()
        return wait(event, *limits)

    with monkeypatch.context() as patch:
        patch.setattr(cl.Event, "wait", wait_behind_another)
        first.infer({"x": given})
    assert not inside  # nobody else ever asked for the queue
    lock = executable.queue(0)[1]
    with lock:
        asking = threading.Thread(target=second.infer, args=[{"x": given}])
        asking.start()
        wait_for(lambda: lock.is_wanted)
    asking.join()
    monkeypatch.setattr(cl.Event, "wait", wait_behind_another)
    first = executable.create_infer_request()
    np.testing.assert_allclose(first.infer({"x": given})["y"], given * given + 1, rtol=1e-6)
    assert inside
    np.testing.assert_allclose(second.get_blob("y").array, other * other + 1, rtol=1e-6)

    def lose(*_: object) -> None:
        raise DeviceLostError("gone")

    lost = executable.create_infer_request()
    monkeypatch.setattr(cl.Event, "wait", lose)
    with pytest.raises(DeviceLostError):
        lost.infer({"x": given})
    monkeypatch.undo()
    np.testing.assert_allclose(lost.infer({"x": other})["y"], other * other + 1, rtol=1e-6)
