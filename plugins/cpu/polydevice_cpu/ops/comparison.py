"""Comparisons of two inputs."""

from __future__ import annotations

from functools import partial

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.comparison import (
    Comparison,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    NotEqual,
)
from polydevice_cpu.implement import directly, implements
from polydevice_cpu.ops.arithmetic import aligned, as_numpy, in_place


def _comparison(op: type[Comparison], function: np.ufunc) -> None:
    @implements(op)
    def apply(op: Comparison, a: Array, b: Array) -> Array:
        return np.asarray(function(*aligned(op, a, b)))

    directly(op, partial(as_numpy, function))
    in_place(op, function)


_comparison(Equal, np.equal)
_comparison(NotEqual, np.not_equal)
_comparison(Less, np.less)
_comparison(LessEqual, np.less_equal)
_comparison(Greater, np.greater)
_comparison(GreaterEqual, np.greater_equal)
