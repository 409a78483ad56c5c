"""Operations on the bits of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.bitwise import (
    BitwiseAnd,
    BitwiseLeftShift,
    BitwiseNot,
    BitwiseOr,
    BitwiseRightShift,
    BitwiseXor,
)
from polydevice.ops.pointwise import BinaryPointwise
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.arithmetic import aligned


def _bitwise(op: type[BinaryPointwise], function: Callable[[Any, Any], Any]) -> None:
    @implements(op)
    def apply(op: BinaryPointwise, a: Array, b: Array) -> Array:
        return np.asarray(function(*aligned(op, a, b)))


_bitwise(BitwiseAnd, np.bitwise_and)
_bitwise(BitwiseOr, np.bitwise_or)
_bitwise(BitwiseXor, np.bitwise_xor)
# NumPy defines shifts by the type's width or more, unlike C.
_bitwise(BitwiseLeftShift, np.left_shift)
_bitwise(BitwiseRightShift, np.right_shift)


@implements(BitwiseNot)
def bitwise_not(_op: BitwiseNot, x: Array) -> Array:
    """Inverts bits, or booleans."""
    return np.asarray(np.invert(x))
