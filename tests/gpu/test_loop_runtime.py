"""Loops and branches with what surrounds them: blobs, queues, reports, exports, other shapes."""

from __future__ import annotations

import contextlib
import gc
import time

import numpy as np
import pytest

from polydevice import Core, StatusCode
from polydevice.errors import (
    DeviceError,
    DeviceMemoryError,
    InferCancelledError,
    InferenceError,
    ModelLimitError,
)
from polydevice_gpu import cl
from polydevice_gpu.runtime.bound_steps import BoundSteps
from tests.core import ir_text
from tests.core.ir_text import constant, edges, layer, mapped, net, parameter, result
from tests.gpu.loop_models import body, model, nested_layers, op, right
from tests.gpu.remote import User, desc, held
from tests.gpu.test_remote_queue import Gate

KEEP = {"GPU_ENABLE_LOOP_UNROLLING": "NO"}
GO = {"yes": np.bool_(True)}
WEIGHTS = np.linspace(-0.5, 0.45, 25, dtype="f4").reshape(5, 5)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(19)


def scan(steps: int | str = 4, rows: int | str = 3) -> bytes:
    """h ← tanh((h + x_t)·W), h at once and from step to step; before and behind it a layer."""
    inside = body(
        [
            op("a = Add(h, part)"), op("m = MatMul(a, w)"), op("n = Tanh(m)"),
            op("each = Identity(n)"),  # ONNX Runtime fails where one result is both
        ],
        [("h", "f4", [rows, 5]), ("part", "f4", [rows, 5])],
        [("n", "f4", [rows, 5]), ("each", "f4", [rows, 5])], {"w": WEIGHTS},
    )  # fmt: skip
    return model(
        [
            op("s = Neg(x)"),
            op("y, all = Scan(h0, s)", body=inside, num_scan_inputs=1, scan_input_axes=[1],
               scan_output_axes=[1]),
            op("z = Exp(y)"),
        ],
        [("x", "f4", [rows, steps, 5]), ("h0", "f4", [rows, 5])], ["z", "all"],
    )  # fmt: skip


def branch() -> bytes:
    then = body([op("a = MatMul(x, w)")], [], [("a", "f4", [2, 5])], {"w": WEIGHTS})
    other = body([op("b = Exp(x)")], [], [("b", "f4", [2, 5])])
    return model(
        [
            op("most = ReduceMax(x)", keepdims=0), op("c = Less(most, one)"),
            op("y = If(c)", then_branch=then, else_branch=other),
        ],
        [("x", "f4", [2, 5])], ["y"], {"one": np.float32(1)},
    )  # fmt: skip


def feed(rng, steps: int = 4, rows: int = 3) -> dict[str, np.ndarray]:
    return {
        "x": rng.normal(size=(rows, steps, 5)).astype("f4"),
        "h0": rng.normal(size=(rows, 5)).astype("f4"),
    }


