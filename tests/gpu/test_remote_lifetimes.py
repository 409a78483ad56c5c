"""Remote blobs: whatever goes first, nothing is used after it is freed, and nothing stays."""

from __future__ import annotations

import gc
import itertools
import random
import resource

import numpy as np
import pyopencl as ocl
import pytest

from polydevice import Core, ElementType, Shape, StatusCode, TensorDesc, make_shared_blob
from polydevice.errors import BlobError, PolydeviceError
from tests.gpu.remote import User, affine
from tests.tiers import firsts

X = np.arange(6, dtype="f4").reshape(2, 3)
RIGHT = X * 3 + 1
DESC = TensorDesc(ElementType.f32, Shape([2, 3]))


def network(core: Core):
    return core.read_network(affine(2, 3))


def world(opencl, *, queue: bool) -> dict[str, object]:
    """Everything of one inference, each thing by its name."""
    user = User(opencl)
    if queue:
        user.params["OCL_QUEUE"] = user.queue
    core = Core()
    context = core.create_context("GPU", user.params)
    executable = core.load_network(network(core), context)
    request = executable.create_infer_request()
    buffer = user.buffer(X)
    source = make_shared_blob(DESC, context, buffer)
    result = context.create_blob(DESC)
    request.set_blob("x", source)
    request.set_blob("y", result)
    request.infer()
    return {
        "user": user, "core": core, "context": context, "executable": executable,
        "request": request, "buffer": buffer, "source": source, "result": result,
    }  # fmt: skip


def use(things: dict[str, object]) -> None:
    """Do what can be done with what is left."""
    if "request" in things and "executable" in things:
        things["request"].infer()
        things["request"].wait()
    for name, right in (("source", X), ("result", RIGHT)):
        if name in things:
            with things[name].map("r") as array:
                np.testing.assert_array_equal(array, right)
    if "context" in things:
        blob = things["context"].create_blob(DESC)
        blob.copy_from(X)
        with blob.map() as array:
            np.testing.assert_array_equal(array, X)


@pytest.fixture(autouse=True, scope="module")
def _from_here_on() -> None:
    """Let the many collections of these tests look at what they make, not at what others left."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("queue", [False, True], ids=["own queues", "user's queue"])
@pytest.mark.parametrize("seed", firsts(2, range(12)))
def test_everything_may_go_in_any_order(opencl, queue, seed) -> None:
    things = world(opencl, queue=queue)
    order = list(things)
    random.Random(seed).shuffle(order)
    for name in order:
        thing = things.pop(name, None)
        if thing is None:
            continue
        if name == "core" and seed % 2:
            thing.close()
            things.pop("executable", None)  # closed with it
        if name in ("buffer", "source", "result") and seed % 3 == 0:
            # Released by hand; the wrapped buffer lives on in its blob.
            thing.release()
            if name != "buffer":
                things.pop("request", None)
        del thing
        gc.collect()
        use(things)


def test_closed_networks_leave_their_blobs(opencl) -> None:
    with Core() as core:
        executable = core.load_network(network(core), "GPU")
        request = executable.create_infer_request()
        blob = executable.get_context().create_blob(DESC)
        request.set_blob("y", blob)
        request.infer({"x": X})
    with blob.map("r") as array:
        np.testing.assert_array_equal(array, RIGHT)
    with pytest.raises(PolydeviceError):
        core.get_default_context("GPU")


def test_memory_comes_back(opencl) -> None:
    gc.collect()
    before = opencl.memory.bytes_allocated
    with Core() as core:
        executable = core.load_network(network(core), "GPU")
        request = executable.create_infer_request()
        loaded = opencl.memory.bytes_allocated
        for _ in range(3):
            blob = executable.get_context().create_blob(TensorDesc(ElementType.f32, Shape([2, 3])))
            request.set_blob("x", blob)
            request.infer()
        assert opencl.memory.bytes_allocated == loaded + 24  # the one that is bound
        blob.release()
        request.set_blob("x", X)
        request.infer()
        assert opencl.memory.bytes_allocated == loaded
        del executable, request, blob
    del core
    gc.collect()
    assert opencl.memory.bytes_allocated == before


@pytest.mark.parametrize("queue", [False, True], ids=["own queues", "user's queue"])
def test_no_growth_over_100000_set_blobs(opencl, queue) -> None:
    things = world(opencl, queue=queue)
    context, request, user = (things[name] for name in ("context", "request", "user"))
    blobs = [context.create_blob(DESC) for _ in range(3)]
    buffers = [user.buffer(X) for _ in range(3)]

    def round_(turns: int) -> None:
        for turn in range(turns):
            request.set_blob("y", blobs[turn % 3])
            if turn % 10 == 0:
                request.set_blob("x", make_shared_blob(DESC, context, buffers[turn % 3]))
            if turn % 500 == 0:
                request.infer()
        request.wait()
        gc.collect()

    round_(5_000)
    objects, memory = len(gc.get_objects()), context.device.memory.bytes_allocated
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    round_(100_000)
    assert len(gc.get_objects()) - objects < 100
    assert context.device.memory.bytes_allocated == memory
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 8 << 10  # KiB
    assert len(context._blobs) <= 4
    request.infer()  # the next one lets go of what those before it used, once they have ended
    assert len(context._running) <= 2
    np.testing.assert_array_equal(user.read(buffers[0], X), X)


def test_memory_lives_until_the_queue_got_there(opencl) -> None:
    """Everything is dropped while the queue stands still before the inference."""
    things = world(opencl, queue=True)
    user, request, context = (things.pop(name) for name in ("user", "request", "context"))
    svm = ocl.SVMAllocation(user.context, X.nbytes, 0, ocl.svm_mem_flags.READ_WRITE)
    ocl.enqueue_copy(user.queue, svm, X)
    ends = user.buffer(X.nbytes)
    gate = ocl.UserEvent(user.context)
    ocl.enqueue_barrier(user.queue, wait_for=[gate])
    request.set_blob("x", make_shared_blob(DESC, context, svm))
    request.set_blob("y", make_shared_blob(DESC, context, ends))
    request.infer()
    request.set_blob("x", context.create_blob(DESC))
    del svm, request
    things.clear()
    gc.collect()
    assert len(context._running) >= 1
    gate.set_status(ocl.command_execution_status.COMPLETE)
    del context
    gc.collect()
    np.testing.assert_array_equal(user.read(ends, X), RIGHT)


def test_released_blobs_are_refused_whenever_they_went(opencl) -> None:
    things = world(opencl, queue=True)
    request = things["request"]
    for name, port in (("source", "x"), ("result", "y")):
        blob = things["context"].create_blob(DESC)
        things[name].release()
        things[name].release()  # again, for nothing
        with pytest.raises(BlobError, match="is released"):
            request.infer()
        with pytest.raises(BlobError, match="is released"):
            request.start_async()
        assert not request.is_busy
        request.set_blob(port, blob)
        request.infer()
        assert request.wait() is StatusCode.OK


def test_contexts_without_number(opencl) -> None:
    """A context for every frame is no good idea, but nothing must pile up."""
    user = User(opencl)
    with Core() as core:
        for _ in itertools.repeat(None, 3):
            context = core.create_context("GPU", user.params)
            executable = core.load_network(network(core), context)
            np.testing.assert_array_equal(executable.infer({"x": X})["y"], RIGHT)
        del context, executable
        gc.collect()
        alive = [o for o in gc.get_objects() if type(o).__name__ == "GpuContext"]
        assert not [c for c in alive if c.device.context.int_ptr == user.context.int_ptr]
