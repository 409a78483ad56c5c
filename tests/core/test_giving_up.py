"""Cancelling, time limits and closing, on a device that takes as long as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from polydevice import Core, StatusCode
from polydevice.bounds import Bounds, bounded, current_bounds, inference_bounds, within
from polydevice.errors import DeviceError, InferCancelledError, InferTimeoutError, OptionValueError
from polydevice.memory_budget import MemoryBudget

from .conftest import relu_network

FOREVER = {"FAKE_MILLISECONDS": 3_600_000}


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as core:
        core.register_plugin("polydevice.testing.fake_device", "FAKE")
        yield core


def test_cancel_ends_what_runs_and_what_waits(core):
    executable = core.load_network(relu_network(), "FAKE", FOREVER, num_requests=2)
    running, queued = (executable.start_async(number) for number in range(2))
    assert running.wait(20) is StatusCode.RESULT_NOT_READY
    queued.cancel()
    with pytest.raises(InferCancelledError, match="before it ran"):
        queued.wait(0)
    seen = []
    running.cancel()
    with pytest.raises(InferCancelledError, match="was cancelled"):
        running.wait()
    running.set_completion_callback(lambda status, _: seen.append(status))
    running.start_async()
    running.cancel()
    with pytest.raises(InferCancelledError):
        running.wait()
    assert seen == [StatusCode.INFER_CANCELLED]


def test_cancelling_an_idle_request_does_not_touch_its_next_inference(core):
    request = core.load_network(relu_network(), "FAKE").create_infer_request()
    for _ in range(2):
        request.cancel()
        assert not request.infer()["relu"].any()
        request.cancel()
        request.start_async()
        assert request.wait() is StatusCode.OK


def test_time_limit(core):
    executable = core.load_network(relu_network(), "FAKE", {**FOREVER, "INFER_TIMEOUT_MS": "30"})
    assert executable.get_config("INFER_TIMEOUT_MS") == "30"
    request = executable.requests[0]
    for _ in range(2):
        with pytest.raises(InferTimeoutError, match="within 30 ms.*INFER_TIMEOUT_MS"):
            request.infer()
        request.start_async()
        with pytest.raises(InferTimeoutError):
            request.wait()
    quick = core.load_network(relu_network(), "FAKE", {"INFER_TIMEOUT_MS": 3_600_000})
    assert not quick.infer()["relu"].any()


def test_time_in_the_queue_counts(core):
    config = {**FOREVER, "INFER_TIMEOUT_MS": 200}
    executable = core.load_network(relu_network(), "FAKE", config, num_requests=2)
    requests = [executable.start_async(number) for number in range(2)]
    for request in requests:
        with pytest.raises(InferTimeoutError):
            request.wait()
    assert requests[1].latency < 1.9 * requests[0].latency + 100


@pytest.mark.parametrize("value", ["-1", "soon", 2.5])
def test_an_illegal_time_limit(core, value):
    with pytest.raises(OptionValueError, match="INFER_TIMEOUT_MS"):
        core.load_network(relu_network(), "FAKE", {"INFER_TIMEOUT_MS": value})


def test_closing_cancels_inferences_of_all_threads(core):
    first, second = (core.load_network(relu_network(), "FAKE", FOREVER) for _ in range(2))
    errors = []

    def infer():
        with pytest.raises(InferCancelledError, match="closed") as caught:
            second.create_infer_request().infer()
        errors.append(caught.value)

    thread = threading.Thread(target=infer)
    thread.start()
    request = first.start_async(0)
    while not any(made.is_busy for made in second._made):
        time.sleep(0.001)
    core.close()
    thread.join()
    assert len(errors) == 1
    with pytest.raises(InferCancelledError, match="closed"):
        request.wait(0)
    with pytest.raises(DeviceError, match="load it again"):
        request.infer()


def test_what_does_not_end_keeps_its_memory(core, monkeypatch, caplog):
    from polydevice import executable_network
    from polydevice.runtime import executor
    from polydevice.testing import fake_device

    started, gate, closed = threading.Event(), threading.Event(), []

    def run(*_) -> None:
        started.set()
        gate.wait()

    monkeypatch.setattr(fake_device.FakeRunner, "run", run)
    monkeypatch.setattr(
        fake_device.FakeExecutable, "release", lambda self: closed.append(self.name)
    )
    for module in (executable_network, executor):
        monkeypatch.setattr(module, "CLOSE_SECONDS", 0.05)
    stuck, other = (core.load_network(relu_network(), "FAKE") for _ in range(2))
    request = stuck.start_async(0)
    started.wait()
    stuck.close()
    assert "still infers" in caplog.text
    other.close()
    assert closed == [other.name]
    gate.set()
    assert request.wait() is StatusCode.OK


def test_all_networks_are_waited_for_until_one_time(core, monkeypatch):
    from polydevice.executable_network import ExecutableNetwork
    from polydevice.runtime.executor import Executor
    from polydevice.testing import fake_device

    gate, started, ends = threading.Event(), threading.Semaphore(0), []

    def run(*_) -> None:
        started.release()
        gate.wait()

    def note(cls: type, name: str) -> None:
        original = getattr(cls, name)

        def noted(self, end):
            ends.append(end)
            original(self, end)

        monkeypatch.setattr(cls, name, noted)

    note(ExecutableNetwork, "close_by")
    note(Executor, "close")
    monkeypatch.setattr(fake_device.FakeRunner, "run", run)
    monkeypatch.setattr("polydevice.core.closing_time", lambda: time.monotonic() + 0.05)
    networks = [core.load_network(relu_network(), "FAKE") for _ in range(3)]
    requests = [network.start_async(0) for network in networks]
    for _ in networks:
        started.acquire()
    core.close()
    assert len(ends) == 6
    assert len(set(ends)) == 1
    gate.set()
    assert [request.wait() for request in requests] == [StatusCode.OK] * 3


def test_bounds_of_a_part_end_with_the_whole():
    memory = MemoryBudget(100, "the whole")
    whole = Bounds(memory=memory)
    with within(whole):
        own = MemoryBudget(0, "a part")
        ended = inference_bounds(0, 0.0, own)
        assert ended.memory is memory
        ended.cancel("this part alone")
        with pytest.raises(InferCancelledError, match="this part alone"):
            ended.check()
        whole.check()
        part = inference_bounds(3_600_000, time.perf_counter(), own)
        assert part.memory is memory
        part.check()
        with within(part):
            assert list(bounded(range(3))) == [0, 1, 2]
            whole.cancel("enough")
            with pytest.raises(InferCancelledError, match="enough"):
                list(bounded(range(3)))
    current_bounds().check()
    with within(Bounds()):  # without a budget, as a caller's token may be
        assert inference_bounds(0, 0.0, own).memory is own


def test_waiting_for_a_lock_ends_too():
    lock = threading.Lock()
    Bounds().acquire(lock)
    with pytest.raises(InferTimeoutError):
        Bounds(20).acquire(lock)
    lock.release()
    Bounds(20).acquire(lock)
    assert lock.locked()


def test_results_are_what_they_were_after_giving_up(core):
    request = core.load_network(relu_network(), "FAKE", FOREVER).create_infer_request()
    x = np.ones((2, 3), np.float32)
    request.start_async({"x": x})
    request.cancel()
    with pytest.raises(InferCancelledError):
        request.wait()
    np.testing.assert_array_equal(request.get_blob("x").array, x)
