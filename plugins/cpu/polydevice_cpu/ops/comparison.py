"""Comparisons of two inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.arithmetic import aligned


def _comparison(op: type[Comparison], function: Callable[[Any, Any], Any]) -> None:
    @implements(op)
    def apply(op: Comparison, a: Array, b: Array) -> Array:
        return np.asarray(function(*aligned(op, a, b)))


_comparison(Equal, np.equal)
_comparison(NotEqual, np.not_equal)
_comparison(Less, np.less)
_comparison(LessEqual, np.less_equal)
_comparison(Greater, np.greater)
_comparison(GreaterEqual, np.greater_equal)
