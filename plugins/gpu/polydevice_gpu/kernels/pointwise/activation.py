"""Activations."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import ElementType
from polydevice.ops import activation
from polydevice_gpu.kernels.pointwise.expression import declare

declare(activation.Relu, "WHERE(x < 0, 0, x)", any_type=True)
declare(activation.Sigmoid, "1 / (1 + exp(-x))")
declare(activation.Elu, "WHERE(x < 0, {alpha} * expm1(x), x)")
declare(activation.PRelu, "WHERE(x < 0, x * y, x)", any_type=True)
declare(activation.Selu, "z * WHERE(x > 0, x, y * expm1(x))")
# clamp would turn NaN into a limit; and six times x, divided afterwards, may not be finite.
declare(activation.HardSigmoid, "WHERE(x * y + z > 1, 1, WHERE(x * y + z < 0, 0, x * y + z))")
declare(activation.HSwish, "x * WHERE(x > 3, 1, WHERE(x < -3, 0, (x + 3) / 6))")
declare(activation.HSigmoid, "WHERE(x > 3, 1, WHERE(x < -3, 0, (x + 3) / 6))")
declare(activation.SoftSign, "x / (1 + fabs(x))")
# log1p(exp(-|x|)) does not overflow, and keeps its precision where exp(x) is tiny.
declare(activation.SoftPlus, "fmax(x, (F)(0)) + log1p(exp(-fabs(x)))")
declare(activation.Mish, "x * tanh(fmax(x, (F)(0)) + log1p(exp(-fabs(x))))")
declare(
    activation.Gelu,
    lambda op, _: (
        "GELU(x)"
        if op.approximation_mode is activation.GeluApproximation.ERF
        else "0.5f * x * (1 + tanh(0.79788456f * (x + 0.044715f * x * x * x)))"
    ),
)
declare(
    activation.Swish,
    lambda _, kinds: "x / (1 + exp(-x))" if len(kinds) == 1 else "x / (1 + exp(-y * x))",
)


def _clamp(op: activation.Clamp, _: list[ElementType]) -> str:
    # fmin and fmax would turn NaN into a limit.
    parts = "x"
    if op.max != math.inf:
        parts = f"WHERE({parts} > {{max}}, {{max}}, {parts})"
    if op.min != -math.inf:
        parts = f"WHERE({parts} < {{min}}, {{min}}, {parts})"
    return parts


def _clamp_integer(op: activation.Clamp, kinds: list[ElementType]) -> str:
    info = np.iinfo(kinds[0].dtype)
    low = math.ceil(max(op.min, info.min))
    high = math.floor(min(op.max, info.max))
    suffix = "ul" if info.min == 0 else "l"
    # The smallest long has no literal of its own; no limit is needed there.
    lower = f"x < {low}{suffix} ? {low}{suffix} : " if low > info.min else ""
    return f"{lower}x > {high}{suffix} ? {high}{suffix} : x"


declare(activation.Clamp, _clamp, _clamp_integer)
