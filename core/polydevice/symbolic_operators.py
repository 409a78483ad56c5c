"""What is written of a symbolic size's arithmetic, and what computes it of numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

INFIX = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod, "/": operator.truediv, "**": operator.pow, "<<": operator.lshift,
    ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq,
}  # fmt: skip

OF_NUMPY = {
    "add": "+", "subtract": "-", "multiply": "*", "floor_divide": "//", "remainder": "%",
    "divide": "/", "power": "**", "left_shift": "<<", "right_shift": ">>", "bitwise_and": "&",
    "bitwise_or": "|", "bitwise_xor": "^", "less": "<", "less_equal": "<=", "greater": ">",
    "greater_equal": ">=", "equal": "==",
}  # fmt: skip
"""What NumPy calls the arithmetic of its scalars."""

_MOST_SHIFTED = 4096
"""Formulas are also computed of sizes for which nobody wants what they give: by how much, so that
it takes no memory."""

CALLED: dict[str, Callable[..., Any]] = {
    "neg": operator.neg, "abs": abs, "invert": operator.invert, "ceil": math.ceil,
    "floor": math.floor, "trunc": math.trunc, "bit_length": lambda n: n.bit_length(),
    "log2": math.log2, "sqrt": math.sqrt, "isqrt": math.isqrt, "round": round, "max": max,
    "min": min,
    "left_shift": lambda n, by: n << min(max(by, 0), _MOST_SHIFTED),
    "single": lambda n: float(np.float32(n)),
    "single_bits": lambda n: int(np.float32(n).view(np.uint32)),
}  # fmt: skip
