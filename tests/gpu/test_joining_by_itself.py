"""With AUTO launches become one by themselves: behind inferences, and where that is faster."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from unittest import mock

import numpy as np
import pytest

from polydevice.errors import KernelBuildError
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice_gpu.cl import ProgramBuilder
from polydevice_gpu.compiler.new_shapes import specialiser
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.one_launch import choose
from polydevice_gpu.one_launch.stretch import Stretch
from polydevice_gpu.one_launch.turns import turn_of
from polydevice_gpu.runtime.plan import LATER
from polydevice_gpu.runtime.trials import joining_trial
from tests.gpu.graphs import Sketch, SparingBuilder, loaded, random_inputs
from tests.gpu.test_one_launch import TOGETHER, check, small

RUNS = 8
"""Inferences after which launches are joined here: 256 take a processor seconds."""


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch) -> None:
    monkeypatch.setattr(specialiser, "RUNS", RUNS)


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ((1e-6, 2e-6, 3e-6, 4e-6), ""),
        ((2e-6, 2e-6, 4e-6, 4e-6), "took 2 us one by one, and 2 as one"),
        ((30e-6, 37e-6, 42e-6, 41e-6), ""),
        ((4e-6, 3e-6, 1e-6, 2e-6), "took 3 us one by one, and 4 as one"),
        ((1e-6, 2e-6, 4e-6, 3e-6), "took 3 us one by one, and 4 as one with inputs and outputs on"),
    ],
)
def test_auto_keeps_what_is_faster(monkeypatch, opencl, builder, found, why) -> None:
    """In the mean of inputs and outputs on the device and of copied ones, and in neither by 5 %."""
    real_times, faster = joining_trial.times, not why
    meets = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", meets)

    def times(ways, queue, device) -> tuple[float, ...]:
        for way, copies in zip(ways, (0, 0, 3, 3), strict=True):  # one input, two outputs
            before = queue.copies.uploads + queue.copies.downloads
            way(queue)
            queue.finish()
            assert queue.copies.uploads + queue.copies.downloads == before + copies
        assert min(real_times(ways, queue, device)) > 0
        return found

    monkeypatch.setattr(joining_trial, "times", times)
    network = small()
    auto = CompileSettings(single_launch="AUTO")
    executable = loaded(network, opencl, SparingBuilder(opencl), settings=auto)
    request, inputs = executable.create_infer_request(), random_inputs(network)
    assert f"no launches run as one, as {LATER}" in executable.explain()
    wanted = {name: array.copy() for name, array in request.infer(inputs).items()}
    for _ in range(RUNS):
        request.infer(inputs)
    executable._specialiser.wait(time.monotonic() + 120)
    assert bool(executable.latest_plan().joined) is faster
    assert why in executable.explain()
    assert executable.latest_plan().is_final
    for name, array in request.infer(inputs).items():
        np.testing.assert_array_equal(array, wanted[name])
    assert bool(request.runner.last.joined) is faster
    check(executable, network)


def test_launches_that_move_much_are_not_joined(monkeypatch, opencl, builder) -> None:
    meets = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", meets)
    monkeypatch.setattr(choose, "MEAN_BYTES", 16)  # 4 elements of 4 bytes
    executable = loaded(small(), opencl, builder, settings=CompileSettings(single_launch="AUTO"))
    assert "move 0.0 MiB of values each on average" in executable.explain()
    assert executable.latest_plan().is_final  # nothing is built behind
    assert loaded(small(), opencl, builder, settings=TOGETHER).latest_plan().joined


def test_one_core_does_alone_what_is_little(monkeypatch, opencl, builder) -> None:
    """On processors, whose work-groups cannot wait for each other; answers are the same."""
    alone = dataclasses.replace(
        opencl.capabilities, groups_meet=False, local_memory_is_dedicated=False
    )
    monkeypatch.setattr(opencl, "capabilities", alone)
    monkeypatch.setattr(joining_trial, "times", lambda *_: (1e-6, 2e-6) * 2)
    s = Sketch()
    y = s.input("x", 3, 19)
    for number in range(choose.FEWEST_ALONE):
        y = s.add(f"y{number}", MatMul(), y, s.weights(f"w{number}", 19, 19))
    network = s.network(y=y)
    auto = CompileSettings(single_launch="AUTO")
    executable = loaded(network, opencl, SparingBuilder(opencl), settings=auto)
    request, inputs = executable.create_infer_request(), random_inputs(network)
    wanted = request.infer(inputs)["y"].copy()
    for _ in range(RUNS + 2):
        request.infer(inputs)
    executable._specialiser.wait(time.monotonic() + 120)
    (stretch,) = set(executable.latest_plan().joined.values())
    assert stretch.groups == 1
    for _ in range(2):
        np.testing.assert_array_equal(request.infer(inputs)["y"], wanted)
    check(executable, network)
    monkeypatch.setattr(choose, "LARGEST_ALONE", 1 << 10)  # weights are 1444 bytes
    executable = loaded(network, opencl, builder, settings=auto)
    assert "which one core should not do alone" in executable.explain()
    assert executable.latest_plan().is_final


def test_one_core_goes_on_with_what_one_work_item_did(monkeypatch, opencl, builder) -> None:
    """However much that moves: other cores would do nothing meanwhile in any case."""
    alone = dataclasses.replace(
        opencl.capabilities, groups_meet=False, local_memory_is_dedicated=False
    )
    monkeypatch.setattr(opencl, "capabilities", alone)
    monkeypatch.setattr(choose, "LARGEST_ALONE", 1 << 10)
    s = Sketch()
    x = s.input("x", 2, 311)  # 2488 bytes
    y = s.add("row", Reshape(), s.add("range", DynamicRange(), x), s.const("one", [1, 1]))
    for number, columns in enumerate((3, 5, 4)):
        w = s.weights(f"w{number}", y.shape.static[1], columns)
        y = s.add(f"y{number}", MatMul(), y, w)
    network, auto = s.network(y=y), CompileSettings(single_launch="AUTO")
    executable = loaded(network, opencl, builder, settings=auto)
    assert LATER in executable.explain()
    assert "should not do alone" not in executable.explain()
    assert "no neighbour joins it" not in executable.explain()


@pytest.mark.parametrize("when", ["when it is loaded", "behind", "refused behind", "nothing joins"])
def test_what_is_slower_as_one_is_the_plan_of_no(
    monkeypatch, opencl, lockstep, tmp_path, when
) -> None:
    """Not the plan that would be one launch, in which the first product takes the second's tiles.

    Where the kernel of the one is there when the network is loaded, and where it is built behind.
    """
    is_intel = "Intel" in opencl.facts.platform_name
    if is_intel and when != "nothing joins":
        pytest.skip("Intel's compiler crashes on functions with barriers")
    meets = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", meets)
    monkeypatch.setattr(choose, "BARRIERS_ANYWHERE", True)
    monkeypatch.setattr(choose, "FEWEST", 9 if when == "nothing joins" else 2)
    monkeypatch.setattr(joining_trial, "times", lambda *_: (2e-6, 2e-6) * 2)
    s = Sketch()
    first = s.add("first", MatMul(), s.input("x", 500, 32), s.weights("v", 32, 128))
    network = s.network(y=s.add("second", MatMul(), first, s.weights("w", 128, 64)))

    def load(mode: str):
        settings = CompileSettings(single_launch=mode)
        return loaded(network, opencl, SparingBuilder(opencl, tmp_path), settings=settings)

    def launches(executable) -> list[tuple[str, object]]:
        steps = executable.latest_plan().launching
        return [(each.text, each.global_size) for step in steps for each in step.launches]

    one = load("YES")
    assert len({text for text, _ in launches(one)}) == 1
    assert bool(one.latest_plan().joined) is (when != "nothing joins")
    if "behind" in when:
        monkeypatch.setattr(ProgramBuilder, "has", lambda *_: False)
    if "refused" in when:
        refuse = mock.Mock(side_effect=KernelBuildError("refused"))
        monkeypatch.setattr(ProgramBuilder, "build_apart", refuse)
    executable, inputs = load("AUTO"), random_inputs(network)
    if "behind" in when:
        assert LATER in executable.explain()
        assert launches(executable) == launches(one)
        request = executable.create_infer_request()
        for _ in range(RUNS + 2):
            request.infer(inputs)
        executable._specialiser.wait(time.monotonic() + 120)
    assert launches(executable) == launches(load("NO"))
    assert len({text for text, _ in launches(executable)}) == 2
    reasons = {"nothing joins": "no neighbour joins", "refused behind": "was not built: refused"}
    assert reasons.get(when, "they took 2 us one by one, and 2 as") in executable.explain()
    assert executable.latest_plan().is_final
    check(executable, network)


def test_nobody_enqueues_while_a_way_is_timed(monkeypatch, opencl, builder) -> None:
    """And nobody waits for another for ever: launches as one take two locks, the trial too."""
    one = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", one)
    monkeypatch.setattr(Stretch, "waits", True)
    network = small()
    executable = loaded(network, opencl, builder, settings=TOGETHER)
    request, other = executable.create_infer_request(), executable.create_infer_request()
    inputs = random_inputs(network)
    request.infer(inputs)
    other.infer(inputs)
    (joined,), is_over, runs = other.runner.last.joined, threading.Event(), []

    def work() -> None:
        while not is_over.is_set():
            request.infer(inputs)
            runs.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with opencl.queue() as queue:
            ways = joined.enqueue, joined.enqueue_one_by_one
            assert min(joining_trial.times(ways, queue, opencl)) > 0
            with turn_of(opencl).lock, opencl.enqueuing:
                time.sleep(0.05)
                before = len(runs)
                time.sleep(0.05)
                assert len(runs) == before
    finally:
        is_over.set()
        thread.join()
    assert not executable.latest_plan().joined[0].failed


def test_auto_joins_at_once_what_is_built(monkeypatch, opencl, builder) -> None:
    meets = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", meets)
    monkeypatch.setattr(joining_trial, "times", lambda *_: (1e-6, 2e-6) * 2)
    network = small()
    kept = loaded(network, opencl, builder, settings=TOGETHER)  # its kernel is built
    executable = loaded(network, opencl, builder, settings=CompileSettings(single_launch="AUTO"))
    assert executable.latest_plan().joined
    assert kept.latest_plan().joined


def test_what_was_faster_is_not_timed_again(monkeypatch, opencl, tmp_path) -> None:
    """By other processes either, which find it beside the kernels; what was slower is."""
    meets = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", meets)
    one_us, timed = [2.0, 2.0, 1.0, 1.0], []

    def times(*_) -> tuple[float, ...]:
        timed.append(one_us[len(timed)])
        return (timed[-1] * 1e-6, 1.5e-6) * 2

    monkeypatch.setattr(joining_trial, "times", times)
    network = small()
    first = loaded(network, opencl, SparingBuilder(opencl, tmp_path), settings=TOGETHER)
    joined = []
    for _ in range(4):
        builder = SparingBuilder(opencl, tmp_path)
        auto = CompileSettings(single_launch="AUTO")
        executable = loaded(network, opencl, builder, settings=auto)
        joined.append(bool(executable.latest_plan().joined))
    assert first.latest_plan().joined
    assert timed == [2.0, 2.0, 1.0]
    assert joined == [False, False, True, True]
    check(executable, network)


def test_auto_goes_on_where_the_kernel_is_not_built(monkeypatch, opencl) -> None:
    meets = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", meets)
    network, builder = small(), SparingBuilder(opencl)
    executable = loaded(network, opencl, builder, settings=CompileSettings(single_launch="AUTO"))
    monkeypatch.setenv("POLYDEVICE_NO_COMPILE", "1")
    request, inputs = executable.create_infer_request(), random_inputs(network)
    for _ in range(RUNS + 2):
        request.infer(inputs)
    executable._specialiser.wait(time.monotonic() + 120)
    assert "forbids to compile it" in executable.explain()
    check(executable, network)


def test_a_network_that_is_closed_ends_its_build(monkeypatch, opencl, hung_build) -> None:
    """Instead of waiting for a compiler; with the process it ends in the same way."""
    meets = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", meets)
    network, auto = small(), CompileSettings(single_launch="AUTO")
    executable = loaded(network, opencl, SparingBuilder(opencl), settings=auto)
    request, inputs = executable.create_infer_request(), random_inputs(network)
    for _ in range(RUNS + 2):
        request.infer(inputs)
    assert hung_build.wait(60)
    executable.close()
    assert not any(t.name == "polydevice-specialise" for t in threading.enumerate())


ENDS = """
import dataclasses, threading, time
from polydevice import Core
from polydevice_gpu import cl
from polydevice.ops.matmul import MatMul
from polydevice_gpu.cl import ProgramBuilder
from polydevice_gpu.compiler.new_shapes import specialiser
from polydevice_gpu.one_launch.choose import Rules
from tests.gpu.test_one_launch import random_inputs, small

asked, real, specialiser.RUNS = threading.Event(), Rules.of, 2

def hang(device, module, argument, timeout_s, goes_on):
    while goes_on():
        asked.set()
        time.sleep(0.01)

cl.Device.run_in_child = hang
Rules.of = lambda *arguments: dataclasses.replace(real(*arguments), meets=True, alone=False)
request = Core().load_network(small(), "GPU").create_infer_request()
for _ in range(4):
    request.infer(random_inputs(small()))
assert asked.wait(60)
print("it is being built")
"""


@pytest.mark.full
def test_a_process_that_ends_waits_for_no_build() -> None:
    """A compiler would take as long as it likes; this one takes for ever."""
    command = [sys.executable, "-c", ENDS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "it is being built\n"), ended.stderr


def test_auto_leaves_streams_alone(monkeypatch, core) -> None:
    device = core.get_default_context("GPU").device
    meets = dataclasses.replace(device.capabilities, groups_meet=True)
    monkeypatch.setattr(device, "capabilities", meets)
    executable = core.load_network(small(), "GPU", {"GPU_THROUGHPUT_STREAMS": 2})
    assert "launches of 2 streams run side by side" in executable.explain()
    assert not executable.latest_plan().joined
