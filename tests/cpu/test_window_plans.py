"""Convolutions and pools of new shapes by machine code, within networks."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.code import Code, may_share
from polydevice_cpu.algorithms.by_machine.windows import covers, sums
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling.by_machine import positions, suitable_windows
from polydevice_cpu.plan.tables.plan import TablePlan
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load, wait_for_settling
from tests.cpu.machine_code import (
    are_sigmoids_apart,
    by_machine_code,
    compared,
    followed,
    for_now,
    missing_avx512,
    needs,
    with_vectors,
)

pytestmark = with_vectors

MEANS = missing_avx512() and "oneDNN adds up means of pictures in another order with AVX2"
"""Why answers of plans with a mean change by a rounding once oneDNN computes them; or nothing."""


def picture(channels=16, classes=10):
    """A stem, a depthwise convolution, one with slopes, and squeezed channels."""
    weights = {
        "stem": image(1, channels, 3, 3, 3),
        "deep": image(2, channels, 1, 5, 5) / 5,
        "wide": image(3, classes, channels, 3, 3) / 9,
        "few": image(4, classes, classes, 1, 1),
        "bias": image(5, channels),
        "slope": image(6, classes, 1, 1),
    }
    nodes = [
        ("Conv", ["x", "stem", "bias"], ["a"], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("Relu", ["a"], ["b"], {}),
        ("Conv", ["b", "deep"], ["c"], {"pads": [2] * 4, "group": channels}),
        ("HardSwish", ["c"], ["d"], {}),
        ("Conv", ["d", "wide"], ["e"], {"pads": [1] * 4}),
        ("PRelu", ["e", "slope"], ["f"], {}),
        ("GlobalAveragePool", ["f"], ["g"], {}),
        ("Conv", ["g", "few"], ["h"], {}),
        ("Add", ["f", "h"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], weights)


ONE_BY_ONE = covers.Windows((1, 1), (1, 1), (0, 0), (0, 0), is_depthwise=False)
SIZES = [(20, 31), (33, 18), (45, 62), (9, 70), (52, 27), (64, 64)]


def windows_for_now(executable):
    """The types of the steps with windows that machine code computes for now."""
    return [each for each in for_now(executable) if each != "Add"]


@needs(MEANS)
def test_new_shapes_are_computed_by_machine_code_and_later_by_onednn(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr("polydevice_cpu.plan.filling.filled.STAYING_US", 0.0)
    model = picture()
    executable = load(core, model, CPU_THREADS_NUM=1)
    request, seen = executable.create_infer_request(), 0
    for number, (height, width) in enumerate(SIZES):
        x = image(number, 1 + number % 2, 3, height, width)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        if windows_for_now(executable):
            seen += 1
            assert len(windows_for_now(executable)) == 4
            for _ in range(settling.RUNS):
                np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
            wait_for_settling()
            np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
            assert not windows_for_now(executable)
    assert seen >= 3


@pytest.mark.parametrize(
    ("channels", "results", "groups"), [(12, 16, 1), (12, 40, 1), (12, 70, 1), (24, 24, 24)]
)
def test_several_functions_with_a_number_for_each_channel(
    core, monkeypatch, channels, results, groups
):
    """As of a normalisation behind what is added to what was before, and slopes behind that."""
    monkeypatch.setattr(settling, "RUNS", 3)
    names = ["scale", "shift", "slope", "more"]
    weights = {name: image(seed, results, 1, 1) for seed, name in enumerate(names)}
    weights["beside"] = image(4, results, channels // groups, 3, 3) / 9
    weights["wide"] = image(5, results, channels // groups, 3, 3) / 9
    how = {"pads": [1] * 4, "group": groups}
    nodes = [("Conv", ["x", "beside"], ["a"], how), ("Relu", ["a"], ["b"], {})]
    nodes += [("Conv", ["x", "wide"], ["c"], how), ("Add", ["c", "b"], ["d"], {})]
    nodes += [("Mul", ["d", "scale"], ["e"], {}), ("Add", ["e", "shift"], ["f"], {})]
    nodes += [("PRelu", ["f", "slope"], ["g"], {}), ("PRelu", ["g", "more"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", channels, "h", "w"]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 1 + k % 2, channels, *sizes) for k, sizes in enumerate(SIZES)]
    assert compared(executable, model, feeds, stays=None) >= 3
    assert any(
        len(each.split("+")) > 3 for each in [s.type for s in executable.latest_plan().steps]
    )


def test_rows_that_onednn_adds_in_another_order_are_left_to_it(core, monkeypatch):
    """Those of fewer positions than a window of 9 reaches over an end, which is 4."""
    monkeypatch.setattr(settling, "RUNS", 3)
    weights = {"wide": image(1, 24, 16, 3, 9) / 9}
    nodes = [("Conv", ["x", "wide"], ["a"], {"pads": [1, 4, 1, 4]}), ("Relu", ["a"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", 16, "h", "w"]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    found = []
    for width in (31, 18, 40, 3, 4, 2, 13):
        x = image(width, 1, 16, 12, width)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        found.append("Convolution+ReLU" in by_machine_code(executable))
        for _ in range(settling.RUNS):
            request.infer({"x": x})
        wait_for_settling()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
    assert found == [False, True, True, False, True, False, True]


LEFT_TO_ONEDNN = {  # what follows a convolution, and how its step is called then
    "mish": ([("Mish", ["a"], ["y"], {})], "Convolution+Mish"),
    "a padded average": (
        [("AveragePool", ["a"], ["y"], {"kernel_shape": [3, 3], "pads": [1] * 4})],
        "AvgPool",
    ),
}


@pytest.mark.parametrize("case", LEFT_TO_ONEDNN)
def test_what_there_is_no_code_for(core, case):
    weights = {"wide": image(1, 16, 16, 3, 3) / 9}
    behind, kind = LEFT_TO_ONEDNN[case]
    nodes = [("Conv", ["x", "wide"], ["a"], {"pads": [1] * 4}), *behind]
    model = models.build(nodes, {"x": ["n", 16, "h", "w"]}, ["y"], weights, opset=20)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for number, (height, width) in enumerate(SIZES):
        x = image(number, 1, 16, height, width)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        assert kind in [step.type for step in executable.latest_plan().steps]
        assert kind not in by_machine_code(executable)
    assert executable.compiled.templates.filled


@pytest.mark.parametrize("function", ["Gelu", "Tanh"])
def test_what_is_unlike_onednns(core, function):
    """It stays oneDNN's behind long sums; a step of its own is code for all sizes."""
    nodes = [("Conv", ["x", "wide"], ["a"], {"pads": [1] * 4}), (function, ["a"], ["y"], {})]
    weights = {"wide": image(1, 16, 16, 3, 3) / 9}
    model = models.build(nodes, {"x": ["n", 16, "h", "w"]}, ["y"], weights, opset=20)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request, kinds = executable.create_infer_request(), followed("Convolution", function)
    for number, (height, width) in enumerate(SIZES):
        x = image(number, 1, 16, height, width)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        found = [step.type for step in executable.latest_plan().steps]
        assert [kind for kind in found if kind in kinds] == kinds
        if number:  # a first plan is for its sizes alone
            assert (kinds[-1] in by_machine_code(executable)) is are_sigmoids_apart()
    assert executable.compiled.templates.filled


