"""The first of f64 and i64 by machine code, of f16 by way of f32: ties, NaN, extreme integers."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.ranking import wide
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.engine import address_of
from tests.cpu import models
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, missing_avx512, with_avx512
from tests.guard_pages import SIDES, guarded


def given(rng, shape, dtype):
    """Numbers of which some are alike, and some extreme."""
    x = (rng.standard_normal(shape) * rng.choice([2, 1e4])).astype(dtype)
    marks = [np.nan, np.inf, -np.inf, -0.0]
    if dtype == np.int64:
        marks = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0]
    for mark in marks:
        x[rng.random(shape) < rng.choice([0, 0.2])] = mark
    return x


def first(x, axis, count, *, descending):
    """Indices by NumPy's stable sort, which puts NaN last."""
    if not descending:
        return np.argsort(x, axis, kind="stable").take(range(count), axis)
    backwards = np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    return (x.shape[axis] - 1 - backwards).take(range(count), axis)


def found(x, count, index, *, descending, side="after", threads=1):
    """What code finds along the second of three axes."""
    shape = (x.shape[0], count, x.shape[2])
    arrays = [guarded(side, x.nbytes).view(x.dtype).reshape(x.shape)]
    for kind in (index, x.dtype):
        size = np.dtype(kind).itemsize * int(np.prod(shape))
        arrays.append(guarded(side, size).view(kind).reshape(shape))
    arrays[0][...] = x
    how = {"descending": descending, "threads": threads}
    made = wide.code_of(x.shape, x.dtype, count, np.dtype(index).itemsize, **how)
    assert made is not None
    call = made.bound([address_of(each) for each in arrays])
    return call(), *arrays[1:]


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
@pytest.mark.parametrize("inner", [1, 3])
def test_first(rng, side, dtype, inner) -> None:
    for _ in range(40):
        length = int(rng.integers(1, 70))
        x = given(rng, (int(rng.integers(1, 4)), length, inner), dtype)
        count, descending = int(rng.integers(1, length + 1)), bool(rng.random() < 0.5)
        kind = rng.choice([np.int32, np.int64])
        status, index, values = found(x, count, kind, descending=descending, side=side)
        assert status == 0
        want = first(x, 1, count, descending=descending)
        np.testing.assert_array_equal(index, want)
        np.testing.assert_array_equal(
            values.view(np.int64), np.take_along_axis(x, want, 1).view(np.int64)
        )


@with_avx512
def test_what_takes_long_is_refused() -> None:
    x = np.arange(20_000.0).reshape(1, -1, 1)
    assert found(x, 300, np.int64, descending=True)[0] != 0
    status, index, _ = found(x, 300, np.int64, descending=False)
    assert status == 0
    np.testing.assert_array_equal(index[0, :, 0], np.arange(300))
    assert wide.code_of((1, 9000, 1), x.dtype, 4000, 8, descending=True) is None


@with_avx512
def test_threads_share_rows(rng, monkeypatch) -> None:
    monkeypatch.setattr(wide, "SHARED", 1)
    x = given(rng, (37, 40, 1), np.float64)
    with openmp.threads(2):
        status, index, _ = found(x, 7, np.int64, descending=True, threads=2)
    assert status == 0
    np.testing.assert_array_equal(index, first(x, 1, 7, descending=True))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int64])
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((40,), 0, 9), ((3, 50), 1, 50), ((4, 30, 6), 1, 5), ((2, 5, 400), -1, 60), ((500, 7), 1, 1)],
)
def test_a_network(core, rng, dtype, shape, axis, count, largest) -> None:
    nodes = [("TopK", ["x", "k"], ["y", "i"], {"axis": axis, "largest": largest})]
    sizes = [f"n{number}" for number in range(len(shape))]
    weights = {"k": np.array([count])}
    for given_sizes in (shape, sizes):
        model = models.build(nodes, {"x": given_sizes}, ["y", "i"], weights, element_type=dtype)
        executable = load(core, model)
        for _ in range(3):
            x = given(rng, shape, dtype)
            got = executable.infer({"x": x})
            want = first(
                x.astype(float if dtype == np.float16 else dtype),
                axis,
                count,
                descending=bool(largest),
            )
            np.testing.assert_array_equal(got["i"], want)
            np.testing.assert_array_equal(got["y"], np.take_along_axis(x, want, axis))
            assert got["y"].dtype == dtype
    if not missing_avx512():
        assert "TopK" in by_machine_code(executable)
    straight = np.sort(given(rng, shape, dtype), axis)
    got = executable.infer({"x": straight})
    want = first(straight, axis, count, descending=bool(largest))
    np.testing.assert_array_equal(got["i"], want)
