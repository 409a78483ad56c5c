"""Functions of one value."""

from __future__ import annotations

from polydevice.ops import math as functions
from polydevice_gpu.kernels.pointwise.expression import declare

declare(functions.Abs, "fabs(x)", "x < 0 ? 0 - x : x")
declare(functions.Negative, "-x", any_type=True)
declare(functions.Sign, "WHERE(x > 0, 1, WHERE(x < 0, -1, x))", any_type=True)
declare(functions.Ceiling, "ceil(x)", "x")
declare(functions.Floor, "floor(x)", "x")
declare(
    functions.Round,
    lambda op, _: "rint(x)" if op.mode is functions.RoundMode.HALF_TO_EVEN else "round(x)",
    "x",
)
for _op, _text in {
    functions.Sqrt: "sqrt(x)",
    functions.Exp: "exp(x)",
    functions.Log: "log(x)",
    functions.Erf: "erf(x)",
    functions.Sin: "sin(x)",
    functions.Cos: "cos(x)",
    functions.Tan: "tan(x)",
    functions.Asin: "asin(x)",
    functions.Acos: "acos(x)",
    functions.Atan: "atan(x)",
    functions.Sinh: "sinh(x)",
    functions.Cosh: "cosh(x)",
    functions.Tanh: "tanh(x)",
    functions.Asinh: "asinh(x)",
    functions.Acosh: "acosh(x)",
    functions.Atanh: "atanh(x)",
}.items():
    declare(_op, _text)
declare(functions.ErfInv, "erf_inverse(x)", scalar=True)
declare(functions.Identity, "x", any_type=True)
declare(functions.IsNaN, "isnan(x)", scalar=True)
declare(functions.IsFinite, "isfinite(x)", scalar=True)
declare(
    functions.IsInf,
    "isinf(x) && (x > 0 ? {detect_positive} : {detect_negative})",
    scalar=True,
)
