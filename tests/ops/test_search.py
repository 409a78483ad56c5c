"""NonZero, Unique, Bucketize and SearchSorted."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.search import Bucketize, NonZero, SearchSorted, Unique
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(16)


@pytest.mark.parametrize("shape", [(9,), (4, 5), (2, 3, 4), (2, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_])
@pytest.mark.parametrize("kind", [ElementType.i32, ElementType.i64])
def test_non_zero(device, shape, dtype, kind):
    x = RNG.integers(0, 3, shape).astype(dtype)
    expected = np.array(np.nonzero(x), kind.dtype)
    check(OpCase(NonZero(output_type=kind), [x], [expected]), device)


@pytest.mark.parametrize("shape", [(1, 2500), (3, 1, 900), (60, 50), (5, 1, 20, 30), (2100, 1)])
@pytest.mark.parametrize("kept", [0, 0.002, 0.4, 1])
def test_non_zero_of_many(device, shape, kept):
    """Axes of size 1 before, between and behind others."""
    x = RNG.random(shape) < kept
    expected = np.array([place for place in np.ndindex(shape) if x[place]]).reshape(-1, x.ndim).T
    check(OpCase(NonZero(), [x], [expected.astype(np.int64)]), device)


@pytest.mark.parametrize("odd", [np.nan, -0.0, np.inf])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_unique_of_odd_numbers(odd, axis):
    """NumPy judges: NaN are the same, and so are zeros, of which the first stays."""
    x = RNG.integers(-1, 2, (5, 4)).astype(np.float32)
    x[RNG.random(x.shape) < 0.3] = odd
    found = run(Unique(), [x] if axis is None else [x, np.array(axis)])
    everything = {"return_index": True, "return_inverse": True, "return_counts": True}
    right = np.unique(x, axis=axis, **everything)
    for got, want in zip(found, right, strict=True):
        np.testing.assert_array_equal(got, want.reshape(got.shape))
    np.testing.assert_array_equal(np.signbit(found[0]), np.signbit(right[0]))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_unique(device, ordered, axis, dtype):
    x = RNG.integers(0, 3, (4, 3, 2) if axis is None else (6, 5)).astype(dtype)
    if axis is not None:
        x = np.take(x, [0, 1, 0, 2, 1], axis) % 2
    inputs = [x] if axis is None else [x, np.array(axis, np.int64)]
    op = Unique(sorted=ordered)
    if axis == 1:  # OpenVINO and onnx.reference both return some columns twice
        check(OpCase(op, inputs, unique_columns(x, ordered), constants={1}), device)
    else:
        check(openvino_case(op, *inputs, constants={1}), device)


def unique_columns(x, ordered):
    """Distinct columns, where each is first, which one each column is, and how many there are."""
    columns = [tuple(column) for column in x.T]
    distinct = sorted(set(columns), key=None if ordered else columns.index)
    return [
        np.array(distinct, x.dtype).T,
        np.array([columns.index(column) for column in distinct]),
        np.array([distinct.index(column) for column in columns]),
        np.array([columns.count(column) for column in distinct]),
    ]


def test_unique_counts_the_axis_from_the_end(device):
    # OpenVINO's CPU plugin finds too many slices here
    x = np.int32([[1, 0, 1], [2, 5, 2]])
    expected = [np.int32([[0, 1], [5, 2]]), np.array([1, 0]), np.array([1, 0, 1]), np.array([1, 2])]
    check(OpCase(Unique(), [x, np.array(-1)], expected, constants={1}), device)


def test_unique_slices_in_the_order_of_their_first_occurrence(device):
    x = np.float32([[3, 1, 3, 2, 1], [0, 5, 0, 0, 5]])
    expected = [
        np.float32([[3, 1, 2], [0, 5, 0]]),
        np.array([0, 1, 3]),
        np.array([0, 1, 0, 2, 1]),
        np.array([2, 2, 1]),
    ]
    check(OpCase(Unique(sorted=False), [x, np.array(1)], expected, constants={1}), device)


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("kind", [ElementType.i32, ElementType.i64])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_bucketize(device, right, kind, dtype):
    x = RNG.integers(-2, 9, (3, 7)).astype(dtype)
    op = Bucketize(output_type=kind, with_right_bound=right)
    check(openvino_case(op, x, np.array([0, 2, 5, 6], dtype), constants={1}), device)


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(("table", "values"), [((6,), (2, 3)), ((2, 3, 5), (2, 3, 4))])
def test_search_sorted(device, right, table, values):
    rows = np.sort(RNG.integers(0, 9, table), axis=-1).astype(np.float32)
    wanted = RNG.integers(-1, 10, values).astype(np.float32)
    others = [rows + 1, wanted[::-1]]  # still sorted
    check(openvino_case(SearchSorted(right_mode=right), rows, wanted, others=others), device)


def test_unknown_sizes():
    x = TensorDesc(ElementType.f32, Shape([Dim(1, 4), 3]))
    assert NonZero().infer([x])[0].shape == Shape([2, Dim(0, 12)])
    shapes = [y.shape for y in Unique().infer([x])]
    assert shapes == [Shape([Dim(1, 12)])] * 2 + [Shape([Dim(3, 12)]), Shape([Dim(1, 12)])]
    with pytest.raises(ShapeError, match="leading"):
        SearchSorted().infer([x.with_shape([2, 3]), x.with_shape([3, 3])])
