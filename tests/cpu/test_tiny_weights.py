"""Weights that are too small for a normal number of f32."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.passes.flush_tiny import flush_tiny
from tests.cpu import models
from tests.cpu.loading import image, load, steps

TINY = np.float32(1.7e-41)
LEAST = np.finfo(np.float32).tiny


def network(kernel, bias, kind="Conv"):
    weights = {"k": kernel, "b": bias, "s": np.float32(2.5), "t": np.float32(-0.75)}
    nodes = [
        (kind, ["x", "k"], ["c"], {}),
        ("Add", ["c", "b"], ["a"], {}),
        ("Mul", ["a", "s"], ["m"], {}),
        ("Add", ["m", "t"], ["u"], {}),
        ("Relu", ["u"], ["y"], {}),
    ]
    shape = [1, 24, 9, 7] if kind == "Conv" else [1, 40, 24]
    return models.build(nodes, {"x": shape}, ["y"], weights), image(3, *shape)


@pytest.mark.parametrize("kind", ["Conv", "MatMul"])
@pytest.mark.parametrize("where", ["weights", "bias", "both"])
def test_they_become_zeros_so_that_factors_are_folded(core, where, kind):
    rng = np.random.default_rng(len(where))
    kernel = rng.normal(0, 0.3, (16, 24, 1, 1) if kind == "Conv" else (24, 16)).astype(np.float32)
    bias = rng.normal(size=(16, 1, 1) if kind == "Conv" else 16).astype(np.float32)
    if where != "bias":
        kernel.reshape(-1)[rng.integers(0, kernel.size, 30)] = TINY * rng.choice([-1, 1], 30)
    if where != "weights":
        bias.reshape(-1)[[3, 11]] = TINY, -TINY
    model, x = network(kernel, bias, kind)
    executable = load(core, model)
    got = executable.create_infer_request().infer({"x": x})["y"]
    np.testing.assert_allclose(got, models.answer(model, {"x": x})[0], rtol=1e-5, atol=1e-5)
    assert not any("Multiply" in step for step in steps(executable))


CASES = {
    "normal numbers and zeros": ([0.0, -0.0, 1.5, LEAST, -LEAST, np.inf, np.nan], []),
    "one of either sign": ([1.0, TINY, 0.0, -TINY, 2.0], [1, 3]),
    "the largest that is too small": ([1.0, np.nextafter(LEAST, np.float32(0))], [1]),
    "the least": ([np.finfo(np.float32).smallest_subnormal, -3.0], [0]),
    "all of them": ([TINY, -TINY, TINY], []),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("many", [1, 20_000])
def test_which_numbers_become_zeros(core, case, many):
    numbers, flushed = CASES[case]
    given = np.array(numbers, np.float32)
    array = np.tile(given, many)  # they are looked at in parts
    if many > 1 and flushed:
        array[: -given.size] = 1.0  # the last part alone has any
    weights = {"k": array.reshape(1, -1)}
    nodes = [("MatMul", ["x", "k"], ["y"], {})]
    model = models.build(nodes, {"x": [3, 1]}, ["y"], weights)
    read = core.read_network(model)
    flush_tiny(read)
    (product,) = (node for node in read.nodes() if node.type == "MatMul")
    made = product.inputs[1].node.constant.reshape(-1)
    want = array.copy()
    want[np.array(flushed, np.intp) - given.size if flushed else []] = 0
    np.testing.assert_array_equal(made, want)


def test_a_limit_that_small_stays(core):
    """As before a logarithm, where 0 would be minus infinity."""
    weights = {"k": np.zeros((4, 5), np.float32), "e": TINY}
    nodes = [("MatMul", ["x", "k"], ["c"], {}), ("Add", ["c", "e"], ["a"], {})]
    model = models.build([*nodes, ("Log", ["a"], ["y"], {})], {"x": [3, 4]}, ["y"], weights)
    got = load(core, model).create_infer_request().infer({"x": image(1, 3, 4)})["y"]
    np.testing.assert_allclose(got, np.full((3, 5), np.log(np.float64(TINY))), rtol=1e-4)
