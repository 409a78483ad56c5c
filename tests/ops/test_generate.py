"""Range, OneHot and Eye."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core, opset
from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, ShapeError
from polydevice.interval import Interval
from polydevice.ops.generate import Eye, NegativeIndices, OneHot, Range, Range1, range_length
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from polydevice_cpu.ops.generate import range_
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(14)


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 10, 1), (2, 23, 3), (5, -6, -2), (3, 3, 1), (4, 1, 2)]
)
@pytest.mark.parametrize("kind", [ElementType.i32, ElementType.i64, ElementType.f32])
def test_range(device, start, stop, step, kind):
    inputs = [np.array(v, kind.dtype) for v in (start, stop, step)]
    expected = np.arange(start, stop, step).astype(kind.dtype)
    check(OpCase(Range(output_type=kind), inputs, [expected], constants=True), device)
    check(OpCase(Range1(), inputs, [expected], constants=True), device)


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0.0, 1.0, 0.3), (1.5, 9.2, 1.1), (-1, -3, -0.5)]
)
def test_range_of_fractions(device, start, stop, step):
    inputs = [np.array(v, np.float32) for v in (start, stop, step)]
    op = Range(output_type=ElementType.f32)
    check(openvino_case(op, *inputs, constants=True), device)


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [
        (0, 2**62 + 1, 2**61),
        (-(2**63), 2**63 - 1, 2**62),
        (2**63 - 3, 2**63 - 1, 2),
        (2**62, -(2**62) - 1, -(2**61)),
    ],
)
def test_range_of_large_numbers(device, start, stop, step):
    """f64, with which NumPy counts, has 53 bits."""
    inputs = [np.array(v, np.int64) for v in (start, stop, step)]
    expected = np.array(range(start, stop, step), np.int64)
    check(OpCase(Range(output_type=ElementType.i64), inputs, [expected], constants=True), device)


def test_range_cuts_to_integers_first(device):
    inputs = [np.array(v, np.float32) for v in (1.9, 7.2, 2.5)]
    op = Range(output_type=ElementType.i32)
    check(OpCase(op, inputs, [np.int32([1, 3, 5])], constants=True), device)


def test_range_of_unknown_length():
    op = Range(output_type=ElementType.i64)
    stop = TensorDesc(ElementType.i64, Shape([]), np.array(Interval(3, 8), object))
    one, zero = desc_of(np.array(1)), desc_of(np.array(0))
    assert op.infer([zero, stop, one])[0].shape == Shape([Dim(3, 8)])
    assert op.infer([zero, stop.without_value(), one])[0].shape == Shape([Dim()])
    with pytest.raises(ShapeError, match="not possible"):
        op.infer([zero, one, zero])


@pytest.mark.parametrize(
    ("shape", "axis"), [((4,), -1), ((2, 3), 0), ((2, 3), 1), ((), 0), ((3, 0), -1)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_one_hot(device, shape, axis, dtype):
    indices = RNG.integers(-1, 6, shape).astype(np.int64)
    inputs = [indices, np.array(5), np.array(7, dtype), np.array(-2, dtype)]
    expected = np.where(indices[..., None] == np.arange(5), 7, -2).astype(dtype)
    expected = np.moveaxis(expected, -1, axis)
    check(OpCase(OneHot(axis=axis), inputs, [expected], constants={1, 2, 3}), device)
    if shape and 0 not in shape:
        check(openvino_case(OneHot(axis=axis), *inputs, opset=1, constants={1, 2, 3}), device)


def test_a_negative_depth_of_one_hot_is_refused():
    """Also where only the inference tells it."""
    depth = opset.parameter([], "i64", name="depth")
    made = opset.one_hot([0, 1], depth, np.float32(1), np.float32(0), axis=-1)
    executable = Core().load_network(opset.network("depths", {"y": made}), "CPU")
    assert executable.infer({"depth": np.array(3)})["y"].shape == (2, 3)
    with pytest.raises(InferenceError, match="depth -1 is negative"):
        executable.infer({"depth": np.array(-1)})


def test_one_hot_counts_negative_indices_from_the_end(device):
    op = OneHot(axis=0, negative_indices_mode=NegativeIndices.NORMALIZE)
    inputs = [np.array([-1, 1, -4]), np.array(3), np.float32(1), np.float32(0)]
    expected = np.float32([[0, 0, 0], [0, 1, 0], [1, 0, 0]])
    check(OpCase(op, inputs, [expected], constants={1, 2, 3}), device)


@pytest.mark.parametrize(
    ("rows", "columns", "diagonal"), [(3, 3, 0), (2, 5, 2), (5, 2, -3), (3, 4, 9)]
)
@pytest.mark.parametrize("kind", [ElementType.f32, ElementType.i8])
@pytest.mark.parametrize("batch", [None, (2, 3)])
def test_eye(device, rows, columns, diagonal, kind, batch):
    inputs = [np.array(v, np.int64) for v in (rows, columns, diagonal)]
    expected = np.eye(rows, columns, diagonal, kind.dtype)
    if batch:
        inputs.append(np.array(batch, np.int64))
        expected = np.tile(expected, (*batch, 1, 1))
    check(OpCase(Eye(output_type=kind), inputs, [expected], constants=True), device)


@pytest.mark.parametrize(
    ("limits", "length"),
    [
        *(
            ((0, 7, 3), 3),
            ((7, 0, -3), 3),
            ((0, 0, 1), 0),
            ((3, 0, 1), 0),
            ((0, 2.0**70, 2), 2**69),
        ),
        *(((0.5, 3, 1), 3), ((2.0, 3.0, 0.5), 2), ((True, 5, 2), 2)),
    ],
)
def test_lengths_of_ranges_of_whole_numbers(limits, length):
    assert range_length(*limits) == length


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("shape", [(0,), (2,), (1, 3)])
def test_range_wants_one_number_each(place, shape):
    """As of ranks that only the data tells, which nobody saw before."""
    limits = [np.array(1), np.array([[9]]), np.array([2])]
    for kind, right in ((ElementType.i64, [1, 3, 5, 7]), (ElementType.f32, [1, 3, 5, 7])):
        np.testing.assert_array_equal(range_(Range(output_type=kind), *limits), right)
    limits[place] = np.ones(shape, np.int64)
    for kind in (ElementType.i64, ElementType.f32):
        with pytest.raises(InferenceError, match="one number each"):
            range_(Range(output_type=kind), *limits)
