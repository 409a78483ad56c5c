"""Rows divided by norms and multiplied by constants in one go, as root mean square norms are."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.rows import norms
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512
F = np.float32


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 47, 64, 100])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_every_length(side, length, threads):
    rng = np.random.default_rng(length)
    for rows in (1, 5, 2000 // length * 5 + 1):
        x, y = (guarded(side, 4 * rows * length).view(F).reshape(rows, length) for _ in range(2))
        factors = guarded(side, 4 * length).view(F)
        x[...], factors[...] = rng.normal(size=x.shape), rng.normal(size=length)
        code = norms.code(x.shape, 0.25, 0.0, threads, factors)
        assert code.kept is factors
        call = code.bound([address_of(each) for each in (x, y)])
        wide = x.astype(np.float64)
        want = wide / np.sqrt((wide**2).sum(1, keepdims=True) + 0.25) * factors
        for _ in range(2):
            y[...] = np.nan
            assert call() == 0
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


def spelled(weights, more=(), outputs=("y",), number=1.0):
    """A root mean square norm in steps, times weights and a number."""
    nodes = [
        ("Mul", ["x", "x"], ["s"], {}),
        ("ReduceMean", ["s"], ["m"], {"axes": [-1]}),
        ("Add", ["m", "eps"], ["e"], {}),
        ("Sqrt", ["e"], ["r"], {}),
        ("Div", ["x", "r"], ["n"], {}),
        ("Mul", ["w", "n"], ["p"], {}),
        ("Mul", ["p", "k"], ["y"], {}),
        *more,
    ]
    constants = {"eps": F(1e-5), "w": weights, "k": F(number)}
    return build(nodes, {"x": ["n", "l", 24]}, outputs, constants)


@pytest.mark.parametrize("shape", [(24,), (1, 1, 24), (), (1,)])
def test_networks(core, shape):
    """ONNX Runtime judges; sizes come with the inputs."""
    rng = np.random.default_rng(len(shape))
    model = spelled(rng.normal(size=shape).astype(F), number=-2.5)
    executable = load(core, model)
    for sizes in ((1, 1, 24), (2, 7, 24), (3, 50, 24), (2, 7, 24)):
        x = rng.normal(size=sizes).astype(F)
        (want,) = answer(model, {"x": x})
        np.testing.assert_allclose(executable.infer({"x": x})["y"], want, rtol=1e-5, atol=1e-5)
    assert by_machine_code(executable) == ["ScaledNorm"]


@pytest.mark.parametrize("step", ["p", "n"])
def test_a_step_that_others_read_stays(core, step):
    rng = np.random.default_rng(3)
    more = [("Neg", [step], ["z"], {})]
    model = spelled(rng.normal(size=24).astype(F), more, ("y", "z"), number=3.0)
    executable = load(core, model)
    x = rng.normal(size=(2, 5, 24)).astype(F)
    for got, want in zip(executable.infer({"x": x}).values(), answer(model, {"x": x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_factors_along_another_axis_stay_products(core):
    """[1, 5, 1] is one for each row, and [2, 1, 24] is another for each item."""
    rng = np.random.default_rng(4)
    for shape in ((1, 5, 1), (2, 1, 24), (2, 5, 24)):
        model = spelled(rng.normal(size=shape).astype(F))
        x = rng.normal(size=(2, 5, 24)).astype(F)
        (want,) = answer(model, {"x": x})
        np.testing.assert_allclose(
            load(core, model).infer({"x": x})["y"], want, rtol=1e-5, atol=1e-5
        )


def test_what_reads_a_product_may_have_several_results(core):
    nodes = [("Mul", ["x", "x"], ["p"], {}), ("Split", ["p"], ["y", "z"], {"axis": -1})]
    model = build(nodes, {"x": ["n", 6]}, ["y", "z"], {})
    x = np.arange(12, dtype=F).reshape(2, 6)
    for got, want in zip(load(core, model).infer({"x": x}).values(), np.split(x * x, 2, 1)):
        np.testing.assert_array_equal(got, want)
