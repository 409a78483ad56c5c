"""Launches that become one give the same answers, and leave alone what cannot join."""

from __future__ import annotations

import dataclasses
import threading
import time
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polydevice import Shape, TensorDesc
from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, OptionValueError
from polydevice.ops.activation import Relu
from polydevice.ops.matmul import MatMul
from polydevice.ops.pooling import MaxPool
from polydevice.ops.search import NonZero
from polydevice.ops.softmax import SoftMax
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.one_launch import joined_launches, trial
from polydevice_gpu.one_launch.choose import Rules
from polydevice_gpu.one_launch.stretch import Stretch, gathers
from polydevice_gpu.one_launch.turns import Turn
from tests.gpu.graphs import Sketch, SparingBuilder, loaded, openvino_answers, random_inputs
from tests.gpu.test_random_graphs import Drawing

TOGETHER = CompileSettings(single_launch="YES")


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def branches():
    """Odd sizes; two branches that do not wait for each other, a row kernel and a product."""
    s = Sketch()
    x = s.input("x", 2, 5, 7, 9)
    left = s.add("left", Relu(), s.conv("a", x, 6))
    pool = MaxPool(kernel=(3, 3), strides=(2, 2), pads_begin=(0, 0), pads_end=(0, 0))
    right = s.add("pool", pool, s.conv("b", x, 6, kernel=1))
    rows = s.add("rows", SoftMax(axis=3), left)
    product = s.add("product", MatMul(), rows, s.weights("w", 9, 3))
    return s.network(y=product, z=right)


def small():
    """A product, rows of it, and rows of what it reads, which neither waits for."""
    s = Sketch()
    x = s.input("x", 3, 5)
    product = s.add("product", MatMul(), x, s.weights("v", 5, 7))
    aside = s.add("aside", SoftMax(axis=1), x)
    return s.network(y=s.add("left", SoftMax(axis=1), product), z=aside)


def check(executable, network) -> None:
    """Compare with OpenVINO, twice with each of two inputs."""
    request = executable.create_infer_request()
    for seed in (0, 1):
        inputs = random_inputs(network, seed)
        wanted = openvino_answers(network, inputs)
        for _ in range(2):
            outputs = request.infer(inputs)
            for name, answer in wanted.items():
                np.testing.assert_allclose(outputs[name], answer, 2e-4, 2e-5, err_msg=name)


@pytest.mark.parametrize("make", [small, pytest.param(branches, marks=pytest.mark.full)])
def test_a_network_in_one_launch(opencl, builder, make) -> None:
    network = make()
    executable = loaded(network, opencl, builder, settings=TOGETHER)
    plan = executable.latest_plan()
    (stretch,) = set(plan.joined.values())
    assert len(plan.joined) == len(plan.steps)
    launches = len(stretch.stages)
    assert sum(stretch.meets) < launches - 1, "branches wait for each other"
    assert f"{launches} launches, from" in executable.explain()
    check(executable, network)


@pytest.mark.full
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_random_graphs(opencl, builder, data) -> None:
    network = Drawing(data.draw, quantize=False).network()
    check(loaded(network, opencl, builder, settings=TOGETHER), network)


def test_what_the_host_computes_divides(opencl, builder, core) -> None:
    s = Sketch()
    x = s.input("x", 3, 5)
    first = s.add("first", SoftMax(axis=1), s.add("p", MatMul(), x, s.weights("v", 5, 7)))
    places = s.add("places", NonZero(), first)
    second = s.add("second", SoftMax(axis=0), s.add("q", MatMul(), first, s.weights("w", 7, 7)))
    network = s.network(places=places, y=second)
    executable = loaded(network, opencl, builder, core, settings=TOGETHER)
    text = executable.explain()
    assert "the host computes it: places" in text
    check(executable, network)


