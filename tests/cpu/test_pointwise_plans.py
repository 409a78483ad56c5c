"""What computes each number by itself in plans for new shapes: machine code, for any size."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.plan import settling
from polydevice_cpu.plan.tables.plan import TablePlan
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load, wait_for_settling
from tests.cpu.machine_code import with_avx512, with_vectors
from tests.cpu.quantised_graphs import Graph, reference

F = np.float32

pytestmark = with_vectors

CHANNELS = 24


def network():
    """Functions of numbers: of whole tensors, and with one number for each channel, row or all."""
    weights = {
        "c": image(1, CHANNELS, 1, 1), "half": F(0.5), "least": F(-1.5), "most": F(2.5),
        "w": image(2, CHANNELS, CHANNELS, 1, 1) / 5, "row": image(3, 1, 1, 1, 1),
    }  # fmt: skip
    nodes = [
        ("Mul", ["x", "c"], ["a"], {}),
        ("Add", ["a", "r"], ["b"], {}),
        ("Relu", ["b"], ["d"], {}),
        ("Round", ["d"], ["d1"], {}),
        ("Sub", ["d1", "z"], ["e"], {}),
        ("Max", ["e", "c"], ["f"], {}),
        ("Conv", ["f", "w"], ["g"], {}),  # channels lie next to each other from here on
        ("Mul", ["g", "m"], ["h"], {}),
        ("Add", ["h", "c"], ["i"], {}),
        ("Div", ["i", "half"], ["j"], {}),
        ("Sub", ["j", "g"], ["k"], {}),
        ("Clip", ["k", "least", "most"], ["l"], {}),
        ("Sqrt", ["d"], ["n"], {}),
        ("HardSwish", ["n"], ["o"], {}),
        ("Add", ["l", "o"], ["y"], {}),
    ]
    shapes = {
        "x": ["n", CHANNELS, "h", "w1"], "r": ["n", 1, 1, "w1"], "z": ["n", CHANNELS, "h", "w1"],
        "m": ["n", CHANNELS, 1, 1],
    }  # fmt: skip
    return models.build(nodes, shapes, ["y"], weights)


def given(seed, count, high, wide):
    return {
        "x": image(seed, count, CHANNELS, high, wide), "r": image(seed + 1, count, 1, 1, wide),
        "z": image(seed + 2, count, CHANNELS, high, wide),
        "m": image(seed + 3, count, CHANNELS, 1, 1),
    }  # fmt: skip


SIZES = [
    *((2, 9, 14), (3, 7, 6), (2, 8, 33), (4, 12, 5), (3, 30, 41), (2, 25, 17)),
    *((5, 3, 2), (2, 2, 65), (3, 40, 40), (2, 3, 19)),
]


def assert_right(model, inputs, got):
    (wanted,) = models.answer(model, inputs)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_new_shape_is_a_table_for_which_nothing_is_made(core, monkeypatch):
    model = network()
    executable = load(core, model, CPU_THREADS_NUM="1")
    request = executable.create_infer_request()
    for number, sizes in enumerate(SIZES):
        asked = asked_from_now(monkeypatch)
        inputs = given(number, *sizes)
        assert_right(model, inputs, request.infer(inputs)["y"])
        if number > 4:
            plan = executable.latest_plan()
            assert isinstance(plan, TablePlan)
            assert not [step.type for step in plan.late.values() if step.type != "Reorder"]
            assert not [name for name in asked if "binary" in name or "eltwise" in name]


@pytest.mark.parametrize("threads", ["1", "2"])
def test_sizes_of_1_and_what_is_no_number(core, threads):
    model = network()
    request = load(core, model, CPU_THREADS_NUM=threads).create_infer_request()
    for number, sizes in enumerate([*SIZES[:5], (1, 9, 14), (2, 1, 14), (2, 9, 1), (1, 1, 1)]):
        inputs = given(number, *sizes)
        for each, value in enumerate((np.nan, np.inf, -np.inf, -0.0)):
            inputs["x"].reshape(-1)[each :: 11 + each] = value
            inputs["z"].reshape(-1)[each :: 7 + each] = -value
        (wanted,) = models.answer(model, inputs)
        got = request.infer(inputs)["y"]
        numbers = np.isfinite(wanted)
        np.testing.assert_allclose(got[numbers], wanted[numbers], rtol=1e-4, atol=1e-4)


def test_answers_stay_the_same_to_the_bit_when_a_plan_is_settled(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 3)
    request = load(core, network(), CPU_THREADS_NUM="1").create_infer_request()
    for number, sizes in enumerate(SIZES):
        inputs = given(number, *sizes)
        before = request.infer(inputs)["y"].copy()
        for _ in range(settling.RUNS):
            request.infer(inputs)
        wait_for_settling()
        np.testing.assert_array_equal(before, request.infer(inputs)["y"])


def own_functions():
    """Functions that are not the same to the bit as oneDNN's, alone and behind others."""
    nodes = [
        ("Tanh", ["x"], ["a"], {}),
        ("Mul", ["a", "c"], ["b"], {}),
        ("Gelu", ["b"], ["d"], {}),
        ("Add", ["d", "z"], ["e"], {}),
        ("Exp", ["e"], ["f"], {}),
        ("Sub", ["f", "r"], ["y"], {}),
    ]
    shapes = {
        "x": ["n", CHANNELS, "h", "w1"], "r": ["n", 1, 1, "w1"], "z": ["n", CHANNELS, "h", "w1"],
    }  # fmt: skip
    return models.build(nodes, shapes, ["y"], {"c": image(1, CHANNELS, 1, 1)}, opset=20)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_functions_of_our_own_stay_where_one_thread_computes(core, monkeypatch, threads):
    monkeypatch.setattr(settling, "RUNS", 2)
    model, seen = own_functions(), 0
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    for number, sizes in enumerate(SIZES):
        inputs = {name: each for name, each in given(number, *sizes).items() if name != "m"}
        asked = asked_from_now(monkeypatch)
        got = request.infer(inputs)["y"].copy()
        asked = [name for name in asked if "binary" in name or "eltwise" in name]
        assert_right(model, inputs, got)
        for _ in range(settling.RUNS):
            request.infer(inputs)
        wait_for_settling()
        np.testing.assert_array_equal(got, request.infer(inputs)["y"])
        seen += number > 3 and not asked
    assert seen == len(SIZES) - 4 or threads != "1"


