"""InferRequest, ExecutableNetwork and Executor, on a device that is not real."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from polydevice import Blob, Core, StatusCode
from polydevice.dtype import ElementType
from polydevice.errors import (
    BlobError,
    DeviceError,
    InferCancelledError,
    InferenceError,
    RequestBusyError,
    RequestError,
)
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.activation import Relu
from polydevice.ops.io import Parameter, Result
from polydevice.runtime.runner import Runner
from polydevice.shape import Shape

from .conftest import relu_network


@pytest.fixture
def executable(core: Core):
    return core.load_network(relu_network(), "ECHO", {"ECHO_STREAMS": "2"}, num_requests=4)


def wait_until(condition, limit_s: float = 5.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.001)


def test_infer_returns_named_outputs(executable, x):
    np.testing.assert_array_equal(executable.infer({"x": x})["relu"], x + 1)


def test_request_results_are_live_and_network_results_are_copies(executable, x):
    request = executable.requests[0]
    first = request.infer({"x": x})["relu"]
    copied = executable.infer({"x": x})["relu"]
    second = request.infer({"x": x + 5})["relu"]
    assert first is second
    np.testing.assert_array_equal(copied, x + 1)


def test_inputs_are_read_in_place(executable, x):
    request = executable.requests[0]
    request.infer({"x": x})
    assert request.get_blob("x").array is x
    x += 7
    np.testing.assert_array_equal(request.infer()["relu"], x + 1)


def test_a_system_without_more_threads(executable, x, monkeypatch):
    """Where none can be started, that is said; where one is there, it does the work of all."""
    start = threading.Thread.start

    def refuse(self) -> None:
        if "stream" in self.name:
            raise RuntimeError("can't start new thread")
        start(self)

    first, second = executable.requests[:2]
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(InferenceError, match="can't start new thread"):
            first.start_async({"x": x})
        np.testing.assert_array_equal(first.infer({"x": x})["relu"], x + 1)
    first.start_async({"x": x})
    first.wait()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for request in (first, second):
        request.start_async({"x": x})
    assert [request.wait() for request in (first, second)] == [StatusCode.OK] * 2


def test_async_inputs_are_copied(executable, x):
    request = executable.start_async(1, {"x": x})
    expected = x + 1
    x[:] = -99
    assert request.wait() is StatusCode.OK
    np.testing.assert_array_equal(request.get_blob("relu").array, expected)


def test_set_blob_uses_the_memory(executable, x):
    request = executable.requests[0]
    out = np.full((2, 3), np.nan, np.float32)
    request.set_blob("x", Blob(x))
    request.set_blob("relu", out)
    request.infer()
    np.testing.assert_array_equal(out, x + 1)


def test_convertible_inputs_are_converted(executable):
    result = executable.infer({"x": [[1, 2, 3], [4, 5, 6]]})["relu"]
    np.testing.assert_array_equal(result, [[2, 3, 4], [5, 6, 7]])
    strided = np.arange(12, dtype=np.float64).reshape(2, 6)[:, ::2]
    np.testing.assert_array_equal(executable.infer({"x": strided})["relu"], strided + 1)


def test_floating_point_becomes_integers_as_numpy_assigns_it(core, rng):
    """A picture in float64 is an input of U8; what would wrap around is refused."""
    executable = core.load_network(relu_network((4,), ElementType.u8), "ECHO")
    for kind in ("f2", "f4", "f8", "i8", "u4"):
        x = (rng.random(4) * 250 + 3).astype(kind)
        want = np.zeros(4, np.uint8)
        want[:] = x
        np.testing.assert_array_equal(executable.infer(x)["relu"], want + 1)
    for value in (-1, 256, np.nan, np.inf):
        with pytest.raises(BlobError, match="numbers from 0 to 255"):
            executable.infer(np.array([1, 2, 3, value], "f8"))
    with pytest.raises(BlobError, match="numbers from 0 to 255"):
        executable.infer(np.array([1, 2, 3, 256]))
    with pytest.raises(BlobError, match="complex128 to uint8"):
        executable.infer(np.ones(4, complex))


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"y": np.zeros((2, 3), np.float32)}, ["'y'", "inputs: x"]),
        ({"x": np.zeros((3, 2), np.float32)}, ["'x'", "[2,3]", "[3,2]"]),
        ({"x": np.zeros((2, 3), np.complex64)}, ["'x'", "complex64", "float32"]),
        ({"relu": np.zeros((2, 3), np.float32)}, ["'relu' is an output", "inputs: x"]),
    ],
)
def test_bad_inputs_are_refused_and_the_request_stays_usable(executable, x, inputs, words):
    request = executable.requests[0]
    request.infer({"x": x})
    with pytest.raises(BlobError) as caught:
        request.infer(inputs)
    for word in words:
        assert word in str(caught.value)
    np.testing.assert_array_equal(request.infer()["relu"], x + 1)


def test_one_bad_input_changes_none(core, x):
    a, b = (Node(n, Parameter(element_type=ElementType.f32, shape=Shape((2, 3)))) for n in "ab")
    total = Node("total", Relu(), [a.output])
    also = Node("also", Relu(), [b.output])
    results = [Node(f"r{i}", Result(), [n.output]) for i, n in enumerate((total, also))]
    executable = core.load_network(Network("two", [a, b], results), "ECHO")
    request = executable.requests[0]
    request.infer({"a": x, "b": x})
    with pytest.raises(BlobError, match="'b'"):
        request.infer({"a": x + 9, "b": x[:1]})
    np.testing.assert_array_equal(request.infer()["total"], x + 1)


def test_blob_refuses_what_it_cannot_share():
    with pytest.raises(BlobError, match="C-contiguous"):
        Blob(np.zeros((4, 4), np.float32)[:, ::2])
    with pytest.raises(BlobError, match="NumPy array"):
        Blob([1, 2])  # type: ignore[arg-type]


def test_blob_shares_through_dlpack_and_numpy():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    blob = Blob(array)
    np.from_dlpack(blob)  # must not raise
    assert np.shares_memory(np.from_dlpack(blob), array)
    assert np.shares_memory(np.asarray(blob), array)
    if sys.version_info >= (3, 12):
        assert memoryview(blob).shape == (2, 3)


def test_wait_reports_status(executable, x):
    request = executable.requests[0]
    assert request.wait() is StatusCode.INFER_NOT_STARTED
    executable.gate = threading.Event()
    request.start_async({"x": x})
    assert request.wait(0) is StatusCode.RESULT_NOT_READY
    assert request.wait(5) is StatusCode.RESULT_NOT_READY
    executable.gate.set()
    assert request.wait(-1) is StatusCode.OK
    assert request.latency >= 5
    with pytest.raises(RequestError, match="-2"):
        request.wait(-2)


def test_busy_request_refuses_disturbance(executable, x):
    executable.gate = threading.Event()
    request = executable.start_async(0, {"x": x})
    calls = [
        request.infer,
        request.start_async,
        lambda: request.set_blob("x", x),
        lambda: request.get_blob("relu"),
        lambda: request.set_completion_callback(None),
        request.get_perf_counts,
    ]
    for call in calls:
        with pytest.raises(RequestBusyError):
            call()
    executable.gate.set()
    assert request.wait() is StatusCode.OK


def test_a_request_that_closing_waits_for_is_of_a_closed_network(executable, x):
    request = executable.create_infer_request()
    with request._busy:
        closing = threading.Thread(target=executable.close)
        closing.start()
        while not executable._closed:
            time.sleep(0.001)
        with pytest.raises(DeviceError, match="is closed"):
            request.infer({"x": x})
        with pytest.raises(DeviceError, match="is closed"):
            request.start_async({"x": x})
    closing.join()


def test_idle_requests(executable, x):
    executable.gate = threading.Event()
    assert executable.get_idle_request_id() == 0
    for index in range(4):
        executable.start_async(index, {"x": x})
    assert executable.get_idle_request_id() == -1
    assert executable.wait(num_requests=1, timeout_ms=5) is StatusCode.RESULT_NOT_READY
    executable.gate.set()
    assert executable.wait() is StatusCode.OK
    assert executable.get_idle_request_id() == 0
    with pytest.raises(RequestError, match="no request 4"):
        executable.start_async(4)


@pytest.mark.timeout(60)
def test_a_synchronous_run_that_ends_is_noticed_by_who_waits_with_a_limit(executable, x):
    executable.gate = threading.Event()
    request = executable.requests[0]
    with ThreadPoolExecutor(2) as pool:
        run = pool.submit(request.infer, {"x": x})
        wait_until(lambda: request.is_busy)
        waiting = pool.submit(executable.wait, timeout_ms=1e7)
        while not waiting.running():
            pass
        executable.gate.set()
        run.result()
        assert waiting.result() is StatusCode.OK


def test_streams_run_at_the_same_time(executable, x):
    executable.gate = threading.Event()
    for index in range(4):
        executable.start_async(index, {"x": x})
    wait_until(lambda: len(executable.streams_seen) == 2)
    executable.gate.set()
    executable.wait()
    assert {stream for stream, _ in executable.streams_seen} == {0, 1}


def test_callback_gets_status_and_data(executable, x):
    seen: list[tuple[StatusCode, object]] = []
    request = executable.requests[0]
    request.set_completion_callback(lambda status, data: seen.append((status, data)), "data")
    request.infer({"x": x})
    assert not seen, "a synchronous inference does not call back"
    request.start_async()
    assert request.wait() is StatusCode.OK
    assert seen == [(StatusCode.OK, "data")]


def test_callback_may_restart_its_request(executable, x):
    request = executable.requests[0]
    left = [5]

    def again(status: StatusCode, _: object) -> None:
        assert request.wait(0) is StatusCode.OK
        if left[0]:
            left[0] -= 1
            request.start_async()

    request.set_completion_callback(again)
    request.start_async({"x": x})
    wait_until(lambda: left[0] == 0 and not request.is_busy)
    assert request.wait() is StatusCode.OK


def test_a_callback_that_ends_late_leaves_the_next_run_alone(executable, x):
    request = executable.requests[0]
    began, seen, earlier = threading.Event(), [], []

    def first(status: StatusCode, _: object) -> None:
        earlier.append(request._outcome)
        request.set_completion_callback(second)
        request.start_async()
        assert began.wait(20)

    def second(status: StatusCode, _: object) -> None:
        began.set()
        assert earlier[0].done.wait(20)
        seen.append(request.wait(0))

    request.set_completion_callback(first)
    request.start_async({"x": x})
    wait_until(lambda: seen)
    assert seen == [StatusCode.OK]


def test_exception_in_callback_is_reported(executable, x, caplog):
    request = executable.requests[0]

    def broken(status: StatusCode, _: object) -> None:
        raise KeyError("mine")

    request.set_completion_callback(broken)
    with caplog.at_level(logging.ERROR):
        request.start_async({"x": x})
        with pytest.raises(InferenceError, match="callback failed.*mine") as caught:
            request.wait()
    assert isinstance(caught.value.__cause__, KeyError)
    assert "callback" in caplog.text
    request.set_completion_callback(None)
    request.start_async()
    assert request.wait() is StatusCode.OK


@pytest.mark.parametrize("asynchronous", [False, True])
def test_failure_names_network_and_device_and_leaves_the_request_usable(
    executable, x, asynchronous
):
    request = executable.requests[0]
    broken = np.full((2, 3), np.nan, np.float32)
    with pytest.raises(InferenceError, match=r"'tiny' on ECHO.0 failed.*caught fire"):
        if asynchronous:
            request.start_async({"x": broken})
            request.wait()
        else:
            request.infer({"x": broken})
    np.testing.assert_array_equal(request.infer({"x": x})["relu"], x + 1)


def test_cancel_drops_queued_work(core, x):
    executable = core.load_network(relu_network(), "ECHO", num_requests=2)
    executable.gate = threading.Event()
    running, queued = executable.start_async(0, {"x": x}), executable.start_async(1, {"x": x})
    wait_until(lambda: executable.streams_seen)
    queued.cancel()
    with pytest.raises(InferCancelledError):
        queued.wait()
    executable.gate.set()
    assert running.wait() is StatusCode.OK
    np.testing.assert_array_equal(queued.infer({"x": x})["relu"], x + 1)


def test_close_with_work_in_flight(core, x):
    executable = core.load_network(relu_network(), "ECHO", {"ECHO_DELAY": 30}, num_requests=3)
    requests = [executable.start_async(i, {"x": x}) for i in range(3)]
    wait_until(lambda: executable.streams_seen)
    executable.close()
    assert executable.closed
    assert requests[0].wait() is StatusCode.OK
    for request in requests[1:]:
        with pytest.raises(InferCancelledError, match="closed"):
            request.wait()
    for begin in (requests[0].start_async, requests[0].infer):
        with pytest.raises(DeviceError, match="load it again"):
            begin()
    with pytest.raises(DeviceError, match="closed"):
        executable.create_infer_request()


def test_every_answer_is_its_own(core):
    executable = core.load_network(relu_network((1,)), "ECHO", {"ECHO_STREAMS": 4}, num_requests=16)
    errors: list[str] = []

    def client(number: int) -> None:
        mine = executable.requests[number * 2 : number * 2 + 2]
        for round_ in range(100):
            values = [np.float32(number * 1000 + round_ * 2 + i) for i in range(2)]
            for request, value in zip(mine, values):
                request.start_async({"x": np.array([value])})
            for request, value in zip(mine, values):
                request.wait()
                if request.get_blob("relu").array[0] != value + 1:
                    errors.append(f"{number}/{round_}")

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_dropped_networks_leave_no_threads(core, x):
    executable = core.load_network(relu_network(), "ECHO", {"ECHO_STREAMS": 3})
    executable.start_async(0, {"x": x}).wait()
    name = f"{executable.device}:{executable.name}"
    gone = weakref.ref(executable)
    del executable
    gc.collect()
    assert gone() is None
    wait_until(lambda: not any(t.name.startswith(name) for t in threading.enumerate()))


def test_dynamic_shapes_are_checked_and_outputs_follow(core):
    executable = core.load_network(relu_network((-1, 3)), "ECHO")
    request = executable.requests[0]
    with pytest.raises(BlobError, match="dynamic shape.*set_blob"):
        request.get_blob("x")
    for batch in (1, 5, 2):
        data = np.random.default_rng().random((batch, 3), np.float32)
        np.testing.assert_array_equal(request.infer({"x": data})["relu"], data + 1)
    with pytest.raises(BlobError, match=r"\[\?,3\].*\[2,4\]"):
        request.infer({"x": np.zeros((2, 4), np.float32)})


SCRIPT = """
import sys, os, numpy as np
sys.path.insert(0, {folder!r})
from polydevice import Core
import echo_plugin
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Parameter, Result
from polydevice.dtype import ElementType
from polydevice.shape import Shape
core = Core(); core.register_plugin("echo_plugin", "ECHO")
p = Node("x", Parameter(element_type=ElementType.f32, shape=Shape((1,))))
net = Network("n", [p], [Node("o", Result(), [p.output])])
exe = core.load_network(net, "ECHO", {{"ECHO_DELAY": 20}}, num_requests=8)
for i in range(8): exe.start_async(i, {{"x": np.ones(1, np.float32)}})
"""


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(folder=str(Path(__file__).parent)) + body
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


def test_interpreter_exit_with_work_pending_is_clean():
    done = run_script("print('exiting')")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "exiting\n"
    assert not done.stderr


def run_in_fork(child: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a forked child that say `fine`, while the parent's requests run."""
    lines = "".join(f"    {line}\n" for line in child.strip().splitlines())
    return run_script(f"""
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads is what is tested
pid = os.fork()
if pid == 0:
{lines}    os._exit(0 if fine else 1)
_, status = os.waitpid(pid, 0)
exe.wait()
exe.close()
print(os.waitstatus_to_exitcode(status))
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_fork_after_start():
    done = run_in_fork("""
fresh = exe.create_infer_request()
fresh.start_async({"x": np.ones(1, np.float32)})
fresh.wait(5000)
fine = fresh.get_blob("x").array[0] == 1 and fresh.infer()["x"][0] == 2
""")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_closing_in_a_forked_process_does_not_wait_for_threads_of_the_parent():
    """It would wait for 10 s, and say so; threads of the parent's are not in the child."""
    done = run_in_fork("""
fine = any(request.is_busy for request in exe.requests)
exe.close()
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_runner_without_run_cannot_be_made(executable):
    with pytest.raises(TypeError, match="run"):
        Runner(executable)  # type: ignore[abstract]