def test_outputs_and_inputs_change(core, rng) -> None:
    """Blobs of the user's take the place of the network's own memory, and are exchanged."""
    network = small()
    executable = core.load_network(network, "GPU", {"GPU_SINGLE_LAUNCH": "YES"})
    assert executable.latest_plan().joined
    request, context = executable.create_infer_request(), executable.get_context()
    for seed in (0, 1, 2):
        inputs = random_inputs(network, seed)
        blobs = {}
        for name, port in {**executable.inputs, **executable.outputs}.items():
            desc = TensorDesc(ElementType.f32, Shape(port.sizes))
            blobs[name] = context.create_blob(desc)
            request.set_blob(name, blobs[name])
        blobs["x"].copy_from(inputs["x"])
        request.infer()
        for name, answer in openvino_answers(network, inputs).items():
            got = np.empty_like(answer)
            blobs[name].copy_to(got)
            np.testing.assert_allclose(got, answer, 2e-4, 2e-5, err_msg=name)


def test_groups_that_do_not_run_together_leave_launches_alone(monkeypatch, opencl, builder) -> None:
    """A device that says that its groups meet, and then has room for few of them."""
    s = Sketch()  # of kernels that do not depend on how many units there are
    rows = s.add("rows", SoftMax(axis=1), s.input("x", 3, 5))
    network = s.network(y=s.add("columns", SoftMax(axis=0), rows))
    with monkeypatch.context() as little:
        one = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
        little.setattr(opencl, "capabilities", one)
        kept = loaded(network, opencl, builder, settings=TOGETHER)  # its kernel is built
    assert kept.latest_plan().joined
    many = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=4096)
    monkeypatch.setattr(opencl, "capabilities", many)
    executable = loaded(network, opencl, builder, settings=CompileSettings(single_launch="AUTO"))
    assert "work-groups of" in executable.explain()
    assert "do not run at the same time" in executable.explain()
    assert not executable.latest_plan().joined
    check(executable, network)


def let_wait_in_vain(launches, device) -> None:
    """Let the next launch say that a group waited for others that did not come."""
    if not launches.stretch.waits:
        launches.seen[2] = 1
        return
    launches.since = time.perf_counter() - 1  # groups wait for a second before they say so
    with device.queue() as queue:  # groups leave where they find that
        queue.upload(launches.state, np.array([1 << 31, 0, 1, 0], np.uint32))


def test_a_wait_in_vain_is_repeated_launch_by_launch(opencl, builder, caplog) -> None:
    network = small()
    executable = loaded(network, opencl, builder, settings=TOGETHER)
    (stretch,) = set(executable.latest_plan().joined.values())
    request, other = executable.create_infer_request(), executable.create_infer_request()
    inputs = random_inputs(network)
    wanted = {name: array.copy() for name, array in request.infer(inputs).items()}
    for each in (other, request):
        each.infer(inputs)
        (launches,) = each.runner.last.joined
        let_wait_in_vain(launches, opencl)
        for name, array in each.infer(inputs).items():
            np.testing.assert_array_equal(array, wanted[name])
        assert not launches.seen.any()
    assert caplog.text.count("run one by one from now on") == 1
    assert stretch.failed in executable.explain()
    check(executable, network)


def test_what_took_long_is_asked_whether_it_ended(monkeypatch, opencl, builder) -> None:
    """Where the device has a clock, and a wait in vain takes a second by it."""
    one = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", one)
    network = small()
    executable = loaded(network, opencl, builder, settings=TOGETHER)
    (stretch,) = set(executable.latest_plan().joined.values())
    monkeypatch.setattr(Stretch, "waits", True)
    stretch.tells = False
    request = executable.create_infer_request()
    check(executable, network)
    inputs = random_inputs(network)
    request.infer(inputs)
    (launches,) = request.runner.last.joined
    assert not launches.since
    launches.seen[0] = 7
    launches.since = time.perf_counter() - 1
    launches.check()  # reads that nothing is wrong
    assert not launches.seen.any()
    let_wait_in_vain(launches, opencl)
    wanted = openvino_answers(network, inputs)
    for name, array in request.infer(inputs).items():
        np.testing.assert_allclose(array, wanted[name], 2e-4, 2e-5)
    assert stretch.failed


