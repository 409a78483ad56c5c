"""What post-operations compute, in f64, and how far a right answer in f32 may be from that.

Each function takes a value and a bound of its error and returns both for its result. Bounds follow
from rounding alone: every f32 operation adds half a unit in the last place of its result, and what
is there is multiplied by the slope. oneDNN's approximations get `UNITS` such roundings.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.algorithms.special_functions import erf
from polydevice_cpu.onednn.attributes import Eltwise
from polydevice_cpu.onednn.constants import Algorithm

EPSILON = 2.0**-24
"""Half a unit in the last place of f32, relative."""
UNITS = 64
"""Roundings allowed to an approximated function: four to six decimal digits stay right."""
TINY = 1.2e-38
"""Below this f32 has fewer digits, and some instructions none."""
_FLUSHED = 4 * TINY
"""AMD's processors return 0 for reciprocals below this, by which Swish multiplies x."""

Bounded = tuple[Array, Array]
"""(value, bound of its absolute error)."""

_SQRT_HALF = 0.7071067811865476


def _sigmoid(x: Array) -> Array:
    result: Array = np.exp(-np.logaddexp(0.0, -x))
    return result


def _tanh_gelu(x: Array) -> Array:
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    result: Array = 0.5 * x * (1 + np.tanh(inner))
    return result


_VALUES: dict[Algorithm, Callable[[Array, float, float], Array]] = {
    Algorithm.RELU: lambda x, a, _: np.where(x > 0, x, a * x),
    Algorithm.TANH: lambda x, _a, _b: np.tanh(x),
    Algorithm.ELU: lambda x, a, _: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    Algorithm.SQUARE: lambda x, _a, _b: x * x,
    Algorithm.ABS: lambda x, _a, _b: np.abs(x),
    Algorithm.SQRT: lambda x, _a, _b: np.sqrt(x),
    Algorithm.LINEAR: lambda x, a, b: a * x + b,
    Algorithm.SOFT_RELU: lambda x, a, _: np.logaddexp(0.0, a * x) / a,
    Algorithm.HARD_SIGMOID: lambda x, a, b: np.clip(a * x + b, 0, 1),
    Algorithm.LOGISTIC: lambda x, _a, _b: _sigmoid(x),
    Algorithm.EXP: lambda x, _a, _b: np.exp(x),
    Algorithm.GELU_TANH: lambda x, _a, _b: _tanh_gelu(x),
    Algorithm.SWISH: lambda x, a, _: x * _sigmoid(a * x),
    Algorithm.LOG: lambda x, _a, _b: np.log(x),
    Algorithm.CLIP: np.clip,
    Algorithm.GELU_ERF: lambda x, _a, _b: 0.5 * x * (1 + erf(x * _SQRT_HALF)),
    Algorithm.ROUND: lambda x, _a, _b: np.round(x),
    Algorithm.MISH: lambda x, _a, _b: x * np.tanh(np.logaddexp(0.0, x)),
    Algorithm.HARD_SWISH: lambda x, a, b: x * np.clip(a * x + b, 0, 1),
}

_CANCELS: dict[Algorithm, Callable[[Array, float, float], Array]] = {
    # 1 + erf(x), exp(x) - 1, 1 + tanh(x): the definitions subtract numbers of this size. Not so
    # softplus, whose small values are what a logarithm or a division behind it goes by, nor the
    # logarithm, whose zero at 1 is where losses and entropies are asked for.
    Algorithm.ELU: lambda x, a, _: np.where(x < 0, abs(a), 0.0),
    Algorithm.GELU_ERF: lambda x, _a, _b: np.abs(x),
    Algorithm.GELU_TANH: lambda x, _a, _b: np.abs(x),
    Algorithm.MISH: lambda x, _a, _b: np.abs(x),
    Algorithm.LINEAR: lambda x, a, b: np.abs(a * x) + abs(b),
    Algorithm.HARD_SIGMOID: lambda x, a, b: np.abs(a * x) + abs(b),
    Algorithm.HARD_SWISH: lambda x, a, b: np.abs(x) * (np.abs(a * x) + abs(b)),
}
_EXACT = (Algorithm.RELU, Algorithm.ABS, Algorithm.CLIP, Algorithm.ROUND)


def eltwise(function: Eltwise, given: Bounded) -> Bounded:
    """Apply one of oneDNN's functions of one value."""
    x, error = given
    algorithm, a, b = function.algorithm, float(np.float32(function.alpha)), function.beta
    formula = _VALUES[algorithm]
    with np.errstate(all="ignore"):
        y = formula(x, a, b)
        # How far the result moves when the argument does, which is at most steep functions' slope
        # at either end: exact for monotonic ones, and near enough for those with one turning.
        step = error + EPSILON * np.abs(x) * (algorithm not in _EXACT)
        moved = np.maximum(np.abs(formula(x + step, a, b) - y), np.abs(formula(x - step, a, b) - y))
        own = EPSILON * np.abs(y) * (1 if algorithm in _EXACT else UNITS)
        if algorithm in _CANCELS:
            own = own + EPSILON * UNITS * _CANCELS[algorithm](x, a, b)
        if algorithm in (Algorithm.LOGISTIC, Algorithm.SWISH):
            own = own + _FLUSHED * np.clip(np.abs(x), 1, 128)
        moved = np.where(np.isfinite(moved), moved, np.where(np.isfinite(y), np.inf, 0))
        return y, np.where(np.isfinite(y), moved + own + TINY, 0)


def binary(algorithm: Algorithm, given: Bounded, operand: Array) -> Bounded:
    """Apply y <algorithm> operand, which is exact."""
    x, error = given
    with np.errstate(all="ignore"):
        match algorithm:
            case Algorithm.BINARY_ADD:
                y, moved = x + operand, error
            case Algorithm.BINARY_SUB:
                y, moved = x - operand, error
            case Algorithm.BINARY_MUL:
                y, moved = x * operand, error * np.abs(operand)
            case Algorithm.BINARY_DIV:
                y, moved = x / operand, error / np.abs(operand)
            case Algorithm.BINARY_MAX:
                y, moved = np.maximum(x, operand), error
            case Algorithm.BINARY_MIN:
                y, moved = np.minimum(x, operand), error
            case _:
                raise ValueError(f"{algorithm.name} is no binary function that can be proved")
        return y, moved + 2 * EPSILON * np.abs(y) + TINY


def prelu(given: Bounded, slope: Array) -> Bounded:
    """Apply y if y > 0 else slope * y."""
    x, error = given
    y = np.where(x > 0, x, slope * x)
    moved = np.where(x - error > 0, error, error * np.maximum(1, np.abs(slope)))
    return y, moved + EPSILON * np.abs(y) + TINY
