"""Random numbers: the sequence is OpenVINO's, the distribution is even."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, NetworkError
from polydevice.ops.random import Alignment, Multinomial, RandomUniform
from polydevice.testing.op_case import OpCase, network_of
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

T = ElementType


def uniform(kind, shape, low, high, alignment=Alignment.TENSORFLOW, **settings):
    op = RandomUniform(kind, 150, 10, alignment)
    inputs = np.array(shape, np.int64), np.array(low, kind.dtype), np.array(high, kind.dtype)
    # Of f16 and i64 OpenVINO's reference implementation draws other numbers than its CPU plugin.
    return openvino_case(op, *inputs, constants={0, 1, 2}, reference=False, **settings)


@pytest.mark.parametrize("shape", [(13,), (2, 3, 4), (500,)])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-2.5, 7.0)])
@pytest.mark.parametrize("alignment", list(Alignment))
def test_floats(shape, low, high, alignment, device):
    check(uniform(T.f32, shape, low, high, alignment), device)


@pytest.mark.parametrize("kind", [T.i32, T.i64])
@pytest.mark.parametrize("alignment", list(Alignment))
def test_integers(kind, alignment, device):
    check(uniform(kind, (17,), -50, 1000, alignment), device)


def test_narrow_floats(device):
    check(uniform(T.f16, (16,), 0.0, 4.0), device)


def test_an_empty_shape(device):
    op = RandomUniform(T.f32, 1, 2)
    inputs = [np.array([0, 3]), np.float32(0), np.float32(1)]
    check(OpCase(op, [np.asarray(i) for i in inputs], [np.zeros((0, 3), np.float32)]), device)


def test_seeds_of_zero_differ_every_time():
    op = RandomUniform(T.f32)
    inputs = [np.array([64]), np.array(0, np.float32), np.array(1, np.float32)]
    assert not np.array_equal(run(op, inputs)[0], run(op, inputs)[0])


def test_the_distribution_is_even():
    op = RandomUniform(T.i64, 5, 6)
    (y,) = run(op, [np.array([100_000]), np.array(0), np.array(10)])
    assert np.all(np.abs(np.bincount(y, minlength=10) - 10_000) < 500)
    (y,) = run(op, [np.array([1000]), np.array(-(2**60)), np.array(2**60)])
    assert abs(y.astype(np.float64).mean()) < 2**56


def test_limits_that_are_crossed_are_refused():
    op = RandomUniform(T.i32, 5, 6)
    with pytest.raises(InferenceError, match="must be below"):
        run(op, [np.array([3]), np.array(4, np.int32), np.array(4, np.int32)])
    case = OpCase(op, [np.array([3]), np.array(0.0), np.array(1.0)], [])
    with pytest.raises(NetworkError, match="must be the same"):
        network_of(case)


@pytest.mark.parametrize("log_probs", [False, True])
@pytest.mark.parametrize("with_replacement", [True, False])
def test_multinomial(log_probs, with_replacement, device):
    weights = np.array([[0.1, 0.4, 0.2, 0.3], [0.25, 0.25, 0.05, 0.45]], np.float32)
    if log_probs:
        weights = np.log(weights)
    op = Multinomial(T.i32, with_replacement, log_probs, 7, 8)
    check(openvino_case(op, weights, np.array([4], np.int32), constants={1}), device)


def test_multinomial_follows_the_probabilities():
    op = Multinomial(T.i64, True, False, 7, 8)
    (y,) = run(op, [np.array([[1.0, 0.0, 3.0]], np.float32), np.array([20_000])])
    counts = np.bincount(y[0], minlength=3)
    assert counts[1] == 0
    assert abs(counts[2] - 15_000) < 400


def test_multinomial_without_replacement_needs_enough_classes():
    op = Multinomial(T.i64, False, False, 7, 8)
    case = OpCase(op, [np.ones((1, 3), np.float32), np.array([4])], [], constants={1})
    with pytest.raises(NetworkError, match="with_replacement"):
        network_of(case)
