"""Arithmetic of two inputs: broadcasting, integer rules, special values."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.interval import Interval
from polydevice.ops import arithmetic as ops
from polydevice.ops.pointwise import AutoBroadcast
from polydevice.testing.op_case import OpCase, network_of
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(5)
BINARY = [
    ops.Add, ops.Subtract, ops.Multiply, ops.Divide, ops.Mod, ops.FloorMod, ops.Maximum,
    ops.Minimum, ops.Power, ops.SquaredDifference,
]  # fmt: skip
SHAPES = [
    ((2, 3, 4, 5), (2, 3, 4, 5)),
    ((2, 3, 4, 5), (5,)),
    ((2, 3, 4, 5), ()),
    ((1, 3, 1, 5), (2, 1, 4, 1)),
    ((3, 1), (1, 4)),
    ((7,), (2, 3, 1)),
    ((1, 2, 3, 2, 3), (3, 1, 1)),
    ((), ()),
]


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_f32_against_openvino(op, a, b, device):
    x = RANDOM.uniform(0.5, 4, a).astype(np.float32)
    y = RANDOM.uniform(0.5, 4, b).astype(np.float32)
    if op is not ops.Power:
        x *= np.where(RANDOM.random(a) < 0.5, -1, 1).astype(np.float32)
    check(openvino_case(op(), x, y), device)


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("number", [4, 3])
def test_with_a_number_that_is_known(op, number):
    """On either side; CPU makes functions of oneDNN's of most, and of division by powers of two."""
    x = RANDOM.uniform(0.5, 4, (3, 8)).astype(np.float32)
    for place in (0, 1):
        inputs = [x, x]
        inputs[place] = np.float32(number)
        case = openvino_case(op(), *inputs)
        check(dataclasses.replace(case, constants=(place,)), "CPU")


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8])
def test_integers_against_numpy(op, dtype, device):
    x = RANDOM.integers(0 if op is ops.Power else -20, 20, (3, 8)).astype(dtype)
    y = RANDOM.integers(1, 3 if op is ops.Power else 9, (3, 8)).astype(dtype)
    function = {
        ops.Divide: np.floor_divide, ops.Mod: np.fmod, ops.FloorMod: np.mod,
        ops.SquaredDifference: lambda a, b: (a - b) * (a - b),
    }.get(op) or getattr(np, op.__name__.lower())  # fmt: skip
    check(OpCase(op(), [x, y], [function(x, y)]), device)


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floats_round_the_exact_answer(op, dtype, device):
    x = RANDOM.uniform(0.5, 4, (3, 8)).astype(dtype)
    y = RANDOM.uniform(0.5, 4, (1, 8)).astype(dtype)
    wide = x.astype(np.float64), y.astype(np.float64)
    function = {
        ops.Mod: np.fmod, ops.FloorMod: np.mod, ops.SquaredDifference: lambda a, b: (a - b) ** 2
    }.get(op) or getattr(np, op.__name__.lower())  # fmt: skip
    check(OpCase(op(), [x, y], [function(*wide).astype(dtype)]), device)