def test_groups_that_never_run_together(monkeypatch, opencl, builder, caplog) -> None:
    """Far more groups than there is room for, as if a trial had let them pass: a real wait."""
    many = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=2048)
    monkeypatch.setattr(opencl, "capabilities", many)
    monkeypatch.setattr(trial, "meet", lambda *_: True)
    monkeypatch.setattr(joined_launches, "WAIT_NS", 20_000_000)  # many cores look slowly
    network = small()
    executable = loaded(network, opencl, builder, settings=TOGETHER)
    (stretch,) = set(executable.latest_plan().joined.values())
    assert stretch.groups == 2048
    check(executable, network)
    assert "a work-group waited" in stretch.failed
    assert caplog.text.count("run one by one from now on") == 1
    monkeypatch.undo()
    check(loaded(network, opencl, builder, settings=TOGETHER), network)  # the device is usable


def test_every_group_sees_what_all_wrote(core, rng) -> None:
    """Products that mix rows and columns in turn, of inputs that change."""
    s = Sketch()
    y = s.input("x", 72, 136)
    for n in range(4):
        y = s.add(f"columns{n}", MatMul(), y, s.weights(f"v{n}", 136, 136))
        y = s.add(f"rows{n}", MatMul(), s.weights(f"w{n}", 72, 72), y)
    network = s.network(y=y)
    alone, joined = (
        core.load_network(network, "GPU", {"GPU_SINGLE_LAUNCH": mode}) for mode in ("NO", "YES")
    )
    (stretch,) = set(joined.latest_plan().joined.values())
    assert stretch.meets == [False] + [True] * (len(stretch.stages) - 1)
    for _ in range(20):
        given = {"x": rng.standard_normal((72, 136), np.float32)}
        np.testing.assert_array_equal(joined.infer(given)["y"], alone.infer(given)["y"])
    assert not stretch.failed


def test_stages_side_by_side_keep_their_local_memory(core, rng) -> None:
    """Work-groups of several sizes, of which none waits for another, time and again."""
    s = Sketch()
    x, sums = s.input("x", 72, 136), []
    for n in range(3):
        sums.append(s.add(f"rows{n}", SoftMax(axis=n % 2), x))
        sums.append(s.add(f"product{n}", MatMul(), x, s.weights(f"w{n}", 136, 24 << n)))
    network = s.network(**{f"y{n}": value for n, value in enumerate(sums)})
    alone, joined = (
        core.load_network(network, "GPU", {"GPU_SINGLE_LAUNCH": mode}) for mode in ("NO", "YES")
    )
    (stretch,) = set(joined.latest_plan().joined.values())
    assert not any(stretch.meets)
    for _ in range(20):
        given = {"x": rng.standard_normal((72, 136), np.float32)}
        wanted = alone.infer(given)
        for name, array in joined.infer(given).items():
            np.testing.assert_array_equal(array, wanted[name], err_msg=name)
    assert not stretch.failed


def test_a_warp_waits_where_others_use_local_memory_otherwise() -> None:
    """Of groups with 128 and 64 work-items: not where all meet, nor for what uses none."""
    wide, narrow, plain, alike = (
        mock.Mock(items=items, has_barriers=waits)
        for items, waits in ((128, True), (64, True), (32, False), (128, False))
    )
    shapes = [mock.Mock(slot_bytes=size) for size in (512, 512, 0, 512)]
    drafted = mock.Mock(functions=[wide, narrow, plain, alike], shapes=shapes)
    for numbers, meets, wanted in (
        ([0, 1, 0], [False, False, False], [False, True, True]),
        ([0, 1, 0], [False, True, False], [False, False, True]),
        ([0, 2, 1], [False, False, False], [False, False, True]),
        ([0, 2, 0], [False, False, False], [False, False, False]),
        ([0, 3, 2], [False, False, False], [False, False, False]),
    ):
        drafted.numbers = numbers
        assert gathers(drafted, meets) == wanted


def test_a_wait_in_vain_that_cannot_be_repeated(core) -> None:
    """An output in the device's memory of an input: that is overwritten when the wait ends."""
    network = small()
    executable = core.load_network(network, "GPU", {"GPU_SINGLE_LAUNCH": "YES"})
    request, context = executable.create_infer_request(), executable.get_context()
    blob = context.create_blob(TensorDesc(ElementType.f32, Shape((3, 5))))
    blob.copy_from(random_inputs(network)["x"])
    for name in ("x", "z"):
        request.set_blob(name, blob)
    request.infer()
    let_wait_in_vain(request.runner.last.joined[0], context.device)
    with pytest.raises(InferenceError, match="infer again with the inputs"):
        request.infer()
    request.infer()


