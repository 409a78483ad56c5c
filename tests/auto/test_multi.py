"""MULTI: requests over several devices: all of them, each once, in order where that is asked."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

import numpy as np
import pytest

from polydevice import Blob, opset
from polydevice.errors import (
    DeviceError,
    DeviceMemoryError,
    InferCancelledError,
    InferenceError,
    ShapeError,
)
from polydevice_auto import schedule

from .conftest import right


def start_many(queue, rng, number: int) -> tuple[list[int], list[int]]:
    """Run numbered inferences; return their numbers as they ended, and those that were wrong."""
    seen: list[int] = []
    wrong: list[int] = []
    lock = threading.Lock()

    def done(request, userdata) -> None:
        index, x = userdata
        got = request.get_blob("y").array.copy()
        with lock:
            seen.append(index)
            if not np.array_equal(got, right(x)):
                wrong.append(index)

    queue.set_callback(done)
    for index in range(number):
        x = rng.standard_normal(5).astype("f4")
        queue.start_async(x, (index, x))
    queue.wait_all()
    return seen, wrong


def test_the_quicker_device_gets_more(core, troubles, network, rng) -> None:
    # A busy machine adds some 10 ms to each.
    troubles["SHAKY"].seconds, troubles["SHAKY2"].seconds = 0.2, 0.002
    executable = core.load_network(network, "MULTI:SHAKY,SHAKY2")
    seen, wrong = start_many(executable.infer_queue(), rng, 120)
    assert not wrong
    assert sorted(seen) == list(range(120))
    counts = executable.get_metric("INFERENCES")
    assert sum(counts.values()) == 120
    assert counts["SHAKY2"] > 3 * counts["SHAKY"] > 0
    assert "ms each" in executable.explain()


def test_results_in_order(core, troubles, network, rng) -> None:
    troubles["SHAKY"].seconds, troubles["SHAKY2"].seconds = 0.01, 0.001
    executable = core.load_network(network, "MULTI:SHAKY,SHAKY2(3),CPU")
    assert executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 5
    seen, wrong = start_many(executable.infer_queue(ordered=True), rng, 100)
    assert seen == list(range(100))
    assert not wrong


def test_a_request_alone_goes_to_the_quickest(core, troubles, network, rng) -> None:
    """Whatever the order of the list, once each was tried."""
    troubles["SHAKY"].seconds = 0.1  # ten times what a busy machine makes of the other
    executable = core.load_network(network, "MULTI:SHAKY,SHAKY2")
    x = rng.standard_normal(5).astype("f4")
    for _ in range(20):
        np.testing.assert_array_equal(executable.infer(x)["y"], right(x))
    counts = executable.get_metric("INFERENCES")
    assert counts["SHAKY2"] >= 16


def test_a_request_stays_where_its_memory_is(core, troubles, network, rng, monkeypatch) -> None:
    monkeypatch.setattr(schedule, "SLOWER", 1e9)
    troubles["SHAKY"].seconds = 0.005
    executable = core.load_network(network, "MULTI:SHAKY,SHAKY2")
    requests = [executable.create_infer_request() for _ in range(2)]
    for number in (0, 0, 1, 1, 0, 1, 0, 1):  # a device's first time is not counted
        x = rng.standard_normal(5).astype("f4")
        np.testing.assert_array_equal(requests[number].infer(x)["y"], right(x))
    members = executable.schedule.members
    held = [[m.device for m in members if each.runner.holds(m)] for each in requests]
    assert held == [["SHAKY"], ["SHAKY2"]]
    assert executable.get_metric("INFERENCES") == {"SHAKY": 4, "SHAKY2": 4}


def test_a_device_that_fails_in_mid_run_loses_nothing(core, troubles, network, rng, caplog) -> None:
    troubles["SHAKY"].seconds = troubles["SHAKY2"].seconds = 0.001
    troubles["SHAKY"].lives = 20
    executable = core.load_network(network, "MULTI:SHAKY(2),SHAKY2(2)")
    seen, wrong = start_many(executable.infer_queue(6, ordered=True), rng, 200)
    assert seen == list(range(200))
    assert not wrong
    assert executable.get_metric("INFERENCES") == {"SHAKY": 20, "SHAKY2": 180}
    assert len(troubles["SHAKY"].runs) + len(troubles["SHAKY2"].runs) == 200
    assert executable.get_metric("EXECUTION_DEVICES") == ["SHAKY2"]
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "SHAKY failed on a request of network 'test': the device fell off the bus" in warnings[0]


def test_a_device_that_hangs_is_left_behind(core, troubles, network, rng, caplog) -> None:
    """Nothing is lost, and what wakes up later writes nothing that anybody sees."""
    hanging = troubles["SHAKY"]
    hanging.lives, hanging.hangs = 5, threading.Event()
    config = {"MULTI_DEVICE_TIMEOUT_MS": 2000}
    executable = core.load_network(network, "MULTI:SHAKY(2),SHAKY2(2)", config)
    queue = executable.infer_queue(5, ordered=True)
    outputs = [np.empty(5, "f4") for _ in queue]
    for request, output in zip(queue, outputs, strict=True):
        request.set_blob("y", Blob(output))
    seen, wrong = start_many(queue, rng, 60)
    assert seen == list(range(60))
    assert not wrong
    assert executable.get_metric("INFERENCES") == {"SHAKY": 5, "SHAKY2": 55}
    assert executable.get_metric("EXECUTION_DEVICES") == ["SHAKY2"]
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "SHAKY has not ended an inference within 2 s. Another device runs" in warnings[0]
    before = [output.copy() for output in outputs]
    hanging.hangs.set()
    executable.close()  # waits for what was left behind, which ends now
    np.testing.assert_array_equal(outputs, before)


def test_a_request_needs_one_thread(core, troubles, network) -> None:
    """The device's, which calls back and takes what waits; to watch it nobody is woken."""
    executable = core.load_network(network, "MULTI:SHAKY(1),SHAKY2(1)")
    queue, callers = executable.infer_queue(4), []
    queue.set_callback(lambda request, userdata: callers.append(threading.get_ident()))
    for _ in range(40):
        queue.start_async(np.zeros(5, "f4"))
    queue.wait_all()
    ran = {device: set(trouble.runs) for device, trouble in troubles.items()}
    assert len(ran["SHAKY"]) == len(ran["SHAKY2"]) == 1
    assert set(callers) == ran["SHAKY"] | ran["SHAKY2"]


