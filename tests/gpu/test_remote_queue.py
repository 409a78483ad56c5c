"""Networks on a queue of the user's: nothing waits, and nothing leaves the device."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyopencl as ocl
import pytest

from polydevice import Copies, StatusCode
from polydevice.errors import (
    DeviceError,
    InferenceError,
    OptionValueError,
    RequestBusyError,
)
from polydevice.runtime.executor import Executor
from polydevice_gpu.cl import library
from tests.cpu.models import answer, build
from tests.gpu.remote import User, affine, convolution, desc, exact

rng = np.random.default_rng(61)
SHAPE = (2, 3, 5, 7)


def normal(*shape: int) -> np.ndarray:
    """Quarters, so that sums and products are exact in any order, fused or not."""
    return (rng.integers(-8, 9, shape) / 4).astype("f4")


PROPERTIES = ocl.command_queue_properties


@pytest.fixture
def user(opencl) -> User:
    user = User(opencl)
    user.params["OCL_QUEUE"] = user.queue
    return user


def bound(executable, user: User, model_shape=SHAPE):
    """A request whose inputs and outputs are buffers of the user's; and those, zeroed."""
    context = executable.get_context()
    request = executable.create_infer_request()
    buffers = {}
    for name, port in (executable.inputs | executable.outputs).items():
        zeros = np.zeros(port.sizes, port.dtype)
        buffers[name] = user.buffer(zeros)
        request.set_blob(name, context.create_blob(port.desc, {"MEM_HANDLE": buffers[name]}))
    return request, buffers


class Gate:
    """Holds a queue up until it is opened."""

    def __init__(self, user: User) -> None:
        self.event = ocl.UserEvent(user.context)
        ocl.enqueue_barrier(user.queue, wait_for=[self.event])
        user.queue.flush()

    def open(self) -> None:
        self.event.set_status(ocl.command_execution_status.COMPLETE)


@pytest.mark.parametrize("how", ["infer", "start_async"])
def test_user_kernel_inference_user_kernel(core, user, how) -> None:
    """All is enqueued while the queue stands still, so nothing can have waited for it."""
    model = convolution(*SHAPE)
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(model), context)
    request, buffers = bound(executable, user)
    twice = user.kernel()
    first, last = user.buffer(buffers["x"].size), user.buffer(buffers["r"].size)
    result = np.empty(executable.outputs["r"].sizes, "f4")
    for turn in range(3):
        x = exact(rng, *SHAPE)
        gate = Gate(user)
        # pyopencl waits when the event of a copy from the host is dropped.
        uploaded = ocl.enqueue_copy(user.queue, first, x, is_blocking=False)
        twice(user.queue, (x.size,), None, first, buffers["x"])
        if how == "infer":
            assert request.infer() == {}
            assert request.wait(0) is StatusCode.RESULT_NOT_READY
        else:
            request.start_async()
        assert request.copies == Copies(0, 0, 0)
        twice(user.queue, (result.size,), None, buffers["r"], last)
        copied = ocl.enqueue_copy(user.queue, result, last, is_blocking=False)
        assert request.wait(20) is StatusCode.RESULT_NOT_READY
        gate.open()
        assert request.wait() is StatusCode.OK
        copied.wait()
        uploaded.wait()
        right = answer(model, {"x": 2 * x})[0]
        np.testing.assert_allclose(result, 2 * right, rtol=1e-4, atol=1e-4, err_msg=str(turn))


def test_no_call_waits(core, user, monkeypatch) -> None:
    """Not one call of OpenCL that blocks, however many inferences."""
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(convolution(*SHAPE)), context)
    request, _ = bound(executable, user)
    request.infer()
    request.wait()
    opened = library.library()
    called = []
    for name in ("clFinish", "clWaitForEvents"):
        monkeypatch.setattr(opened, name, lambda *a, name=name: called.append(name) or 0)
    for _ in range(20):
        request.infer()
    assert not called
    monkeypatch.undo()
    request.wait()


def test_inferences_in_flight_use_the_blobs_set_when_they_were_enqueued(core, user) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    request = executable.create_infer_request()
    gate = Gate(user)
    results = []
    for number in range(6):
        x = np.full(SHAPE, number, "f4")
        source, result = user.buffer(x), context.create_blob(desc(x))
        request.set_blob("x", context.create_blob(desc(x), {"MEM_HANDLE": source}))
        request.set_blob("y", result)
        request.infer()
        source.release()  # the user's own references are of no interest
        results.append(result)
    gate.open()
    for number, result in enumerate(results):
        with result.map("r") as array:
            assert (array == number * 3 + 1).all()


def test_networks_on_one_queue_pass_blobs_without_waiting(core, user) -> None:
    context = core.create_context("GPU", user.params)
    first = core.load_network(core.read_network(convolution(*SHAPE)), context)
    second = core.load_network(core.read_network(affine(2, 4, 5, 7)), context)
    one, buffers = bound(first, user)
    two, ends = bound(second, user)
    two.set_blob("x", one.get_blob("r"))
    x = exact(rng, *SHAPE)
    gate = Gate(user)
    uploaded = ocl.enqueue_copy(user.queue, buffers["x"], x, is_blocking=False)
    one.infer()
    two.infer()
    gate.open()
    uploaded.wait()
    right = answer(convolution(*SHAPE), {"x": x})[0] * 3 + 1
    np.testing.assert_allclose(user.read(ends["y"], right), right, rtol=1e-4, atol=1e-4)