@needs(MEANS)
@pytest.mark.skipif(not may_share(), reason="this oneDNN has no OpenMP whose threads share work")
@pytest.mark.parametrize("few_ns", [0.0, sums.FEW_NS])
def test_several_threads_share_the_work(core, monkeypatch, few_ns):
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr(sums, "FEW_NS", few_ns)
    model = picture()
    executable = load(core, model, CPU_THREADS_NUM=2)
    feeds = [image(number, 4, 3, 3 * h, 3 * w) for number, (h, w) in enumerate(SIZES)]
    assert compared(executable, model, feeds) >= 3


def test_without_threads_that_share_work_several_are_onednns(core, monkeypatch):
    for module in (suitable_windows, positions):
        monkeypatch.setattr(module, "may_share", lambda: False)
    executable = load(core, picture(), CPU_THREADS_NUM=2)
    request = executable.create_infer_request()
    for number, (height, width) in enumerate(SIZES):
        request.infer({"x": image(number, 4, 3, 3 * height, 3 * width)})
        assert not windows_for_now(executable)
    assert executable.compiled.templates.filled


def test_each_call_is_shared_by_one_thread_or_another():
    """Whatever threads there are, each part of the work is done once."""
    rows = np.zeros((64, 16), np.float32)
    made = sums.Functions([Function.SUM], terms=Terms.ALL_CHANNELS, has_bias=False)
    constants = sums.Constants(np.eye(16, dtype=np.float32), None, None, [(0.0, 0.0)])
    told = sums.arguments((1, 16, 64, 1), (1, 16, 64, 1), ONE_BY_ONE)
    parts = [sums.told_of(made, part, constants)[0] for part in told.parts(40)]
    assert len(parts) == 32  # of two rows each
    source = image(1, 64, 16)
    for threads in (1, 2, 3, 7):
        code = Code.shared(parts, threads, constants)
        call = code.bound([address_of(each) for each in (source, source, rows)])
        rows[...] = 0
        for count in range(1, 30):
            assert call() == 0
            np.testing.assert_allclose(rows, count * source, rtol=1e-5)