def test_what_waits_is_begun_in_order(core, troubles, network) -> None:
    troubles["SHAKY"].seconds = 0.002
    executable = core.load_network(network, "MULTI:SHAKY(1)")
    queue, ended = executable.infer_queue(20), []
    queue.set_callback(lambda request, number: ended.append(number))
    for number in range(60):
        queue.start_async(np.zeros(5, "f4"), number)
    queue.wait_all()
    assert ended == list(range(60))


def test_what_waits_is_cancelled_at_once(core, troubles, network) -> None:
    troubles["SHAKY"].seconds = 0.5
    executable = core.load_network(network, "MULTI:SHAKY(1)")
    first, second = (executable.create_infer_request() for _ in range(2))
    first.start_async(np.zeros(5, "f4"))
    second.start_async(np.zeros(5, "f4"))
    second.cancel()
    assert not second.is_busy
    assert first.is_busy
    with pytest.raises(InferCancelledError, match="before it ran"):
        second.wait()
    first.wait()
    assert executable.get_metric("INFERENCES") == {"SHAKY": 1}


def test_a_callback_infers_and_may_take_its_time(core, troubles, network, rng) -> None:
    """It has the only thread of the device, and may keep it for longer than devices may take."""
    config = {"MULTI_DEVICE_TIMEOUT_MS": 300}
    executable = core.load_network(network, "MULTI:SHAKY(1)", config)
    queue, inner = executable.infer_queue(3), executable.create_infer_request()
    x = rng.standard_normal(5).astype("f4")
    inner.infer(x)
    got: list[np.ndarray] = []

    def done(request, number) -> None:
        time.sleep(0.5 if number == 0 else 0)
        got.append(inner.infer(x)["y"].copy())

    queue.set_callback(done)
    for number in range(6):
        queue.start_async(x, number)
    queue.wait_all()
    np.testing.assert_array_equal(got, [right(x)] * 6)
    assert executable.get_metric("EXECUTION_DEVICES") == ["SHAKY"]


def test_nothing_goes_where_an_inference_hangs(core, troubles, network, rng) -> None:
    """Before another device has run it, which takes the hanging one out; nor is anything lost
    when that one comes back."""
    hanging, other = troubles["SHAKY"], troubles["SHAKY2"]
    hanging.lives, hanging.hangs, other.seconds = 2, threading.Event(), 0.02
    config = {"MULTI_DEVICE_TIMEOUT_MS": 1000}
    executable = core.load_network(network, "MULTI:SHAKY(1),SHAKY2(1)", config)
    seen, wrong = start_many(executable.infer_queue(8, ordered=True), rng, 40)
    assert seen == list(range(40))
    assert not wrong
    assert hanging.calls == 3
    hanging.hangs.set()
    hanging.lives = -1
    seen, wrong = start_many(executable.infer_queue(8), rng, 10)
    assert sorted(seen) == list(range(10))
    assert not wrong
    executable.close()


