"""Activation functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.activation import (
    Clamp,
    Elu,
    Gelu,
    GeluApproximation,
    HardSigmoid,
    HSigmoid,
    HSwish,
    Mish,
    PRelu,
    Relu,
    Selu,
    Sigmoid,
    SoftPlus,
    SoftSign,
    Swish,
    slope_shape,
)
from polydevice.shape import Shape
from polydevice_cpu.algorithms.by_machine.functions import Activation
from polydevice_cpu.algorithms.by_machine.rows.pointwise import computed
from polydevice_cpu.algorithms.precision import is_float, narrow, through_float, widen
from polydevice_cpu.algorithms.special_functions import erf
from polydevice_cpu.implement import implements

_LOGISTIC, _SOFT_PLUS = Activation("logistic", 0, 0), Activation("softplus", 0, 0)


@implements(Relu)
def relu(_op: Relu, x: Array) -> Array:
    """NaN stays NaN."""
    return np.asarray(np.maximum(x, x.dtype.type(0)))


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)); exp never overflows, so that small results keep their precision."""
    made = computed(_LOGISTIC, x)
    if made is not None:
        return made
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, decay) / (1 + decay))


def _softplus(x: Array) -> Array:
    """log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which cannot overflow."""
    made = computed(_SOFT_PLUS, x)
    if made is not None:
        return made
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _mish(x: Array) -> Array:
    return np.asarray(x * np.tanh(_softplus(x)))


def _soft_sign(x: Array) -> Array:
    return np.asarray(x / (1 + np.abs(x)))


def _hsigmoid(x: Array) -> Array:
    return np.asarray(np.clip(x + 3, 0, 6) / x.dtype.type(6))


def _hswish(x: Array) -> Array:
    return np.asarray(x * _hsigmoid(x))


def _selu(x: Array, alpha: Array, scale: Array) -> Array:
    below = alpha * np.expm1(np.minimum(x, 0))
    return np.asarray(scale * np.where(x > 0, x, below))


def _hard_sigmoid(x: Array, alpha: Array, beta: Array) -> Array:
    return np.asarray(np.clip(alpha * x + beta, 0, 1))


def _swish(x: Array, *beta: Array) -> Array:
    return np.asarray(x * logistic(x * beta[0] if beta else x))


def _keep_shape(function: Any) -> Any:
    """Selu, HardSigmoid and Swish take one-element inputs of any rank; drop their axes."""

    def apply(x: Array, *scalars: Array) -> Array:
        return np.asarray(function(x, *(s.reshape(()) for s in scalars)))

    return apply


implements(Sigmoid)(through_float(logistic))
implements(SoftPlus)(through_float(_softplus))
implements(Mish)(through_float(_mish))
implements(SoftSign)(through_float(_soft_sign))
implements(HSigmoid)(through_float(_hsigmoid))
implements(HSwish)(through_float(_hswish))
implements(Selu)(through_float(_keep_shape(_selu)))
implements(HardSigmoid)(through_float(_keep_shape(_hard_sigmoid)))
implements(Swish)(through_float(_keep_shape(_swish)))


@implements(Clamp)
def clamp(op: Clamp, x: Array) -> Array:
    """Limits beyond an integer type's range are the range's ends."""
    if is_float(x.dtype):
        return narrow(np.clip(widen(x), op.min, op.max), x.dtype)
    info = np.iinfo(x.dtype)
    low = info.min if op.min <= info.min else min(math.ceil(op.min), info.max)
    high = info.max if op.max >= info.max else max(math.floor(op.max), info.min)
    return np.asarray(np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)))


@implements(Elu)
def elu(op: Elu, x: Array) -> Array:
    """expm1 keeps precision near zero."""
    wide = widen(x)
    below = wide.dtype.type(op.alpha) * np.expm1(np.minimum(wide, 0))
    return narrow(np.where(wide >= 0, wide, below), x.dtype)


@implements(PRelu)
def prelu(_op: PRelu, x: Array, slope: Array) -> Array:
    """Align the slope with the channels, then multiply where x is negative."""
    aligned = slope.reshape(slope_shape(x.shape, Shape(slope.shape)))
    return np.asarray(np.where(x < 0, x * aligned, x))


@implements(Gelu)
def gelu(op: Gelu, x: Array) -> Array:
    """Either form in f32."""
    wide = widen(x)
    kind = wide.dtype.type
    if op.approximation_mode is GeluApproximation.ERF:
        inner = erf(wide * kind(math.sqrt(0.5)))
    else:
        inner = np.tanh(kind(math.sqrt(2 / math.pi)) * (wide + kind(0.044715) * wide**3))
    return narrow(kind(0.5) * wide * (1 + inner), x.dtype)
