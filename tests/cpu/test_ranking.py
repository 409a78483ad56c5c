"""Which elements come first, as by NumPy's stable sort: ties, infinities, NaN, extreme integers."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice_cpu.algorithms.by_machine.ranking import beside, rows
from polydevice_cpu.algorithms.ranking import extreme, largest, smallest
from polydevice_cpu.implement import run
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded


def _first(x: np.ndarray, count: int, *, descending: bool) -> np.ndarray:
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")[..., :count]
    backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return (x.shape[-1] - 1 - backwards)[..., :count]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint32])
def test_the_first_of_equal_elements_comes_first(dtype):
    rng = np.random.default_rng(7)
    marks = (
        [np.nan, np.inf, -np.inf, -0.0]
        if dtype in (np.float32, np.float64)
        else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    )
    for _ in range(60):
        shape = (*rng.integers(1, 6, rng.integers(0, 3)), rng.integers(1, 90))
        x = rng.integers(0, rng.integers(3, 99), shape).astype(dtype)
        for mark in marks:
            if rng.random() < 0.3:
                x[rng.random(shape) < 0.2] = mark
        count = rng.integers(1, min(shape[-1], 6) + 1)
        np.testing.assert_array_equal(smallest(x, count), _first(x, count, descending=False))
        np.testing.assert_array_equal(largest(x, count), _first(x, count, descending=True))
        for most in (False, True):
            found = extreme(x, x.ndim - 1, largest=most)
            if found is not None:
                np.testing.assert_array_equal(found[0], _first(x, 1, descending=most))


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint16, np.int64, np.bool_])
@pytest.mark.parametrize("planes", [2, 7, 300])
def test_the_first_of_the_largest_planes(dtype, planes):
    """Of few values many are equal; zeros of both signs are, too."""
    rng = np.random.default_rng(planes)
    shapes = [(1, (3, planes, 20, 33)), (0, (planes, 1500)), (1, (2, planes, 700))]
    for axis, shape in [*shapes, (2, (3, 1500, planes))]:
        x = rng.integers(-2, 3, shape).astype(dtype)
        if dtype == np.float32:
            x[rng.random(shape) < 0.3] = -0.0
            x[rng.random(shape) < 0.1] = -np.inf
        for most in (False, True):
            found = extreme(x, axis, largest=most)
            assert found is not None
            index, values = found
            expected = np.expand_dims((np.argmax if most else np.argmin)(x, axis), axis)
            np.testing.assert_array_equal(index, expected)
            if values is not None:
                theirs = np.take_along_axis(x, expected, axis)
                np.testing.assert_array_equal(values, theirs)
                assert x.dtype.kind != "f" or (np.signbit(values) == np.signbit(theirs)).all()
        if dtype == np.float32:
            x.reshape(-1)[17] = np.nan
            found = extreme(x, axis, largest=True)
            expected = np.expand_dims(np.argmax(x, axis), axis)  # the first NaN
            assert found is None or np.array_equal(found[0], expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64])
@pytest.mark.parametrize("kind", ["any", "few values", "mostly equal", "with NaN"])
def test_few_of_long_rows(dtype, kind):
    """Equal ones are in the order of their places, whatever way finds them."""
    rng = np.random.default_rng(3)
    for shape, count in (((3, 5001), 7), ((2049,), 500), ((2, 2, 4100), 1), ((40_000,), 300)):
        x = rng.integers(-(10**6), 10**6, shape).astype(dtype)
        if kind == "few values":
            x %= 7
        elif kind == "mostly equal":
            x[rng.random(shape) < 0.9] = 0
        elif kind == "with NaN" and dtype != np.int32:
            x[..., rng.integers(0, shape[-1], 3)] = np.nan
            x[..., -1] = np.nan  # in no group
        for descending, find in ((False, smallest), (True, largest)):
            keys = np.where(np.isnan(x), np.inf, x)
            order = np.argsort(-keys if descending else keys, axis=-1, kind="stable")
            np.testing.assert_array_equal(find(x, count), order[..., :count])


def test_few_of_no_rows():
    for found in (largest(np.zeros((0, 3000), np.float32), 20), smallest(np.zeros((2, 0, 99)), 5)):
        assert found.dtype == np.int64
        assert found.size == 0


def few(axis_length, count, mode):
    """A model of TopK along the last axis, with 1 added before and behind."""
    nodes = [
        ("Add", ["x", "one"], ["a"], {}),
        ("TopK", ["a", "k"], ["v", "i"], {"largest": int(mode == "max")}),
        ("Add", ["v", "one"], ["y"], {}),
    ]
    weights = {"one": np.float32(1), "k": np.array([count])}
    return build(nodes, {"x": ["n", "m", axis_length]}, ["y", "i"], weights)


@pytest.mark.parametrize("count", [0, 2])
def test_the_first_few_of_a_network_without_elements(core, count):
    weights = {"k": np.array([count])}
    nodes = [("TopK", ["x", "k"], ["y", "i"], {"axis": 0})]
    made = build(nodes, {"x": ["n", "m", "k"]}, ["y", "i"], weights)
    request = load(core, made).create_infer_request()
    for size in (16, 4):  # the third shape's plan is filled in
        request.infer({"x": np.zeros((3, 5, size), np.float32)})
    found = request.infer({"x": np.zeros((3, 2, 0), np.float32)})
    assert [each.shape for each in found.values()] == [(count, 2, 0)] * 2


@with_avx512
@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize(
    ("length", "count"), [(4, 2), (7, 7), (50, 1), (900, 16), (33, 17), (900, 80), (900, 90)]
)
def test_the_first_few_of_a_network_are_those_of_onnx_runtime(core, length, count, mode):
    made, rng = few(length, count, mode), np.random.default_rng(length)
    network = load(core, made)
    request = network.create_infer_request()
    for kind in ("random", "equal", "rising", "falling"):
        shape = (*(int(n) for n in rng.integers(1, 6, 2)), length)
        x = rng.standard_normal(shape)
        if kind == "equal":
            x = np.round(x)
        elif kind != "random":
            x = np.sort(x)[..., :: 1 if kind == "rising" else -1]
        x = np.ascontiguousarray(x, np.float32)
        inputs = {"x": x}
        for found, right in zip(request.infer(inputs).values(), answer(made, inputs), strict=True):
            np.testing.assert_array_equal(found, right)
    assert "TopK" in by_machine_code(network)


@with_avx512
def test_what_takes_machine_code_too_long_is_sorted_and_the_next_one_is_not(core):
    """Each of a rising row is larger than all before it; the steps are counted anew each time."""
    made, rng = few("l", 40, "max"), np.random.default_rng(40)
    request = load(core, made).create_infer_request()
    for number in range(12):
        x = rng.standard_normal((2, 1, 700 if number < 9 else 300)).astype(np.float32)
        x = np.sort(x) if number % 3 == 1 else x
        for found, right in zip(
            request.infer({"x": x}).values(), answer(made, {"x": x}), strict=True
        ):
            np.testing.assert_array_equal(found, right)


@with_avx512
def test_nan_among_the_smallest_is_left_to_numpy_and_what_follows_is_computed(core):
    """NaN is the largest, so that it is last of the smallest; machine code refuses it."""
    made = few(5, 4, "min")
    request = load(core, made).create_infer_request()
    nan = np.nan
    x = np.array([[[3, nan, 1, nan, nan], [2, 5, 1, 4, 3]]], np.float32)
    for _ in range(3):  # the second inference calls steps together
        y, index = request.infer({"x": x}).values()
        np.testing.assert_array_equal(y, [[[3, 5, nan, nan], [3, 4, 5, 6]]])
        np.testing.assert_array_equal(index, [[[2, 0, 1, 3], [2, 0, 4, 3]]])
        good = {"x": np.nan_to_num(x)}
        for found, right in zip(request.infer(good).values(), answer(made, good), strict=True):
            np.testing.assert_array_equal(found, right)


def in_order(x, count, *, descending, by_index):
    """Indices of the first elements along the second axis of x [outer, length, inner]."""
    rows = np.moveaxis(x, 1, -1)
    keys = np.where(np.isnan(rows), 0, rows) * (-1.0 if descending else 1.0)
    number = np.broadcast_to(np.arange(rows.shape[-1]), rows.shape)
    place = np.isnan(rows) != descending
    index = np.lexsort((number, keys, place), axis=-1)[..., :count]
    return np.moveaxis(np.sort(index, axis=-1) if by_index else index, -1, 1)


SHAPES = [
    *[(2, n, 1, k) for n, k in ((1, 1), (7, 3), (16, 16), (100, 99), (128, 60), (129, 7))],
    *[(3, n, 1, k) for n, k in ((200, 130), (1000, 64), (1000, 1000), (3000, 200))],
    *[(2, n, inner, k) for n, inner, k in ((9, 2, 4), (40, 17, 40), (300, 3, 150))],
    *[(2, n, inner, k) for n, inner, k in ((9, 8, 4), (40, 15, 1), (77, 16, 3), (50, 70, 16))],
]


@with_avx512
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("side", SIDES)
def test_code_of_the_first_elements(shape, dtype, side):
    """Of any values, of few, zeros of both signs, infinities and NaN; within its memory."""
    *sizes, count = shape
    rng = np.random.default_rng(count)
    x = guarded(side, 4 * math.prod(sizes)).view(dtype).reshape(sizes)
    for number in range(8):
        values = rng.normal(0, 1e5, sizes) if number % 2 else rng.integers(-2, 3, sizes)
        x[...] = values.astype(dtype)
        if dtype == np.float32 and number > 3:
            for mark in (-0.0, np.inf, -np.inf, np.nan):
                x[rng.random(sizes) < 0.2] = mark
        descending, by_index, kind = (
            number % 3 > 0,
            number % 4 > 2,
            [np.int64, np.int32][number % 2],
        )
        results = sizes[0], count, sizes[2]
        index = guarded(side, np.dtype(kind).itemsize * math.prod(results)).view(kind)
        values = guarded(side, 4 * math.prod(results)).view(dtype)
        ways = [rows.code_of, beside.code_of] if sizes[2] > 7 and not by_index else [rows.code_of]
        if by_index:
            ways = [partial(rows.code_of, by_index=True)]
        for way in ways if count <= beside.FEW else ways[:1]:
            how = x.dtype, count, index.itemsize
            code = way(tuple(sizes), *how, descending=descending, threads=1 + number % 3)
            assert code.bound([address_of(each) for each in (x, index, values)])() == 0
            want = in_order(x, count, descending=descending, by_index=by_index)
            np.testing.assert_array_equal(index.reshape(results), want)
            found = np.take_along_axis(x, want, 1).view(np.int32)
            np.testing.assert_array_equal(values.view(np.int32).reshape(results), found)


@pytest.mark.parametrize("sort", TopKSort)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_along_any_axis_of_arrays(sort, axis):
    """As sizes that data tells want them: the same call serves again, and others come between."""
    rng = np.random.default_rng(axis)
    for _ in range(2):
        for shape, count in (((30, 12, 20), 9), ((40, 150, 9), 3), ((17, 18, 200), 17)):
            x = rng.integers(-9, 9, shape).astype(np.float32)
            op = TopK(axis=axis, mode=TopKMode.MIN, sort=sort)
            values, index = run(op, [x, np.array(count)])
            outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
            given = x.reshape(outer, shape[axis], inner)
            by_index = sort is TopKSort.INDEX
            want = in_order(given, count, descending=False, by_index=by_index).reshape(index.shape)
            np.testing.assert_array_equal(index, want)
            np.testing.assert_array_equal(values, np.take_along_axis(x, want, axis))
