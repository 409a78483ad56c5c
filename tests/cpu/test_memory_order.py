"""Reductions and sums of what lies channels last, in that order, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
@pytest.mark.parametrize("axes", [[2], [3], [1], [2, 3], [1, 2]], ids=str)
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceProd"])
def test_behind_a_convolution(core, kind, axes, known):
    function = "Add" if len(kind) % 2 == len(axes) % 2 else "Sub"
    weights = {
        "k": np.random.default_rng(1).uniform(-0.3, 0.3, (16, 3, 3, 3)).astype(np.float32),
        "a": np.array(axes),
    }
    by_input = kind == "ReduceSum"
    nodes = [
        ("Conv", ["x", "k"], ["c"], {"pads": [1, 1, 1, 1]}),
        (kind, ["c", "a"] if by_input else ["c"], ["r"], {} if by_input else {"axes": axes}),
        (function, ["r", "c"] if function == "Sub" else ["c", "r"], ["d"], {}),
        ("Sigmoid", ["d"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [2, 3, 6, 20] if known else [2, 3, "h", "w"]}, ["y"], weights)
    executable = load(core, model)
    request = executable.create_infer_request()
    for number in range(1 if known else 3):
        given = {"x": image(number, 2, 3, 6 + number, 20 + 3 * number)}
        (want,) = models.answer(model, given)
        np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-4, atol=1e-5)
    if known and axes == [2] and kind in ("ReduceMean", "ReduceSum"):
        steps = executable.latest_plan().steps
        assert "numpy" not in {step.implementation for step in steps if step.type == kind}
        moved = [step.values[0].shape for step in steps[1:-1] if step.type == "Reorder"]
        assert (2, 16, 6, 20) not in moved


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("channels", [3, 12])
def test_blocks_are_moved_at_once_whatever_the_layout(core, mode, channels):
    """Between convolutions and at the ends, for sizes that change, too."""
    rng = np.random.default_rng(channels)
    weights = {
        "w": rng.normal(0, 0.3, (4 * channels, 3, 3, 3)).astype(np.float32),
        "v": rng.normal(0, 0.3, (16, channels, 3, 3)).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], ["a"], {"pads": [1] * 4}),
        ("DepthToSpace", ["a"], ["y"], {"blocksize": 2, "mode": mode}),
        ("Conv", ["y", "v"], ["b"], {"pads": [1] * 4}),
        ("SpaceToDepth", ["b"], ["z"], {"blocksize": 2}),
    ]
    model = models.build(nodes, {"x": ["n", 3, "h", "w"]}, ["y", "z"], weights)
    request = load(core, model).create_infer_request()
    for sizes in ((1, 6, 5), (2, 3, 8), (1, 1, 1), (3, 4, 4)):
        given = {"x": image(sizes[1], sizes[0], 3, *sizes[1:])}
        found = request.infer(given)
        for name, want in zip(("y", "z"), models.answer(model, given), strict=True):
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5)
        kinds = {step.type for step in request.runner.bound.plan.steps}
        assert not kinds & {"DepthToSpace", "SpaceToDepth"}, kinds


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
@pytest.mark.parametrize("space", [1, 2, 3])
def test_channels_are_normalised_where_they_lie(core, space, known):
    """Behind a convolution, and of an input, whose channels do not lie next to each other."""
    rng = np.random.default_rng(space)
    weights = {
        "k": rng.normal(0, 0.3, (12, 3, *[1] * space)).astype(np.float32),
        "w": rng.uniform(0.5, 2, (12, *[1] * space)).astype(np.float32),
        "two": np.float32(2),
        "eps": np.float32(1e-5),
    }

    def normalised(x: str, y: str) -> list[tuple]:
        return [
            ("ReduceMean", [x], [f"{y}m"], {"axes": [1]}),
            ("Sub", [x, f"{y}m"], [f"{y}c"], {}),
            ("Pow", [f"{y}c", "two"], [f"{y}s"], {}),
            ("ReduceMean", [f"{y}s"], [f"{y}v"], {"axes": [1]}),
            ("Add", [f"{y}v", "eps"], [f"{y}e"], {}),
            ("Sqrt", [f"{y}e"], [f"{y}r"], {}),
            ("Div", [f"{y}c", f"{y}r"], [y], {}),
        ]

    nodes = [
        *normalised("x", "y"),
        ("Conv", ["y", "k"], ["a"], {}),
        *normalised("a", "b"),
        ("Mul", ["b", "w"], ["z"], {}),
    ]
    sizes = [2, 3, *[5, 4, 6][:space]] if known else ["n", 3, *["h", "w", "d"][:space]]
    model = models.build(nodes, {"x": sizes}, ["y", "z"], weights)
    request = load(core, model).create_infer_request()
    for number in range(1 if known else 3):
        given = {"x": image(number, 2 + number, 3, *(5 + number, 4, 6)[:space])}
        found = request.infer(given)
        for name, want in zip(("y", "z"), models.answer(model, given), strict=True):
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-4)
        kinds = [step.type for step in request.runner.bound.plan.steps]
        assert kinds.count("MVN") == 2 and "ReduceMean" not in kinds, kinds


@pytest.mark.parametrize("channels", [2, 3, 11, 12, 16])
@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
def test_numbers_for_channels_of_pictures(core, channels, known):
    """As networks begin that take pictures as cameras give them; with a convolution behind."""
    rng = np.random.default_rng(channels)
    sizes = (1, channels, 1, 1)
    weights = {
        "mean": rng.uniform(0.3, 0.6, sizes).astype(np.float32),
        "deviation": rng.uniform(0.2, 0.3, sizes).astype(np.float32),
        "w": rng.normal(0, 0.3, (5, channels, 3, 3)).astype(np.float32),
    }
    nodes = [
        ("Transpose", ["x"], ["t"], {"perm": [0, 3, 1, 2]}),
        ("Sub", ["t", "mean"], ["s"], {}),
        ("Div", ["s", "deviation"], ["y"], {}),
        ("Conv", ["y", "w"], ["z"], {"strides": [2, 2]}),
    ]
    shape = [2, 9, 14, channels] if known else ["n", "h", "w", channels]
    model = models.build(nodes, {"x": shape}, ["y", "z"], weights)
    request = load(core, model).create_infer_request()
    for number in range(1 if known else 3):
        given = {"x": image(number, 2 + number, 9 + number, 14, channels)}
        found = request.infer(given)
        for name, want in zip(("y", "z"), models.answer(model, given), strict=True):
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5)
        values = [step.values[0] for step in request.runner.bound.plan.steps]
        seen = [v.strides[1] for v in values if v.shape[1:] == (channels, 9 + number, 14)]
        in_rows = any(len(v.shape) == 2 for v in values)  # of several pixels
        assert channels >= 12 or in_rows or any(step != 1 for step in seen), values


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize(("count", "length"), [(8400, 4), (35, 3), (7, 15), (11, 4), (13, 16)])
def test_a_number_for_each_of_few_columns(core, kind, count, length):
    """As boxes are moved and scaled; rows are as many as make long ones, or a prime number."""
    rng = np.random.default_rng(count)
    weights = {"c": rng.uniform(0.5, 2, (1, length)).astype(np.float32)}
    both = ["c", "x"] if kind in ("Add", "Mul", "Max") else ["x", "c"]
    nodes = [(kind, both, ["y"], {}), ("Abs", ["y"], ["z"], {})]
    model = models.build(nodes, {"x": ["n", count, length]}, ["y", "z"], weights)
    request = load(core, model).create_infer_request()
    for batch in (1, 3, 2):
        given = {"x": image(batch, batch, count, length)}
        found = request.infer(given)
        for name, want in zip(("y", "z"), models.answer(model, given), strict=True):
            np.testing.assert_allclose(found[name], want, rtol=1e-6)
    sizes = [step.values[0].shape for step in request.runner.bound.plan.steps]
    joined = [shape for shape in sizes if len(shape) == 2 and shape[1] > length]
    assert joined


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"])
@pytest.mark.parametrize("count", [2, 11, 16, 40, 60])
def test_short_axes_of_few_and_of_many_rows(core, kind, count):
    nodes = [(kind, ["x", *(["axes"] if kind == "ReduceSum" else [])], ["y"], {})]
    if kind != "ReduceSum":
        nodes[0][3].update(axes=[-1], keepdims=0)
    weights = {"axes": np.int64([-1])} if kind == "ReduceSum" else {}
    model = models.build(nodes, {"x": ["n", "m", count]}, ["y"], weights)
    request = load(core, model).create_infer_request()
    for sizes in ((1, 3), (2, 35), (3, 400), (1, 1)):
        x = np.random.default_rng(count).uniform(0.8, 1.25, (*sizes, count)).astype(np.float32)
        found = request.infer({"x": x})["y"]
        (want,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(found, want, rtol=2e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("sizes", [(16, 16), (3, 1, 5), (64, 7), (9, 65)], ids=str)
@pytest.mark.parametrize("rows", [24, "rows"])
def test_short_runs_that_alternate_are_joined(core, sizes, dtype, rows):
    """Channels that lie last, in rows and as an image that was turned."""
    rng = np.random.default_rng(sum(sizes))
    names = [f"x{i}" for i in range(len(sizes))]
    turned = [("Transpose", [n], [f"{n}t"], {"perm": [0, 3, 1, 2]}) for n in names]
    nodes = [("Concat", names, ["y"], {"axis": 3}), *turned]
    nodes += [("Concat", [f"{n}t" for n in names], ["z"], {"axis": 1})]
    inputs = {name: [2, rows, 23, n] for name, n in zip(names, sizes, strict=True)}
    model = models.build(nodes, inputs, ["y", "z"], {}, element_type=dtype)
    request = core.load_network(core.read_network(model), "CPU").create_infer_request()
    for count in (24, 24) if rows == 24 else (24, 1, 0, 30, 24, 2, 31):
        arrays = [(rng.random((2, count, 23, n)) * 250).astype(dtype) for n in sizes]
        found = request.infer(dict(zip(names, arrays, strict=True)))
        wanted = np.concatenate(arrays, 3)
        np.testing.assert_array_equal(found["y"], wanted)
        np.testing.assert_array_equal(found["z"], np.transpose(wanted, (0, 3, 1, 2)))


@pytest.mark.parametrize("shape", [[64, 27, 8], ["n", 27, 8], [3, 13, 2], ["n", 300, 15]], ids=str)
@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean"])
def test_few_columns_of_long_axes_are_products_or_pooled(core, kind, shape):
    axes = (["a"], {}) if kind == "ReduceSum" else ([], {"axes": [1]})
    model = models.build(
        [(kind, ["x", *axes[0]], ["y"], axes[1])], {"x": shape}, ["y"], {"a": np.array([1])}
    )
    request = core.load_network(core.read_network(model), "CPU").create_infer_request()
    for seed, rows in enumerate((shape[0],) * 2 if shape[0] != "n" else (5, 1, 64, 5, 7)):
        x = image(seed, rows, *shape[1:])
        (want,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(request.infer({"x": x})["y"], want, rtol=1e-4, atol=1e-4)
        if kind == "ReduceSum" or shape[0] != "n":  # means of new sizes are NumPy's
            assert all(s.implementation != "numpy" for s in request.runner.bound.plan.steps)