def test_integer_division_rounds_as_asked(device):
    a, b = np.array([7, -7, 7, -7, 6], np.int32), np.array([2, 2, -2, -2, 3], np.int32)
    check(OpCase(ops.Divide(), [a, b], [np.array([3, -4, -4, 3, 2], np.int32)]), device)
    check(OpCase(ops.Divide(pythondiv=False), [a, b], [[3, -3, -3, 3, 2]]), device)
    check(OpCase(ops.Mod(), [a, b], [[1, -1, 1, -1, 0]]), device)
    check(OpCase(ops.FloorMod(), [a, b], [[1, 1, -1, -1, 0]]), device)


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
def test_division_by_minus_one(device, kind):
    """The smallest integer divided by -1 is above the largest, and wraps around to itself."""
    info = np.iinfo(kind)
    a = np.array([info.min, info.min, info.max, -7, 7, info.min], kind)
    b = np.array([-1, 1, -1, 2, -2, info.min], kind)
    for down, quotients in ((True, [-4, -4]), (False, [-3, -3])):
        expected = np.array([info.min, info.min, -info.max, *quotients, 1], kind)
        check(OpCase(ops.Divide(pythondiv=down), [a, b], [expected]), device)
        check(OpCase(ops.Divide(pythondiv=down), [a, b], [expected], constants={1}), device)
    check(OpCase(ops.Mod(), [a, b], [np.array([0, 0, 0, -1, 1, 0], kind)]), device)
    check(OpCase(ops.FloorMod(), [a, b], [np.array([0, 0, 0, 1, -1, 0], kind)]), device)


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("repeated", [1, 50])
def test_integer_quotients_of_extremes(kind, repeated):
    """Towards zero, as Python's whole numbers say; the least one divided by -1 wraps around."""
    limits = np.iinfo(kind)
    numbers = [limits.min, limits.min + 1, -7, -2, -1, 0, 1, 2, 7, limits.max - 1, limits.max]
    a, b = (
        np.array(each, kind)
        for each in zip(*[(a, b) for a in numbers for b in numbers if b] * repeated, strict=True)
    )
    right = [
        abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    (found,) = run(ops.Divide(pythondiv=False), [a, b])
    assert found.dtype == kind
    wrapped = [
        (each + 2 ** (limits.bits - 1)) % 2**limits.bits - 2 ** (limits.bits - 1) for each in right
    ]
    np.testing.assert_array_equal(found, np.array(wrapped, kind))


def test_float_division_by_zero(device):
    a, b = np.array([1.0, -1.0, 0.0], np.float32), np.zeros(3, np.float32)
    check(OpCase(ops.Divide(), [a, b], [[np.inf, -np.inf, np.nan]]), device)


def test_integers_wrap_around(device):
    a, b = np.array([127, -128], np.int8), np.array([1, -1], np.int8)
    check(OpCase(ops.Add(), [a, b], [np.array([-128, 127], np.int8)]), device)
    big = np.array([2**31 - 1], np.int32)
    check(OpCase(ops.Multiply(), [big, big], [np.array([1], np.int32)]), device)


def test_i64_beyond_the_precision_of_floats(device):
    a, b = np.array([2**53 + 1, -(2**60)], np.int64), np.array([2, 3], np.int64)
    check(OpCase(ops.Add(), [a, b], [np.array([2**53 + 3, 3 - 2**60], np.int64)]), device)
    check(OpCase(ops.Multiply(), [a, b], [a * b]), device)


def test_empty_inputs(device):
    a, b = np.zeros((0, 3), np.float32), np.ones((1, 3), np.float32)
    check(OpCase(ops.Add(), [a, b], [np.zeros((0, 3), np.float32)]), device)


@pytest.mark.parametrize(
    ("a", "b", "axis", "aligned"),
    [
        ((2, 3, 4, 5), (3, 4), 1, (1, 3, 4, 1)),
        ((2, 3, 4, 5), (2,), 0, (2, 1, 1, 1)),
        ((2, 3, 4, 5), (4, 5), -1, (1, 1, 4, 5)),
        ((2, 3), (2, 1), 0, (2, 1)),
        ((2, 3, 4), (), -1, (1, 1, 1)),
    ],
)
def test_pdpd_aligns_the_second_input(a, b, axis, aligned, device):
    x, y = (RANDOM.standard_normal(s).astype(np.float32) for s in (a, b))
    op = ops.Add(auto_broadcast=AutoBroadcast.PDPD, broadcast_axis=axis)
    check(OpCase(op, [x, y], [x + y.reshape(aligned)]), device)


def test_none_refuses_to_broadcast():
    op = ops.Add(auto_broadcast=AutoBroadcast.NONE)
    with pytest.raises(NetworkError, match="do not agree"):
        network_of(OpCase(op, [np.zeros((2, 3)), np.zeros((1, 3))], []))


def test_shapes_and_types_that_do_not_fit():
    with pytest.raises(NetworkError, match=r"cannot be broadcast"):
        network_of(OpCase(ops.Add(), [np.zeros((2, 3)), np.zeros((4, 3))], []))
    with pytest.raises(NetworkError, match="one element type"):
        network_of(OpCase(ops.Add(), [np.zeros(3), np.zeros(3, np.float32)], []))


def test_ir_attributes_round_trip():
    op = ops.Divide.from_ir({"auto_broadcast": "pdpd", "axis": "1", "m_pythondiv": "0"}, 1)
    assert op == ops.Divide(auto_broadcast=AutoBroadcast.PDPD, broadcast_axis=1, pythondiv=False)
    assert ops.Divide.from_ir(op.to_ir(), 1) == op


def test_sizes_that_are_not_known_yet():
    n = Interval(2, 8)
    sizes = np.empty(2, object)
    sizes[:] = [n, 3]
    two = np.array([2, 2], np.int64)
    assert list(run(ops.Add(), [sizes, two])[0]) == [Interval(4, 10), 5]
    assert list(run(ops.Multiply(), [sizes, two])[0]) == [Interval(4, 16), 6]
    assert list(run(ops.Divide(), [sizes, two])[0]) == [Interval(1, 4), 1]
    assert list(run(ops.Maximum(), [sizes, two * 2])[0]) == [Interval(4, 8), 4]
    assert list(run(ops.Minimum(), [sizes, two * 2])[0]) == [Interval(2, 4), 3]
