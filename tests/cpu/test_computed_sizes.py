"""Sizes that become floating-point numbers, negative, or borders: one plan serves others, too."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from polydevice.ops.interpolate import scaled_size
from polydevice.symbolic_size import whole
from polydevice.symbolic_trace import tracing
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.onednn.library import library
from polydevice_cpu.ops import generate
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling import sizes_alone
from polydevice_cpu.plan.filling.sizes_alone import of_sizes_alone
from polydevice_cpu.plan.step import ArrayStep
from polydevice_cpu.plan.tables.plan import TablePlan
from polydevice_cpu.plan.value import Kind, Storage, Value
from tests.cpu import models
from tests.cpu.loading import image, load, wait_for_settling

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


def shares() -> bytes:
    """Rows as many as all sizes, of which some are known, say when they are scaled together."""
    nodes = [
        ("Shape", ["x"], ["sizes"], {}),
        ("Cast", ["sizes"], ["f"], {"to": FLOAT}),
        ("Mul", ["f", "scales"], ["g"], {}),
        ("Mul", ["g", "f"], ["h"], {}),
        ("Slice", ["h", "zero", "one", "zero"], ["first"], {}),
        ("Slice", ["g", "one", "two", "zero"], ["second"], {}),
        ("Slice", ["g", "two", "three", "zero"], ["third"], {}),
        ("Mul", ["second", "third"], ["i"], {}),
        ("Add", ["first", "i"], ["j"], {}),
        ("Ceil", ["j"], ["k"], {}),
        ("Cast", ["k"], ["m"], {"to": WHOLE}),
        ("Slice", ["x", "zero", "m", "one"], ["part"], {}),
        ("Sigmoid", ["part"], ["y"], {}),
    ]
    weights = numbers(zero=[0], two=[2], three=[3], scales=np.float32([0.7, 0.1, 1.9]))
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
        (shares(), ROWS, True),
        (last(), ROWS, True),
        (places(), ROWS, True),
        (resized(1.7), PICTURES, True),
        (resized(0.3), PICTURES, True),
        (framed("constant"), ROWS, True),
        (framed("edge"), ROWS, True),
    ],
    ids=["f32", "f64", "f16", "shares", "last", "places", "larger", "smaller", "constant", "edge"],
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


def counted(monkeypatch):
    """The list to which each range that is counted is added."""
    counts, count = [], generate._range
    monkeypatch.setattr(generate, "_range", lambda *given: counts.append(1) or count(*given))
    return counts


@pytest.mark.parametrize("threads", [1, 2])
def test_what_sizes_alone_tell_is_computed_by_the_first_inference(core, monkeypatch, threads):
    """Once for each request and length, whatever was inferred in between, and for settled plans."""
    monkeypatch.setattr(settling, "RUNS", 4)
    model, counts = places(), counted(monkeypatch)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    requests = [executable.create_infer_request() for _ in range(2)]
    for rows in (40, 41, 43):
        requests[0].infer({"x": image(rows, 2, rows, 4)})
    assert executable.latest_plan().once
    del counts[:]
    for number, rows in enumerate([50, 50, 51, 50, 51, 51]):
        for request in requests:
            x = image(number, 2, rows, 4)
            (wanted,) = models.answer(model, {"x": x})
            (got,) = request.infer({"x": x}).values()
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        wait_for_settling()
    assert len(counts) in (4, 8)  # two lengths and requests, and once more where plans were settled


def distances() -> bytes:
    """Scores of positions and what is added for their distances, in steps that double."""
    nodes = [
        *length(),
        ("Range", ["first", "n_", "each"], ["r"], {}),
        ("Unsqueeze", ["r", "zero"], ["across"], {}),
        ("Unsqueeze", ["r", "one"], ["down"], {}),
        ("Sub", ["across", "down"], ["apart"], {}),
        ("Abs", ["apart"], ["far"], {}),
        ("Cast", ["far"], ["f"], {"to": FLOAT}),
        ("Add", ["f", "least"], ["g"], {}),
        ("Log", ["g"], ["h"], {}),
        ("Cast", ["h"], ["i"], {"to": WHOLE}),
        ("Gather", ["table", "i"], ["added"], {}),
        ("Transpose", ["x"], ["t"], {"perm": [0, 2, 1]}),
        ("MatMul", ["x", "t"], ["s"], {}),
        ("Add", ["s", "added"], ["a"], {}),
        ("Softmax", ["a"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "x"], ["y"], {}),
    ]
    nodes.insert(len(length()), ("Squeeze", ["n"], ["n_"], {}))
    weights = numbers(first=0, each=1, zero=[0], one=[1], least=np.float32([1]))
    weights |= {"table": image(1, 9)}
    return models.build(nodes, {"x": ["b", "n", 4]}, ["y"], weights)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_sizes_alone_tell_is_part_of_tables(core, monkeypatch, threads):
    monkeypatch.setattr(settling, "RUNS", 4)
    model = distances()
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, tables = executable.create_infer_request(), 0
    for number, rows in enumerate([40, 41, 43, 50, 33, 57, 50, 61, 62, 39, 33, 62, 62, 62, 62, 62]):
        x = image(number, 2, rows, 4)
        (wanted,) = models.answer(model, {"x": x})
        for _ in range(2):
            (got,) = request.infer({"x": x}).values()
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        plan = executable.latest_plan()
        if isinstance(plan, TablePlan):
            tables += 1
            assert len(plan.once) > 6
            assert len(plan.once & plan.late.keys()) <= 1  # the range itself
        wait_for_settling()
    assert tables > 5 or not has_avx512()


def test_what_takes_much_memory_is_computed_in_each_inference(core, monkeypatch):
    monkeypatch.setattr(sizes_alone, "KEPT_BYTES", 100)
    model, counts = places(), counted(monkeypatch)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for rows in (40, 41, 43, 50):
        request.infer({"x": image(rows, 2, rows, 4)})
    del counts[:]
    for number in range(3):
        x = image(number, 2, 50, 4)
        (wanted,) = models.answer(model, {"x": x})
        (got,) = request.infer({"x": x}).values()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert len(counts) == 3


def test_what_others_write_as_well_is_no_matter_of_sizes_alone():
    """A sum is added to what its place holds, and what is written again is no constant."""

    def value(storage):
        return Value(storage, (2,), np.dtype(np.float32), (1,))

    constant = value(Storage(Kind.CONSTANT, 8, array=np.zeros(2, np.float32)))
    given = value(Storage(Kind.INPUT, 8))
    one, two, three, four = (value(Storage(Kind.ARENA, 8)) for _ in range(4))

    def step(inputs, output):
        return ArrayStep("", "Add", lambda _: np.add, inputs, [output])

    steps = [
        step([constant, constant], one),
        step([one, constant], two),
        step([two, given], three),
        step([constant, constant], four),
        step([four, given], four),
    ]
    once, kept = of_sizes_alone(steps)
    assert once == {0, 1}
    assert kept == {id(two.storage)}


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