@with_avx512
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_sums_with_bytes(core, monkeypatch, kind):
    """What is rounded, and bytes that are added to it as they are."""
    monkeypatch.setattr(settling, "RUNS", 3)
    g = Graph(np.random.default_rng(5))
    scales = g.store(image(1, CHANNELS, 1, 1))
    levels, others = g.parameters(kind, 0.04), g.parameters(kind, 0.03)
    read = g.quantised_by(g.emit("Mul", "x", scales), levels)
    for _ in range(3):
        stored = g.emit("QuantizeLinear", g.emit("Tanh", read), *others)
        added = g.emit("DequantizeLinear", g.emit("Identity", stored), *others)
        read = g.emit("Add", g.quantised_by(g.emit("Mul", read, scales), levels), added)
    model = g.model(["n", CHANNELS, "h", "w"], np.float32, {read: np.float32})
    executable = load(core, model, CPU_THREADS_NUM=1)
    request, found = executable.create_infer_request(), set()
    for number, (count, *sizes) in enumerate(SIZES):
        x = image(number, count, CHANNELS, *sizes)
        (wanted,) = reference(model, {"x": x})
        (got,) = (each.copy() for each in request.infer({"x": x}).values())
        assert (np.abs(got - wanted) > 1e-4).mean() < 0.01  # halves are rounded to either side
        plan = executable.latest_plan()
        if isinstance(plan, TablePlan):
            found.update(step.type for step in plan.steps)
            assert not plan.late
        for _ in range(settling.RUNS):
            request.infer({"x": x})
        wait_for_settling()
        np.testing.assert_array_equal(next(iter(request.infer({"x": x}).values())), got)
    assert "DequantizeLinear+Multiply+QuantizeDequantize+Add" in found
