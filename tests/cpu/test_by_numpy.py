"""Primitives that NumPy computes as long as a shape is new: the same numbers, to the bit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polydevice_cpu.onednn.constants import Algorithm
from polydevice_cpu.onednn.descriptor import row_major
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling import plan_sizes
from polydevice_cpu.plan.filling.with_numpy.copies import (
    MOST_JOINED,
    copying,
    joining,
    repeating,
)
from polydevice_cpu.plan.filling.with_numpy.pairs import pairing
from polydevice_cpu.plan.step import ArrayStep
from polydevice_cpu.plan.tables.plan import TablePlan
from polydevice_cpu.plan.value import Kind, Storage, Value
from tests.cpu import models
from tests.cpu.loading import assert_same_sums, image, load, wait_for_settling
from tests.cpu.machine_code import with_avx512

needs_onednn = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


def joined(channels: int = 24) -> bytes:
    """Pictures joined to larger ones of their own."""
    weights = {name: image(seed, channels, channels, 3, 3) / 9 for seed, name in enumerate("abc")}
    weights["twice"] = np.float32([1, 1, 2, 3])
    resize = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    nodes = [
        ("Conv", ["x", "a"], ["a0"], {"pads": [1] * 4}),
        ("Resize", ["a0", "", "twice"], ["large"], resize),
        ("Conv", ["large", "b"], ["b0"], {"pads": [1] * 4}),
        ("Relu", ["b0"], ["b1"], {}),
        ("Concat", ["large", "b1"], ["both"], {"axis": 1}),
        ("Sigmoid", ["both"], ["y"], {}),
    ]
    del weights["c"]
    return models.build(nodes, {"x": ["n", channels, "h", "v"]}, ["y"], weights)


def placed(width: int = 48) -> bytes:
    """Rows, to each of which what belongs to its place is added, and a product of both."""
    weights = {"w": image(0, width, width) - np.float32(0.5)}
    nodes = [
        ("Add", ["x", "p"], ["a"], {}),
        ("MatMul", ["a", "w"], ["b"], {}),
        ("Softmax", ["b"], ["c"], {"axis": -1}),
        ("Mul", ["c", "a"], ["y"], {}),
    ]
    sizes = {"x": ["n", "k", width], "p": [1, "k", width]}
    return models.build(nodes, sizes, ["y"], weights)


def by_numpy(executable):
    """Types of the latest plan's steps that NumPy computes."""
    steps = executable.latest_plan().steps
    return {step.type for step in steps if isinstance(step, ArrayStep)}


MODELS = {
    "joined": (
        joined(),
        [(1, 6, 9), (2, 7, 5), (1, 9, 8), (1, 5, 12), (3, 4, 7), (1, 13, 10)],
        lambda seed, n, h, v: {"x": image(seed, n, 24, h, v)},
        {"Interpolate", "Concat"},
        (1, 90, 80),
    ),
    "placed": (
        placed(),
        [(2, 9), (3, 17), (1, 33), (4, 21), (2, 50), (5, 23)],
        lambda seed, n, k: {"x": image(seed, n, k, 48), "p": image(seed + 1, 1, k, 48)},
        {"Add", "Multiply"},
        (9, 1100),
    ),
}


