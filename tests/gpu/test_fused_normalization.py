"""Normalisation written in steps becomes one launch; onnx.reference and OpenVINO are the judges."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

from polydevice import Core
from polydevice.ops.arithmetic import (
    Add,
    Divide,
    Multiply,
    Power,
    SquaredDifference,
    Subtract,
)
from polydevice.ops.math import Negative, Sqrt
from polydevice.ops.pooling import MaxPool, MaxPoolWithIndices
from polydevice.ops.reduce import ReduceMean
from tests.gpu.graphs import Sketch, SparingBuilder, check_answers, compiled, launching, loaded

LAYER_NORM = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[2,5,12] x, float[12] gamma, float[12] beta) => (float[2,5,12] y)
<float eps = {0.00001}, float two = {2.0}>
{
    mean = ReduceMean<axes = [-1]>(x)
    centred = Sub(x, mean)
    square = Pow(centred, two)
    variance = ReduceMean<axes = [-1]>(square)
    more = Add(variance, eps)
    root = Sqrt(more)
    normal = Div(centred, root)
    scaled = Mul(normal, gamma)
    shifted = Add(scaled, beta)
    half = Constant<value = float {0.5}>()
    one = Constant<value = float {1.0}>()
    sqrt2 = Constant<value = float {1.4142135}>()
    inner = Div(shifted, sqrt2)
    erf = Erf(inner)
    more_erf = Add(erf, one)
    twice = Mul(shifted, more_erf)
    y = Mul(twice, half)
}
"""


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


