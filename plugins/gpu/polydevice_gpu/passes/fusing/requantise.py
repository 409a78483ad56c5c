"""requantise: sums of bytes become bytes again in few instructions.

Behind a sum of a quantised network lie its scale and bias, a quotient that is rounded, limited and
shifted, and perhaps numbers made of that again for a residual sum. Written as the network says,
that is 20 to 80 instructions for an element, which takes longer than the products. Here constant
factors become one, quotients become products, and rounding is an addition: results differ where a
quotient lies within a few units in the last place of a half.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.math import Round, RoundMode
from polydevice.ops.op import Op
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import INTEGER_PRODUCTS, Fragment, Step, ToByte, ToWhole

_BYTES = (ElementType.u8, ElementType.i8)
_LARGEST, _SMALLEST = 1e30, 1e-30
"""Of factors that are made."""
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


def requantise(graph: GpuGraph, target: Target) -> None:
    """Shorten the epilogues of all products of bytes."""
    for node in graph.nodes:
        if isinstance(node.op, INTEGER_PRODUCTS) and node.epilogue is not None:
            _shorten(node, node.epilogue, by_256=target.byte_product == "ptx")


def _shorten(node: GpuNode, epilogue: Fragment, *, by_256: bool) -> None:
    own, extras = node.own_inputs, node.extra_inputs
    terms = [_Term(epilogue.inputs[0])]
    terms += [
        _Term(kind, value=value) for kind, value in zip(epilogue.inputs[1:], extras, strict=True)
    ]
    readers = [0] * (len(epilogue.inputs) + len(epilogue.steps))
    for step in epilogue.steps:
        for argument in step.arguments:
            readers[argument] += 1
    for step in epilogue.steps:
        shared = any(readers[argument] > 1 for argument in step.arguments)
        made = _Term(_computed(step), step.op, tuple(terms[a] for a in step.arguments))
        terms.append(made if shared else _shorter(made))
    last = _by_256(terms[-1], {}) if by_256 else terms[-1]
    last = dataclasses.replace(last, element_type=epilogue.element_type)
    node.epilogue, extras = _written(last, epilogue.inputs[0])
    node.inputs = [*own, *extras]


def _computed(step: Step) -> ElementType:
    """Return the type in which a kernel computes a step: what is not stored is no half there."""
    return ElementType.f32 if step.element_type is ElementType.f16 else step.element_type


def _shorter(term: _Term) -> _Term:
    """Return a term of the same value, as far as it matters; its arguments are short already."""
    if isinstance(term.op, Convert) and term.element_type in _BYTES:
        return _byte(term)
    if isinstance(term.op, Subtract):
        return _whole(term)
    if isinstance(term.op, Multiply):
        for of, by in (term.arguments, reversed(term.arguments)):
            if by.constant is not None:
                return _times(of, by.constant) or term
    return term


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
    if isinstance(x.op, Divide) and x.arguments[1].constant is not None:
        with np.errstate(all="ignore"):
            factor = (1 / x.arguments[1].constant.astype(np.float64)).astype(np.float32)
        x = _times(x.arguments[0], factor) or x
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
    return _multiplied(term, _product(np.ones(1, np.float32), factor))


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
            part = _times(arguments[0], np.full(1, 1 / 256, np.float32))
            if part is not None:
                less = np.full(1, -term.op.low / 256, np.float32)
                op = dataclasses.replace(term.op, by_256=True)
                done[term] = dataclasses.replace(made, op=op, arguments=(_plus(part, less),))
    return done[term]


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


def _written(term: _Term, sums: ElementType) -> tuple[Fragment, list[Value]]:
    """Return the fragment of a term and the values that it reads besides the sums."""
    order: dict[_Term, None] = {}

    def visit(each: _Term) -> None:
        if each in order:
            return
        for argument in each.arguments:
            visit(argument)
        order[each] = None

    visit(term)
    leaves = {each.value: each for each in order if each.value is not None}
    numbers: dict[_Term | Value | None, int] = {None: 0}
    numbers.update({value: 1 + number for number, value in enumerate(leaves)})
    steps: list[Step] = []
    for each in order:
        if each.op is None:
            numbers[each] = numbers[each.value]
            continue
        numbers[each] = 1 + len(leaves) + len(steps)
        arguments = tuple(numbers[argument] for argument in each.arguments)
        steps.append(Step(each.op, arguments, each.element_type))
    inputs: Sequence[ElementType] = [each.element_type for each in leaves.values()]
    return Fragment((sums, *inputs), tuple(steps)), list(leaves)
