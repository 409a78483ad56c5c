"""Sums of taps along an axis, and copies by index, by machine code; and resizing that they do."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from polydevice_cpu.algorithms.by_machine.resampling import taps
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import load
from tests.cpu.machine_code import missing_avx512, with_avx512
from tests.guard_pages import SIDES, guarded

SHAPES = [(1, 1, 1, 1), (2, 7, 3, 40), (3, 40, 17, 6), (1, 9, 33, 5), (4, 13, 8, 1), (2, 64, 1, 67)]


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axis", range(4))
def test_sums_of_taps(rng, shape, axis, side) -> None:
    results, count = int(rng.integers(1, 50)), int(rng.integers(1, 9))
    index = rng.integers(0, shape[axis], (results, count))
    weight = rng.standard_normal((results, count)).astype(np.float32)
    x = guarded_copy(rng.standard_normal(shape).astype(np.float32), side)
    behind = (1,) * (3 - axis)
    want = sum(
        x.take(index[:, k], axis).astype(np.float64) * weight[:, k].reshape(-1, *behind)
        for k in range(count)
    )
    y = guarded_copy(np.full(want.shape, 7, np.float32), side)
    table = taps.Table(index, weight)
    for threads in (1, 3):
        code = taps.code_of(shape, axis, table, threads)
        for _ in range(2):
            y[...] = 7
            assert code.bound([address_of(x), address_of(y)])() == 0
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@with_avx512
def test_threads_share_many_results(rng, monkeypatch) -> None:
    monkeypatch.setattr(taps, "SHARED", 1)
    x = rng.standard_normal((3, 37, 21)).astype(np.float32)
    table = taps.Table(rng.integers(0, 37, (19, 4)), rng.random((19, 4)).astype(np.float32))
    y = np.zeros((3, 19, 21), np.float32)
    with openmp.threads(2):
        taps.code_of(x.shape, 1, table, 2).bound([address_of(x), address_of(y)])()
    want = sum(x[:, table.read[:, k]] * table.weight[:, k, None] for k in range(4))
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("shape", "axis"), [((3, 17), 1), ((2, 5, 7), 1), ((1, 33, 3), 1)])
def test_elements_are_copied_as_they_are(rng, shape, axis, side) -> None:
    """Bits of NaNs, and the sign of zero, included."""
    bits = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    bits.flat[0] = 1 << 31
    x = guarded_copy(bits, side)
    index = rng.integers(0, shape[axis], 29)
    want = x.take(index, axis)
    y = guarded_copy(np.zeros(want.shape, np.uint32), side)
    assert taps.may_copy(shape, axis, 4)
    taps.copying(shape, axis, index).bound([address_of(x), address_of(y)])()
    np.testing.assert_array_equal(y, want)


RESIZES = {
    "antialiased": {"mode": "cubic", "antialias": 1, "cubic_coeff_a": -0.5},
    "linear": {"mode": "linear", "antialias": 1},
    "floor": {"mode": "nearest", "nearest_mode": "floor"},
    "asymmetric": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"},
}


@pytest.mark.skipif(library() is None, reason="without oneDNN all of it is NumPy's")
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int8, np.int64])
@pytest.mark.parametrize("sizes", [[2, 3, 11, 9], [2, 3, 40, 29], [2, 7, 23, 5]], ids=str)
@pytest.mark.parametrize("how", RESIZES)
def test_resizes_that_onednn_lacks(core, rng, how, sizes, dtype) -> None:
    is_nearest = RESIZES[how]["mode"] == "nearest"
    low, high = (0, 255) if dtype is np.uint8 else (-100, 100)
    x = rng.uniform(low, high, (2, 3, 23, 17)).astype(dtype)
    nodes = [("Resize", ["x", "", "", "s"], ["y"], RESIZES[how])]
    shapes = {"x": list(x.shape)}
    model = models.build(nodes, shapes, ["y"], {"s": np.int64(sizes)}, 18, element_type=dtype)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    executable = load(core, model)
    request = executable.create_infer_request()
    for _ in range(2):
        (got,) = request.infer({"x": x}).values()
        if dtype is np.float32:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
        elif is_nearest:
            np.testing.assert_array_equal(got, want)
        else:  # the reference cuts to integers what is rounded here
            inside = (want > np.iinfo(dtype).min + 9) & (want < np.iinfo(dtype).max - 9)
            away = np.abs(got.astype(int) - want.astype(int))[inside]
            assert away.max(initial=0) <= 1
    kinds = {step.implementation for step in executable.latest_plan().steps}
    is_for_numpy = dtype is np.int64 and not is_nearest
    assert ("numpy" in kinds) == is_for_numpy or missing_avx512()


def guarded_copy(array: np.ndarray, side: str) -> np.ndarray:
    """The same numbers beside a page that may not be read."""
    made = guarded(side, array.nbytes).view(array.dtype)[: array.size].reshape(array.shape)
    made[...] = array
    return made