def test_host_memory_is_waited_for(core, user) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    request, _ = bound(executable, user)
    x = exact(rng, *SHAPE)
    request.set_blob("y", np.zeros(SHAPE, "f4"))
    y = request.infer({"x": x})["y"]
    np.testing.assert_array_equal(y, x * 3 + 1)
    assert request.wait(0) is StatusCode.OK
    request.start_async({"x": 2 * x})
    request.wait()
    np.testing.assert_array_equal(request.get_blob("y").array, 2 * x * 3 + 1)


def test_start_async_with_host_memory_keeps_the_callers_order(core, user) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    request, buffers = bound(executable, user)
    found = np.zeros(SHAPE, "f4")
    request.set_blob("y", found)
    before = exact(rng, *SHAPE)
    gate = Gate(user)
    uploaded = ocl.enqueue_copy(user.queue, buffers["x"], before, is_blocking=False)
    request.start_async()
    ocl.enqueue_fill_buffer(user.queue, buffers["x"], np.float32(0), 0, buffers["x"].size)
    with pytest.raises(RequestBusyError):
        request.infer()
    gate.open()
    assert request.wait() is StatusCode.OK
    uploaded.wait()
    np.testing.assert_array_equal(found, before * 3 + 1)


def test_host_layers_run_on_a_users_queue_too(core, user) -> None:
    nodes = [("Relu", ["x"], ["r"], {}), ("NonZero", ["r"], ["found"], {})]
    context = core.create_context("GPU", user.params)
    network = core.read_network(build(nodes, {"x": [4]}, ["r", "found"], {}))
    executable = core.load_network(network, context)
    request = executable.create_infer_request()
    blob = context.create_blob(executable.inputs["x"].desc)
    blob.copy_from(np.array([0, 1, -1, 2], "f4"))
    request.set_blob("x", blob)
    np.testing.assert_array_equal(request.infer()["found"], [[1, 3]])
    request.start_async()
    request.wait()
    np.testing.assert_array_equal(request.get_blob("found").array, [[1, 3]])


def test_callback_comes_when_the_device_is_done(core, user) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    request, _ = bound(executable, user)
    called = threading.Event()
    request.set_completion_callback(lambda status, _: called.set())
    gate = Gate(user)
    request.start_async()
    request.cancel()  # too late: it is on the device's queue
    assert not called.wait(0.05)
    gate.open()
    assert called.wait(10)
    assert request.wait() is StatusCode.OK


def test_wait_with_a_limit_ends_after_it(core, user) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    request, _ = bound(executable, user)
    gate = Gate(user)
    request.infer()
    start = time.monotonic()
    assert request.wait(50) is StatusCode.RESULT_NOT_READY
    assert time.monotonic() - start >= 0.05
    gate.open()
    assert request.wait(10_000) is StatusCode.OK


def test_infer_queue_on_a_users_queue(core, user) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    queue = executable.infer_queue(2)
    results = []
    queue.set_callback(lambda request, x: results.append((x, request.get_blob("y").array.copy())))
    for _ in range(8):
        x = exact(rng, *SHAPE)
        queue.start_async({"x": x}, x)
    queue.wait_all()
    assert len(results) == 8
    for x, y in results:
        np.testing.assert_array_equal(y, x * 3 + 1)


def test_queues_that_are_refused(core, user, opencl) -> None:
    def refused(match: str, queue: object) -> None:
        with pytest.raises(OptionValueError, match=match):
            core.create_context("GPU", {**user.params, "OCL_QUEUE": queue})

    refused("another OpenCL context", User(opencl).queue)
    refused("pyopencl.CommandQueue or", user.context)
    if opencl.facts.out_of_order:
        mixed = ocl.CommandQueue(user.context, properties=PROPERTIES.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        refused("is out of order", mixed)
        refused("is out of order", mixed.int_ptr)


def test_options_that_a_users_queue_decides(core, user, opencl) -> None:
    context = core.create_context("GPU", user.params)
    network = core.read_network(affine(*SHAPE))
    with pytest.raises(OptionValueError, match=r"PERF_COUNT=YES needs times.*PROFILING_ENABLE"):
        core.load_network(network, context, {"PERF_COUNT": "YES"})
    for key in ("GPU_PLUGIN_PRIORITY", "GPU_PLUGIN_THROTTLE"):
        with pytest.raises(OptionValueError, match=f"{key}=1.*user's own queue"):
            core.load_network(network, context, {key: "1"})
    executable = core.load_network(network, context, {"GPU_THROUGHPUT_STREAMS": "4"})
    assert executable.streams == 1
    timed = User(opencl, properties=PROPERTIES.PROFILING_ENABLE)
    timed.params["OCL_QUEUE"] = timed.queue
    context = core.create_context("GPU", timed.params)
    executable = core.load_network(network, context, {"PERF_COUNT": "YES"})
    request, _ = bound(executable, timed)
    request.infer()
    assert any(count["real_time"] > 0 for count in request.get_perf_counts().values())
    plain = core.load_network(network, context)
    request, _ = bound(plain, timed)
    request.infer()
    with pytest.raises(InferenceError, match="counters are off"):
        request.get_perf_counts()


def test_an_inference_that_was_begun_in_vain_is_not_taken_for_the_next(
    core, user, monkeypatch
) -> None:
    """Its commands are on the queue when the network cannot finish it any more."""
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(2, 3)), context)
    request = executable.create_infer_request()
    request.infer({"x": normal(2, 3)})

    def refuses(*_: object) -> None:
        raise DeviceError("no thread is left")

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "submit", refuses)
        with pytest.raises(DeviceError, match="no thread"):
            request.start_async({"x": normal(2, 3)})
    x = normal(2, 3)
    np.testing.assert_array_equal(request.infer({"x": x})["y"], 3 * x + 1)