def compare(found, content, given) -> None:
    for got, want in zip(found, right(content, given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def load(core, content, where="GPU", **config):
    return core.load_network(core.read_network(content), where, {**KEEP, **config})


# -- device memory ------------------------------------------------------------------------------


def test_blobs_are_read_and_written_in_place(core, rng) -> None:
    """Several for the same input and output by turns, with nothing copied to or from the host."""
    executable = load(core, scan())
    context = executable.get_context()
    request = executable.create_infer_request()
    feeds = [feed(rng) for _ in range(2)]
    inputs = [{n: context.create_blob(desc(a)) for n, a in given.items()} for given in feeds]
    for given, blobs in zip(feeds, inputs, strict=True):
        for name, array in given.items():
            blobs[name].copy_from(array)
    outputs = [
        {n: context.create_blob(desc(a)) for n, a in zip(("z", "all"), right(scan(), feeds[0]))}
        for _ in range(2)
    ]
    for number in (0, 1, 0, 1, 1):
        for name, blob in {**inputs[number], **outputs[number]}.items():
            request.set_blob(name, blob)
        request.infer()
        copies = request.copies
        assert (copies.uploads, copies.downloads) == (0, 0)
        compare([held(blob) for blob in outputs[number].values()], scan(), feeds[number])


def test_branch_reads_and_writes_blobs(core, rng) -> None:
    executable = load(core, branch())
    context = executable.get_context()
    request = executable.create_infer_request()
    for number in range(4):
        x = np.full((2, 5), number - 0.5, "f4") + rng.random((2, 5)).astype("f4") / 4
        blob, out = context.create_blob(desc(x)), context.create_blob(desc(x))
        blob.copy_from(x)
        request.set_blob("x", blob)
        request.set_blob("y", out)
        request.infer()
        compare([held(out)], branch(), {"x": x})


def test_a_users_queue_is_not_waited_for(opencl, rng) -> None:
    user = User(opencl)
    user.params["OCL_QUEUE"] = user.queue
    given = feed(rng)
    with Core() as core:
        context = core.create_context("GPU", user.params)
        executable = core.load_network(core.read_network(scan()), context, KEEP)
        request = executable.create_infer_request()
        buffers = {}
        for name, port in (executable.inputs | executable.outputs).items():
            buffers[name] = user.buffer(given.get(name, np.zeros(port.sizes, "f4")))
            blob = executable.get_context().create_blob(port.desc, {"MEM_HANDLE": buffers[name]})
            request.set_blob(name, blob)
        for _ in range(3):
            gate = Gate(user)
            request.infer()
            assert request.copies.uploads == request.copies.downloads == 0
            assert request.wait(20) is StatusCode.RESULT_NOT_READY
            gate.open()
            assert request.wait() is StatusCode.OK
            wanted = right(scan(), given)
            found = [user.read(buffers[n], a) for n, a in zip(("z", "all"), wanted, strict=True)]
            compare(found, scan(), given)


# -- what surrounds -------------------------------------------------------------------------------


@pytest.mark.full
def test_every_length_has_a_plan_and_weights_once(core, rng) -> None:
    content = scan("steps", "rows")
    executable = load(core, content)
    requests = [executable.create_infer_request() for _ in range(2)]
    sizes = [(2, 3), (5, 3), (5, 1), (1, 2), (7, 4)]
    for _ in range(2):
        for steps, rows in sizes:
            given = feed(rng, steps, rows)
            for request in requests:
                compare(request.infer(given).values(), content, given)
    kept = [plan for plan in executable.plans.plans() if any(nested(plan))]
    assert len(kept) == 4  # one step is written out
    for _ in range(2):
        before = executable.context.device.memory.bytes_allocated
        for steps in range(8, 40):
            requests[0].infer(feed(rng, steps))
    assert executable.context.device.memory.bytes_allocated <= before + (1 << 20)


def nested(plan):
    return [node for node in plan.graph.nodes if node.nested is not None]


def test_dynamic_batch(core, rng) -> None:
    content = scan()
    executable = load(core, content, DYN_BATCH_ENABLED="YES")
    request = executable.create_infer_request()
    given = feed(rng)
    whole = right(content, given)
    for size in (3, 1, 2, 3):
        request.set_batch(size)
        found = request.infer(given)
        for got, want in zip(found.values(), whole, strict=True):
            np.testing.assert_allclose(got[:size], want[:size], rtol=1e-4, atol=1e-5)


def test_counters_add_iterations_up(core, rng) -> None:
    executable = load(core, scan(6), PERF_COUNT="YES")
    request = executable.create_infer_request()
    given = feed(rng, 6)
    for _ in range(3):
        compare(request.infer(given).values(), scan(6), given)
    rows = request.get_perf_counts()
    (row,) = [row for row in rows.values() if row["exec_type"] == "loop"]
    assert row["status"] == "EXECUTED"
    assert row["layer_type"] == "TensorIterator"
    assert row["real_time"] > 0
    plan = executable.latest_plan()
    (inner,) = plan.inner_plans
    times = plan.times.averages()
    layers = sum(times[node].device_us for node in inner.running)
    (layer,) = nested(plan)
    assert 0 < layers < times[layer].device_us  # the copies of parts come on top
    names = {node.name for node in executable.get_exec_graph_info().nodes()}
    assert layer.name in names


def test_many_timed_iterations_take_no_memory(core) -> None:
    import tracemalloc

    inside = body(
        [op("n = Add(v, one)"), op("on = Identity(go)")],
        [("i", "i8", []), ("go", "b", []), ("v", "f4", [2])], [("on", "b", []), ("n", "f4", [2])],
    )  # fmt: skip
    content = model(
        [op("y = Loop(trips, yes, v)", body=inside)],
        [("trips", "i8", []), ("v", "f4", [2])], ["y"], {"one": np.float32(1), **GO},
    )  # fmt: skip
    executable = load(core, content, PERF_COUNT="YES")
    request = executable.create_infer_request()
    request.infer({"trips": np.int64(10), "v": np.zeros(2, "f4")})
    tracemalloc.start()
    request.infer({"trips": np.int64(2000), "v": np.zeros(2, "f4")})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


def test_explanation_names_loops_and_their_layers(core) -> None:
    text = load(core, scan()).explain()
    assert "runs on the device: a loop of 4 iterations" in text
    (line,) = [line for line in text.splitlines() if line.startswith("in ")]
    assert line.endswith(", 2 launches:")
    assert "MatMul" in text
    assert "the condition chooses" in load(core, branch()).explain()


def test_memory_report_counts_bodies(core) -> None:
    """Both pieces of a carried value, and what the body needs, are part of the outer arena."""
    plan = load(core, scan(4, 64)).latest_plan()
    (inner,) = plan.inner_plans
    carried = 2 * 64 * 5 * 4
    assert plan.arena.size_bytes >= inner.arena.size_bytes + carried
    assert plan.arena.sum_bytes >= inner.arena.sum_bytes + carried


def test_weights_of_bodies_are_uploaded_once(core) -> None:
    executable = load(core, scan(), GPU_THROUGHPUT_STREAMS="2")
    before = executable.context.device.memory.bytes_allocated
    requests = [executable.create_infer_request() for _ in range(3)]
    arena = executable.latest_plan().arena.size_bytes
    assert executable.context.device.memory.bytes_allocated - before == len(requests) * arena


def test_exported_networks_need_no_compiling(core, rng) -> None:
    executable = load(core, scan())
    given = feed(rng)
    with Core() as other:
        imported = other.import_network(executable.export(), "GPU")
        compare(imported.infer(given).values(), scan(), given)
        assert set(nested_layers(imported).values()) == {"device"}
        assert imported.latest_plan().programs_compiled == 0


def test_query_and_hetero(core, rng) -> None:
    network = core.read_network(scan())
    loops = {node.name for node in network.nodes() if node.op.has_bodies}
    assert loops
    assert loops <= set(core.query_network(network, "GPU"))
    given = feed(rng)
    executable = load(core, scan(), "HETERO:GPU,CPU")
    compare(executable.infer(given).values(), scan(), given)


def doubling(cut: str = "", trips: int | None = None) -> tuple[bytes, bytes]:
    """Doubles x, or the rows that a port map's attributes cut out of it, and carries nothing.

    The number of iterations is an input, or fixed.
    """
    row, whole = (1, 3), (4, 3) if cut else (1, 3)
    ports = mapped([f"2 1 {cut}".strip()], ["3 4", '-1 3 purpose="execution_condition"'], [])
    inside = ports + ir_text.body(
        parameter(1, "x", row)
        + layer(2, "twice", "Add", None, [(0, "FP32", row), (1, "FP32", row)], [(2, "FP32", row)])
        + constant(5, "yes", (), 8, 1, "boolean")
        + result(3, "go on", (), "boolean")
        + result(4, "x out", row),
        edges((1, 0, 2, 0), (1, 0, 2, 1), (5, 0, 3, 0), (2, 2, 4, 0)),
    )
    count = constant(0, "trips", (), 0, 8, "i64") if trips else parameter(0, "trips", (), "i64")
    topology = net(
        count
        + constant(1, "yes", (), 8, 1, "boolean")
        + parameter(2, "x", whole)
        + layer(
            3, "loop", "Loop", None, [(0, "I64", ()), (1, "BOOL", ()), (2, "FP32", whole)],
            [(3, "FP32", row)], version="opset5", inside=inside,
        )
        + result(4, "last", row),
        edges((0, 0, 3, 0), (1, 0, 3, 1), (2, 0, 3, 2), (3, 3, 4, 0)),
    )  # fmt: skip
    return topology, np.int64(trips or 0).tobytes() + b"\x01"


def test_a_run_without_a_value_fails_and_the_next_succeeds(core, rng) -> None:
    """The output is no carried value, so that no iteration means none."""
    executable = core.load_network(core.read_network(*doubling()), "GPU", KEEP)
    assert set(nested_layers(executable).values()) == {"device"}
    request = executable.create_infer_request()
    x = rng.normal(size=(1, 3)).astype("f4")
    for _ in range(2):
        with pytest.raises(InferenceError, match="ran no iteration"):
            request.infer({"trips": np.int64(0), "x": x})
        found = request.infer({"trips": np.int64(3), "x": x})
        np.testing.assert_allclose(next(iter(found.values())), 2 * x)


@pytest.mark.parametrize("stride", [1, -1])
def test_nothing_is_read_behind_the_last_part(core, rng, stride) -> None:
    """Four rows, and more iterations asked for than rows."""
    cut = 'axis="0" part_size="1" start="0" end="-1" stride="1"'
    if stride < 0:
        cut = 'axis="0" part_size="1" start="-1" end="0" stride="-1"'
    executable = core.load_network(core.read_network(*doubling(cut)), "GPU", KEEP)
    assert set(nested_layers(executable).values()) == {"device"}
    request = executable.create_infer_request()
    x = rng.normal(size=(4, 3)).astype("f4")
    for _ in range(2):
        with pytest.raises(InferenceError, match="more iterations than the 4"):
            request.infer({"trips": np.int64(5), "x": x})
        found = request.infer({"trips": np.int64(4), "x": x})
        np.testing.assert_allclose(next(iter(found.values()))[0], 2 * x[-1 if stride > 0 else 0])
    fixed = core.load_network(core.read_network(*doubling(cut, 9)), "GPU", KEEP)
    with pytest.raises(InferenceError, match="more iterations than the 4"):
        fixed.infer({"x": x})


def test_cancelled_and_closed_while_it_runs(core) -> None:
    inside = body(
        [op("n = Add(v, one)"), op("on = Identity(go)")],
        [("i", "i8", []), ("go", "b", []), ("v", "f4", [2])], [("on", "b", []), ("n", "f4", [2])],
    )  # fmt: skip
    content = model(
        [op("y = Loop(trips, yes, v)", body=inside)],
        [("trips", "i8", []), ("v", "f4", [2])], ["y"], {"one": np.float32(1), **GO},
    )  # fmt: skip
    executable = load(core, content)
    request = executable.create_infer_request()
    request.start_async({"trips": np.int64(20_000), "v": np.zeros(2, "f4")})
    time.sleep(0.01)
    request.cancel()
    with contextlib.suppress(InferCancelledError):
        request.wait()
    found = request.infer({"trips": np.int64(3), "v": np.zeros(2, "f4")})
    np.testing.assert_array_equal(found["y"], [3, 3])


def test_a_failing_inference_leaves_nothing_in_the_queue(core, rng, monkeypatch) -> None:
    executable = load(core, scan())
    request, given = executable.create_infer_request(), feed(rng)
    finished = []
    finish, run = cl.Queue.finish, BoundSteps.run

    def fails(steps, queue, on_host) -> None:
        run(steps, queue, on_host)
        raise InferenceError("no more")

    def noted(queue) -> None:
        finish(queue)
        finished.append(queue)

    with monkeypatch.context() as patch:
        patch.setattr(BoundSteps, "run", fails)
        patch.setattr(cl.Queue, "finish", noted)
        with pytest.raises(InferenceError, match="no more"):
            request.infer(given)
    assert finished
    compare(request.infer(given).values(), scan(), given)


def endless(size: int = 100) -> bytes:
    """Gives x a million times, unless `go` says no."""
    inside = body(
        [op("same = Identity(x)"), op("on = And(before, go)")],
        [("i", "i8", []), ("before", "b", [])], [("on", "b", []), ("same", "f4", [size])],
    )  # fmt: skip
    return model(
        [op("all = Loop(n, go_first)", body=inside)],
        [("x", "f4", [size]), ("go", "b", []), ("n", "i8", [])], ["all"],
        {"go_first": np.bool_(True)},
    )  # fmt: skip


@pytest.mark.parametrize("where", ["GPU", "CPU", "HETERO:GPU,CPU"])
def test_joined_results_have_a_limit(core, rng, where) -> None:
    content = endless()
    given = {"x": rng.normal(size=100).astype("f4"), "n": np.int64(1 << 40)}
    config = {"MEMORY_LIMIT": "64K"}
    request = core.load_network(core.read_network(content), where, config).create_infer_request()
    with pytest.raises(DeviceMemoryError, match=r"after \d+ iterations.*65536.*MEMORY_LIMIT"):
        request.infer({**given, "go": np.bool_(True)})
    less = {**given, "go": np.bool_(False)}
    compare(request.infer(less).values(), content, less)


def test_unrolling_does_not_make_values_that_kernels_cannot_count(core) -> None:
    inside = body(
        [op("on = Identity(before)"), op("twice = Concat(a, a)", axis=0)],
        [("i", "i8", []), ("before", "b", []), ("a", "f4", None)],
        [("on", "b", []), ("twice", "f4", None)],
    )
    content = model(
        [op("long = Loop(n, yes, x)", body=inside), op("y = ReduceSum(long)")],
        [("x", "f4", [1])], ["y"], {"n": np.int64(40), **GO},
    )  # fmt: skip
    with pytest.raises(ModelLimitError, match="counts at most"):
        core.load_network(core.read_network(content), "GPU")


@pytest.mark.parametrize("content", [scan(), branch()], ids=["loop", "if"])
def test_closing_gives_memory_back_at_once(core, opencl, rng, content) -> None:
    given = feed(rng) if content == scan() else {"x": rng.normal(size=(2, 5)).astype("f4")}
    gc.collect()
    gc.disable()
    try:
        before = opencl.memory.bytes_allocated
        executable = load(core, content)
        executable.infer(given)
        request = executable.create_infer_request()
        found = {name: array.copy() for name, array in request.infer(given).items()}
        assert opencl.memory.bytes_allocated > before
        executable.close()
        assert opencl.memory.bytes_allocated == before
        with pytest.raises(DeviceError, match="is closed"):
            request.infer(given)
        assert opencl.memory.bytes_allocated == before
    finally:
        gc.enable()
    compare(found.values(), content, given)
