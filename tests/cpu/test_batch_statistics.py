"""Batch normalisations by statistics that networks compute, against ONNX Runtime.

Those by the statistics of what they read are MVN, as Keras' layers, as tf2onnx writes them, are.
"""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu.loading import load
from tests.cpu.machine_code import with_vectors
from tests.cpu.models import answer, build

with_onednn = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

NUMBERS = {
    "0": np.int64([0]), "1": np.int64([1]), "2": np.int64([2]), "3": np.int64([3]),
    "023": np.int64([0, 2, 3]), "one": np.float32(1), "zero": np.float32(0),
}  # fmt: skip


def statistics(x):
    """Mean and variance of channels, in steps."""
    return [
        ("ReduceMean", [x], [f"{x}_mean"], {"axes": [0, 2, 3]}),
        ("Squeeze", [f"{x}_mean", "023"], [f"{x}_m"], {}),
        ("Sub", [x, f"{x}_mean"], [f"{x}_centred"], {}),
        ("ReduceSumSquare", [f"{x}_centred"], [f"{x}_sum"], {"axes": [0, 2, 3], "keepdims": 0}),
        ("Shape", [x], [f"{x}_shape"], {}),
        ("Gather", [f"{x}_shape", "023"], [f"{x}_sizes"], {}),
        ("ReduceProd", [f"{x}_sizes"], [f"{x}_count"], {"keepdims": 0}),
        ("Cast", [f"{x}_count"], [f"{x}_number"], {"to": 1}),
        ("Div", [f"{x}_sum", f"{x}_number"], [f"{x}_v"], {}),
    ]


def keras(x, y, first=2):
    """A layer's normalisation over the axes from `first` on, which are 6 (and 4) long."""
    rows, normal = f"{x}_rows", f"{y}_normal"
    return [
        ("Shape", [x], [f"{x}_own"], {}),
        ("Cast", [f"{x}_own"], [f"{x}_small"], {"to": 6}),
        ("Cast", [f"{x}_small"], [f"{x}_back"], {"to": 7}),
        ("Slice", [f"{x}_small", "0", str(first), "0"], [f"{x}_before"], {}),
        ("ReduceProd", [f"{x}_before"], [f"{x}_n"], {"axes": [0], "keepdims": 1}),
        ("Cast", [f"{x}_n"], [f"{x}_channels"], {"to": 7}),
        ("Expand", ["one", f"{x}_channels"], [f"{x}_ones"], {}),
        ("Expand", ["zero", f"{x}_channels"], [f"{x}_zeros"], {}),
        ("Reshape", [x, "flat"], [rows], {}),
        *statistics(rows),
        ("BatchNormalization", [rows, f"{x}_ones", f"{x}_zeros", f"{rows}_m", f"{rows}_v"],
         [normal], {"epsilon": 1e-3}),
        ("Reshape", [normal, f"{x}_back"], [y], {}),
    ]  # fmt: skip


def weights_of(rng, width=6, **more):
    scales = {name: rng.uniform(0.5, 2, width).astype(np.float32) for name in ("g", "b")}
    return {**NUMBERS, "flat": np.int64([1, -1, width, 1]), **scales, **more}


def check(request, model, feed):
    found, right = request.infer(feed), answer(model, feed)
    for name, want in zip(found, right, strict=True):
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-4)


def types(network):
    return [step.type for step in network.latest_plan().steps]


@with_onednn
@pytest.mark.parametrize("sizes", [["n", "t", 6], ["n", 5, 6], [3, 5, 6]])
def test_layers_of_keras_are_layer_normalisations(core, sizes):
    rng = np.random.default_rng(1)
    nodes = [
        *keras("x", "a"),
        ("Mul", ["a", "g"], ["scaled"], {}), ("Add", ["scaled", "b"], ["shifted"], {}),
        *keras("shifted", "y"),
        ("Add", ["x", "a"], ["z"], {}),
    ]  # fmt: skip
    model = build(nodes, {"x": sizes}, ["y", "z"], weights_of(rng), 13)
    network = load(core, model)
    request = network.create_infer_request()
    for n, t in ((3, 5), (1, 5), (4, 5), (2, 5)) + (((7, 9), (1, 1)) if sizes[1] == "t" else ()):
        shape = (n, t, 6) if sizes[0] == "n" else (3, 5, 6)
        check(request, model, {"x": rng.normal(2, 3, shape).astype(np.float32)})
        assert sorted(types(network)) == ["Add", "LayerNorm", "MVN", "MVN"]


