"""Unique of numbers and of slices, as NumPy finds them: equal zeros, NaN, extreme integers."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.ops.search import Unique
from polydevice_cpu.algorithms.by_machine.ranking import unique
from polydevice_cpu.implement import run
from polydevice_cpu.ops import search
from tests.cpu.loading import at_once
from tests.cpu.machine_code import with_avx512
from tests.guard_pages import SIDES, guarded

KINDS = ["i4", "i8", "u1", "u8", "i2", "?", "f2", "f4", "f8"]


def given(rng, shape, kind):
    """Few numbers, many of which are equal, or any."""
    if kind == "?":
        return rng.random(shape) < 0.5
    if kind[0] == "f":
        x = rng.integers(-3, 4, shape).astype(kind) * rng.choice([1, 100]).astype(kind)
        for mark in (-0.0, np.inf, np.nan):
            x[rng.random(shape) < rng.choice([0, 0.2])] = mark
        return x
    limits = np.iinfo(kind)
    if rng.random() < 0.3:
        return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
    x = rng.integers(max(-3, limits.min), 4, shape).astype(kind)
    for mark in (limits.min, limits.max):
        x[rng.random(shape) < rng.choice([0, 0.2])] = mark
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_all_that_there_is_to_know(kind, is_sorted, rank):
    rng = np.random.default_rng(rank)
    for number in range(40):
        shape = tuple(rng.integers(1, [1300, 30, 6][rank - 1] + 1, rank).tolist())
        x, axis = given(rng, shape, kind), None if number % 2 else number // 2 % rank
        found = run(Unique(sorted=is_sorted), [x] if axis is None else [x, np.array(axis)])
        values, first, inverse, counts = np.unique(
            x,
            return_index=True,
            return_inverse=True,
            return_counts=True,
            axis=axis if rank > 1 else None,  # with one, NumPy 1 tells NaN apart
        )
        inverse = inverse.reshape(-1)
        if not is_sorted:
            order = np.argsort(first)
            values = np.take(values, order, 0 if axis is None else axis)
            first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
        for got, want in zip(found, (values, first, inverse, counts), strict=True):
            np.testing.assert_array_equal(got, want)


def test_rows_of_more_numbers_than_fit_together():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 40, (7, 12))[rng.integers(0, 7, 900)]
    x[:, 3] = rng.integers(0, 2, 900)
    values, first, inverse, counts = run(Unique(), [x, np.array(0)])
    want = np.unique(x, axis=0)
    np.testing.assert_array_equal(values, want)
    np.testing.assert_array_equal(values[inverse], x)
    assert counts.sum() == 900
    wide = rng.integers(0, 900, (900, 12))  # nor the ranks of each column
    assert search._joined(wide) is None
    np.testing.assert_array_equal(run(Unique(), [wide, np.array(0)])[0], np.unique(wide, axis=0))
    np.testing.assert_array_equal(x[first], values)


def known(x):
    """What NumPy says of rows in order."""
    _, first, inverse, counts = np.unique(
        x,
        return_index=True,
        return_inverse=True,
        return_counts=True,
        axis=0 if x.ndim > 1 else None,
    )
    return first, inverse.reshape(-1), counts


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", ["i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("width", [0, 1, 3, 12])
def test_machine_code(rng, side, kind, width):
    """One number or several each, as NumPy does, against a page without access."""
    for _ in range(60):
        rows = int(rng.integers(1, 300))
        x = given(rng, (rows, width) if width else rows, kind)
        if width > 1 and kind[0] == "f":
            x[np.isnan(x)] = 1
        x = guarded_as(x, side)
        found = unique.unique(x, is_sorted=True)
        want = known(x[:, 0] if width == 1 else x)
        many = len(want[0]) > unique.ROWS_COMPARED
        assert found is not None or (width > 1 and many)
        for got, each in zip(found or want, want, strict=True):
            np.testing.assert_array_equal(got, each)
        first, inverse, counts = unique.unique(x, is_sorted=False)
        np.testing.assert_array_equal(first, np.sort(want[0]))
        np.testing.assert_array_equal(want[0][want[1]], first[inverse])
        np.testing.assert_array_equal(counts, np.bincount(inverse))


def guarded_as(x, side):
    copy = guarded(side, x.nbytes).view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


@with_avx512
def test_what_machine_code_leaves_to_numpy(rng):
    assert unique.unique(np.array([[1, np.nan], [1, np.nan]]), is_sorted=True) is None
    assert unique.unique(np.zeros(unique.MOST + 1), is_sorted=True) is None
    assert unique.unique(np.zeros(0), is_sorted=True) is None
    assert unique.unique(np.zeros(3, np.uint8), is_sorted=True) is None
    assert unique.unique(rng.random((unique.ROWS_COMPARED + 1, 2)), is_sorted=True) is None
    x = rng.permutation(unique.MOST)[::-1]  # all of which differ, and lie backwards
    first, inverse, counts = unique.unique(x, is_sorted=True)
    np.testing.assert_array_equal(x[first], np.arange(unique.MOST))
    np.testing.assert_array_equal(inverse, x)
    assert (counts == 1).all()


@with_avx512
def test_each_thread_has_memory_of_its_own():
    def work(number):
        rng = np.random.default_rng(number)
        for _ in range(300):
            x = rng.integers(0, 200, 900)
            for got, want in zip(unique.unique(x, is_sorted=True), known(x), strict=True):
                np.testing.assert_array_equal(got, want)

    at_once(work, 4)
