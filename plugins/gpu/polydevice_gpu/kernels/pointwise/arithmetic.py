"""Arithmetic of two values."""

from __future__ import annotations

from polydevice.ops import arithmetic
from polydevice_gpu.kernels.pointwise.expression import declare

declare(arithmetic.Add, "x + y", any_type=True)
declare(arithmetic.Subtract, "x - y", any_type=True)
declare(arithmetic.Multiply, "x * y", any_type=True)
# INT_MIN / -1 and x / 0 stop the process on CPU devices, so neither reaches the divider.
_BY_MINUS_ONE = "(F)(-1) < 0 && y == (F)(-1)"
declare(
    arithmetic.Divide,
    "x / y",
    "y == 0 ? 0 : "
    + _BY_MINUS_ONE
    + " ? 0 - x : {pythondiv} ? x / y - (x % y != 0 && (x < 0) != (y < 0)) : x / y",
)
# What is left over from 0 and -1 is 0, as from 1. With the remainders inside of that condition
# LLVM 18, in PoCL 6, ends the process on chains of them (its InstCombine finds no fixpoint).
_DIVISOR = f"(y == 0 || ({_BY_MINUS_ONE}) ? 1 : y)"
declare(arithmetic.Mod, "fmod(x, y)", f"x % {_DIVISOR}")
declare(
    arithmetic.FloorMod,
    "fmod(x, y) + WHERE(fmod(x, y) != 0 & ((fmod(x, y) < 0) != (y < 0)), y, 0)",
    "x % D + (x % D != 0 && (x % D ^ y) < 0 ? y : 0)".replace("D", _DIVISOR),
)
# Either input's NaN wins, as in NumPy.
declare(arithmetic.Maximum, "WHERE(x > y | x != x, x, y)", "x > y ? x : y")
declare(arithmetic.Minimum, "WHERE(x < y | x != x, x, y)", "x < y ? x : y")
declare(arithmetic.Power, "pow(x, y)", "power_integer(x, y)")
declare(arithmetic.SquaredDifference, "(x - y) * (x - y)", any_type=True)