@with_onednn
def test_several_axes_are_one_row(core):
    rng = np.random.default_rng(2)
    model = build(keras("x", "y", first=1), {"x": ["n", 4, 6]}, ["y"], weights_of(rng, 24), 13)
    network = load(core, model)
    request = network.create_infer_request()
    for n in (3, 1, 2, 5):
        check(request, model, {"x": rng.normal(-1, 2, (n, 4, 6)).astype(np.float32)})
        assert types(network) == ["MVN"]


def batch(x, y, **changed):
    """Normalises channels by their own statistics, or by others'."""
    names = {"scale": "g", "shift": "b", "mean": f"{x}_m", "variance": f"{x}_v", **changed}
    vectors = [names[each] for each in ("scale", "shift", "mean", "variance")]
    return [("BatchNormalization", [x, *vectors], [y], {"epsilon": 1e-3})]


OTHERWISE = {
    "of another count": {"by": "count", "count": np.array(5, np.float32)},
    "of a count that is told": {"by": "given"},
    "of a mean that is divided": {"by": "given", "sum": "mean"},
    "as other shapes": {"back": np.int64([-1, 2, 3])},
    "with scales": {"ones": "g"},
    "with a step read": {"also": "x_rows_centred"},
    "by another mean": {"m": "b"},
}


@pytest.mark.parametrize("kind", OTHERWISE)
def test_what_is_nearly_a_layers(core, kind):
    rng, change = np.random.default_rng(3), dict(OTHERWISE[kind])
    nodes = keras("x", "y")
    renamed = {"x_ones": change.get("ones", "x_ones"), "x_rows_m": change.get("m", "x_rows_m")}
    outputs = ["y", *([change["also"]] if "also" in change else [])]
    for index, (op, inputs, results, attributes) in enumerate(nodes):
        if op == "ReduceSumSquare" and "sum" in change:
            nodes[index] = ("Mul", [inputs[0], inputs[0]], ["squares"], {})
            nodes.insert(index + 1, ("ReduceMean", ["squares"], results, attributes))
            continue
        if op == "BatchNormalization":
            inputs = [renamed.get(name, name) for name in inputs]
        if op == "Div":
            inputs = [inputs[0], change.get("by", inputs[1])]
        if results == ["y"] and "back" in change:
            inputs = [inputs[0], "back"]
        nodes[index] = (op, inputs, results, attributes)
    more = {name: value for name, value in change.items() if not isinstance(value, str)}
    inputs = {"x": ["n", 2, 6], "given": []}
    model = build(nodes, inputs, outputs, weights_of(rng, 6, **more), 13)
    request = load(core, model).create_infer_request()
    for given in (5, 6, 7, 8):
        x = rng.normal(1, 2, (3, 2, 6)).astype(np.float32)  # as many rows as there are scales
        check(request, model, {"x": x, "given": np.array(given, np.float32)})


@pytest.mark.parametrize("sizes", [[1, 6, "h", "w"], ["n", 6, "h", "w"], [2, 6, 5, 3]])
def test_channels_by_statistics_of_their_own(core, sizes):
    rng = np.random.default_rng(4)
    model = build([*statistics("x"), *batch("x", "y")], {"x": sizes}, ["y"], weights_of(rng), 13)
    request = load(core, model).create_infer_request()
    for _ in range(4):
        shape = [n if isinstance(n, int) else int(rng.integers(1, 9)) for n in sizes]
        check(request, model, {"x": rng.normal(1, 2, shape).astype(np.float32)})


@with_vectors
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_statistics_that_are_given(core, rank):
    """They take machine code one pass over the elements."""
    rng, vectors = np.random.default_rng(5), ("s", "t", "m", "v")
    inputs = {"x": ["n", 7, *"abc"[: rank - 2]], **{key: [7] for key in vectors}}
    changed = dict(zip(("scale", "shift", "mean", "variance"), vectors, strict=True))
    model = build(batch("x", "y", **changed), inputs, ["y"], {}, 15)
    network = load(core, model)
    request = network.create_infer_request()
    for _ in range(4):
        shape = (int(rng.integers(1, 4)), 7, *(int(n) for n in rng.integers(1, 30, rank - 2)))
        feed = {name: rng.uniform(0.2, 3, 7).astype(np.float32) for name in vectors}
        x = rng.normal(0, 5, shape).astype(np.float32)
        x.reshape(-1)[:3] = [np.inf, -np.inf, np.nan]
        check(request, model, {"x": x, **feed})
        assert "BatchNormInference" not in types(network)
    nothing = {"x": np.zeros((0, 7, *[3] * (rank - 2)), np.float32), **feed}
    assert request.infer(nothing)["y"].shape == nothing["x"].shape