@needs_onednn
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_new_shapes_are_computed_by_numpy_as_by_onednn(core, monkeypatch, name, threads):
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr(plan_sizes, "pointwise_by_machine", lambda _: None)
    monkeypatch.setattr(plan_sizes, "moves_by_machine", lambda _: None)
    model, shapes, feed, types, large = MODELS[name]
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, seen = executable.create_infer_request(), set()
    for number, shape in enumerate(shapes):
        given = feed(number, *shape)
        (wanted,) = models.answer(model, given)
        got = request.infer(given)["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        kinds = by_numpy(executable)
        seen |= kinds
        for _ in range(settling.RUNS):
            request.infer(given)
        wait_for_settling()
        assert_same_sums(request.infer(given)["y"], got, terms=given["x"].shape[-1])
    assert types <= seen
    assert not types & by_numpy(executable)
    given = feed(9, *large)
    (wanted,) = models.answer(model, given)
    got = request.infer(given)["y"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert not types & by_numpy(executable)  # where it would take NumPy long


def value(shape, order=None):
    """A value of f32 whose axes lie in memory in this order, outermost first."""
    order = range(len(shape)) if order is None else order
    steps = row_major([shape[axis] for axis in order])
    strides = [0] * len(shape)
    for axis, step in zip(order, steps, strict=True):
        strides[axis] = step
    storage = Storage(Kind.ARENA, 4 * math.prod(shape))
    return Value(storage, tuple(shape), np.dtype(np.float32), tuple(strides))


def filled(made: Value, seed=None):
    """An array for it: random, or NaN."""
    data = np.full(made.storage.size_bytes, 0xFF, np.uint8)
    array = made.array(data)
    if seed is not None:
        array[...] = image(seed, *made.shape)
    return array


LAST = (0, 2, 3, 1)


@pytest.mark.parametrize(
    ("shape", "before", "behind"),
    [
        ((1, 3, 19, 37), None, LAST),
        ((2, 3, 19, 37), LAST, None),
        ((1, 16, 5, 7), None, LAST),
        ((2, 12, 9, 32), (0, 2, 1, 3), None),
        ((1, 69, 15, 2), (0, 3, 2, 1), None),
        ((3, 1, 1, 5), None, LAST),
        ((1, 2, 3, 4), None, (3, 2, 1, 0)),
        ((1, 3, 401, 299), None, LAST),
        ((5, 2, 250, 199), None, LAST),
    ],
)
def test_copies(shape, before, behind):
    source, target = value(shape, before), value(shape, behind)
    given, got = filled(source, 1), filled(target)
    assert copying(source, target)(given, got) == ()
    np.testing.assert_array_equal(got, given)


def test_large_copies_are_onednns():
    sides = [(value((1, 3, n, 400)), value((1, 3, n, 400), LAST)) for n in (100, 200, 1200)]
    assert [copying(*each) is not None for each in sides] == [True, True, False]
    assert copying(*sides[1], threads=8) is None


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("order", [None, LAST])
def test_joined_parts(axis, order):
    shape, sizes = [2, 9, 4, 7], (1, 5, 3)
    parts = [value([*shape[:axis], n, *shape[axis + 1 :]], order) for n in sizes]
    target = value([*shape[:axis], sum(sizes), *shape[axis + 1 :]], order)
    given, got = [filled(part, seed) for seed, part in enumerate(parts)], filled(target)
    joining(axis, parts, target)(*given, got)
    np.testing.assert_array_equal(got, np.concatenate(given, axis))


@pytest.mark.parametrize("rows", [40, 160, 333, 1100])
def test_many_runs_are_joined_some_at_a_time_and_more_by_onednn(rows):
    parts = [value((1, n, rows, 40), LAST) for n in (24, 3)]
    target = value((1, 27, rows, 40), LAST)
    made = joining(1, parts, target)
    assert (made is not None) == (2 * rows * 40 <= MOST_JOINED)
    if made is not None:
        given, got = [filled(part, seed) for seed, part in enumerate(parts)], filled(target)
        assert made(*given, got) == ()
        np.testing.assert_array_equal(got, np.concatenate(given, 1))


@pytest.mark.parametrize(("high", "wide"), [(1, 2), (2, 2), (3, 1), (5, 4)])
def test_repeated_pixels(high, wide):
    source = value((2, 11, 5, 6), LAST)
    target = value((2, 11, 5 * high, 6 * wide), LAST)
    given, got = filled(source, 3), filled(target)
    repeating(source, target)(given, got)
    np.testing.assert_array_equal(got, given.repeat(high, 2).repeat(wide, 3))


@pytest.mark.parametrize("times", [(2,), (3, 2), (1, 4), (5, 1), (2, 1, 3), (3, 2, 2)])
def test_repeated_elements_of_rows(times):
    few = (4, 5, 7)[: len(times)]
    source = value((2, 3, *few))
    target = value((2, 3, *(size * count for size, count in zip(few, times, strict=True))))
    given, got = filled(source, 3), filled(target)
    repeating(source, target)(given, got)
    for axis, count in enumerate(times, 2):
        given = given.repeat(count, axis)
    np.testing.assert_array_equal(got, given)


def test_other_pixels_are_onednns():
    source = value((1, 16, 6, 6), LAST)
    assert repeating(source, value((1, 16, 9, 12), LAST)) is None
    assert repeating(source, value((1, 16, 12, 12))) is None
    assert repeating(value((1, 3, 6, 6), LAST), value((1, 3, 12, 12), LAST)) is None
    assert repeating(source, value((1, 16, 180, 180), LAST)) is None
    assert repeating(value((1, 16, 6, 6)), value((1, 16, 9, 12))) is None
    assert repeating(value((1, 16, 60, 60)), value((1, 16, 120, 120))) is None


PAIRS = {
    Algorithm.BINARY_ADD: lambda a, b: a + b,
    Algorithm.BINARY_SUB: lambda a, b: a - b,
    Algorithm.BINARY_MUL: lambda a, b: a * b,
    Algorithm.BINARY_DIV: lambda a, b: a / b,
}


@pytest.mark.parametrize("algorithm", PAIRS)
@pytest.mark.parametrize("other", [(3, 7, 32), (1, 7, 32), (3, 1, 1), (1, 1, 1)])
def test_pairs(algorithm, other):
    first, second, target = value((3, 7, 32)), value(other), value((3, 7, 32))
    a, b, got = filled(first, 1), filled(second, 2) + np.float32(0.25), filled(target)
    pairing(algorithm, first, second, target)(a, b, got)
    np.testing.assert_array_equal(got, PAIRS[algorithm](a, b))


def test_long_pairs_and_short_runs_are_onednns():
    add = Algorithm.BINARY_ADD
    for n, runs in [(300, True), (1000, False)]:
        whole = value((n, 800))
        assert (pairing(add, whole, value((1, 800)), whole) is not None) == runs
        assert (pairing(add, whole, value((1, 1)), whole) is not None) == runs
        assert pairing(add, whole, value((n, 1)), whole) is None
        assert pairing(add, whole, whole, whole, threads=2) is None


@with_avx512
@pytest.mark.parametrize("rows", [4, 24, 90], ids=str)
def test_one_table_serves_one_picture_and_many(core, rows):
    """Reordered, joined, repeated, added to and limited; 90 rows of many are reordered in parts."""
    weights = {
        "a": image(1, 24, 3, 3, 3) / 5,
        "b": image(2, 24, 24, 1, 1) / 5,
        "c": image(3, 1, 24, 1, 1),
        "least": np.float32(-0.5),
        "most": np.float32(0.75),
    }
    nodes = [
        ("Conv", ["x", "a"], ["y0"], {"pads": [1] * 4}),
        ("Conv", ["y0", "b"], ["y1"], {}),
        ("Concat", ["y1", "y0"], ["y2"], {"axis": 1}),
        ("Mul", ["y0", "c"], ["y3"], {}),
        ("Concat", ["y2", "y3"], ["y4"], {"axis": 1}),
        ("Clip", ["y4", "least", "most"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 3, "h", 80]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request, found = executable.create_infer_request(), set()
    for number, n in enumerate([3, 5, 2, 1, 9, 1, 12, 8, 1, 15, 4]):
        x = image(number, n, 3, rows + number % 3, 80)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
        plan = executable.latest_plan()
        if isinstance(plan, TablePlan):
            found.add((n == 1, len(plan.late)))
    assert {is_one for is_one, _ in found} == {False, True}
    assert rows == 90 or (True, 0) in found
