"""Logical operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.logical import LogicalAnd, LogicalNot, LogicalOr, LogicalXor
from polydevice.ops.pointwise import BinaryPointwise
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.arithmetic import aligned


def _logical(op: type[BinaryPointwise], function: Callable[[Any, Any], Any]) -> None:
    @implements(op)
    def apply(op: BinaryPointwise, a: Array, b: Array) -> Array:
        return np.asarray(function(*aligned(op, a, b))).astype(a.dtype, copy=False)


_logical(LogicalAnd, np.logical_and)
_logical(LogicalOr, np.logical_or)
_logical(LogicalXor, np.logical_xor)


@implements(LogicalNot)
def logical_not(_op: LogicalNot, x: Array) -> Array:
    """NumPy gives booleans."""
    return np.logical_not(x).astype(x.dtype, copy=False)
