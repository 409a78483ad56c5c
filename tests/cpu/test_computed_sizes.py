"""Sizes that become floating-point numbers, negative, or borders: one plan serves others, too."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from polydevice.ops.interpolate import scaled_size
from polydevice.symbolic_size import tracing, whole
from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

FLOAT, DOUBLE, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16
WHOLE = onnx.TensorProto.INT64


def length() -> list[tuple]:
    """How many rows there are."""
    return [("Shape", ["x"], ["sizes"], {}), ("Gather", ["sizes", "one"], ["n"], {"axis": 0})]


def numbers(**values) -> dict[str, np.ndarray]:
    return {"one": np.array([1]), **{name: np.asarray(each) for name, each in values.items()}}


def part(kind: int, dtype: type) -> bytes:
    """The first rows, seven in ten of them and as many as the root of two thirds besides."""
    nodes = [
        *length(),
        ("Cast", ["n"], ["f"], {"to": kind}),
        ("Mul", ["f", "seven"], ["g"], {}),
        ("Div", ["g", "three"], ["h"], {}),
        ("Add", ["g", "h"], ["i"], {}),
        ("Floor", ["i"], ["j"], {}),
        ("Cast", ["j"], ["k"], {"to": WHOLE}),
        ("Slice", ["x", "zero", "k", "one"], ["part"], {}),
        ("Sigmoid", ["part"], ["y"], {}),
    ]
    weights = numbers(zero=[0], seven=dtype(0.7), three=dtype(3))
    return models.build(nodes, {"x": ["b", "n", 4]}, ["y"], weights)


def last() -> bytes:
    """The last rows of twice as many: a start that counts from the end."""
    nodes = [
        *length(),
        ("Neg", ["n"], ["m"], {}),
        ("Concat", ["x", "x"], ["twice"], {"axis": 1}),
        ("Slice", ["twice", "m", "far", "one"], ["part"], {}),
        ("Add", ["part", "x"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["b", "n", 4]}, ["y"], numbers(far=[2**31]))


def places() -> bytes:
    """Places counted down from the middle in steps of a half, and sines of them."""
    nodes = [
        *length(),
        ("Cast", ["n"], ["f"], {"to": FLOAT}),
        ("Squeeze", ["f"], ["start"], {}),
        ("Neg", ["start"], ["stop"], {}),
        ("Range", ["start", "stop", "step"], ["places"], {}),
        ("Unsqueeze", ["places", "one"], ["column"], {}),
        ("Div", ["column", "f"], ["share"], {}),
        ("Sin", ["share"], ["waves"], {}),
        ("Expand", ["waves", "wide"], ["rows"], {}),
        ("Slice", ["rows", "zero", "n", "zero"], ["some"], {}),
        ("Add", ["x", "some"], ["y"], {}),
    ]
    weights = numbers(step=np.float32(-0.5), wide=[1, 4], zero=[0])
    return models.build(nodes, {"x": ["b", "n", 4]}, ["y"], weights)


def resized(scale: float) -> bytes:
    """A picture whose sides are scaled by no whole number."""
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Resize", ["c", "", "scales"], ["r"], {"mode": "nearest", "nearest_mode": "floor"}),
        ("Relu", ["r"], ["y"], {}),
    ]
    weights = numbers(w=image(0, 4, 4, 1, 1), scales=np.array([1, 1, scale, scale], np.float32))
    return models.build(nodes, {"x": ["b", 4, "h", "v"]}, ["y"], weights)


def framed(mode: str) -> bytes:
    """A border that makes 64 rows of however many there are."""
    nodes = [
        *length(),
        ("Sub", ["most", "n"], ["rest"], {}),
        ("Concat", ["none", "rest", "one"], ["pads"], {"axis": 0}),
        ("Pad", ["x", "pads"], ["p"], {"mode": mode}),
        ("Tanh", ["p"], ["y"], {}),
    ]
    weights = numbers(most=[64], none=[0, 0, 0, 1])
    return models.build(nodes, {"x": ["b", "n", 4]}, ["y"], weights)


ROWS = [(2, n, 4) for n in (40, 41, 43, 50, 33, 63, 37, 47, 61, 35)]
PICTURES = [(2, 4, h, v) for h, v in ((9, 8), (12, 13), (30, 11), (17, 19), (41, 27), (7, 64))]


@pytest.mark.parametrize(
    ("model", "shapes", "is_filled"),
    [
        (part(FLOAT, np.float32), ROWS, True),
        (part(DOUBLE, np.float64), ROWS, True),
        (part(HALF, np.float16), ROWS, False),  # for each size a plan of its own
        (last(), ROWS, True),
        (places(), ROWS, True),
        (resized(1.7), PICTURES, True),
        (resized(0.3), PICTURES, True),
        (framed("constant"), ROWS, True),
        (framed("edge"), ROWS, True),
    ],
    ids=["f32", "f64", "f16", "last", "places", "larger", "smaller", "constant", "edge"],
)
def test_one_plan_serves_what_is_computed_of_sizes(core, model, shapes, is_filled):
    executable = load(core, model)
    request = executable.create_infer_request()
    for number, shape in enumerate(shapes):
        x = image(number, *shape)
        (wanted,) = models.answer(model, {"x": x})
        (got,) = request.infer({"x": x}).values()
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert executable.compiled.templates.filled >= (len(shapes) - 4) * is_filled


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.7, 2.5, 0.7071])
def test_lengths_are_scaled_as_numbers_of_f32(scale):
    with tracing() as trace:
        formulas = trace.formulas([scaled_size(trace.input(100), scale)])
    for size in range(1, 5000):
        assert formulas([size]) == ([scaled_size(size, scale)], [])


def test_what_is_rounded_to_f32_is_what_numpy_gives():
    def third(size):
        return (size.single() * float(np.float32(0.1))).single() / 3.0

    with tracing() as trace:
        made = third(trace.input(1 << 25))
        formulas = trace.formulas([made.single(), whole(made), math.floor(made)])
    for size in (1, 7, 100, 16_777_217, 33_554_435, 123_456_789):
        exact = np.float32(size) * np.float32(0.1) / np.float32(3)
        found, _ = formulas([size])
        assert np.float32(found[0]) == exact
        assert found[1] == found[2] == int(float(np.float32(size) * np.float32(0.1)) / 3.0)
