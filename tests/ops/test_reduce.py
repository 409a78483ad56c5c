"""Reductions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.ops import reduce as ops
from polydevice.shape import Dim, Shape
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case, wide_case

RANDOM = np.random.default_rng(31)
NUMERIC = [ops.ReduceSum, ops.ReduceMean, ops.ReduceMax, ops.ReduceMin, ops.ReduceProd,
           ops.ReduceL1, ops.ReduceL2]  # fmt: skip
AXES = [(1,), (0,), (-1,), (2, 3), (-1, 1), (0, 1, 2, 3), (2, 2)]


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("op", NUMERIC)
@pytest.mark.parametrize("axes", AXES[:-1])
@pytest.mark.parametrize("keep_dims", [False, True])
def test_f32_against_openvino(op, axes, keep_dims, device):
    x = RANDOM.uniform(-2, 2, (2, 3, 4, 5)).astype(np.float32)
    check(openvino_case(op(keep_dims), x, ints(*axes), constants={1}), device)


@pytest.mark.parametrize("op", [ops.ReduceSum, ops.ReduceMean, ops.ReduceProd])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 20, 33), (1,)), ((2, 3, 4, 17), (1, 2)), ((5, 16), (0,)), ((70, 40), (1,)),
     ((2, 5, 300), (2,)), ((1, 6, 1), (1,)), ((6, 5, 4, 1), (0, 2)), ((9, 27, 8), (1,)),
     ((13, 3), (0,)), ((4, 5, 6, 2), (1, 2)), ((3, 600, 7), (1,))],
)  # fmt: skip
def test_many_elements_behind_the_axes_or_none(op, shape, axes, device):
    x = RANDOM.uniform(0.9, 1.1, shape).astype(np.float32)
    function = getattr(np, op.__name__.removeprefix("Reduce").lower())
    expected = function(x.astype(np.float64), axis=axes, keepdims=True).astype(np.float32)
    check(OpCase(op(True), [x, ints(*axes)], [expected], constants={1}), device)


@pytest.mark.parametrize("op", [ops.ReduceSum, ops.ReduceMean])
@pytest.mark.parametrize("shape", [(2, 3, 20), (2, 19, 9)])
def test_infinities_and_nan_stay_in_their_column(op, shape, device):
    x = np.ones(shape, np.float32)
    x[0, 1, 4], x[1, 0, 7] = np.inf, np.nan
    expected = (x.sum if op is ops.ReduceSum else x.mean)(1)
    check(OpCase(op(False), [x, ints(1)], [expected], constants={1}), device)


@pytest.mark.parametrize("op", [ops.ReduceSum, ops.ReduceMax, ops.ReduceMin, ops.ReduceProd])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8, np.uint8])
def test_integers_against_numpy(op, dtype, device):
    x = RANDOM.integers(0, 4, (3, 4, 5)).astype(dtype)
    function = getattr(np, op.__name__.removeprefix("Reduce").lower())
    expected = function(x, axis=1).astype(dtype)
    check(OpCase(op(), [x, ints(1)], [expected], constants={1}), device)


@pytest.mark.parametrize("op", NUMERIC)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_round_the_wide_answer(op, dtype, device):
    x = RANDOM.uniform(0.5, 1.5, (3, 4, 5)).astype(dtype)
    check(wide_case(op(), x, ints(1), constants={1}), device)


@pytest.mark.parametrize(
    ("op", "function"), [(ops.ReduceLogicalAnd, np.all), (ops.ReduceLogicalOr, np.any)]
)
@pytest.mark.parametrize("keep_dims", [False, True])
def test_logic(op, function, keep_dims, device):
    x = RANDOM.random((3, 2, 4)) < 0.5
    expected = function(x, axis=(0, 1), keepdims=keep_dims)
    check(OpCase(op(keep_dims), [x, ints(0, 1)], [expected], constants={1}), device)


@pytest.mark.parametrize("keep_dims", [False, True])
def test_a_scalar_axis_and_no_axes(keep_dims, device):
    x = RANDOM.standard_normal((2, 3)).astype(np.float32)
    axis = np.array(1, np.int32)
    op = ops.ReduceSum(keep_dims)
    check(OpCase(op, [x, axis], [x.sum(1, keepdims=keep_dims)], constants={1}), device)
    check(OpCase(op, [x, ints()], [x], constants={1}), device)


def test_axes_known_at_inference_only(device):
    x = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
    for keep_dims in (False, True):
        expected = x.max((0, 2), keepdims=keep_dims)
        check(OpCase(ops.ReduceMax(keep_dims), [x, ints(0, 2)], [expected]), device)


@pytest.mark.parametrize(
    ("op", "value"),
    [(ops.ReduceSum(), 0.0), (ops.ReduceProd(), 1.0), (ops.ReduceMax(), -np.inf),
     (ops.ReduceMin(), np.inf), (ops.ReduceL1(), 0.0), (ops.ReduceL2(), 0.0)],
    ids=repr,
)  # fmt: skip
def test_over_no_elements(op, value, device):
    x = np.zeros((2, 0), np.float32)
    expected = np.full(2, value, np.float32)
    check(OpCase(op, [x, ints(1)], [expected], constants={1}), device)


def test_nan_wins(device):
    x = np.array([[1, np.nan], [3, 4]], np.float32)
    for op in (ops.ReduceMax(), ops.ReduceMin(), ops.ReduceSum()):
        y = np.array([np.nan, {"ReduceMax": 4, "ReduceMin": 3, "ReduceSum": 7}[op.type]])
        check(OpCase(op, [x, ints(1)], [y], constants={1}), device)


@pytest.mark.parametrize("count", [200_000, 2_000_000])
def test_long_sums_keep_their_precision(device, count):
    x = np.full((1, count), 0.1, np.float32)
    # Adding one by one in f32 would be off by 1e-2.
    check(OpCase(ops.ReduceMean(), [x, ints(1)], [[0.1]], (5e-4, 0), {1}), device)


def test_unknown_sizes():
    op = ops.ReduceSum(keep_dims=True)
    case = OpCase(op, [np.zeros((2, 3)), ints(1)], [], constants={1})
    network = network_of(case)
    network.reshape({"input0": [Dim(1, 8), None]})
    assert network.results[0].output.shape == Shape([Dim(1, 8), 1])


def test_an_axis_outside_the_rank_is_refused():
    with pytest.raises(NetworkError, match=r"axis 2 is outside"):
        network_of(OpCase(ops.ReduceSum(), [np.zeros((2, 3)), ints(2)], [], constants={1}))


@pytest.mark.parametrize("op", [ops.ReduceMean, ops.ReduceSum, ops.ReduceMax, ops.ReduceMin])
@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 20, 3), 1), ((2, 4, 30), 1), ((5, 6, 40), 2), ((7,), 0), ((30,), 0)]
)
def test_one_axis_short_or_less_short(op, shape, axis, device):
    x = RANDOM.standard_normal(shape).astype(np.float32)
    for keep_dims in (False, True):
        check(openvino_case(op(keep_dims), x, ints(axis), constants={1}), device)
