"""Layers that treat every position alike in strips, of shapes that were not there before."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.code import has_avx512, has_vectors
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.binding import strips as calls
from polydevice_cpu.plan.filling import plan_sizes
from polydevice_cpu.plan.filling.by_machine import positions as at_positions
from polydevice_cpu.plan.filling.parts import LEAST, REPEATED, pieces
from polydevice_cpu.plan.filling.with_numpy import pairs
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, PrimitiveStep
from polydevice_cpu.processor import has_bf16
from tests.cpu import models
from tests.cpu.loading import (
    asked_from_now,
    assert_same_sums,
    image,
    load,
    wait_for_settling,
)

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


@pytest.fixture(autouse=True)
def _without_machine_code_at_positions(monkeypatch):
    """As on processors without AVX-512, where products and functions are computed in strips."""
    monkeypatch.setattr(at_positions, "MOST_CHANNELS", {})
    monkeypatch.setattr(plan_sizes, "pointwise_by_machine", lambda _: None)
    monkeypatch.setattr(plan_sizes, "moves_by_machine", lambda _: None)


PLANNED_ANEW = 1
"""Shapes before one has a plan with formulas."""


def block(channels: int, rank: int) -> bytes:
    """Products at every position: scaled by channel, multiplied with another, and added to one."""
    window = [1] * rank
    weights = {
        name: image(seed, channels, channels, *window) * np.float32(channels**-0.5)
        for seed, name in enumerate("abcd")
    }
    weights |= {"bias": image(5, channels), "scale": image(6, channels, *window)}
    nodes = [
        ("Conv", ["x", "a", "bias"], ["a0"], {}),
        ("Mul", ["a0", "scale"], ["a1"], {}),
        ("HardSwish", ["a1"], ["a2"], {}),
        ("Conv", ["a2", "b"], ["b0"], {}),
        ("Mul", ["b0", "a2"], ["b1"], {}),
        ("Relu", ["b1"], ["b2"], {}),
        ("Conv", ["b2", "c"], ["c0"], {}),
        ("Add", ["c0", "a2"], ["c1"], {}),
        ("Conv", ["c1", "d"], ["y"], {}),
    ]
    sizes = ["n", channels, *"hvw"[:rank]]
    return models.build(nodes, {"x": sizes}, ["y"], weights)


def rows(width: int) -> bytes:
    """Products, norms and functions of every row, which is added to what it was."""
    weights = {f"w{k}": image(k, width, width) - np.float32(0.5) for k in range(3)}
    weights |= {"scale": image(3, width), "shift": image(4, width)}
    nodes = [
        ("MatMul", ["x", "w0"], ["a0"], {}),
        ("Add", ["a0", "shift"], ["a1"], {}),
        ("LayerNormalization", ["a1", "scale", "shift"], ["b"], {"axis": -1}),
        ("Softmax", ["b"], ["p"], {"axis": -1}),
        ("Sigmoid", ["x"], ["s"], {}),
        ("Mul", ["s", "p"], ["m"], {}),
        ("Sqrt", ["m"], ["q"], {}),
        ("MatMul", ["q", "w1"], ["c"], {}),
        ("Add", ["c", "m"], ["d"], {}),
        ("Softmax", ["d"], ["e"], {"axis": -1}),
        ("MatMul", ["e", "w2"], ["f"], {}),
        ("Add", ["f", "x"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", "k", width]}, ["y"], weights)


def squeezed(channels: int) -> bytes:
    """Pictures whose channels are scaled by what their means say."""
    weights = {name: image(seed, channels, channels, 1, 1) for seed, name in enumerate("ab")}
    nodes = [
        ("Conv", ["x", "a"], ["c"], {}),
        ("GlobalAveragePool", ["c"], ["g"], {}),
        ("Conv", ["g", "b"], ["h"], {}),
        ("HardSigmoid", ["h"], ["i"], {}),
        ("Mul", ["c", "i"], ["j"], {}),
        ("Add", ["j", "c"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", channels, "h", "v"]}, ["y"], weights)


def primitives(executable):
    """The steps of the latest plan that oneDNN computes."""
    return [step for step in executable.latest_plan().steps if isinstance(step, PrimitiveStep)]


def strips(executable):
    """How many strips each convolution of the latest plan has."""
    found = primitives(executable)
    found = [step.strips for step in found if step.primitive.kind == "convolution"]
    return [0 if each is None else len(each.pieces) for each in found]


def settled(executable, request, x):
    """What inferences give before and after the plan got primitives for its own sizes."""
    before = request.infer({"x": x})["y"].copy()
    assert any(step.strips for step in primitives(executable))
    for _ in range(settling.RUNS):
        request.infer({"x": x})
    wait_for_settling()
    after = request.infer({"x": x})["y"].copy()
    assert not any(step.strips for step in primitives(executable))
    assert request.runner.bound.plan is executable.latest_plan()
    return before, after


@pytest.mark.parametrize("positions", [*range(1, 200), 1023, 1024, 1025, 4095, 230_399])
def test_strips_cover_all_positions(positions):
    found = pieces(positions)
    assert bool(found) == (positions >= LEAST)
    end = 0
    for start, length in found:
        assert 0 <= start <= end
        assert length >= LEAST
        assert length.bit_count() == 1
        end = start + length
    assert end == (positions if found else 0)
    computed = sum(length for _, length in found)
    assert computed - positions <= max(LEAST, positions // REPEATED)


def test_strips_that_do_not_overlap():
    for positions in (*range(1, 100), 1023, 1025, 230_399):
        found, end = pieces(positions, 1, may_repeat=False), 0
        for start, length in found:
            assert start == end
            assert length.bit_count() == 1
            end = start + length
        assert end == positions
        assert pieces(positions, 2, may_repeat=False) == (() if positions % 2 else found)


def test_strips_that_overlap_where_it_costs_little():
    assert pieces(7056) == ((0, 4096), (4096, 2048), (6032, 1024))
    assert pieces(7056, twice=8192) == ((0, 4096), (2960, 4096))
    assert pieces(50, twice=100) == ((0, 32), (18, 32))


def test_strips_that_are_no_longer_than_others():
    assert pieces(100, most=32) == ((0, 32), (32, 32), (64, 32), (84, 16))
    assert pieces(100, most=128) == pieces(100)
    for positions in range(16, 300):
        found = pieces(positions, most=16)
        assert len(found) == -(-positions // 16)
        assert found[-1][0] + 16 == positions


def test_strips_of_few_positions():
    assert pieces(2, 1) == ((0, 2),)
    assert pieces(11, 1) == ((0, 8), (8, 2), (10, 1))
    assert pieces(11, 1, twice=5) == ((0, 8), (3, 8))
    assert pieces(50, 1, may_repeat=False, twice=100) == ((0, 32), (32, 16), (48, 2))


SHAPES = {
    1: [(1, 40), (1, 33), (1, 50), (2, 67), (1, 301), (3, 5)],
    2: [(1, 9, 8), (2, 8, 8), (1, 7, 13), (1, 33, 31), (3, 17, 5), (16, 1, 1), (1, 1, 57)],
    3: [(1, 4, 4, 3), (1, 5, 3, 4), (1, 3, 5, 7), (2, 3, 3, 3)],
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rank", SHAPES)
def test_answers_in_strips(core, rank, threads):
    model = block(16, rank)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, seen = executable.create_infer_request(), 0
    for number, (n, *sizes) in enumerate(SHAPES[rank]):
        x = image(number, n, 16, *sizes)
        got = request.infer({"x": x})["y"]
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        if number >= PLANNED_ANEW:
            seen += sum(strips(executable))
    assert seen


@pytest.mark.parametrize("channels", [7, 24, 64])
def test_answers_stay_the_same_to_the_bit_when_a_plan_is_settled(core, monkeypatch, channels):
    monkeypatch.setattr(settling, "RUNS", 3)
    model = block(channels, 2)
    executable = load(core, model)
    request = executable.create_infer_request()
    for width in (8, 9):
        request.infer({"x": image(0, 1, channels, 8, width)})
    for width in (31, 45):
        x = image(width, 1, channels, 11, width)
        before, after = settled(executable, request, x)
        np.testing.assert_array_equal(before, after)
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(after, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("model", "before", "then"),
    [
        (rows(24), [(1, 8, 24), (2, 9, 24)], [(1, 37, 24), (3, 21, 24), (5, 1, 24), (1, 16, 24)]),
        (squeezed(16), [(1, 16, 8, 8), (2, 16, 8, 9)], [(1, 16, 9, 31), (2, 16, 5, 7)]),
    ],
    ids=["rows", "squeezed"],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_other_layers_in_strips(core, monkeypatch, model, before, then, threads):
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr(pairs, "MOST_NS", 0.0)  # NumPy would compute them
    monkeypatch.setattr(plan_sizes, "product_by_machine", lambda _: None)
    monkeypatch.setattr(plan_sizes, "norms_by_machine", lambda _: None)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, kinds = executable.create_infer_request(), set()
    for shape in before:
        request.infer({"x": image(0, *shape)})
    for number, shape in enumerate(then):
        x = image(number, *shape)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        kinds |= {step.primitive.kind for step in primitives(executable) if step.strips}
        steps = executable.latest_plan().steps
        kinds |= {step.implementation for step in steps if isinstance(step, ArrayStep)}
        if any(step.strips for step in primitives(executable)):
            for each in settled(executable, request, x):
                assert_same_sums(each, got, terms=shape[-1])
    if len(then[0]) == 3:
        product = "matmul" if has_avx512() else "convolution"
        softmax = {MACHINE_CODE} if has_vectors() else {"softmax", "numpy"}
        assert kinds == {product, "layer_normalization", "eltwise", "binary"} | softmax
    else:
        mean = {MACHINE_CODE} if has_vectors() else set()
        assert kinds == {"convolution", "binary", "numpy"} | mean


def test_layers_that_begin_with_the_same_strip(core):
    """Of which each has its own number of positions: another one, or none but the first."""
    window = {"w": image(0, 16, 16, 1, 1)}
    nodes = [("Conv", [name, "w"], [f"{name}0"], {}) for name in ("a", "b")]
    nodes += [("Conv", ["a0", "w"], ["y"], {}), ("Conv", ["b0", "w"], ["z"], {})]
    sizes = {name: ["n", 16, f"h{name}", f"v{name}"] for name in ("a", "b")}
    model = models.build(nodes, sizes, ["y", "z"], window)
    request = load(core, model).create_infer_request()
    for number, (first, second) in enumerate([(4, 5), (5, 6), (10, 8), (8, 13), (15, 9)]):
        given = {"a": image(number, 1, 16, 8, first), "b": image(9, 1, 16, 8, second)}
        wanted = models.answer(model, given)
        for got, each in zip(request.infer(given).values(), wanted, strict=True):
            np.testing.assert_allclose(got, each, rtol=1e-4, atol=1e-5 * np.abs(each).max())


@pytest.mark.skipif(not has_bf16(), reason="the processor does not compute with bfloat16")
def test_bfloat16_is_the_same_in_strips(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 3)
    executable = load(core, block(32, 2), ENFORCE_BF16="YES")
    request = executable.create_infer_request()
    for width in (8, 9):
        request.infer({"x": image(0, 1, 32, 8, width)})
    np.testing.assert_array_equal(*settled(executable, request, image(3, 1, 32, 9, 37)))


def test_nothing_is_asked_for_strips_that_were_there(core, monkeypatch):
    executable = load(core, block(16, 2))
    request = executable.create_infer_request()
    for height, width in ((8, 8), (8, 9), (40, 45)):  # 1,800 positions: strips of 1,024 to 64
        request.infer({"x": image(0, 1, 16, height, width)})
    assert strips(executable).count(0) < 4
    asked = asked_from_now(monkeypatch)
    request.infer({"x": image(0, 1, 16, 60, 30)})
    kinds = [name for name in asked if name.startswith("convolution")]
    assert len(kinds) == strips(executable).count(0)


def test_calls_of_strips_are_made_once_for_a_request(core, monkeypatch):
    """Whatever shapes have the same strips, and whatever memory their inputs lie in."""
    model = squeezed(16)
    executable = load(core, model)
    requests = [executable.create_infer_request() for _ in range(2)]
    made = []
    prepared = calls._prepared
    monkeypatch.setattr(calls, "_prepared", lambda *given: made.append(given) or prepared(*given))

    def count(request, number, height, width):
        """How many calls an inference makes, of which the answer is right."""
        x = image(number, 1, 16, height, width)
        (wanted,) = models.answer(model, {"x": x})
        del made[:]
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        return len(made)

    shapes = [(8, 9), (9, 8), (6, 12), (4, 18), (12, 6), (18, 4)]  # 72 positions each
    counts = [count(requests[0], *each) for each in ((k, *pair) for k, pair in enumerate(shapes))]
    assert counts[PLANNED_ANEW] > 0
    assert counts[PLANNED_ANEW + 1 :] == [0, 0, 0, 0]
    assert count(requests[1], 7, 12, 6) > 0  # of its own
    assert count(requests[0], 8, 18, 4) == 0


def test_many_positions_are_computed_by_strips_that_are_there(core, monkeypatch):
    """Longer ones would have to be generated and proved; up to 16 of those that are there do."""
    model = rows(16)
    executable = load(core, model)
    request = executable.create_infer_request()
    asked, found = asked_from_now(monkeypatch), []
    for number, length in enumerate((40, 50, 306, 82, 4000)):
        x = image(number, 1, length, 16)
        (wanted,) = models.answer(model, {"x": x})
        del asked[:]
        np.testing.assert_allclose(request.infer({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
        found.append("matmul_primitive_desc_create" in asked)
    assert found == [True, True, False, False, True]
    assert any(step.strips for step in primitives(executable))


def test_strips_that_were_made_but_not_run_get_their_code(core):
    """Ten rows ask for strips of eight, but weights of 1 MB are not read twice for so few."""
    weights = {"w": image(1, 256, 1100) - np.float32(0.5), "b": image(2, 1100)}
    nodes = [("MatMul", ["x", "w"], ["a"], {}), ("Add", ["a", "b"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", "k", 256]}, ["y"], weights)
    executable = load(core, model)
    request = executable.create_infer_request()
    for number, length in enumerate((64, 66, 10, 8)):
        x = image(number, 1, length, 256)
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(request.infer({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
    assert any(step.strips for step in primitives(executable))


def test_strips_that_are_not_proved_are_not_used(core, monkeypatch):
    model = block(16, 2)
    executable = load(core, model)
    request = executable.create_infer_request()
    monkeypatch.setattr("polydevice_cpu.plan.filling.parts.refusal", lambda claim: "wrong")
    for width in (8, 9, 20, 21):
        x = image(width, 1, 16, 8, width)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert executable.compiled.templates.filled
    # What has nothing fused, as the last one, has nothing to prove.
    found = [step for step in primitives(executable) if step.primitive.kind == "convolution"]
    assert [step.strips is None for step in found] == ["+" in step.type for step in found]
    assert {step.strips is None for step in found} == {False, True}


def test_a_plan_that_cannot_be_settled_stays_in_strips(core, monkeypatch, caplog):
    monkeypatch.setattr(settling, "RUNS", 2)
    executable = load(core, block(16, 2))
    request = executable.create_infer_request()
    for width in (8, 9, 20):
        request.infer({"x": image(0, 1, 16, 8, width)})
    plan = executable.latest_plan()

    def fail():
        raise MemoryError("no memory for it")

    plan.whole = fail
    x = image(1, 1, 16, 8, 20)
    with caplog.at_level(logging.INFO, "polydevice_cpu"):
        before = request.infer({"x": x})["y"].copy()
        wait_for_settling()
    assert plan.is_final
    assert "no memory for it" in caplog.text
    np.testing.assert_array_equal(request.infer({"x": x})["y"], before)


def test_closed_networks_settle_nothing(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 2)
    executable = load(core, block(16, 2))
    request = executable.create_infer_request()
    for width in (8, 9, 20):
        request.infer({"x": image(0, 1, 16, 8, width)})
    plan = executable.latest_plan()
    executable.close()
    executable.compiled._settling.note(((1, 16, 8, 20),), plan, executable.compiled._replace)
    assert not plan.is_final
    assert not [t for t in threading.enumerate() if t.name == "polydevice-cpu-settling"]