def test_all_devices_fail(core, troubles, network, rng) -> None:
    """The request says so; the devices stay, since it may be the request's fault."""
    troubles["SHAKY"].lives = troubles["SHAKY2"].lives = 0
    executable = core.load_network(network, "MULTI:SHAKY,SHAKY2")
    with pytest.raises(DeviceError, match="fell off the bus"):
        executable.infer(np.zeros(5, "f4"))
    troubles["SHAKY"].lives = troubles["SHAKY2"].lives = -1
    x = rng.standard_normal(5).astype("f4")
    np.testing.assert_array_equal(executable.infer(x)["y"], right(x))
    assert executable.get_metric("EXECUTION_DEVICES") == ["SHAKY", "SHAKY2"]


def test_a_poisoned_request_takes_no_device_out(core, rng) -> None:
    from tests.cpu.models import build

    model = build([("Add", ["x", "w"], ["y"], {})], {"x": ("n",)}, ("y",), {"w": np.ones(4, "f4")})
    executable = core.load_network(core.read_network(model), "MULTI:CPU,SHAKY")
    for _ in range(3):
        with pytest.raises((ShapeError, InferenceError)):
            executable.infer(np.zeros(3, "f4"))
        np.testing.assert_array_equal(executable.infer(np.zeros(4, "f4"))["y"], np.ones(4, "f4"))
    assert len(executable.get_metric("EXECUTION_DEVICES")) == 2


def test_too_little_memory_for_one_request(core, troubles, network, rng) -> None:
    troubles["SHAKY"].error, troubles["SHAKY"].lives = DeviceMemoryError, 1
    executable = core.load_network(network, "MULTI:SHAKY,CPU")
    x = rng.standard_normal(5).astype("f4")
    for _ in range(4):
        np.testing.assert_array_equal(executable.infer(x)["y"], right(x))
    assert executable.get_metric("EXECUTION_DEVICES") == ["SHAKY", "CPU"]


def test_a_device_that_cannot_load_is_left_out(core, troubles, network, rng, caplog) -> None:
    troubles["SHAKY"].refuses = True
    executable = core.load_network(network, "MULTI:SHAKY,CPU")
    assert executable.get_metric("EXECUTION_DEVICES") == ["CPU"]
    assert "MULTI runs network 'test' without SHAKY: KernelBuildError" in caplog.text
    assert "SHAKY: left out" in executable.explain()
    x = rng.standard_normal(5).astype("f4")
    np.testing.assert_array_equal(executable.infer(x)["y"], right(x))


def test_memory_of_the_users(core, troubles, network, rng) -> None:
    """Inputs and outputs in place, whichever device runs; what one leaves may be fed to another."""
    troubles["SHAKY"].seconds = 0.002
    executable = core.load_network(network, "MULTI:SHAKY,SHAKY2,CPU")
    requests = [executable.create_infer_request() for _ in range(3)]
    outputs = [np.empty(5, "f4") for _ in requests]
    for request, output in zip(requests, outputs):
        request.set_blob("y", Blob(output))
    for _ in range(20):
        xs = [rng.standard_normal(5).astype("f4") for _ in requests]
        for request, x in zip(requests, xs):
            request.start_async(x)
        for request, x, output in zip(requests, xs, outputs):
            request.wait()
            np.testing.assert_array_equal(output, right(x))
            assert request.get_blob("y").array is output
    request = executable.create_infer_request()
    value = rng.standard_normal(5).astype("f4")
    for _ in range(12):
        wanted = right(value)
        value = request.infer(value)["y"]
        np.testing.assert_array_equal(value, wanted)
        value /= 4


def test_many_threads(core, troubles, network, rng) -> None:
    troubles["SHAKY"].lives = 50
    executable = core.load_network(network, "MULTI:SHAKY(2),SHAKY2,CPU")
    failures: list[BaseException] = []
    data = rng.standard_normal((8, 40, 5)).astype("f4")

    def work(rows: np.ndarray) -> None:
        try:
            request = executable.create_infer_request()
            for x in rows:
                np.testing.assert_array_equal(request.infer(x)["y"], right(x))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert sum(executable.get_metric("INFERENCES").values()) == 320


