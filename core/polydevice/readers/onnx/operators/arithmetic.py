"""Arithmetic, comparison and logic of several inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import (
    Add,
    Divide,
    FloorMod,
    Maximum,
    Minimum,
    Mod,
    Multiply,
    Power,
    Subtract,
)
from polydevice.ops.bitwise import (
    BitwiseAnd,
    BitwiseLeftShift,
    BitwiseOr,
    BitwiseRightShift,
    BitwiseXor,
)
from polydevice.ops.comparison import Equal, Greater, GreaterEqual, Less, LessEqual
from polydevice.ops.convert import Convert
from polydevice.ops.logical import LogicalAnd, LogicalNot, LogicalOr, LogicalXor
from polydevice.ops.math import IsInf, Round
from polydevice.ops.op import Op
from polydevice.ops.reshape import Unsqueeze
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.shape import normalize_axis

_BINARY: dict[str, Callable[[], Op]] = {
    "Add": Add,
    "Sub": Subtract,
    "Mul": Multiply,
    "Div": lambda: Divide(pythondiv=False),
    "And": LogicalAnd,
    "Or": LogicalOr,
    "Xor": LogicalXor,
    "BitwiseAnd": BitwiseAnd,
    "BitwiseOr": BitwiseOr,
    "BitwiseXor": BitwiseXor,
    "Equal": Equal,
    "Greater": Greater,
    "GreaterOrEqual": GreaterEqual,
    "Less": Less,
    "LessOrEqual": LessEqual,
}


@translates(*_BINARY)
def binary(n: OnnxNode) -> Port:
    """One pointwise operation of two inputs."""
    return n.emit(_BINARY[n.op_type](), n.input(0), _aligned(n))


def _aligned(n: OnnxNode) -> Port:
    """Return the second input; before opset 7 an attribute says where in the first it begins."""
    a, b = n.input(0), n.input(1)
    axis = n.attribute("axis")
    if n.version >= 7 or axis is None or not n.attribute("broadcast", 0):
        return b
    begin = normalize_axis(axis, n.rank(a))
    behind = n.rank(a) - begin - n.rank(b)
    if behind < 0:
        raise n.unsupported(f"input of shape {b.shape} does not fit {a.shape} at axis {axis}")
    if not behind:
        return b
    return n.emit(Unsqueeze(), b, list(range(n.rank(b), n.rank(b) + behind)))


@translates("Max", "Min", "Sum", "Mean")
def variadic(n: OnnxNode) -> Port:
    """Fold any number of inputs with an operation of two."""
    op = {"Max": Maximum, "Min": Minimum}.get(n.op_type, Add)()
    result = n.input(0)
    for port in n.required_inputs()[1:]:
        result = n.emit(op, result, port)
    if n.op_type == "Mean":
        result = n.emit(Divide(), result, n.like(len(n.inputs), result))
    return result


@translates("Mod")
def mod(n: OnnxNode) -> Port:
    """fmod=1 takes the sign of the dividend, fmod=0 that of the divisor."""
    return n.emit(Mod() if n.attribute("fmod", 0) else FloorMod(), n.input(0), n.input(1))


@translates("Pow")
def power(n: OnnxNode) -> Port:
    """The result has the type of the base; a fractional power of integers is cut."""
    base, exponent = n.input(0), _aligned(n)
    kind, exponent_kind = base.element_type, exponent.element_type
    if kind is exponent_kind:
        return n.emit(Power(), base, exponent)
    if kind.is_integer and exponent_kind.is_float:
        wide = n.emit(Convert(exponent_kind), base)
        return n.emit(Convert(kind), n.emit(Power(), wide, exponent))
    return n.emit(Power(), base, n.emit(Convert(kind), exponent))


@translates("BitShift")
def bit_shift(n: OnnxNode) -> Port:
    """Shift in the direction of the attribute."""
    direction = n.required("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise n.unsupported(f"direction {direction!r} is not LEFT or RIGHT")
    op = BitwiseLeftShift() if direction == "LEFT" else BitwiseRightShift()
    return n.emit(op, n.input(0), n.input(1))


@translates("Clip")
def clip(n: OnnxNode) -> Port:
    """Limit to [min, max]; either may be left out."""
    x = n.input(0)
    low: Port | None
    high: Port | None
    if n.version < 11:
        finfo = np.finfo(np.float32)
        low = n.like(n.attribute("min", finfo.min), x)
        high = n.like(n.attribute("max", finfo.max), x)
    else:
        low, high = n.optional(1), n.optional(2)
    if low is not None and high is not None and x.element_type.is_float:
        lowest, highest = low.desc.constant, high.desc.constant
        if lowest is not None and highest is not None and lowest.size == highest.size == 1:
            bounds = float(lowest.item()), float(highest.item())
            if bounds[0] <= bounds[1]:
                return n.emit(Clamp(*bounds), x)
    if low is not None:
        x = n.emit(Maximum(), x, low)
    if high is not None:
        x = n.emit(Minimum(), x, high)
    return x


@translates("IsInf")
def is_inf(n: OnnxNode) -> Port:
    """Look for either or both infinities."""
    op = IsInf(
        detect_negative=bool(n.attribute("detect_negative", 1)),
        detect_positive=bool(n.attribute("detect_positive", 1)),
    )
    return n.emit(op, n.input(0))


@translates("Round")
def round_half_even(n: OnnxNode) -> Port:
    """Halves go to the even neighbour."""
    return n.emit(Round(), n.input(0))


@translates("Reciprocal")
def reciprocal(n: OnnxNode) -> Port:
    """1 / x."""
    x = n.input(0)
    return n.emit(Divide(), n.like(1, x), x)


@translates("Not")
def negation(n: OnnxNode) -> Port:
    """Logical negation, written as a comparison for types other than boolean."""
    x = n.input(0)
    if x.element_type is not ElementType.boolean:
        x = n.emit(Convert(ElementType.boolean), x)
    return n.emit(LogicalNot(), x)
