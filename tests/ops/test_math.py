"""Mathematical functions of one input, compared with OpenVINO and NumPy's own answers."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from polydevice.ops import math as ops
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case, wide_case

RANDOM = np.random.default_rng(7)
# Inputs within each function's domain.
DOMAINS = {
    ops.Acos: (-1, 1), ops.Asin: (-1, 1), ops.Atanh: (-0.99, 0.99), ops.Acosh: (1, 9),
    ops.Log: (0.01, 20), ops.Sqrt: (0, 50), ops.Tan: (-1.4, 1.4), ops.Exp: (-5, 5),
    ops.Sinh: (-4, 4), ops.Cosh: (-4, 4),
}  # fmt: skip
UNARY = [
    ops.Abs, ops.Negative, ops.Sign, ops.Ceiling, ops.Floor, ops.Sqrt, ops.Exp, ops.Log, ops.Erf,
    ops.Sin, ops.Cos, ops.Tan, ops.Asin, ops.Acos, ops.Atan, ops.Sinh, ops.Cosh, ops.Tanh,
    ops.Asinh, ops.Acosh, ops.Atanh,
]  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("shape", [(), (5,), (3, 1, 7), (0, 4)])
def test_f32_against_openvino(op, shape, device):
    low, high = DOMAINS.get(op, (-6, 6))
    x = RANDOM.uniform(low, high, shape).astype(np.float32)
    if x.size == 0:
        check(OpCase(op(), [x], expected=[x]), device)
    else:
        check(openvino_case(op(), x), device)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_round_the_wide_answer(op, dtype, device):
    low, high = DOMAINS.get(op, (-6, 6))
    x = RANDOM.uniform(low, high, (4, 33)).astype(dtype)
    check(wide_case(op(), x), device)


@pytest.mark.parametrize("op", [ops.Abs, ops.Negative, ops.Sign, ops.Ceiling, ops.Floor])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8])
def test_integers_against_openvino(op, dtype, device):
    x = RANDOM.integers(-100, 100, (3, 5)).astype(dtype)
    check(openvino_case(op(), x), device)


def test_erf_by_the_standard_library(device):
    x = np.concatenate([np.linspace(-6, 6, 1001), [0.0, -0.0, 1e-30, 40.0, np.inf, -np.inf]])
    expected = np.array([math.erf(v) for v in x])
    check(OpCase(ops.Erf(), [x], [expected], tolerance=(1e-13, 1e-15)), "CPU")
    check(
        OpCase(ops.Erf(), [x.astype(np.float32)], [expected.astype(np.float32)], (1e-6, 1e-7)),
        device,
    )


def test_erfinv_undoes_erf(device):
    x = np.linspace(-3, 3, 61)
    y = np.array([math.erf(v) for v in x])
    check(OpCase(ops.ErfInv(), [y], [x], tolerance=(1e-9, 1e-12)), "CPU")
    edges = np.array([-1.0, 1.0, 0.0, 2.0], np.float32)
    check(OpCase(ops.ErfInv(), [edges], [[-np.inf, np.inf, 0.0, np.nan]]), device)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (ops.RoundMode.HALF_TO_EVEN, [-4, -2, -2, -0.0, 0, 2, 2, 4, 3]),
        (ops.RoundMode.HALF_AWAY_FROM_ZERO, [-4, -3, -2, -1, 1, 2, 3, 4, 3]),
    ],
)
def test_round_sends_halves_where_the_mode_says(mode, expected, device):
    x = np.array([-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 2.51], np.float32)
    check(OpCase(ops.Round(mode), [x], [expected]), device)
    check(openvino_case(ops.Round(mode), x), device)


def test_round_just_below_a_half(device):
    x = np.array([0.49999997, -0.49999997, 8388607.5], np.float32)
    op = ops.Round(ops.RoundMode.HALF_AWAY_FROM_ZERO)
    check(OpCase(op, [x], [[0.0, -0.0, 8388608.0]]), device)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e38, -1.5], np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ops.IsNaN(), [1, 0, 0, 0, 0, 0, 0]),
        (ops.IsFinite(), [0, 0, 0, 1, 1, 1, 1]),
        (ops.IsInf(), [0, 1, 1, 0, 0, 0, 0]),
        (ops.IsInf(detect_negative=False), [0, 1, 0, 0, 0, 0, 0]),
        (ops.IsInf(detect_positive=False), [0, 0, 1, 0, 0, 0, 0]),
        (ops.IsInf(detect_negative=False, detect_positive=False), [0] * 7),
    ],
)
def test_questions_about_floats(op, expected, dtype, device):
    x = np.where(np.abs(SPECIAL) == 1e38, 100, SPECIAL).astype(dtype)
    check(OpCase(op, [x], [np.array(expected, bool)]), device)


def test_special_values(device):
    inf, nan = np.inf, np.nan
    for op, x, y in [
        (ops.Sqrt(), [-1.0, 0.0, inf], [nan, 0.0, inf]),
        (ops.Log(), [0.0, -1.0, inf], [-inf, nan, inf]),
        (ops.Exp(), [-inf, 1000.0, -1000.0], [0.0, inf, 0.0]),
        (ops.Tanh(), [-inf, inf, 0.0], [-1.0, 1.0, 0.0]),
        (ops.Acosh(), [0.5, 1.0], [nan, 0.0]),
        (ops.Abs(), [-inf, -0.0], [inf, 0.0]),
    ]:
        check(OpCase(op, [np.array(x, np.float32)], [y]), device)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_identity(dtype, device):
    x = RANDOM.integers(0, 2, (2, 3)).astype(dtype)
    check(OpCase(ops.Identity(), [x], [x]), device)


def test_logarithms_near_one(device):
    """Relative to the result, which is where losses and entropies are asked for."""
    steps = np.concatenate([np.arange(-4096, 4096), np.arange(-2048, 2048) * 1001])
    x = (1 + steps * 2.0**-23).astype(np.float32)
    answer = np.log(x.astype(np.float64)).astype(np.float32)
    check(OpCase(ops.Log(), [x], [answer], tolerance=(2e-6, 1e-9)), device)
