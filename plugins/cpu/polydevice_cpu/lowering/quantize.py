"""Quantisation in f32 as post-operations of what computes its input; QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import QuantizeLinear
from polydevice.rewrites.integers.quantised import quantiser
from polydevice_cpu.algorithms.by_machine.code import Code, may_share
from polydevice_cpu.algorithms.by_machine.indexed import levels
from polydevice_cpu.algorithms.precision import fits_f32
from polydevice_cpu.implement import implements
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, PostOp
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import DATA_TYPES, Descriptor
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import binary
from polydevice_cpu.passes.integers.fuse_quantize import QuantizeDequantize
from polydevice_cpu.passes.integers.grids import RoundedFunction
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.building.integers import Levels
from polydevice_cpu.plan.building.pending import Operand
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute, PrimitiveStep
from polydevice_cpu.plan.value import Value
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.proof import refusal

if TYPE_CHECKING:
    from polydevice.node import Node, Port
    from polydevice_cpu.plan.building.builder import PlanBuilder

_FAR = 2.0**100


@lowers(FakeQuantize)
def lower_fake_quantize(builder: PlanBuilder, node: Node) -> bool:
    """Clip, scale, round, scale back; limits are constant, for all elements or per channel."""
    op = node.operation(FakeQuantize)
    source, *limits = node.inputs
    if source.element_type is not ElementType.f32 or source.shape != node.outputs[0].shape:
        return False
    rank = source.desc.rank or 0
    arrays = [_aligned(port.desc.constant, rank) for port in limits]
    if any(array is None for array in arrays):
        return False
    chain = _steps(op.levels, *[a for a in arrays if a is not None])
    return chain is not None and _fused_or_own(builder, node, chain)


def _fused_or_own(builder: PlanBuilder, node: Node, chain: _Chain) -> bool:
    """Make the chain post-operations of what computes the input, else of a primitive of its own."""
    source = node.inputs[0]
    held = builder.pending(source)
    if held is not None and held.extend(node, chain.post_ops, chain.operands):
        builder.release(source)
        builder.hold(node.outputs[0], held)
        return True
    return _primitive(builder, node, chain.post_ops, chain.operands)


class _Chain:
    """Post-operations, and what they read by position."""

    def __init__(self) -> None:
        self.post_ops: list[PostOp] = []
        self.operands: dict[int, Operand] = {}

    def binary(self, algorithm: Algorithm, array: Array) -> None:
        """Apply y <algorithm> array."""
        values = np.ascontiguousarray(array, np.float32)
        descriptor = Descriptor.dense(values.shape)
        self.operands[len(self.post_ops)] = Operand(Arg.SRC_1, values, descriptor)
        self.post_ops.append(Binary(algorithm, descriptor))

    def linear(self, factor: Array, summand: Array) -> None:
        """Multiply and add; +0 is added too, which makes no zero negative."""
        if factor.size == 1 and summand.size == 1:
            numbers = factor.item(), summand.item()
            self.post_ops.append(Eltwise(Algorithm.LINEAR, *numbers))
        else:
            self.binary(Algorithm.BINARY_MUL, factor)
            self.binary(Algorithm.BINARY_ADD, summand)

    def clip(self, low: Array, high: Array) -> None:
        """Limit to [low, high]."""
        if all(limit.size and (limit == limit.flat[0]).all() for limit in (low, high)):
            limits = float(low.reshape(-1)[0]), float(high.reshape(-1)[0])
            self.post_ops.append(Eltwise(Algorithm.CLIP, *limits))
        else:
            self.binary(Algorithm.BINARY_MAX, low)
            self.binary(Algorithm.BINARY_MIN, high)


@implements(QuantizeDequantize)
def quantize_dequantize(
    op: QuantizeDequantize, x: Array, divisor: Array, zero: Array, factor: Array
) -> Array:
    """Quantise and dequantise with NumPy."""
    level = np.clip(np.rint(x / divisor), op.least - zero, op.most - zero)
    result: Array = level * factor + np.float32(0)  # no zero is negative
    return result


@lowers(QuantizeDequantize)
def lower_quantize_dequantize(builder: PlanBuilder, node: Node) -> bool:
    """Divide, round, clip, multiply; behind a heavy operation or as a division of its own."""
    op, source = node.op, node.inputs[0]
    assert isinstance(op, QuantizeDequantize)
    rank = source.desc.rank or 0
    divisor, zero, factor = (_aligned(port.desc.constant, rank) for port in node.inputs[1:])
    if divisor is None or zero is None or factor is None:
        return False
    chain = _Chain()
    held = builder.pending(source)
    inverse = 1 / np.asarray(divisor, np.float64)
    if held is not None and held.is_inexact and divisor.size == 1 and fits_f32(inverse):
        # A product where the quotient's last bit is not kept by the sums either: behind a matrix
        # product of 100x96x384, quotients take 8 us of 44 and products 3 of 38.
        if (divisor != 1).all():
            chain.post_ops.append(Eltwise(Algorithm.LINEAR, float(inverse.item()), 0.0))
    elif (divisor != 1).any():
        chain.binary(Algorithm.BINARY_DIV, divisor)
    chain.post_ops.append(Eltwise(Algorithm.ROUND))
    chain.clip(op.least - zero, op.most - zero)
    if (factor != 1).any():
        chain.linear(factor, np.zeros((1,) * rank, np.float32))
    if not _fused_or_own(builder, node, chain):
        return False
    held = builder.pending(node.output)
    is_pair = factor.size == 1 and factor != 1 and np.array_equal(divisor, factor)
    if held is not None and is_pair and (op.least, op.most) in Levels.RANGES:
        tail = len(chain.post_ops) - 2  # behind dividing and rounding
        held.levels = Levels.of(float(factor.item()), int(zero.item()), op.least < 0, tail)
    return True


@implements(RoundedFunction)
def rounded_function(op: RoundedFunction, x: Array, table: Array) -> Array:
    """Look up."""
    return levels.looked_up(op.grid, table, x)


@lowers(RoundedFunction)
def lower_rounded_function(builder: PlanBuilder, node: Node) -> bool:
    """Look numbers up in whatever order they lie, if there are no gaps between them."""
    op, table = node.operation(RoundedFunction), node.inputs[1].desc.constant
    value = builder.wide(builder.value(node.inputs[0]))
    if table is None or not value.in_reach:
        return False
    if value.strides is None or not value.has_no_gaps:
        value = builder.dense(value)
    assert value.strides is not None
    result = builder.new(Descriptor.strided(value.shape, value.strides))
    source, target = (each.view((each.elements,), (1,)) for each in (value, result))
    start = partial(_by_machine, op, table, openmp.thread_count())
    step = ArrayStep(node.name, node.type, start, [source], [target], MACHINE_CODE, writes=True)
    builder.emit(step)
    builder.set(node.output, result)
    return True


def _by_machine(op: RoundedFunction, table: Array, threads: int, _: Context) -> Compute:
    def compute(x: Array, result: Array) -> tuple[()]:
        result[...] = levels.looked_up(op.grid, table, x)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        return levels.code(op.grid, table, values[0].elements, threads if may_share() else 1)

    return ByMachine(compute, prepare, may_refuse=False)


def _aligned(constant: Array | None, rank: int) -> Array | None:
    """The limit with one size per dimension, if it varies along channels at most."""
    if constant is None or constant.ndim > rank or rank < 1:
        return None
    array = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
    varies = [d for d in range(rank) if array.shape[d] != 1]
    return array if not varies or varies == [1] else None


def _steps(levels: int, low: Array, high: Array, out_low: Array, out_high: Array) -> _Chain | None:
    """Clip, scale, round and scale back; None where a limit is not finite or in the wrong order."""
    il, ih, ol, oh = (np.asarray(a, np.float64) for a in (low, high, out_low, out_high))
    if not np.isfinite([*map(np.sum, (il, ih, ol, oh))]).all():
        return None
    if il.size and (ih == il).all():
        return _two_levels(il if il.size >= ih.size else ih, ol, oh)
    if not (ih > il).all():
        return None
    scale = (levels - 1) / (ih - il)
    back = (oh - ol) / (levels - 1)
    chain = _Chain()
    chain.clip(il, ih)
    chain.linear(scale, -il * scale)
    chain.post_ops.append(Eltwise(Algorithm.ROUND))
    chain.linear(back, ol)
    return chain


def _two_levels(limit: Array, low: Array, high: Array) -> _Chain:
    """The upper one above a limit and the lower one up to it, as in binary networks.

    What is above is made 1: the least difference of two numbers in f32, 2^-149, is far above 1
    after two multiplications. NumPy takes 0.6 ms for 50,000 elements that take 0.01 so.
    """
    chain, one, none = _Chain(), np.ones((1,) * limit.ndim), np.zeros((1,) * limit.ndim)
    chain.linear(np.ones_like(limit), -limit)
    chain.linear(_FAR * one, none)
    chain.linear(_FAR * one, none)
    chain.clip(none, one)
    chain.linear(high - low, low)
    return chain


def _primitive(
    builder: PlanBuilder, node: Node, post_ops: list[PostOp], operands: dict[int, Operand]
) -> bool:
    """A primitive that multiplies by 1 and does the rest as post-operations."""
    value = builder.value(node.inputs[0])
    if not value.in_reach:
        return False
    if value.strides is not None and not value.has_no_gaps:
        value = builder.dense(value)
    result = builder.new(value.descriptor)
    source, target = value, result
    alike = all(isinstance(o.source, np.ndarray) and o.source.size == 1 for o in operands.values())
    if value.strides is not None and alike:
        # In whatever order the elements lie: for some of four axes and more there is no code.
        source, target = (each.view((each.elements,), (1,)) for each in (value, result))
        post_ops = [_of_one_axis(post_op) for post_op in post_ops]
    rank = len(source.shape)
    one = Descriptor.dense((1,) * rank)
    layout = source.descriptor
    made = binary(Algorithm.BINARY_MUL, layout, one, layout, Attributes(post_ops))
    if made is None or made.is_reference or not _is_proved(builder, node, made, one, post_ops):
        return False
    arguments: dict[int, Value] = {
        Arg.SRC: source,
        Arg.SRC_1: builder.constant(np.ones((1,) * rank, np.float32)),
        Arg.DST: target,
    }
    for position, operand in operands.items():
        assert not isinstance(operand.source, Value)
        array = operand.source if source is value else operand.source.reshape(1)
        index = Arg.ATTR_POST_OP * (position + 1) | operand.argument
        arguments[index] = builder.constant(array)
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, (Arg.DST,)))
    builder.set(node.outputs[0], result)
    return True


def _of_one_axis(post_op: PostOp) -> PostOp:
    """The same for results of one axis, its operand being one element."""
    if isinstance(post_op, Binary):
        return Binary(post_op.algorithm, Descriptor.dense((1,)))
    return post_op


@lowers(QuantizeLinear)
def lower_quantize_linear(builder: PlanBuilder, node: Node) -> bool:
    """x / scale, rounded, plus the zero point, where both are one number, known or computed.

    NumPy takes 0.15 ms for the 300,000 elements that this does in 0.06 (1 thread, EPYC).
    """
    source, *parameters = node.inputs
    (target,) = node.outputs
    wanted = DATA_TYPES.get(target.element_type.dtype)
    if source.element_type is not ElementType.f32 or wanted not in (DataType.U8, DataType.S8):
        return False
    if any(port.shape is None or set(port.shape.static) - {1} for port in parameters):
        return False
    if _rounded(builder, node, wanted):
        return True
    value = builder.value(source)
    if not value.in_reach:
        return False
    if value.strides is None or not value.has_no_gaps:
        value = builder.dense(value)
    assert value.strides is not None
    rank = len(value.shape)
    numbers = [_number(builder, port, rank) for port in parameters]
    if any(number is None for number in numbers):
        return False
    one = Descriptor.dense((1,) * rank)
    post_ops: list[PostOp] = [Eltwise(Algorithm.ROUND)]
    post_ops += [Binary(Algorithm.BINARY_ADD, one) for _ in numbers[1:]]

    def make(source: Value) -> Primitive | None:
        assert source.strides is not None
        layout = Descriptor.strided(source.shape, source.strides, wanted)
        return binary(Algorithm.BINARY_DIV, source.descriptor, one, layout, Attributes(post_ops))

    made = make(value)
    if made is None or made.is_reference:  # an order of dimensions that has no kernel
        value = builder.dense(value)
        made = make(value)
    if made is None or made.is_reference or not _is_proved(builder, node, made, one, post_ops):
        return False
    result = builder.new(made.dst)
    arguments: dict[int, Value] = {Arg.SRC: value, Arg.DST: result}
    places = (Arg.SRC_1, Arg.ATTR_POST_OP * 2 | Arg.SRC_1)
    for place, number in zip(places, numbers, strict=False):
        assert number is not None
        arguments[place] = number
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, (Arg.DST,)))
    builder.set(target, result)
    return True


def _rounded(builder: PlanBuilder, node: Node, data_type: DataType) -> bool:
    """Let what computes the input round its results; the parameters are constant."""
    parameters = quantiser(node)
    held = builder.pending(node.inputs[0])
    if parameters is None or held is None:
        return False
    scale, zero, _ = parameters
    chain, ones = _Chain(), (1,) * (node.output.desc.rank or 0)
    chain.binary(Algorithm.BINARY_MUL, np.full(ones, 1 / scale, np.float32))
    if zero:
        # Halves go to the even one of the numbers before the zero point is added.
        chain.post_ops.append(Eltwise(Algorithm.ROUND))
        chain.binary(Algorithm.BINARY_ADD, np.full(ones, zero, np.float32))
    if not held.quantise(node, chain.post_ops, data_type, chain.operands):
        return False
    builder.release(node.inputs[0])
    builder.hold(node.output, held)
    return True


def _is_proved(
    builder: PlanBuilder, node: Node, made: Primitive, second: Descriptor, post_ops: list[PostOp]
) -> bool:
    """Whether a binary primitive with one number as its second source is right."""
    first = Algorithm.BINARY_DIV if isinstance(node.op, QuantizeLinear) else Algorithm.BINARY_MUL
    links = [Link(Binary(first, second), Arg.SRC_1, second, second.shape)]
    for position, post_op in enumerate(post_ops):
        links.append(Link.of(post_op, Arg.ATTR_POST_OP * (position + 1), made.dst.shape))
    reason = refusal(Claim(made, None, links))
    if reason:
        builder.refuse(node.name, reason)
    return not reason


def _number(builder: PlanBuilder, port: Port, rank: int) -> Value | None:
    """A value of one element in f32, with `rank` axes."""
    known = port.desc.constant
    if known is not None:
        return builder.constant(known.astype(np.float32).reshape((1,) * rank))
    value = builder.array_value(port)
    if value.dtype not in DATA_TYPES:
        return None
    value = value.view((1,) * rank, (1,) * rank)
    return builder.dense(value, np.dtype(np.float32))