def test_threads_share_a_queue_while_one_waits_in_vain(opencl, builder) -> None:
    """Each enqueues while another waits; what is void is repeated behind what others enqueued."""
    network = small()
    executable = loaded(network, opencl, builder, settings=TOGETHER)
    requests = [executable.create_infer_request() for _ in range(3)]
    given = [random_inputs(network, seed) for seed in range(3)]
    wanted = [openvino_answers(network, inputs) for inputs in given]
    (stretch,) = set(executable.latest_plan().joined.values())
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(40):
            if turn == 20 and number == 1:
                let_wait_in_vain(requests[number].runner.last.joined[0], opencl)
            outputs = requests[number].infer(given[number])
            for name, answer in wanted[number].items():
                if not np.allclose(outputs[name], answer, 2e-4, 2e-5):
                    wrong.append(f"{name} of thread {number}, inference {turn}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert stretch.failed


def test_what_the_host_would_read_is_seen_first(opencl, builder, core) -> None:
    s = Sketch()
    x = s.input("x", 3, 5)
    first = s.add("first", SoftMax(axis=1), s.add("p", MatMul(), x, s.weights("v", 5, 7)))
    network = s.network(places=s.add("places", NonZero(), first))
    executable = loaded(network, opencl, builder, core, settings=TOGETHER)
    request = executable.create_infer_request()
    inputs = random_inputs(network)
    wanted = request.infer(inputs)["places"].copy()
    let_wait_in_vain(request.runner.last.joined[0], opencl)
    np.testing.assert_array_equal(request.infer(inputs)["places"], wanted)


class _Queue:
    def __init__(self, pointer: int, told: list[str]) -> None:
        self.pointer, self.told = pointer, told

    def mark(self):
        self.told.append(f"marked {self.pointer}")
        return self

    def wait(self) -> None:
        self.told.append(f"waited for {self.pointer}")


def test_queues_take_turns() -> None:
    turn, told = Turn(), []
    first, second = _Queue(1, told), _Queue(2, told)
    for queue in (first, first, second, first):
        turn.enqueue(queue, lambda on: told.append(f"enqueued on {on.pointer}"))
    assert told == [
        *("enqueued on 1", "enqueued on 1", "marked 1", "waited for 1"),
        *("enqueued on 2", "marked 2", "waited for 2", "enqueued on 1"),
    ]


def test_no_two_threads_enqueue_at_once() -> None:
    turn, inside, seen = Turn(), [], []

    def work(pointer: int) -> None:
        def enqueue(queue) -> None:
            inside.append(queue.pointer)
            seen.append(len(inside))
            inside.pop()

        for _ in range(200):
            turn.enqueue(_Queue(pointer, []), enqueue)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {1}


def test_the_key(monkeypatch, core) -> None:
    network = small()
    device = core.get_default_context("GPU").device
    apart = dataclasses.replace(
        device.capabilities, groups_meet=False, local_memory_is_dedicated=True
    )
    monkeypatch.setattr(device, "capabilities", apart)
    reason = Rules.of("AUTO", device).refuses_all()
    assert reason
    assert reason in core.load_network(network, "GPU").explain()
    alone = core.load_network(network, "GPU", {"GPU_SINGLE_LAUNCH": "NO"})
    assert "one launch" not in alone.explain()
    with pytest.raises(OptionValueError, match="AUTO"):
        core.load_network(network, "GPU", {"GPU_SINGLE_LAUNCH": "MAYBE"})


def test_counters_tell_every_layer(core) -> None:
    network = small()
    config = {"GPU_SINGLE_LAUNCH": "YES", "PERF_COUNT": True}
    executable = core.load_network(network, "GPU", config)
    request = executable.create_infer_request()
    request.infer(random_inputs(network))
    counts = request.get_perf_counts()
    assert counts["left"]["status"] == counts["product"]["status"] == "EXECUTED"