def test_closing_in_mid_run(core, troubles, network) -> None:
    troubles["SHAKY"].seconds = troubles["SHAKY2"].seconds = 0.02
    executable = core.load_network(network, "MULTI:SHAKY,SHAKY2")
    requests = [executable.create_infer_request() for _ in range(40)]
    for request in requests:
        request.start_async(np.zeros(5, "f4"))
    executable.close()
    assert not any(request.is_busy for request in requests)
    assert troubles["SHAKY"].closed == troubles["SHAKY2"].closed == 1
    assert not [t for t in threading.enumerate() if "MULTI" in t.name or "SHAKY" in t.name]


def copied(request) -> list[np.ndarray]:
    return [request.get_blob(name).array.copy() for name in request.executable.outputs]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads, tested here
def test_a_forked_child_finds_devices_free(core, troubles, network) -> None:
    """What ran when the process was forked goes on in the parent alone."""
    executable = core.load_network(network, "MULTI:SHAKY")
    busy, other = executable.create_infer_request(), executable.create_infer_request()
    hanging = troubles["SHAKY"].hangs = threading.Event()
    troubles["SHAKY"].lives = 0
    busy.start_async({"x": np.ones(5, "f4")})
    while not troubles["SHAKY"].calls:
        time.sleep(0.001)
    pid = os.fork()
    if not pid:
        signal.alarm(30)  # ends a child that waits
        troubles["SHAKY"].lives = -1
        other.start_async({"x": np.full(5, 2, "f4")})
        other.wait()
        os._exit(int(not np.array_equal(other.get_blob("y").array, np.full(5, 6))))
    hanging.set()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    busy.wait()
    assert np.array_equal(busy.get_blob("y").array, np.full(5, 3))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="Windows has no such signals")
def test_what_was_interrupted_leaves_no_trace(core, troubles, network) -> None:
    """Ctrl-C in an inference: it writes no outputs later, and takes no device out."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals interrupt the main thread only")
    executable = core.load_network(network, "MULTI:SHAKY,SHAKY2")
    request = executable.create_infer_request()
    hanging = troubles["SHAKY"].hangs = threading.Event()

    def interrupt(*_: object) -> None:
        threading.Timer(0.1, hanging.set).start()
        raise KeyboardInterrupt

    def send() -> None:
        while not troubles["SHAKY"].calls:
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    troubles["SHAKY"].lives = 0
    sender = threading.Thread(target=send)
    try:
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            request.infer(np.full(5, 7, "f4"))
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    for number in range(3):
        assert np.array_equal(request.infer(np.full(5, number, "f4"))["y"], np.full(5, 3 * number))
    executable.close()
    assert np.array_equal(request.get_blob("y").array, np.full(5, 6))
    assert "taken out" not in executable.explain()


def test_gpu_and_cpu(rng) -> None:
    from polydevice import Core
    from tests.cpu.models import answer, residual

    with Core() as core:
        if not any(name.startswith("GPU") for name in core.available_devices):
            pytest.skip("needs an OpenCL device")
        model = residual()
        for name in ("MULTI:GPU,CPU", "AUTO:GPU,CPU"):
            executable = core.load_network(core.read_network(model), name)
            queue = executable.infer_queue(4, ordered=True)
            xs = [rng.standard_normal((2, 3, 14, 14)).astype("f4") for _ in range(24)]
            got: list[list[np.ndarray]] = []
            queue.set_callback(lambda request, got: got.append(copied(request)))
            for x in xs:
                queue.start_async(x, got)
            queue.wait_all()
            for x, outputs in zip(xs, got, strict=True):
                wanted = answer(model, {next(iter(executable.inputs)): x})
                for a, b in zip(outputs, wanted, strict=True):
                    np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_memory_that_was_replaced_is_left_alone(core) -> None:
    """Inferences beyond the device's requests run beside watched ones, in threads of the user's."""
    x = opset.parameter([512, 512], name="x")
    weights = np.random.default_rng(0).standard_normal((512, 512)).astype("f4")
    network = opset.network("product", {"y": opset.mat_mul(x, weights)})
    executable = core.load_network(network, "MULTI:CPU(1)")
    kept: list[tuple[np.ndarray, np.ndarray]] = []

    def infer_often(seed: int) -> None:
        request, own = executable.create_infer_request(), np.random.default_rng(seed)
        for _ in range(40):
            y = np.zeros((512, 512), "f4")
            request.set_blob("y", y)
            request.infer({"x": own.standard_normal((512, 512)).astype("f4")})
            kept.append((y, y.copy()))
            time.sleep(own.uniform(0, 0.006))

    threads = [threading.Thread(target=infer_often, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(kept) == 80
    for y, was in kept:
        np.testing.assert_array_equal(y, was)