def test_onednn_is_asked_for_no_convolution_then(core, monkeypatch):
    executable = load(core, picture(), CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for number, (height, width) in enumerate(SIZES[:4]):
        request.infer({"x": image(number, 1, 3, height, width)})
    asked = asked_from_now(monkeypatch)
    request.infer({"x": image(9, 1, 3, 40, 41)})
    assert len(windows_for_now(executable)) == 4
    assert not [name for name in asked if name.startswith("convolution")]


def test_where_there_is_no_machine_code_onednn_computes(core, monkeypatch):
    monkeypatch.setattr(sums, "function_of", lambda _: None)
    model = picture()
    executable = load(core, model, CPU_THREADS_NUM=1)
    for number, (height, width) in enumerate(SIZES):
        x = image(number, 1, 3, height, width)
        (wanted,) = models.answer(model, {"x": x})
        got = executable.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        assert not windows_for_now(executable)
    assert executable.compiled.templates.filled


def test_requests_compute_side_by_side(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 1 << 30)
    model = picture()
    executable = load(core, model, CPU_THREADS_NUM=1)
    for number, (height, width) in enumerate(SIZES[:3]):
        executable.infer({"x": image(number, 1, 3, height, width)})
    given = [image(number, 1, 3, *SIZES[3 + number % 3]) for number in range(6)]
    wanted = [models.answer(model, {"x": x})[0] for x in given]
    found = [[] for _ in given]

    def work(number):
        request = executable.create_infer_request()
        for _ in range(20):
            found[number].append(request.infer({"x": given[number]})["y"].copy())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for all_of, right in zip(found, wanted, strict=True):
        assert len(all_of) == 20
        for got in all_of:
            np.testing.assert_array_equal(got, all_of[0])
        np.testing.assert_allclose(all_of[0], right, rtol=1e-4, atol=1e-5 * np.abs(right).max())


def test_much_longer_than_onednn_it_may_not_take(core):
    executable = load(core, picture(channels=64, classes=64), CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for number, (height, width) in enumerate([(20, 31), (33, 18), (45, 62), (300, 310)]):
        request.infer({"x": image(number, 1, 3, height, width)})
        if height == 45:
            assert "Convolution+PReLU" in by_machine_code(executable)
    assert "Convolution+PReLU" not in by_machine_code(executable)


def test_means_of_pictures_are_computed_by_machine_code_and_stay(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 3)
    nodes = [("Conv", ["x", "wide"], ["a"], {"pads": [1] * 4}), ("Relu", ["a"], ["b"], {})]
    nodes += [("GlobalAveragePool", ["b"], ["c"], {}), ("Mul", ["b", "c"], ["y"], {})]
    weights = {"wide": image(1, 24, 24, 3, 3) / 9}
    model = models.build(nodes, {"x": [1, 24, "h", "w"]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for width in (61, 70, 83, 90, 100):
        x = image(width, 1, 24, 90, width)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert "ReduceMean" in by_machine_code(executable)
    for _ in range(settling.RUNS):
        request.infer({"x": x})
    wait_for_settling()
    np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
    assert by_machine_code(executable) == ["ReduceMean"]


def test_means_of_large_pictures_divide_by_what_each_has(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 1 << 30)
    nodes = [("Conv", ["x", "wide"], ["a"], {"pads": [1] * 4}), ("Relu", ["a"], ["b"], {})]
    nodes.append(("GlobalAveragePool", ["b"], ["y"], {}))
    weights = {"wide": image(1, 24, 24, 3, 3) / 9}
    model = models.build(nodes, {"x": [1, 24, "h", "w"]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request, seen = executable.create_infer_request(), 0
    sizes = [(90, 70), (81, 64), (100, 73), (75, 75), (64, 90), (90, 71)]
    for _ in range(2):  # the second time with plans that are there
        for number, (height, width) in enumerate(sizes):
            x = image(number, 1, 24, height, width)
            (wanted,) = models.answer(model, {"x": x})
            np.testing.assert_allclose(request.infer({"x": x})["y"], wanted, rtol=1e-4)
            seen += "ReduceMean" in by_machine_code(executable)
    assert seen >= 6


@pytest.mark.parametrize("threads", [1, 2])
def test_one_table_serves_maps_smaller_and_larger_than_windows(core, threads):
    """Windows of 7x7, 5x5 in steps, and 3x3, over maps of 1 to 20 lines and columns."""
    weights = {
        "deep": image(1, 16, 1, 7, 7) / 7,
        "down": image(2, 24, 16, 5, 5) / 9,
        "wide": image(3, 16, 24, 3, 3) / 9,
        "ahead": image(4, 16, 16, 3, 3) / 9,
    }
    nodes = [
        ("Relu", ["x"], ["a"], {}),
        ("Conv", ["a", "deep"], ["b"], {"pads": [3] * 4, "group": 16}),
        ("Relu", ["b"], ["c"], {}),
        ("Conv", ["c", "down"], ["d"], {"pads": [2] * 4, "strides": [2, 2]}),
        ("Relu", ["d"], ["e"], {}),
        ("Conv", ["e", "wide"], ["f"], {"pads": [1] * 4}),
        ("Conv", ["f", "ahead"], ["y"], {"pads": [1, 1, 1, 1]}),
    ]
    model = models.build(nodes, {"x": ["n", 16, "h", "w"]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, tables = executable.create_infer_request(), 0
    drawn = np.random.default_rng(threads)
    for number in range(60):
        x = image(number, int(drawn.integers(1, 4)), 16, *map(int, drawn.integers(1, 20, 2)))
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        plan = executable.latest_plan()
        if isinstance(plan, TablePlan):
            tables += not any("Conv" in step.type for step in plan.late.values())
    assert tables > 30
