"""Numbers reduced along any axes by machine code; NumPy and ONNX Runtime judge."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.reductions.kernel import How
from polydevice_cpu.algorithms.by_machine.reductions.loops import code_of
from polydevice_cpu.lowering import reduce as lowering
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512, with_vectors
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

F = np.float32
FUNCTIONS = {
    How.SUM: np.sum,
    How.MEAN: np.mean,
    How.PRODUCT: np.prod,
    How.LARGEST: np.max,
    How.SMALLEST: np.min,
    How.L1: lambda x, axis: np.abs(x).sum(axis),
    How.L2: lambda x, axis: np.sqrt((x * x).sum(axis)),
}
SHAPES = [
    *[((n,), (0,)) for n in (1, 15, 16, 100, 128, 700)],
    *[((6, n), (1,)) for n in (3, 12, 13, 16, 129, 300)],
    *[((40, n), (1,)) for n in (1, 3, 12, 13)],
    *[((n, 3), (0,)) for n in (2, 9, 33)],
    *[((3, 21, n), (1,)) for n in (2, 4, 8, 5, 16, 17, 200)],
    *[((9, 3, n), (0, 2)) for n in (2, 31)],
    *[((3, 9, 5, n), (1, 3)) for n in (4, 31)],
    *[((3, 9, 5, n), (0, 2)) for n in (2, 7, 40)],
    *[((2, 3, 2, 3, 2, 5), axes) for axes in ((0, 2, 4), (1, 3, 5))],
    ((9, 1, 7), (1,)),
]


LONG = [pytest.param(kind, marks=with_avx512) for kind in (np.float64, np.int64)]


@with_vectors
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [np.float32, np.int32, *LONG])
@pytest.mark.parametrize("how", How)
def test_code_of_any_axes(side, kind, how):
    rng = np.random.default_rng(1)
    is_float = np.dtype(kind).kind == "f"
    for number, (shape, axes) in enumerate(SHAPES):
        x = guarded(side, math.prod(shape) * np.dtype(kind).itemsize).view(kind).reshape(shape)
        if is_float:
            x[...] = (
                np.exp(rng.normal(0, 0.1, shape)) if how is How.PRODUCT else rng.normal(size=shape)
            )
        else:
            limits = np.iinfo(kind)
            x[...] = rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
        code = code_of(shape, axes, x.dtype, how, 1 + number % 3)
        if not is_float and how in (How.MEAN, How.L1, How.L2):
            assert code is None
            continue
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64) if is_float else x
            want = FUNCTIONS[how](wide, axis=axes).astype(kind)  # integers wrap around alike
        got = guarded(side, want.nbytes).view(kind).reshape(want.shape)
        assert code.bound([address_of(x), address_of(got)])() == 0
        np.testing.assert_allclose(got, want, rtol=1e-5 if kind == F else 1e-12, atol=1e-5)


@with_vectors
def test_too_many_loops_are_left_to_numpy():
    assert code_of((2,) * 11, (0, 2, 4, 6, 8), np.dtype(F), How.SUM) is None


@with_vectors
@pytest.mark.parametrize("kind", [np.float32, LONG[0]])
def test_nan_is_largest_and_smallest_and_infinities_are_numbers(kind):
    rng = np.random.default_rng(2)
    for shape, axes in SHAPES:
        x = rng.normal(size=shape).astype(kind)
        for mark in (np.nan, np.inf, -np.inf):
            x[rng.random(shape) < 0.05] = mark
        for how in (How.LARGEST, How.SMALLEST):
            want = np.asarray(FUNCTIONS[how](x, axis=axes))
            got = np.empty(want.shape, kind)
            code_of(shape, axes, x.dtype, how).bound([address_of(x), address_of(got)])()
            np.testing.assert_array_equal(got, want)


FLOATS, INTEGERS = (np.float32, np.float64), (np.int32, np.int64)
KINDS = [
    *[(f"Reduce{how}", kind) for how in ("Sum", "Prod", "Max", "Min") for kind in INTEGERS],
    *[(f"Reduce{how}", kind) for how in ("Sum", "Prod", "Max", "Min") for kind in FLOATS],
    *[(f"Reduce{how}", kind) for how in ("Mean", "L1", "L2") for kind in FLOATS],
]


@pytest.mark.parametrize(("name", "kind"), KINDS)
@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 1], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("by_machine", [True, False])
def test_networks(core, monkeypatch, name, kind, axes, by_machine):
    """Of open sizes, behind and before what is computed otherwise; with axes of size 1, too."""
    if not by_machine:
        monkeypatch.setattr(lowering, "has_vectors", lambda: False)
    rng = np.random.default_rng(2)
    is_float = np.dtype(kind).kind == "f"
    keep = int(len(axes) != 2)
    nodes = [("Mul", ["x", "x"], ["a"], {}), (name, ["a", "axes"], ["r"], {"keepdims": keep}),
             ("Neg", ["r"], ["y"], {})]  # fmt: skip
    model = build(nodes, {"x": ["n", "m", "k"]}, ["y"], {"axes": np.array(axes)}, opset=18,
                  element_type=kind)  # fmt: skip
    executable = load(core, model)
    for shape in ((1, 1, 1), (2, 3, 5), (4, 30, 40), (3, 2, 7), (2, 3, 5), (1, 2, 100)):
        x = rng.normal(size=shape) if is_float else rng.integers(-9, 9, shape)
        x = x.astype(kind)
        if name == "ReduceProd":  # ONNX Runtime does not wrap around
            x[rng.random(shape) > 3 / x.size] = -1
        (want,) = answer(model, {"x": x})
        got = executable.infer({"x": x})["y"]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@with_vectors
@pytest.mark.parametrize("name", ["ReduceMean", "ReduceMax"])
def test_what_convolutions_leave_is_reduced_in_its_order(core, name):
    nodes = [("Conv", ["x", "w"], ["a"], {}), (name, ["a"], ["y"], {"axes": [1, 3]})]
    weights = {"w": np.random.default_rng(3).normal(size=(20, 8, 1, 1)).astype(F)}
    model = build(nodes, {"x": [2, 8, 9, 11]}, ["y"], weights)
    x = np.random.default_rng(4).normal(size=(2, 8, 9, 11)).astype(F)
    executable = load(core, model)
    (want,) = answer(model, {"x": x})
    np.testing.assert_allclose(executable.infer({"x": x})["y"], want, rtol=1e-4, atol=1e-5)
    assert name in by_machine_code(executable)
