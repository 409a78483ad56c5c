"""Networks whose sizes vary: plans of sizes that come often run their launches as one."""

from __future__ import annotations

import dataclasses
import threading
import time

import numpy as np
import pytest

from polydevice.errors import InferCancelledError
from polydevice_gpu.compiler import compiler, joining
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.new_shapes import specialiser
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.runtime.plan import LATER
from polydevice_gpu.runtime.trials import joining_trial
from tests.cpu import models
from tests.cpu.loading import image
from tests.gpu.graphs import SparingBuilder, loaded
from tests.gpu.test_one_launch import let_wait_in_vain

RUNS = 6
"""Inferences of a plan after which it is joined here."""
AUTO = CompileSettings(single_launch="AUTO")


def made(batch: int, height: int | str) -> bytes:
    return models.build(
        [
            ("MaxPool", ["x"], ["p"], {"kernel_shape": [3, 3], "strides": [2, 2]}),
            ("Tanh", ["p"], ["t"], {}),
            ("AveragePool", ["t"], ["a"], {"kernel_shape": [2, 2]}),
            ("Transpose", ["a"], ["y"], {"perm": [0, 1, 3, 2]}),
        ],
        {"x": [batch, 4, height, 12]},
        ["y"],
        {},
    )


MODEL = made(1, "height")


@pytest.fixture(autouse=True)
def _one_group(monkeypatch, opencl) -> None:
    """Let the device say that its groups meet, with room for one; and one launch be faster."""
    one = dataclasses.replace(opencl.capabilities, groups_meet=True, compute_units=1)
    monkeypatch.setattr(opencl, "capabilities", one)
    monkeypatch.setattr(specialiser, "RUNS", RUNS)
    monkeypatch.setattr(joining_trial, "times", lambda *_: (1e-6, 2e-6) * 2)

    def target(device):  # processors' launches have work-items beyond the end, and do not join
        return dataclasses.replace(target_of(device), scalar_lanes=32)

    monkeypatch.setattr(compiler, "target_of", target)


@pytest.fixture
def load(opencl, core):
    open_ones = []

    def network():
        given = core.read_network(MODEL), opencl, SparingBuilder(opencl), core
        open_ones.append(loaded(*given, settings=AUTO))
        return open_ones[-1]

    yield network
    for each in open_ones:
        each.close()


def given(height: int, seed: int = 0):
    return {"x": image(seed, 1, 4, height, 12)}


def check(request, height: int, seed: int = 0) -> None:
    inputs = given(height, seed)
    (wanted,) = models.answer(MODEL, inputs)
    np.testing.assert_allclose(request.infer(inputs)["y"], wanted, 2e-4, 2e-5)


def often(executable, *heights: int) -> None:
    """Infer with each height until nothing better is to be made for it."""
    request, end = executable.create_infer_request(), time.monotonic() + 120
    for height in heights:
        check(request, height)
        while not plan(executable, height).is_final and time.monotonic() < end:
            check(request, height)
            executable._specialiser.wait(end)


def plan(executable, height: int):
    """The plan that is kept for a height."""
    return executable.plans._found.get(((1, 4, height, 12),))


def stretches(executable, height: int):
    """What runs launches of a height's plan as one."""
    kept = plan(executable, height)
    return list(dict.fromkeys(kept.joined.values())) if kept else []


