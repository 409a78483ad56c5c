"""Rows that a product with constants flattens are not copied; OpenVINO is the judge."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.concat import Concat
from polydevice.ops.matmul import MatMul
from polydevice.ops.pooling import MaxPool
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose
from tests.cpu.models import answer, build
from tests.gpu.graphs import Sketch, SparingBuilder, check_answers, compiled, launching


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def _features(s: Sketch, batch: int):
    y = s.conv("conv", s.input("x", batch, 3, 8, 6), 16)
    return s.add("pool", MaxPool(kernel=(2, 2), strides=(2, 2)), s.add("relu", Relu(), y))


def _flat(s: Sketch, y, *shape: int):
    return s.add("flat", Reshape(special_zero=True), y, s.const("shape", np.array(shape)))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_a_classifier_copies_nothing(opencl, builder, batch, turned):
    s = Sketch()
    y = _features(s, batch)
    if turned:
        y = s.add("turn", Transpose(), y, s.const("order", np.array([0, 3, 1, 2])))
    y = _flat(s, y, batch, -1)
    one = s.add("one", MatMul(), y, s.weights("w1", 192, 10))
    two = s.add("two", MatMul(transpose_b=True), y, s.weights("w2", 7, 192))
    network = s.network(one=s.add("bias", Add(), one, s.weights("b", 10)), two=two)
    assert list(launching(compiled(network))) == ["conv", "pool", "one", "two"]
    check_answers(network, opencl, builder)


def test_rows_within_a_batch(opencl, builder):
    s = Sketch()
    y = _flat(s, _features(s, 2), 2, 16, 12)
    y = s.add("turn", Transpose(), y, s.const("order", np.array([0, 2, 1])))
    network = s.network(y=s.add("product", MatMul(), y, s.weights("w", 16, 5)))
    check_answers(network, opencl, builder)


@pytest.mark.parametrize("case", ["output", "reader", "variable", "joined", "added", "batch"])
def test_rows_that_are_read_otherwise_too(opencl, builder, case):
    s = Sketch()
    features = _features(s, 2)
    rows = _flat(s, features, *((2, -1) if case != "batch" else (1, -1)))
    other = s.input("v", 192, 5) if case == "variable" else s.weights("w", rows.shape.static[1], 5)
    outputs = {"y": s.add("product", MatMul(), rows, other)}
    if case == "output":
        outputs["rows"] = rows
    if case == "reader":
        outputs["relu"] = s.add("again", Relu(), rows)
    if case == "joined":
        outputs["joined"] = s.add("join", Concat(axis=1), features, features)
    if case == "added":
        square = s.add("square", MatMul(), rows, s.weights("k", 192, 192))
        outputs["sum"] = s.add("sum", Add(), square, rows)
    check_answers(s.network(**outputs), opencl, builder)


def test_sizes_that_vary_are_planned_with_symbols(core, caplog):
    """The order of constants would be that of one set of sizes."""
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype("f4"),
        "m": rng.standard_normal((8, 5)).astype("f4"),
    }
    pool = {"kernel_shape": [4, 4], "strides": [4, 4]}
    nodes = [
        ("Conv", ["x", "w"], ["a"], {"pads": [1] * 4, "strides": [2, 2]}),
        ("AveragePool", ["a"], ["b"], pool),
        ("Flatten", ["b"], ["c"], {}),
        ("MatMul", ["c", "m"], ["y"], {}),
    ]
    model = build(nodes, {"x": [1, 3, "h", "w"]}, ["y"], weights)
    request = core.load_network(core.read_network(model), "GPU").create_infer_request()
    for height, width in ((8, 8), (9, 13), (14, 11), (13, 13)):
        x = rng.standard_normal((1, 3, height, width)).astype("f4")
        (wanted,) = answer(model, {"x": x})
        np.testing.assert_allclose(request.infer({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
    assert "one by one" not in caplog.text  # as where planning with symbols failed
