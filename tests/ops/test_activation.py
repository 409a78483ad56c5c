"""Activation functions, compared with OpenVINO and with values worked by hand."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.ops import activation as ops
from polydevice.ops.op import find_operation
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case, wide_case

RANDOM = np.random.default_rng(11)
ONE_INPUT = [
    ops.Relu(), ops.Sigmoid(), ops.HSwish(), ops.HSigmoid(), ops.Mish(), ops.SoftPlus(),
    ops.SoftSign(), ops.Swish(), ops.Gelu(), ops.Gelu(ops.GeluApproximation.TANH),
    ops.Elu(alpha=0.7), ops.Clamp(min=-1.5, max=2.25),
]  # fmt: skip


@pytest.mark.parametrize("op", ONE_INPUT, ids=repr)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 5, 7)])
def test_f32_against_openvino(op, shape, device):
    x = RANDOM.uniform(-8, 8, shape).astype(np.float32)
    check(openvino_case(op, x), device)


@pytest.mark.parametrize("op", ONE_INPUT, ids=repr)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_round_the_wide_answer(op, dtype, device):
    x = RANDOM.uniform(-8, 8, (3, 50)).astype(dtype)
    check(wide_case(op, x), device)


@pytest.mark.parametrize("op", [ops.Relu(), ops.Clamp(min=-2.5, max=3.5)], ids=repr)
@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8])
def test_integers_against_openvino(op, dtype, device):
    x = np.arange(-6, 6).astype(dtype).reshape(3, 4)
    check(openvino_case(op, x), device)


@pytest.mark.parametrize(
    ("x", "slope"),
    [
        ((2, 3, 4, 5), (3,)),
        ((2, 3, 4, 5), (1,)),
        ((2, 3, 4, 5), (1, 3, 1, 1)),
        ((2, 3, 4, 5), (3, 1, 1)),
        ((2, 3, 4, 5), (2, 3, 4, 5)),
        ((7, 3), (3,)),
        ((4,), (1,)),
        ((4,), (4,)),
        ((2, 5, 5), (5,)),
    ],
)
def test_prelu_aligns_its_slope(x, slope, device):
    data = RANDOM.standard_normal(x).astype(np.float32)
    factor = RANDOM.standard_normal(slope).astype(np.float32)
    check(openvino_case(ops.PRelu(), data, factor), device)
    check(openvino_case(ops.PRelu(), data, factor, constants={1}), device)


def test_prelu_refuses_a_slope_that_does_not_fit():
    case = OpCase(ops.PRelu(), [np.zeros((2, 3, 4)), np.zeros(5)], [])
    with pytest.raises(NetworkError, match="does not fit"):
        network_of(case)


@pytest.mark.parametrize("op", [ops.Selu(), ops.HardSigmoid()], ids=repr)
def test_functions_with_scalar_inputs(op, device):
    x = RANDOM.uniform(-4, 4, (3, 17)).astype(np.float32)
    a, b = np.array(0.2, np.float32), np.array(0.6, np.float32)
    check(openvino_case(op, x, a, b, constants={1, 2}), device)
    # OpenVINO wants constants; the answer is the same.
    case = openvino_case(op, x, a, b, constants={1, 2})
    inputs = [x, a.reshape(1), b.reshape(1)]
    check(OpCase(op, inputs, lambda values: case.answers([values[0], a, b])), device)


def test_swish_with_beta(device):
    x = RANDOM.uniform(-4, 4, (3, 17)).astype(np.float32)
    check(openvino_case(ops.Swish(), x, np.array(1.7, np.float32), constants={1}), device)


def test_gelu_of_opset2_has_no_modes(device):
    op = find_operation("Gelu", "opset2").from_ir({"approximation_mode": "TANH"}, 2)
    assert op == ops.Gelu(ops.GeluApproximation.ERF)
    x = RANDOM.uniform(-4, 4, (3, 17)).astype(np.float32)
    check(openvino_case(op, x, opset=2), device)


def test_gelu_is_as_precise_as_f32(device):
    """The share is right to 1.5e-7 and two roundings, and is multiplied by numbers up to 8."""
    x = RANDOM.uniform(-8, 8, (7, 301)).astype(np.float32)
    wide = x.astype(np.float64)
    right = wide / 2 * np.vectorize(math.erfc)(-wide / math.sqrt(2))
    check(OpCase(ops.Gelu(), [x], [right.astype(np.float32)], (2e-7, 8 * 2.7e-7)), device)


def test_extreme_inputs(device):
    inf = np.inf
    x = np.array([-inf, -1e4, -100.0, 100.0, 1e4, inf], np.float32)
    for op, y in [
        (ops.Sigmoid(), [0, 0, 0, 1, 1, 1]),
        (ops.SoftPlus(), [0, 0, 0, 100, 1e4, inf]),
        (ops.Elu(alpha=2.0), [-2, -2, -2, 100, 1e4, inf]),
        (ops.Relu(), [0, 0, 0, 100, 1e4, inf]),
        (ops.Clamp(min=-5.0, max=inf), [-5, -5, -5, 100, 1e4, inf]),
    ]:
        check(OpCase(op, [x], [np.array(y, np.float32)]), device)


def test_clamp_refuses_crossed_limits():
    case = OpCase(ops.Clamp(min=2.0, max=1.0), [np.zeros(3, np.float32)], [])
    with pytest.raises(NetworkError, match="above max"):
        network_of(case)