def test_each_of_two_sizes_at_once_gets_one_launch(load, monkeypatch) -> None:
    # Other choices, which the clock may find faster for one, would have a kernel of their own.
    monkeypatch.setattr("polydevice_gpu.executable.is_faster", lambda made, plan: False)
    executable = load()
    wrong = []

    def work(height: int) -> None:
        request = executable.create_infer_request()
        inputs = given(height)
        (wanted,) = models.answer(MODEL, inputs)
        while not is_over.is_set():
            if not np.allclose(request.infer(inputs)["y"], wanted, 2e-4, 2e-5):
                wrong.append(height)
            time.sleep(0.005)  # processors also compile what they wait for

    is_over = threading.Event()
    threads = [threading.Thread(target=work, args=(n,)) for n in (33, 34)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 120
    while time.monotonic() < end and not all(stretches(executable, n) for n in (33, 34)):
        time.sleep(0.01)
    for height in (33, 34):  # what is joined now runs, too
        check(executable.create_infer_request(), height, seed=1)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    (first,), (second,) = stretches(executable, 33), stretches(executable, 34)
    assert first.kernel.program is second.kernel.program, "a class of sizes has one kernel"
    assert len(first.stages) == len(executable.latest_plan().launching)
    assert "run as one" in executable.explain()


def test_sizes_that_come_rarely_keep_their_launches(load) -> None:
    executable = load()
    often(executable, 33)
    request = executable.create_infer_request()
    for _ in range(RUNS - 1):
        check(request, 34)
        check(request, 35)
        executable._specialiser.wait(time.monotonic() + 120)
    assert stretches(executable, 33)
    assert not stretches(executable, 34)
    assert f"no launches run as one, as {LATER}" in executable.explain()  # of 35


def test_so_many_kernels_and_no_more(monkeypatch, load) -> None:
    monkeypatch.setattr(joining, "MOST_KERNELS", 0)
    executable = load()
    for height in (33, 34):
        often(executable, height)
        assert "kernels for those of 0 other sets of sizes were built" in executable.explain()
        assert executable.latest_plan().is_final


def test_what_is_not_faster_keeps_its_launches(monkeypatch, load) -> None:
    monkeypatch.setattr(joining_trial, "times", lambda *_: (2e-6, 2e-6) * 2)
    executable = load()
    often(executable, 33)
    assert "took 2 us one by one, and 2 as one" in executable.explain()
    assert executable.latest_plan().is_final


def test_a_wait_in_vain_is_one_size_alone(load, opencl, caplog) -> None:
    executable = load()
    often(executable, 33, 34)
    (first,), (second,) = stretches(executable, 33), stretches(executable, 34)
    request = executable.create_infer_request()
    check(request, 33)
    let_wait_in_vain(request.runner.last.joined[0], opencl)
    check(request, 33)  # is repeated
    check(request, 34)
    assert first.failed
    assert not second.failed
    assert caplog.text.count("run one by one from now on") == 1


def test_others_are_cancelled_meanwhile(load) -> None:
    executable = load()
    often(executable, 33)
    request, other = executable.create_infer_request(), executable.create_infer_request()
    cancelled = 0
    for turn in range(40):
        other.start_async(given(33 if turn % 2 else 50 + turn))
        other.cancel()
        check(request, 33, seed=turn)
        try:
            other.wait()
        except InferCancelledError:
            cancelled += 1
    assert cancelled
    assert not stretches(executable, 33)[0].failed
    check(other, 33)


def test_a_network_that_is_closed_ends_the_build(hung_build, load) -> None:
    executable = load()
    request = executable.create_infer_request()
    end = time.monotonic() + 120
    while not hung_build.is_set() and time.monotonic() < end:
        check(request, 33)
        check(request, 34)
    assert hung_build.is_set()
    executable.close()
    assert not any(t.name == "polydevice-specialise" for t in threading.enumerate())
    assert executable.plans.plans() == []


def test_parts_of_a_batch(opencl, core) -> None:
    settings = dataclasses.replace(AUTO, dynamic_batch=True)
    given = core.read_network(made(3, 9)), opencl, SparingBuilder(opencl), core
    executable = loaded(*given, settings=settings, dynamic_batch=True)
    request, x = executable.create_infer_request(), image(1, 3, 4, 9, 12)
    for size in (3, 2):
        request.set_batch(size)
        for _ in range(RUNS + 1):
            request.infer({"x": x})
    executable._specialiser.wait(time.monotonic() + 120)
    for size in (2, 3):
        request.set_batch(size)
        (wanted,) = models.answer(made(size, 9), {"x": x[:size]})
        np.testing.assert_allclose(request.infer({"x": x})["y"][:size], wanted, 2e-4, 2e-5)
        assert executable.plans._found[((size, 4, 9, 12),)].joined
    executable.close()
