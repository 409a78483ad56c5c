"""Mathematical functions of one input."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.interval import apply
from polydevice.ops.math import (
    Abs,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceiling,
    Cos,
    Cosh,
    Erf,
    ErfInv,
    Exp,
    Floor,
    Identity,
    IsFinite,
    IsInf,
    IsNaN,
    Log,
    Negative,
    Round,
    RoundMode,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
)
from polydevice.ops.op import Op
from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.algorithms.precision import is_float, narrow, through_float, widen
from polydevice_cpu.algorithms.special_functions import erf, erfinv
from polydevice_cpu.implement import implements, writes

_FUNCTIONS: dict[type[Op], Callable[..., Any]] = {
    Acos: np.arccos,
    Acosh: np.arccosh,
    Asin: np.arcsin,
    Asinh: np.arcsinh,
    Atan: np.arctan,
    Atanh: np.arctanh,
    Cos: np.cos,
    Cosh: np.cosh,
    Erf: erf,
    ErfInv: erfinv,
    Exp: np.exp,
    Log: np.log,
    Sin: np.sin,
    Sinh: np.sinh,
    Sqrt: np.sqrt,
    Tan: np.tan,
    Tanh: np.tanh,
}
for _op, _function in _FUNCTIONS.items():
    implements(_op)(through_float(_function))


def _in_place(op: type[Op], function: np.ufunc) -> None:
    implementation = through_float(function)

    @writes(op)
    def write(op: Op, x: Array, result: Array) -> None:
        if x.dtype in (np.float32, np.float64):
            function(x, out=result)
        else:
            np.copyto(result, implementation(op, x))


for _op, _function in _FUNCTIONS.items():
    if isinstance(_function, np.ufunc):
        _in_place(_op, _function)


@implements(Identity)
def identity(_op: Identity, x: Array) -> Array:
    """Nothing changes."""
    return x


@implements(Abs)
def absolute(_op: Abs, x: Array) -> Array:
    """The smallest integer of a type has no positive counterpart and stays."""
    return np.asarray(np.abs(x))


@implements(Negative)
def negative(_op: Negative, x: Array) -> Array:
    """Unsigned integers wrap around."""
    return np.asarray(np.negative(x))


@implements(Sign)
def sign(_op: Sign, x: Array) -> Array:
    """NumPy keeps the type."""
    return np.asarray(np.sign(x))


@implements(Floor)
def floor(_op: Floor, x: Array) -> Array:
    """Integers are their own floor."""
    if x.dtype == object:
        return np.asarray(_whole(x, np.floor))
    return np.asarray(np.floor(x)) if is_float(x.dtype) else x


@implements(Ceiling)
def ceiling(_op: Ceiling, x: Array) -> Array:
    """Integers are their own ceiling."""
    if x.dtype == object:
        return np.asarray(_whole(x, np.ceil))
    return np.asarray(np.ceil(x)) if is_float(x.dtype) else x


def _whole(x: Array, function: Callable[[Any], Any]) -> Any:
    """Round elements of which some are not known; integers stay."""

    def rounded(number: Any) -> Any:
        if is_symbolic(number):
            return math.floor(number) if function is np.floor else math.ceil(number)
        return number if isinstance(number, int) else function(number)

    return np.frompyfunc(partial(apply, rounded), 1, 1)(x)


@implements(Round)
def round_(op: Round, x: Array) -> Array:
    """NumPy rounds halves to even; the other mode compares what is left after truncation."""
    if not is_float(x.dtype):
        return x
    if op.mode is RoundMode.HALF_TO_EVEN:
        return np.asarray(np.rint(x))
    wide = widen(x)
    whole = np.trunc(wide)
    half = np.abs(wide - whole) >= wide.dtype.type(0.5)
    return narrow(np.where(half, whole + np.copysign(wide.dtype.type(1), wide), whole), x.dtype)


@implements(IsNaN)
def is_nan(_op: IsNaN, x: Array) -> Array:
    """Integers are never NaN."""
    return np.asarray(np.isnan(x))


@implements(IsFinite)
def is_finite(_op: IsFinite, x: Array) -> Array:
    """Integers are always finite."""
    return np.asarray(np.isfinite(x))


@implements(IsInf)
def is_inf(op: IsInf, x: Array) -> Array:
    """Compare with the infinities that are asked for."""
    if op.detect_negative and op.detect_positive:
        return np.asarray(np.isinf(x))
    if not (op.detect_negative or op.detect_positive):
        return np.zeros(x.shape, np.bool_)
    return np.asarray(np.isinf(x) & ((x < 0) if op.detect_negative else (x > 0)))
