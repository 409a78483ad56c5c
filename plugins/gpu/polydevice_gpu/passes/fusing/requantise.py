"""requantise: sums of bytes become bytes again in few instructions.

Behind a sum of a quantised network lie its scale and bias, a quotient that is rounded, limited and
shifted, and perhaps numbers made of that again for a residual sum. Written as the network says,
that is 20 to 80 instructions for an element, which takes longer than the products. Here constant
factors become one, quotients become products, and rounding is an addition: results differ where a
quotient lies within a few units in the last place of a half. What is computed of bytes by itself is
shortened likewise; where something else has steps, such as Floor or Equal, all stays as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import (
    Add,
    Divide,
    FloorMod,
    Maximum,
    Minimum,
    Mod,
    Multiply,
    Subtract,
)
from polydevice.ops.convert import Convert
from polydevice.ops.math import Ceiling, Erf, Floor, Round, RoundMode, Sign
from polydevice.ops.op import Op
from polydevice_gpu.graph import GpuGraph, Value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import INTEGER_PRODUCTS, Fragment, Fused, Step, ToByte, ToWhole
from polydevice_gpu.rounded_ops import ShortErf

_BYTES = (ElementType.u8, ElementType.i8)
_LARGEST, _SMALLEST = 1e30, 1e-30
"""Of factors that are made."""
_OF_16_BITS = ((0.0, 65535.0), (-32768.0, 32767.0))
"""Limits of u16 and i16."""
_STEPPED = (Floor, Ceiling, Sign, Mod, FloorMod)
_LIMITS = (Clamp, Minimum, Maximum)
_NEAR_ONE = 1e-4
"""So far from 1 is a factor that takes no number of 12 bits to the next."""


@dataclass(frozen=True, eq=False)
class _Term:
    """A part of an expression: an operation, or what it begins with.

    Attributes:
        element_type: of its result.
        op: the operation; None for the sums, and for other values.
        arguments: of the operation.
        value: None for the sums.
    """

    element_type: ElementType
    op: Op | None = None
    arguments: tuple[_Term, ...] = ()
    value: Value | None = None

    @property
    def constant(self) -> Array | None:
        """Its elements, if they are known."""
        return None if self.value is None else self.value.constant


def _as_it_is(term: _Term, done: dict[_Term, _Term]) -> _Term:
    del done
    return term


def requantise(graph: GpuGraph, target: Target) -> None:
    """Shorten what is computed of sums of bytes, and what else becomes bytes on the way.

    Only where there are products of bytes: other networks may round and limit, too, and get what
    they say, but for numbers that 16 bits were made of and that are made of these again.
    """
    if not any(isinstance(node.op, INTEGER_PRODUCTS) for node in graph.nodes):
        _shorten_16_bits(graph)
        return
    last = _by_256 if target.byte_product == "ptx" else _as_it_is
    last = _erf_in_short if target.sums_byte_vectors else last
    for node in graph.nodes:
        own, extras = node.own_inputs, node.extra_inputs
        if isinstance(node.op, Fused) and _makes_bytes(node.op.fragment):
            fragment, own = _shortened(node.op.fragment, own, last=last)
            node.op = Fused(fragment)
        sums, epilogue = isinstance(node.op, INTEGER_PRODUCTS), node.epilogue
        if epilogue is not None and (_is_smooth(epilogue) if sums else _makes_bytes(epilogue)):
            node.epilogue, extras = _shortened(epilogue, [None, *extras], last=last)
        node.inputs = [*own, *extras]


def shortened(fragment: Fragment, values: Sequence[Value]) -> tuple[Fragment, Sequence[Value]]:
    """Return what was put together of shortened fragments, without bytes between them."""
    return _shortened(fragment, values) if _makes_bytes(fragment) else (fragment, values)


def _makes_bytes(fragment: Fragment) -> bool:
    return _is_smooth(fragment) and any(step.element_type in _BYTES for step in fragment.steps)


def _shorten_16_bits(graph: GpuGraph) -> None:
    """Shorten what rounds to 16 bits in f32, and leave everything else as it is."""

    def rounds(fragment: Fragment | None) -> bool:
        return fragment is not None and any(_is_of_16_bits(step.op) for step in fragment.steps)

    for node in graph.nodes:
        own, extras, epilogue = node.own_inputs, node.extra_inputs, node.epilogue
        if isinstance(node.op, Fused) and rounds(node.op.fragment):
            fragment, own = _shortened(node.op.fragment, own, shorter=_rounded)
            node.op = Fused(fragment)
        if epilogue is not None and rounds(epilogue):
            node.epilogue, extras = _shortened(epilogue, [None, *extras], shorter=_rounded)
        node.inputs = [*own, *extras]


def _is_of_16_bits(op: Op | None) -> bool:
    return isinstance(op, Clamp) and (op.min, op.max) in _OF_16_BITS


def _rounded(term: _Term) -> _Term:
    """(Clamp(Round(x / scale) + zero) - zero) * scale, whose limits are those of 16 bits."""
    limited, scale = term.arguments if isinstance(term.op, Multiply) else (term, term)
    zero: Array | None = np.zeros(1, np.float32)
    if isinstance(limited.op, Subtract):
        limited, zero = limited.arguments[0], limited.arguments[1].constant
    if zero is None or zero.size != 1 or scale.constant is None:
        return term
    if not isinstance(limited.op, Clamp):
        return term
    (x,), low, high = limited.arguments, limited.op.min, limited.op.max
    if isinstance(x.op, Add):
        x, added = x.arguments
        if added.constant is None or not np.array_equal(added.constant.ravel(), zero.ravel()):
            return term
    elif zero.any():
        return term
    point = float(zero.reshape(()))
    is_half_even = isinstance(x.op, Round) and x.op.mode is RoundMode.HALF_TO_EVEN
    if not (_is_of_16_bits(limited.op) and is_half_even and point == int(point)):
        return term
    (quotient,) = x.arguments
    divisor = quotient.arguments[1].constant if isinstance(quotient.op, Divide) else None
    if divisor is None or not np.array_equal(divisor.ravel(), scale.constant.ravel()):
        return term
    whole = _without_quotients(quotient)
    made = _Term(ElementType.f32, ToWhole(low - point, high - point), (whole,))
    return _times(made, scale.constant) or term


def _is_smooth(fragment: Fragment) -> bool:
    """Whether no last place decides between results that lie apart, but where bytes are rounded."""
    return not any(_has_steps(fragment, step) for step in fragment.steps)


def _has_steps(fragment: Fragment, step: Step) -> bool:
    kind = step.element_type
    if isinstance(step.op, Convert):
        maker = step.arguments[0] - len(fragment.inputs)
        limited = maker >= 0 and isinstance(fragment.steps[maker].op, _LIMITS)
        from_whole = not fragment.value_type(step.arguments[0]).is_float
        return not (kind.is_float or from_whole or (kind in _BYTES and limited))
    return kind is ElementType.boolean or isinstance(step.op, _STEPPED)


def _shortened(
    fragment: Fragment,
    values: Sequence[Value | None],
    *,
    last: Callable[[_Term, dict[_Term, _Term]], _Term] = _as_it_is,
    shorter: Callable[[_Term], _Term] | None = None,
) -> tuple[Fragment, list[Value]]:
    """Return a fragment that computes the same of what it names, and these values.

    Args:
        fragment: what is computed.
        values: its inputs; None for the sums.
        last: returns what is computed in place of a term that is short, `_by_256` say.
        shorter: returns a term of the same value; `_shorter` where that is left out.
    """
    shorter = shorter or _shorter
    terms = [_Term(kind, value=value) for kind, value in zip(fragment.inputs, values, strict=True)]
    readers = [0] * (len(fragment.inputs) + len(fragment.steps))
    for step in fragment.steps:
        for argument in step.arguments:
            readers[argument] += 1
    for step in fragment.steps:
        shared = any(readers[argument] > 1 for argument in step.arguments)
        made = _Term(_computed(step), step.op, tuple(terms[a] for a in step.arguments))
        terms.append(made if shared else shorter(made))
    result = dataclasses.replace(last(terms[-1], {}), element_type=fragment.element_type)
    return _written(result, None if values[0] is not None else fragment.inputs[0])


def _computed(step: Step) -> ElementType:
    """Return the type in which a kernel computes a step: what is not stored is no half there."""
    return ElementType.f32 if step.element_type is ElementType.f16 else step.element_type


def _shorter(term: _Term) -> _Term:
    """Return a term of the same value, as far as it matters; its arguments are short already."""
    if isinstance(term.op, Convert) and term.element_type in _BYTES:
        return _byte(term)
    if isinstance(term.op, Convert):
        return _float(term)
    if isinstance(term.op, Subtract):
        return _whole(term)
    if isinstance(term.op, Multiply):
        rounded = _rounded(term)
        if rounded is not term:
            return rounded
        for of, by in (term.arguments, reversed(term.arguments)):
            if by.constant is not None:
                return _times(of, by.constant) or term
        return _scaled_once(term)
    return term


def _scaled_once(product: _Term) -> _Term:
    """A product of bytes times constants: the product of the bytes, times all these at once."""
    terms, factors = [], []
    for argument in product.arguments:
        numbers = argument.arguments[1].constant if _is_scaled(argument) else None
        if numbers is None or not isinstance(argument.arguments[0].op, ToWhole):
            terms.append(argument)  # nothing is known of how large it is
            continue
        terms.append(argument.arguments[0])
        factors.append(numbers)
    made = dataclasses.replace(product, arguments=tuple(terms))
    for numbers in factors:
        found = _times(made, numbers)
        if found is None:
            return product
        made = found
    return made


def _without_quotients(term: _Term) -> _Term:
    """What is rounded next, products in the place of its quotients by constants."""
    numbers = term.arguments[1].constant if isinstance(term.op, (Multiply, Divide)) else None
    if numbers is None:
        return term
    factor = numbers if isinstance(term.op, Multiply) else _inverse(numbers)
    return _times(_without_quotients(term.arguments[0]), factor) or term


def _inverse(numbers: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray((1 / numbers.astype(np.float64)).astype(np.float32))


def _float(term: _Term) -> _Term:
    """A byte whose zero point is 0, made a number again, is a whole one within limits."""
    (byte,) = term.arguments
    if not isinstance(byte.op, ToByte) or byte.op.zero or term.element_type is not ElementType.f32:
        return term
    return _Term(ElementType.f32, ToWhole(byte.op.low, byte.op.high), byte.arguments)


def _byte(term: _Term) -> _Term:
    """Convert(Clamp(Round(x / scale) + zero)) as one operation."""
    (clamped,) = term.arguments
    if not isinstance(clamped.op, Clamp):
        return term
    (x,), zero = clamped.arguments, np.zeros(1, np.float32)
    if isinstance(x.op, Add) and x.arguments[1].constant is not None:
        zero = x.arguments[1].constant
        x = x.arguments[0]
    rounded = isinstance(x.op, Round) and x.op.mode is RoundMode.HALF_TO_EVEN
    limits = np.iinfo(term.element_type.dtype)
    low, high = max(clamped.op.min, limits.min), min(clamped.op.max, limits.max)
    if zero.size != 1 or not rounded or not low <= high:
        return term
    (x,), point = x.arguments, float(zero.reshape(()))
    if point != int(point) or low != int(low) or high != int(high):
        return term
    x = _without_quotients(x)
    x, low, high = _once(x, low - point, high - point)
    op = ToByte(low, high, int(point), term.element_type)
    return _Term(term.element_type, op, (x,))


def _whole(term: _Term) -> _Term:
    """What DequantizeLinear subtracts its zero point from, before it is a byte."""
    wide, zero = term.arguments
    if zero.constant is not None and zero.constant.size == 1 and not zero.constant.any():
        return wide
    if not isinstance(wide.op, Convert) or term.element_type is not ElementType.f32:
        return term
    byte = wide.arguments[0]
    if not isinstance(byte.op, ToByte) or zero.constant is None:
        return term
    if zero.constant.size != 1 or float(zero.constant.reshape(())) != byte.op.zero:
        return term
    return _Term(ElementType.f32, ToWhole(byte.op.low, byte.op.high), byte.arguments)


def _once(x: _Term, low: float, high: float) -> tuple[_Term, float, float]:
    """What is a whole number already, but for its limits, is not rounded again."""
    (*_, by), of = x.arguments or (x,), x
    if isinstance(x.op, Multiply) and by.constant is not None:
        if np.abs(by.constant - 1).max(initial=0) > _NEAR_ONE:
            return x, low, high
        of = x.arguments[0]
    if not isinstance(of.op, ToWhole):
        return x, low, high
    least, most = max(low, of.op.low), min(high, of.op.high)
    return (of.arguments[0], least, most) if least <= most else (x, low, high)


def _times(term: _Term, factor: Array) -> _Term | None:
    """Return a term times a constant; None where factors would leave the range of f32."""
    if term.element_type is not ElementType.f32:
        return None
    if isinstance(term.op, Multiply) and term.arguments[1].constant is not None:
        return _multiplied(term.arguments[0], _product(term.arguments[1].constant, factor))
    if isinstance(term.op, Add) and term.arguments[1].constant is not None:
        inner, shift = _times(term.arguments[0], factor), term.arguments[1].constant
        made = _product(shift, factor)
        if inner is not None and made is not None and isinstance(term.arguments[0].op, Multiply):
            return _Term(ElementType.f32, Add(), (inner, made))
    if isinstance(term.op, Add) and all(map(_is_scaled, term.arguments)):
        left, right = (_times(argument, factor) for argument in term.arguments)
        if left is not None and right is not None:
            return _Term(ElementType.f32, Add(), (left, right))
    return _multiplied(term, _product(np.ones((), np.float32), factor))


def _is_scaled(term: _Term) -> bool:
    """Whether a term is something times constants, which take another factor for nothing."""
    return isinstance(term.op, Multiply) and term.arguments[1].constant is not None


def _by_256(term: _Term, done: dict[_Term, _Term]) -> _Term:
    """Return a term whose limits are those of 0 and 1, which an addition has for nothing.

    On NVIDIA's GPUs each other limit takes as long as two additions. Powers of two change no
    number, so that halves between two whole numbers stay what they are.
    """
    if term not in done:
        arguments = tuple(_by_256(argument, done) for argument in term.arguments)
        done[term] = made = dataclasses.replace(term, arguments=arguments)
        if isinstance(term.op, (ToByte, ToWhole)) and 0 < term.op.high - term.op.low <= 256:
            part = _times(arguments[0], np.full((), 1 / 256, np.float32))
            if part is not None:
                less = np.full((), -term.op.low / 256, np.float32)
                op = dataclasses.replace(term.op, by_256=True)
                done[term] = dataclasses.replace(made, op=op, arguments=(_plus(part, less),))
    return done[term]


def _erf_in_short(term: _Term, done: dict[_Term, _Term]) -> _Term:
    """Return a term whose error functions, where they are rounded next, take fewer steps.

    As of a GELU whose steps are rounded one by one.
    """
    if term not in done:
        arguments = tuple(_erf_in_short(argument, done) for argument in term.arguments)
        made = dataclasses.replace(term, arguments=arguments)
        if isinstance(term.op, (ToByte, ToWhole)):
            made = dataclasses.replace(made, arguments=(_in_short(arguments[0]),))
        done[term] = made
    return done[term]


def _in_short(term: _Term) -> _Term:
    """Return what is rounded next, if it is an error function but for constants."""
    if isinstance(term.op, Erf) and term.element_type is ElementType.f32:
        return dataclasses.replace(
            term, op=ShortErf(), arguments=(_without_quotients(*term.arguments),)
        )
    if isinstance(term.op, (Multiply, Add)) and term.arguments[1].constant is not None:
        return dataclasses.replace(
            term, arguments=(_in_short(term.arguments[0]), term.arguments[1])
        )
    return term


def _plus(term: _Term, shift: Array) -> _Term:
    """Return a term and a constant, added."""
    if not shift.any():
        return term
    if isinstance(term.op, Add) and term.arguments[1].constant is not None:
        shift = term.arguments[1].constant.astype(np.float64) + shift
        term = term.arguments[0]
    made = np.asarray(shift, np.float32)
    value = Value("shift", ElementType.f32, made.shape, constant=made)
    return _Term(ElementType.f32, Add(), (term, _Term(ElementType.f32, value=value)))


def _multiplied(term: _Term, factor: _Term | None) -> _Term | None:
    return None if factor is None else _Term(ElementType.f32, Multiply(), (term, factor))


def _product(left: Array, right: Array) -> _Term | None:
    numbers = left.astype(np.float64) * right.astype(np.float64)
    sizes = np.abs(numbers[numbers != 0])
    if not np.isfinite(numbers).all() or numbers.size > max(left.size, right.size):
        return None
    if sizes.size and (sizes.max() > _LARGEST or sizes.min() < _SMALLEST):
        return None
    made = np.asarray(numbers, np.float32)
    value = Value("factor", ElementType.f32, made.shape, constant=made)
    return _Term(ElementType.f32, value=value)


def _written(term: _Term, sums: ElementType | None) -> tuple[Fragment, list[Value]]:
    """Return the fragment of a term and the values that it reads besides the sums, if any."""
    order: dict[_Term, None] = {}

    def visit(each: _Term) -> None:
        if each in order:
            return
        for argument in each.arguments:
            visit(argument)
        order[each] = None

    visit(term)
    leaves = {each.value: each for each in order if each.value is not None}
    before = [] if sums is None else [sums]
    numbers: dict[_Term | Value | None, int] = {None: 0}
    numbers.update({value: len(before) + number for number, value in enumerate(leaves)})
    steps: list[Step] = []
    for each in order:
        if each.op is None:
            numbers[each] = numbers[each.value]
            continue
        numbers[each] = len(before) + len(leaves) + len(steps)
        arguments = tuple(numbers[argument] for argument in each.arguments)
        steps.append(Step(each.op, arguments, each.element_type))
    inputs: Sequence[ElementType] = [each.element_type for each in leaves.values()]
    return Fragment((*before, *inputs), tuple(steps)), list(leaves)
