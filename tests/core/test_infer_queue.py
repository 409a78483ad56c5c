"""InferQueue: from threads and from asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

import numpy as np
import pytest

from polydevice.errors import BlobError, InferenceError, OptionValueError, RequestError

from .conftest import relu_network


@pytest.fixture
def executable(core):
    return core.load_network(relu_network((1,)), "ECHO", {"ECHO_STREAMS": "3"})


def number(value: float) -> dict[str, np.ndarray]:
    return {"x": np.array([value], np.float32)}


def test_every_result_meets_its_userdata(executable):
    queue = executable.infer_queue()
    assert len(queue) == 3
    wrong: list[int] = []
    seen: set[int] = set()

    def done(request, userdata: int) -> None:
        seen.add(userdata)
        if request.get_blob("relu").array[0] != userdata + 1:
            wrong.append(userdata)

    queue.set_callback(done)
    for i in range(500):
        queue.start_async(number(i), i)
    queue.wait_all()
    assert not wrong
    assert seen == set(range(500))


def test_starting_waits_for_an_idle_request(executable):
    executable.gate = threading.Event()
    queue = executable.infer_queue(2)
    queue.start_async(number(1))
    assert queue.is_ready()
    queue.start_async(number(2))
    assert not queue.is_ready()
    with pytest.raises(RequestError, match="none of the 2 requests became idle within 5 ms"):
        queue.start_async(number(3), timeout_ms=5)
    with pytest.raises(RequestError, match="still running after 5 ms"):
        queue.wait_all(timeout_ms=5)
    executable.gate.set()
    queue.wait_all()
    assert queue.get_idle_request_id() in (0, 1)
    assert queue.is_ready()


def test_failures_are_raised_by_wait_all_once(executable):
    queue = executable.infer_queue(2)
    for value in (1, np.nan, 2, np.nan):
        queue.start_async(number(value))
    with pytest.raises(InferenceError, match="caught fire"):
        queue.wait_all()
    queue.wait_all()


def test_exceptions_in_callbacks_are_raised_by_wait_all(executable):
    queue = executable.infer_queue(2)

    def broken(request, userdata: object) -> None:
        raise KeyError("mine")

    queue.set_callback(broken)
    queue.start_async(number(1))
    with pytest.raises(KeyError, match="mine"):
        queue.wait_all()


def test_bad_inputs_leave_the_queue_whole(executable):
    queue = executable.infer_queue(1)
    with pytest.raises(RequestError, match="'y'"):
        queue.start_async({"y": np.zeros(1, np.float32)})
    queue.start_async(number(1))
    queue.wait_all()


def test_many_threads_share_a_queue(executable):
    queue = executable.infer_queue(4)
    total = [0]
    lock = threading.Lock()

    def done(request, userdata: float) -> None:
        with lock:
            total[0] += int(request.get_blob("relu").array[0] == userdata + 1)

    queue.set_callback(done)

    def work(seed: int) -> None:
        for i in range(100):
            queue.start_async(number(seed * 1000 + i), seed * 1000 + i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.wait_all()
    assert total[0] == 800


def test_await(executable):
    async def main() -> list[float]:
        queue = executable.infer_queue(2)
        results = await asyncio.gather(*(queue.infer(number(i)) for i in range(50)))
        return [float(result["relu"][0]) for result in results]

    assert asyncio.run(main()) == [i + 1 for i in range(50)]


def test_await_raises_what_failed(executable):
    async def main() -> None:
        await executable.infer_queue(1).infer(number(np.nan))

    with pytest.raises(InferenceError, match="caught fire"):
        asyncio.run(main())


def test_cancelled_coroutines_give_their_request_back(executable):
    async def main() -> float:
        queue = executable.infer_queue(1)
        executable.gate = threading.Event()
        running = asyncio.create_task(queue.infer(number(1)))
        waiting = asyncio.create_task(queue.infer(number(2)))
        await asyncio.sleep(0.02)
        waiting.cancel()
        executable.gate.set()
        await running
        return float((await asyncio.wait_for(queue.infer(number(5)), 5))["relu"][0])

    assert asyncio.run(main()) == 6


def test_negative_jobs(executable):
    with pytest.raises(OptionValueError, match="jobs=-1"):
        executable.infer_queue(-1)


def test_asking_for_an_idle_request_never_takes_it(executable):
    """Else whoever began to wait in between is not woken up."""

    class Kept(deque):
        def popleft(self) -> int:
            raise AssertionError("the request was taken")

    queue = executable.infer_queue(2)
    queue._idle = Kept(queue._idle)
    assert queue.get_idle_request_id() == 0
    assert queue.get_idle_request_id(0) == 0
    executable.gate = threading.Event()
    queue = executable.infer_queue(1)
    queue.start_async(number(1))
    with pytest.raises(RequestError, match="became idle within"):
        queue.get_idle_request_id(1)
    executable.gate.set()
    queue.wait_all()


def test_results_in_order(core, rng):
    """However long each takes, callbacks come as inferences were started; failures too."""
    executable = core.load_network(relu_network((1,)), "ECHO", {"ECHO_STREAMS": "4"})
    executable.delays = iter(rng.uniform(0, 0.004, 1000))
    queue = executable.infer_queue(4, ordered=True)
    seen: list[int] = []
    values: list[float] = []

    def done(request, userdata: int) -> None:
        seen.append(userdata)
        values.append(float(request.get_blob("relu").array[0]))

    queue.set_callback(done)
    for i in range(200):
        if i == 77:
            with pytest.raises(BlobError):
                queue.start_async(np.zeros((2, 2), np.float32), -1)
        queue.start_async(number(np.nan if i == 100 else i), i)
    with pytest.raises(InferenceError, match="caught fire"):
        queue.wait_all()
    right = [i for i in range(200) if i != 100]
    assert seen == right
    assert values == [i + 1 for i in right]
