"""Operations on bits."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops import bitwise
from polydevice_gpu.kernels.pointwise.expression import declare

declare(bitwise.BitwiseAnd, "x & y", any_type=True, scalar=True)
declare(bitwise.BitwiseOr, "x | y", any_type=True, scalar=True)
declare(bitwise.BitwiseXor, "x ^ y", any_type=True, scalar=True)
declare(
    bitwise.BitwiseNot,
    lambda _, kinds: "x == 0" if kinds[0] is ElementType.boolean else "~x",
    any_type=True,
    scalar=True,
)
# A negative count, as ulong, is one that leaves nothing of x, as in NumPy.
declare(
    bitwise.BitwiseLeftShift,
    "(ulong)(y) >= 8 * sizeof(F) ? 0 : (ulong)(x) << y",
    any_type=True,
    scalar=True,
)
declare(
    bitwise.BitwiseRightShift,
    "(ulong)(y) >= 8 * sizeof(F) ? (x < 0 ? -1 : 0) : x >> y",
    any_type=True,
    scalar=True,
)
