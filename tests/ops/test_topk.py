"""TopK."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, ShapeError
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(15)


@pytest.mark.parametrize("mode", list(TopKMode))
@pytest.mark.parametrize("sort", [TopKSort.VALUE, TopKSort.INDEX])
@pytest.mark.parametrize(
    ("shape", "axis", "k"), [((7,), 0, 3), ((3, 9), -1, 9), ((5, 4, 6), 1, 1), ((2, 50, 3), 1, 20)]
)
@pytest.mark.parametrize("kind", [ElementType.i32, ElementType.i64])
def test_topk(device, mode, sort, shape, axis, k, kind):
    x = RNG.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    op = TopK(axis=axis, mode=mode, sort=sort, index_element_type=kind)
    check(openvino_case(op, x, np.array(k, np.int64), constants={1}), device)


@pytest.mark.parametrize("mode", list(TopKMode))
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.int64, ml_dtypes.bfloat16])
def test_equal_elements_keep_their_order(device, mode, dtype):
    x = np.array([[3, 1, 3, 2, 1, 3], [0, 0, 0, 0, 0, 0]], dtype)
    order = {TopKMode.MAX: [[0, 2, 5, 3], [0, 1, 2, 3]], TopKMode.MIN: [[1, 4, 3, 0], [0, 1, 2, 3]]}
    index = np.array(order[mode], np.int32)
    op = TopK(axis=1, mode=mode, sort=TopKSort.VALUE, stable=True)
    expected = [np.take_along_axis(x, index.astype(np.int64), 1), index]
    check(OpCase(op, [x, np.array(4)], expected, constants={1}), device)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_infinities_and_zeros_of_both_signs(device, dtype):
    """-0 equals 0, so that the lower index comes first."""
    x = np.array([-0.0, 0.0, -np.inf, np.inf, -0.0, -1.0], dtype)
    for mode, order in (
        (TopKMode.MAX, [3, 0, 1, 4, 5, 2]),
        (TopKMode.MIN, [2, 5, 0, 1, 4, 3]),
    ):
        for k in (6, 4):
            index = np.array(order[:k], np.int32)
            op = TopK(axis=0, mode=mode, sort=TopKSort.VALUE, stable=True)
            check(OpCase(op, [x, np.array(k)], [x[index], index], constants={1}), device)


def test_unsigned_and_extreme_integers(device):
    x = np.array([0, 2**63 - 1, -(2**63), 5], np.int64)
    op = TopK(axis=0, mode=TopKMode.MAX, sort=TopKSort.VALUE)
    expected = [np.array([2**63 - 1, 5, 0]), np.int32([1, 3, 0])]
    check(OpCase(op, [x, np.array(3)], expected, constants={1}), device)


def test_unknown_sizes():
    op = TopK(axis=1, mode=TopKMode.MAX, sort=TopKSort.VALUE)
    x = TensorDesc(ElementType.f16, Shape([None, Dim(2, 8)]))
    values, indices = op.infer([x, desc_of(np.array(3))])
    assert values == TensorDesc(ElementType.f16, Shape([None, 3]))
    assert indices == TensorDesc(ElementType.i32, Shape([None, 3]))
    assert op.infer([x, TensorDesc(ElementType.i64, Shape([]))])[0].shape == Shape(
        [None, Dim(0, 8)]
    )
    with pytest.raises(ShapeError, match="k 9"):
        op.infer([x, desc_of(np.array(9))])
    with pytest.raises(InferenceError, match="k 9"):
        run(op, [np.zeros((1, 8), np.float32), np.array(9)])


@pytest.mark.parametrize("mode", list(TopKMode))
@pytest.mark.parametrize("count", [1, 7, 300])
def test_few_of_many_with_ties(device, mode, count):
    x = RNG.integers(0, 40, (3, 5000)).astype(np.float32)
    sign = 1 if mode is TopKMode.MIN else -1
    index = np.argsort(sign * x, axis=1, kind="stable")[:, :count]
    expected = [np.take_along_axis(x, index, 1), index.astype(np.int32)]
    op = TopK(axis=1, mode=mode, sort=TopKSort.VALUE)
    check(OpCase(op, [x, np.array(count)], expected, constants={1}), device)


@pytest.mark.parametrize("mode", list(TopKMode))
@pytest.mark.parametrize("kind", ["different", "ties", "zeros", "nan", "integers"])
def test_few_of_each_of_many_rows(mode, kind):
    """Rows whose last element chosen is equal to none besides, and others."""
    x = RNG.permutation(6 * 100).reshape(3, 2, 100).astype(np.int32 if kind == "integers" else "f4")
    if kind == "ties":
        x //= 30
    elif kind == "zeros":
        x[RNG.random(x.shape) < 0.5] = -0.0
    elif kind == "nan":
        x //= 9
        x[0, 1, [3, 50]] = np.nan
    rank = np.where(np.isnan(x), np.inf, x)
    index = np.argsort(-rank if mode is TopKMode.MAX else rank, axis=-1, kind="stable")[..., :20]
    values, found = run(TopK(axis=-1, mode=mode, sort=TopKSort.VALUE), [x, np.array(20)])
    np.testing.assert_array_equal(found, index)
    np.testing.assert_array_equal(values, np.take_along_axis(x, index, -1))


def test_no_number_counts_as_the_largest(device):
    x = np.zeros(5000, np.float32)
    x[[10, 20]] = np.nan
    op = TopK(axis=0, mode=TopKMode.MAX, sort=TopKSort.VALUE)
    expected = [np.float32([np.nan, np.nan, 0]), np.int32([10, 20, 0])]
    check(OpCase(op, [x, np.array(3)], expected, constants={1}), device)


@pytest.mark.parametrize("mode", list(TopKMode))
@pytest.mark.parametrize("shape", [(2, 5, 40, 30), (3, 5, 7)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_the_first_of_many_side_by_side(device, mode, shape, dtype):
    """One class for each pixel; with five values, many are equal."""
    x = RNG.integers(0, 5, shape).astype(dtype)
    if mode is TopKMode.MAX and dtype is np.float32:
        x[1, 3], x[0, 2] = np.inf, np.nan
    index = np.argsort(-x if mode is TopKMode.MAX else x, axis=1, kind="stable")[:, :1]
    if np.isnan(x).any():
        index[0] = 2
    expected = [np.take_along_axis(x, index, 1), index.astype(np.int32)]
    op = TopK(axis=1, mode=mode, sort=TopKSort.VALUE)
    check(OpCase(op, [x, np.array(1)], expected, constants={1}), device)
