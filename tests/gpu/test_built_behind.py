"""Programs that are built behind inferences: when, which ones, and until when others stand in."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from polydevice_gpu.cl.programs.program import ProgramBuilder
from polydevice_gpu.runtime.trials import plan_trial
from tests.cpu import models
from tests.cpu.loading import image
from tests.gpu.open_networks import CASES, attention


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_built_behind_for_sizes_that_change(case, core, opencl, monkeypatch):
    """Which programs would be better for some of them is left open until many want these."""
    if opencl.capabilities.local_memory_is_dedicated:
        pytest.skip("work-items in lockstep gain more by choices")
    make, sizes = CASES[case]
    model, inputs = make(sizes)
    built = []
    compile_ = ProgramBuilder._compile

    def noted(self, name, *rest):
        built.append(name)
        return compile_(self, name, *rest)

    monkeypatch.setattr(ProgramBuilder, "_compile", noted)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    for number, x in enumerate(inputs):
        built.clear()
        for _ in range(3):
            got = request.infer({"x": x})
        executable._specialiser.wait(time.monotonic() + 60)
        assert number < 2 or built == []
        for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
            scale = np.abs(theirs).max(initial=0)
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("others", [0, 1])
def test_what_many_inferences_want_is_built_behind(core, opencl, monkeypatch, others):
    if opencl.capabilities.local_memory_is_dedicated:
        pytest.skip("work-items in lockstep gain more by choices")
    monkeypatch.setattr("polydevice_gpu.executable.RUNS", 6)
    monkeypatch.setattr(plan_trial, "_times", lambda *_: (1e-3, 2e-3))
    model, inputs = attention([40, 9, 10][: 2 + others])
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    request.infer({"x": inputs[0]})
    for number in range(6):
        x = inputs[1 + number % (1 + others)]
        (got,) = request.infer({"x": x}).values()
        (theirs,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(got, theirs, rtol=1e-4, atol=1e-4)
        assert executable.latest_plan().others
        executable._specialiser.wait(time.monotonic() + 60)
    for x in inputs[1:]:
        for _ in range(2):
            request.infer({"x": x})
            executable._specialiser.wait(time.monotonic() + 60)
        (got,) = request.infer({"x": x}).values()
        np.testing.assert_allclose(got, models.answer(model, {"x": x})[0], rtol=1e-4, atol=1e-4)
        assert not executable.latest_plan().others
    assert len(executable._prepared.templates._found) == 2


@pytest.mark.parametrize("is_faster", [True, False])
def test_built_programs_stand_in_until_better_ones_are_faster(
    is_faster, core, opencl, lockstep, compiled_here, monkeypatch
):
    monkeypatch.setattr(
        plan_trial, "_times", lambda *_: (1e-3, 2e-3) if is_faster else (2e-3, 1e-3)
    )
    model = models.build(
        [("MatMul", ["x", "w"], ["p"], {}), ("Tanh", ["p"], ["y"], {})],
        {"x": ["length", 24]},
        ["y"],
        {"w": image(1, 24, 40) * np.float32(0.2)},
    )
    compiled = []
    compile_ = ProgramBuilder._compile

    def noted(self, name, *rest):
        compiled.append((name, threading.current_thread() is threading.main_thread()))
        return compile_(self, name, *rest)

    def right(x):
        (got,) = request.infer({"x": x}).values()
        (expected,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)

    monkeypatch.setattr(ProgramBuilder, "_compile", noted)
    executable = core.load_network(core.read_network(model), "GPU", {"GPU_SINGLE_LAUNCH": "NO"})
    assert compiled, "nothing was built when the network was loaded"
    request = executable.create_infer_request()
    compiled.clear()
    for length in (100, 90, 120):  # of the class of sizes for which it was built
        right(image(length, length, 24))
    assert (compiled, executable.latest_plan().wanted) == ([], {})
    many, others = image(2, 1000, 24), image(3, 3000, 24)
    right(many)
    first = executable.latest_plan()
    assert compiled == []
    assert first.others
    assert "until the program of" in executable.explain()
    with ThreadPoolExecutor(2) as pool:  # other requests ask meanwhile
        list(pool.map(lambda x: executable.create_infer_request().infer({"x": x}), (many, others)))
    executable._specialiser.wait(time.monotonic() + 120)
    right(many)
    latest = executable.latest_plan()
    assert (latest is not first) == is_faster
    assert latest.is_final
    assert "until the program of" not in executable.explain()
    assert {in_main for _, in_main in compiled} == {False}
    right(image(5, 1004, 24))  # of the same class
    assert executable.latest_plan().is_final
    right(many)
    executable.close()


def test_networks_close_while_programs_are_built(
    core, opencl, lockstep, compiled_here, monkeypatch
):
    model = models.build(
        [("MatMul", ["x", "w"], ["y"], {})],
        {"x": ["length", 24]},
        ["y"],
        {"w": image(1, 24, 56)},
    )
    executable = core.load_network(core.read_network(model), "GPU")
    begun, go = threading.Event(), threading.Event()
    compile_ = ProgramBuilder._compile

    def slow(self, *rest):
        begun.set()
        assert go.wait(60)
        return compile_(self, *rest)

    monkeypatch.setattr(ProgramBuilder, "_compile", slow)
    for _ in range(2):
        executable.infer({"x": image(4, 1000, 24)})
    assert begun.wait(60)
    threading.Timer(0.1, go.set).start()
    executable.close()
    assert executable.plans.plans() == []
    assert not any(t.name == "polydevice-specialise" for t in threading.enumerate())