@pytest.mark.usefixtures("needs_gpu")
def test_layer_normalisation_and_gelu_as_onnx_writes_them_are_one_launch(tmp_path):
    model = onnx.parser.parse_model(LAYER_NORM)
    onnx.save(model, tmp_path / "m.onnx")
    random = np.random.default_rng(3)
    feeds = {n: random.standard_normal(s).astype("f4") for n, s in (("x", (2, 5, 12)),)}
    feeds |= {n: random.standard_normal(12).astype("f4") for n in ("gamma", "beta")}
    (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    with Core() as core:
        executable = core.load_network(core.read_network(tmp_path / "m.onnx"), "GPU")
        found = executable.infer(feeds)
        assert "1 launches" in executable.explain()
    np.testing.assert_allclose(found["y"], wanted, 1e-4, 1e-5)


def _normalised(s: Sketch, x, form: str, axes: list[int]):
    number = s.const("axes", np.array(axes))
    mean = s.add("mean", ReduceMean(keep_dims=True), x, number)
    centred = x if "rms" in form else s.add("centred", Subtract(), x, mean)
    if "difference" in form:
        square = s.add("square", SquaredDifference(), x, mean)
    elif "times" in form:
        square = s.add("square", Multiply(), centred, centred)
    else:
        square = s.add("square", Power(), centred, s.const("two", np.float32(2)))
    variance = s.add("variance", ReduceMean(keep_dims=True), square, number)
    eps = s.const("eps", np.full((1,) * len(x.shape), 1e-3, np.float32))
    if "outside" in form:
        root = s.add("root", Add(), eps, s.add("sqrt", Sqrt(), variance))
        return s.add("normal", Divide(), centred, root)
    more = s.add("more", Add(), variance, eps)
    if "power" in form:
        factor = s.add("factor", Power(), more, s.const("exponent", np.float32(-0.5)))
        return s.add("normal", Multiply(), factor, centred)
    root = s.add("root", Sqrt(), more)
    if "reciprocal" in form:
        factor = s.add("factor", Divide(), s.const("one", np.float32(1)), root)
        return s.add("normal", Multiply(), centred, factor)
    return s.add("normal", Divide(), centred, root)


@pytest.mark.parametrize("axes", [[-1], [1, 2], [2, 3]])
@pytest.mark.parametrize(
    "form",
    ["plain", "times", "difference", "outside", "power", "reciprocal", "rms", "rms times power"],
)
def test_every_form_is_one_launch(opencl, builder, form, axes):
    s = Sketch()
    y = _normalised(s, s.input("x", 2, 3, 4, 5), form, axes)
    y = s.add("shift", Add(), s.add("scale", Multiply(), y, s.weights("g", 5)), s.weights("b", 5))
    network = s.network(y=y)
    assert len(launching(compiled(network))) == 1
    check_answers(network, opencl, builder)


def test_other_sums_of_squares_are_left_alone(opencl, builder):
    """Means over different axes, steps that others read, x of another difference."""
    s = Sketch()
    x, z = s.input("x", 2, 3, 4), s.input("z", 2, 3, 4)
    axis = [s.const(f"axis{n}", np.array([n])) for n in (1, 2)]
    means = [s.add(f"mean{n}", ReduceMean(keep_dims=True), x, axis[n]) for n in (0, 1)]
    two = s.const("two", np.float32(2))
    outputs = {}
    for name, square, data, mean in (
        ("axes", s.add("d0", Subtract(), x, means[0]), x, means[0]),
        ("data", s.add("d1", Subtract(), x, means[1]), z, means[1]),
        ("mean", s.add("d2", Subtract(), z, means[1]), z, means[1]),
    ):
        power = s.add(f"{name}/square", Power(), square, two)
        variance = s.add(f"{name}/variance", ReduceMean(keep_dims=True), power, axis[1])
        centred = s.add(f"{name}/centred", Subtract(), data, mean)
        root = s.add(f"{name}/root", Sqrt(), variance)
        outputs[name] = s.add(name, Divide(), centred, root)
        outputs[f"{name}/variance"] = variance
    check_answers(s.network(**outputs), opencl, builder)


@pytest.mark.parametrize("form", ["plain", "rms"])
def test_numbers_of_higher_rank_add_axes(opencl, builder, form):
    s = Sketch()
    x, axes = s.input("x", 3, 5), s.const("axes", np.array([-1]))
    data = x
    if form == "plain":
        data = s.add("centred", Subtract(), x, s.add("m", ReduceMean(keep_dims=True), x, axes))
    square = s.add("square", Multiply(), data, data)
    variance = s.add("variance", ReduceMean(keep_dims=True), square, axes)
    more = s.add("more", Add(), variance, s.const("eps", np.full((1, 1, 1), 0.1, np.float32)))
    y = s.add("normal", Divide(), data, s.add("root", Sqrt(), more))
    network = s.network(y=s.add("opposite", Negative(), y))
    given = np.random.default_rng(5).normal(size=(3, 5)).astype("f4")
    found = loaded(network, opencl, builder).infer({"x": given})["y"]
    # Not OpenVINO's answer, which loses the axis.
    if form == "plain":
        given = given - given.mean(-1, keepdims=True)
    wanted = -given / np.sqrt((given**2).mean(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(found, wanted[None], 1e-4, 1e-5)


def test_a_difference_to_the_variance_is_not_one_to_the_mean(opencl, builder):
    s = Sketch()
    x, axes = s.input("x", 3, 5), s.const("axes", np.array([-1]))
    centred = s.add("centred", Subtract(), x, s.add("m", ReduceMean(keep_dims=True), x, axes))
    square = s.add("square", Multiply(), centred, centred)
    variance = s.add("variance", ReduceMean(keep_dims=True), square, axes)
    more = s.add("more", Add(), variance, s.const("eps", np.float32(0.1)))
    other = s.add("other", Subtract(), x, variance)
    y = s.add("normal", Divide(), other, s.add("root", Sqrt(), more))
    check_answers(s.network(y=y), opencl, builder)


def test_pooling_without_its_indices_takes_layers_along(opencl, builder):
    s = Sketch()
    x = s.input("x", 1, 8, 6, 6)
    window = {"kernel": (2, 2), "strides": (2, 2)}
    pool = s.node("pool", MaxPoolWithIndices(**window), x)
    plain = s.add("plain", MaxPool(**window), x)
    both = s.node("both", MaxPoolWithIndices(**window), x)
    y = s.add("scale", Multiply(), pool.outputs[0], s.weights("w", 8, 1, 1))
    network = s.network(y=y, plain=plain, both=both.outputs[0], indices=both.outputs[1])
    names = {node.name: node for node in compiled(network).nodes}
    assert names["pool"].origins == ["pool", "scale"]
    assert len(names["both"].outputs) == 2
    check_answers(network, opencl, builder)
