"""Functions without their operation compute what those with it do."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.arithmetic import (
    Add,
    FloorMod,
    Maximum,
    Minimum,
    Mod,
    Multiply,
    SquaredDifference,
    Subtract,
)
from polydevice.ops.comparison import Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual
from polydevice.ops.convert import Convert
from polydevice.ops.pointwise import AutoBroadcast
from polydevice_cpu.implement import computing, run

ARITHMETIC = Add, Subtract, Multiply, Maximum, Minimum, SquaredDifference, Mod, FloorMod
COMPARISONS = Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual
SHAPES = [((), ()), ((5,), ()), ((3, 1, 4), (2, 1)), ((0, 3), (3,)), ((2, 3), (2, 3))]
TYPES = [np.float32, np.float16, np.int64, np.uint8]


def numbers(rng, shape, dtype):
    drawn = np.asarray(rng.integers(1, 9, shape)).astype(dtype)
    if np.dtype(dtype).kind == "f" and drawn.size > 1:
        drawn.reshape(-1)[:2] = np.nan, -np.inf
    return drawn


def same(op, *inputs):
    compute = computing(op)
    with np.errstate(all="ignore"):
        found = np.asarray(compute(*inputs))
    (wanted,) = run(op, inputs)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", [*ARITHMETIC, *COMPARISONS])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_of_two_inputs(kind, shapes, dtype):
    rng = np.random.default_rng(5)
    same(kind(), *(numbers(rng, shape, dtype) for shape in shapes))


def test_axes_that_are_named_stretch_the_second_input():
    rng = np.random.default_rng(6)
    op = Add(auto_broadcast=AutoBroadcast.PDPD, broadcast_axis=1)
    same(op, rng.normal(size=(2, 3, 4)), rng.normal(size=3))


TO = ["f32", "f64", "f16", "i32", "i8", "u8", "u64", "boolean", "bf16", "f8e4m3", "string"]


@pytest.mark.parametrize("kind", TO)
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int8, np.bool_, np.float32])
@pytest.mark.parametrize("shape", [(), (7,), (0, 2)])
def test_conversions(kind, dtype, shape):
    x = np.asarray(np.random.default_rng(7).integers(0, 200, shape)).astype(dtype)
    same(Convert(destination_type=ElementType[kind]), x)


def test_texts_become_numbers():
    same(Convert(destination_type=ElementType.f32), np.array(["1", "-2.5"], object))
