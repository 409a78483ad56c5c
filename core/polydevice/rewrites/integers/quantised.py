"""What is known of values that are integers times a scale: of constants, and of others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.node import Evaluate, Node, Port
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.convert import Convert
from polydevice.ops.pointwise import AutoBroadcast
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.transpose import Transpose

NARROW = (ElementType.u8, ElementType.i8)
"""Types that products of integers take."""
_MOVES = (Reshape, Squeeze, Unsqueeze, Transpose)
_LOW, _HIGH = -128, 127
_WIDE = (ElementType.f16, ElementType.f32, ElementType.i32, ElementType.i64)
"""Types in which 8-bit integers and their differences are what they are; narrower ones wrap."""
_MOST_LEVELS = 256
"""As many as 8 bits tell apart."""
_NEAR = 1e-3
"""How far a zero point may be from an integer, in steps: limits in files are rounded to f32."""
_LARGEST_SCALE = 1e30
"""Beyond it, and below its inverse, scaled integers or what is divided are no f32 numbers."""


@dataclass(frozen=True)
class Quantised:
    """A value that is (integers - zero) * scale, one scale and zero point for all elements."""

    integers: Port
    scale: float
    zero: int

    @property
    def parameters(self) -> Parameters:
        """Scale, zero point and type of the integers."""
        return self.scale, self.zero, self.integers.element_type


Parameters = tuple[float, int, ElementType]


@dataclass(frozen=True)
class QuantisedConstant:
    """A constant that is (integers + lacking) * scale; integers in i8, or i16 and nothing lacking.

    Scale and what the integers lack (i64) have its rank, and sizes of 1 or its own.
    """

    integers: Array
    scale: Array
    lacking: Array


def quantised(port: Port, kinds: Sequence[ElementType] = NARROW) -> Quantised | None:
    """What DequantizeLinear with one constant scale makes of integers of these types."""
    node = port.node
    if not isinstance(node.op, DequantizeLinear) or node.op.block_size:
        return None
    if port.element_type is not ElementType.f32 or node.inputs[0].element_type not in kinds:
        return None
    numbers = _numbers(node)
    return None if numbers is None else Quantised(node.inputs[0], *numbers)


def quantiser(node: Node, kinds: Sequence[ElementType] = NARROW) -> Parameters | None:
    """Scale, zero point and type of what QuantizeLinear makes, one constant each for all."""
    if not isinstance(node.op, QuantizeLinear) or node.op.block_size:
        return None
    kind = node.output.element_type
    if node.inputs[0].element_type is not ElementType.f32 or kind not in kinds:
        return None
    numbers = _numbers(node)
    return None if numbers is None else (*numbers, kind)


def _numbers(node: Node) -> tuple[float, int] | None:
    """Scale and zero point of a node that has one each, constant."""
    parameters = [known(parameter) for parameter in node.inputs[1:]]
    if any(array is None or array.size != 1 for array in parameters):
        return None
    numbers = [array.reshape(-1)[0] for array in parameters if array is not None]
    scale = float(numbers[0])
    if not 1 / _LARGEST_SCALE < scale < _LARGEST_SCALE:
        return None
    return scale, int(numbers[1]) if len(numbers) > 1 else 0


def known(port: Port) -> Array | None:
    """A constant, also one that is stored in another type or follows from others."""
    value = port.node.constant
    if value is not None:
        return value
    node = port.node
    if isinstance(node.op, Convert) and port.element_type is ElementType.f32:
        value = node.inputs[0].node.constant
        return None if value is None else value.astype(np.float32)
    return port.desc.constant


def quantised_constant(port: Port, evaluate: Evaluate | None) -> QuantisedConstant | None:
    """Take a constant apart into 8-bit integers and a scale, as it is spelled in the model."""
    node = port.node
    if isinstance(node.op, Convert) and port.element_type is ElementType.f32:
        return quantised_constant(node.inputs[0], evaluate)
    if isinstance(node.op, DequantizeLinear):
        return _dequantised(node, evaluate)
    if isinstance(node.op, FakeQuantize) and evaluate is not None:
        return _rounded_to_levels(node, evaluate)
    if isinstance(node.op, Multiply):
        for integers, scale in (node.inputs, reversed(node.inputs)):
            whole, factor = _whole(integers, evaluate), known(scale)
            if whole is not None and factor is not None:
                return _made(whole, factor.astype(np.float32))
        return None
    if isinstance(node.op, _MOVES) and evaluate is not None:
        return _moved(node, evaluate)
    return None


def _dequantised(node: Node, evaluate: Evaluate | None) -> QuantisedConstant | None:
    integers = node.inputs[0].node.constant
    scale, *zeros = map(known, node.inputs[1:])
    if integers is None:
        integers = _quantised_ahead(node.inputs[0].node, evaluate)
    op = node.operation(DequantizeLinear)
    if integers is None or scale is None or op.block_size or (zeros and zeros[0] is None):
        return None
    if not _are_whole(integers):
        return None  # narrow floats have scales too
    if scale.size > 1 and scale.ndim != 1:
        return None
    shape = [1] * integers.ndim
    if scale.size > 1:
        shape[op.axis % integers.ndim] = -1
    whole = integers
    if zeros and zeros[0] is not None:
        zero = zeros[0]
        if zero.size not in (1, scale.size):
            return None
        whole = _less(whole, zero.reshape(shape if zero.size == scale.size else ()))
    return _made(whole, scale.astype(np.float32).reshape(shape))


def _rounded_to_levels(node: Node, evaluate: Evaluate) -> QuantisedConstant | None:
    """A FakeQuantize of a constant: levels less that of 0, which may lie half-way between two.

    Tools leave it to the runtime to round weights, each output channel within limits of its own.
    What both of its output limits make 0 is 0 whatever the level.
    """
    op = node.operation(FakeQuantize)
    arrays = [_laid_out(port, evaluate) for port in node.inputs]
    given = [array for array in arrays if array is not None]
    if len(given) < len(arrays) or any(array.dtype != np.float32 for array in given):
        return None
    values, *inside, low, high = given
    if op.auto_broadcast is not AutoBroadcast.NUMPY or node.output.shape != values.shape:
        return None
    if not np.isfinite(values).all():
        return None
    is_nothing = (low == 0) & (high == 0)
    for parts in (1, 2):  # of a level, in which integers count
        last = (op.levels - 1) * parts
        found = None
        if last < _MOST_LEVELS:
            found = grid(last + 1, low, np.where(is_nothing, np.float32(last), high))
        if found is None:
            continue
        ends = (np.asarray(end, np.float32) for end in (0, last))
        made = evaluate(op, [values, *inside, *ends])
        if made is None or not np.isfinite(made[0]).all():
            return None
        scale, zero = found
        whole = np.where(is_nothing, 0, np.rint(made[0]) - zero)
        return _made(whole.astype(np.int16), scale.astype(np.float32))
    return None


def grid(levels: int, low: Array, high: Array) -> tuple[Array, Array] | None:
    """Scales and zero points of the numbers (k - zero) * scale with these ends, k from 0.

    Args:
        levels: how many numbers there are, 2 and more.
        low: the least numbers, finite.
        high: the largest, as many or one, or the other way round.

    Returns:
        f64 and i64; None unless 0 is among the numbers, or as good as that, all of them.
    """
    least, most = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if not (np.isfinite(least).all() and np.isfinite(most).all() and (most > least).all()):
        return None
    scale = (most - least) / (levels - 1)
    exact = -least / scale
    zero = np.rint(exact)
    if not ((zero >= 0) & (zero < levels) & (np.abs(exact - zero) <= _NEAR)).all():
        return None
    return scale, zero.astype(np.int64)


def _laid_out(port: Port, evaluate: Evaluate) -> Array | None:
    """A constant, also one that was moved."""
    node = port.node
    if isinstance(node.op, _MOVES):
        rest = [each.desc.constant for each in node.inputs[1:]]
        return _evaluated(node, [_laid_out(node.inputs[0], evaluate), *rest], evaluate)
    return known(port)


def _quantised_ahead(node: Node, evaluate: Evaluate | None) -> Array | None:
    """What QuantizeLinear makes of constants: tools leave it to the runtime to quantise weights."""
    if not isinstance(node.op, QuantizeLinear) or evaluate is None:
        return None
    return _evaluated(node, [_spread(port, evaluate) for port in node.inputs], evaluate)


def _spread(port: Port, evaluate: Evaluate) -> Array | None:
    """A constant, also one number (or row) in many places, as ConstantOfShape says it."""
    node = port.node
    if isinstance(node.op, Broadcast):
        return _evaluated(node, [each.desc.constant for each in node.inputs], evaluate)
    return known(port)


def _evaluated(node: Node, given: list[Array | None], evaluate: Evaluate) -> Array | None:
    arrays = [array for array in given if array is not None]
    made = evaluate(node.op, arrays) if len(arrays) == len(given) else None
    return None if made is None else made[0]


def divided_integers_of(
    port: Port, evaluate: Evaluate | None, output: int
) -> tuple[Array, Array] | None:
    """A constant of integers as some that fit into i8 and what these lack.

    Args:
        port: the constant.
        evaluate: computes operations.
        output: axis of the outputs.

    Returns:
        The integers, and a number that all of them lack, [], or one for each output, [outputs];
        None for others, and where they span more than 255.
    """
    whole = _whole(port, evaluate)
    if whole is None:
        return None
    every = tuple(range(whole.ndim))
    found = _divided(whole, every)
    if found is not None:
        return found[0], found[1].reshape(())
    found = _divided(whole, tuple(axis for axis in every if axis != output % whole.ndim))
    return None if found is None else (found[0], found[1].reshape(-1))


def _divided(whole: Array, axes: tuple[int, ...]) -> tuple[Array, Array] | None:
    """Integers as some in i8 and what all lack along these axes; None where they span over 255.

    As u8 with a zero point that is not 128 do.
    """
    narrow = _bytes(whole)
    if narrow is not None:
        return narrow, np.zeros((1,) * whole.ndim, np.int64)
    if not whole.size:
        return None
    wide = whole.astype(np.int64)
    least, most = (limit(wide, axis=axes, keepdims=True) for limit in (np.min, np.max))
    if (most - least > 255).any():
        return None
    lacking = np.maximum(most - _HIGH, 0) + np.minimum(least - _LOW, 0)
    return (wide - lacking).astype(np.int8), lacking


def _whole(port: Port, evaluate: Evaluate | None) -> Array | None:
    """Integers that were converted, less a zero point."""
    node = port.node
    if isinstance(node.op, Convert):
        value = node.inputs[0].node.constant
        if value is None or not _are_whole(value) or port.element_type not in _WIDE:
            return None
        return value
    if isinstance(node.op, Subtract):
        if port.element_type not in _WIDE:
            return None
        left = _whole(node.inputs[0], evaluate)
        zero = known(node.inputs[1])
        if zero is None:
            zero = _whole(node.inputs[1], evaluate)
        if left is None or zero is None or not _are_points_of(zero, left.shape):
            return None
        return _less(left, zero)
    if isinstance(node.op, _MOVES) and evaluate is not None:
        inner = _whole(node.inputs[0], evaluate)
        others = [port.desc.constant for port in node.inputs[1:]]
        if inner is None or any(array is None for array in others):
            return None
        moved = evaluate(node.op, [inner, *(array for array in others if array is not None)])
        return None if moved is None else moved[0]
    return None


def _are_points_of(zero: Array, shape: tuple[int, ...]) -> bool:
    """Whether these are integers that broadcast to a shape."""
    wide = zero.astype(np.float64)
    if zero.ndim > len(shape) or not (np.isfinite(wide).all() and (wide == np.rint(wide)).all()):
        return False
    behind = shape[len(shape) - zero.ndim :]
    return all(own in (1, size) for own, size in zip(zero.shape, behind, strict=True))


def _are_whole(value: Array) -> bool:
    """Whether the elements are of a type of integers, 4-bit ones too."""
    small = (ElementType.u4, ElementType.i4)
    return value.dtype.kind in "iu" or ElementType.of(value.dtype) in small


def _less(whole: Array, zero: Array) -> Array:
    """Integers less a zero point: themselves where that is 0, so that there is no other copy."""
    if not zero.any():
        return whole
    wide = np.int16 if whole.dtype.itemsize == zero.dtype.itemsize == 1 else np.int64
    result: Array = whole.astype(wide) - zero.astype(wide)
    return result


def _bytes(whole: Array) -> Array | None:
    """The same integers as i8; None where some do not fit, or there are none."""
    if whole.dtype == np.int8:
        return whole if whole.size else None
    if whole.dtype.kind not in "iu":  # 4-bit types, of which NumPy knows no limits
        whole = whole.astype(np.int8)
    if not whole.size or whole.min() < _LOW or whole.max() > _HIGH:
        return None
    return whole.astype(np.int8)


def _made(whole: Array, scale: Array) -> QuantisedConstant | None:
    if scale.ndim > whole.ndim or not (np.isfinite(scale).all() and (scale > 0).all()):
        return None
    scale = scale.reshape((1,) * (whole.ndim - scale.ndim) + scale.shape)
    own: tuple[int, ...] = scale.shape
    if any(n not in (1, size) for n, size in zip(own, whole.shape, strict=True)):
        return None
    every = tuple(range(whole.ndim))
    inside = tuple(axis for axis in every if own[axis] == 1)
    found = _divided(whole, every) or _divided(whole, inside)
    return None if found is None else QuantisedConstant(found[0], scale, found[1])


def _moved(node: Node, evaluate: Evaluate) -> QuantisedConstant | None:
    """The same of a constant whose elements are moved, what belongs to them with them."""
    inner = quantised_constant(node.inputs[0], evaluate)
    others = [port.desc.constant for port in node.inputs[1:]]
    if inner is None or any(array is None for array in others):
        return None
    rest = [array for array in others if array is not None]
    parts = []
    for array in (inner.integers, inner.scale, inner.lacking):
        moved = evaluate(node.op, [np.broadcast_to(array, inner.integers.shape), *rest])
        if moved is None:
            return None
        parts.append(moved[0])
    scale, lacking = map(_without_copies, parts[1:])
    return QuantisedConstant(np.ascontiguousarray(parts[0]), scale, lacking)


def _without_copies(array: Array) -> Array:
    """One element instead of many that are alike, along each axis."""
    for axis in range(array.ndim):
        first = array.take([0], axis)
        if (array == first).all():
            array = first
    return np.ascontiguousarray(array)
