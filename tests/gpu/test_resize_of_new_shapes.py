"""Resizing of pictures whose sizes are not known: one template for all of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu import models
from tests.cpu.loading import image


@pytest.mark.parametrize(
    ("by", "rounding"),
    [
        ("asymmetric", "floor"),
        ("half_pixel", "round_prefer_ceil"),
        ("asymmetric", "ceil"),
        ("align_corners", "round_prefer_floor"),
    ],
)
def test_ways_to_the_nearest_element_at_later_shapes(core, by, rounding):
    """No table of one shape is needed."""
    ways = {"mode": "nearest", "coordinate_transformation_mode": by, "nearest_mode": rounding}
    nodes = [("Resize", ["x", "", "scales"], ["wide"], ways), ("Tanh", ["wide"], ["y"], {})]
    weights = {"scales": np.array([1, 1, 2, 3], np.float32)}
    model = models.build(nodes, {"x": [1, 2, "height", "width"]}, ["y"], weights)
    executable = core.load_network(core.read_network(model), "GPU")
    compiler, prepared = executable._compiler, executable._prepared
    for number, (height, width) in enumerate([(7, 9), (8, 11), (6, 10)]):
        x = image(number, 1, 2, height, width)
        compiler.learn(prepared, (x.shape,), executable._weights, executable.memory)
        (theirs,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(executable.infer({"x": x})["y"], theirs, rtol=1e-6)
    assert prepared.templates.filled > 0


ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


@pytest.mark.parametrize("by", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize(
    ("mode", "rounding"),
    [*(("nearest", each) for each in ROUNDINGS), ("linear", "floor"), ("cubic", "floor")],
)
@pytest.mark.parametrize("channels", [3, 16])
def test_pictures_of_computed_sizes_are_filled_in(core, opencl, by, mode, rounding, channels):
    """One template serves all: larger and smaller ones, multiples or not, one row and equal ones.

    Sizes are such that places in f32, as ONNX Runtime computes them, are not beside a half.
    """
    ways = {"mode": mode, "coordinate_transformation_mode": by, "nearest_mode": rounding}
    nodes = [
        ("Shape", ["z"], ["sizes"], {}),
        ("Slice", ["sizes", "two", "four"], ["plane"], {}),
        ("Concat", ["first", "plane"], ["wanted"], {"axis": 0}),
        ("Resize", ["x", "", "", "wanted"], ["wide"], ways),
        ("Mul", ["wide", "z"], ["y"], {}),
    ]
    weights = {
        "two": np.array([2], np.int64),
        "four": np.array([4], np.int64),
        "first": np.array([1, channels], np.int64),
    }
    given = {"x": [1, channels, "height", "width"], "z": [1, 1, "rows", "columns"]}
    model = models.build(nodes, given, ["y"], weights)
    executable = core.load_network(core.read_network(model), "GPU")
    compiler, prepared = executable._compiler, executable._prepared
    sizes = [((7, 9), (16, 13)), ((8, 16), (3, 5)), ((5, 6), (10, 18)), ((4, 6), (4, 6))]
    for number, (size, wanted) in enumerate([*sizes, ((9, 1), (1, 7)), ((1, 17), (8, 4))]):
        inputs = {"x": image(number, 1, channels, *size), "z": image(9 + number, 1, 1, *wanted)}
        if compiler.builds_ahead:
            shapes = tuple(x.shape for x in inputs.values())
            compiler.learn(prepared, shapes, executable._weights, executable.memory)
        (theirs,) = models.answer(model, inputs)
        got = executable.infer(inputs)["y"]
        np.testing.assert_allclose(got, theirs, rtol=1e-4, atol=2e-5)
    assert prepared.templates.filled >= (1 if compiler.builds_ahead else len(sizes))
