"""FakeQuantize: as post-operations of what computes its input, or of a primitive of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.quantize import FakeQuantize
from polydevice_cpu.lowering.table import lowers
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, PostOp
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitives import binary
from polydevice_cpu.plan.pending import Operand
from polydevice_cpu.plan.step import PrimitiveStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.builder import Builder


@lowers(FakeQuantize)
def lower_fake_quantize(builder: Builder, node: Node) -> bool:
    """Clip, scale, round, scale back; limits are constant, for all elements or per channel."""
    op = node.op
    assert isinstance(op, FakeQuantize)
    source, *limits = node.inputs
    (target,) = node.outputs
    if source.element_type is not ElementType.f32 or source.shape != target.shape:
        return False
    rank = source.desc.rank or 0
    arrays = [_aligned(port.desc.constant, rank) for port in limits]
    if any(array is None for array in arrays):
        return False
    steps = _steps(op.levels, *[a for a in arrays if a is not None])
    if steps is None:
        return False
    post_ops, operands = steps
    held = builder.pending(source)
    if held is not None and held.extend(node, post_ops, operands):
        builder.release(source)
        builder.hold(target, held)
        return True
    return _primitive(builder, node, post_ops, operands)


def _aligned(constant: Array | None, rank: int) -> Array | None:
    """The limit with one size per dimension, if it varies along channels at most."""
    if constant is None or constant.ndim > rank or rank < 1:
        return None
    array = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
    varies = [d for d in range(rank) if array.shape[d] != 1]
    return array if not varies or varies == [1] else None


def _steps(
    levels: int, low: Array, high: Array, out_low: Array, out_high: Array
) -> tuple[list[PostOp], dict[int, Operand]] | None:
    """The post-operations, and what they read by position."""
    il, ih, ol, oh = (np.asarray(a, np.float64) for a in (low, high, out_low, out_high))
    if not (np.isfinite([*map(np.sum, (il, ih, ol, oh))]).all() and (ih > il).all()):
        return None
    scale = (levels - 1) / (ih - il)
    back = (oh - ol) / (levels - 1)
    post_ops: list[PostOp] = []
    operands: dict[int, Operand] = {}

    def add(algorithm: Algorithm, array: Array) -> None:
        values = np.ascontiguousarray(array, np.float32)
        descriptor = Descriptor.dense(values.shape)
        operands[len(post_ops)] = Operand(Arg.SRC_1, values, descriptor)
        post_ops.append(Binary(algorithm, descriptor))

    def linear(factor: Array, summand: Array) -> None:
        if factor.size == 1 and summand.size == 1:
            post_ops.append(Eltwise(Algorithm.LINEAR, factor.item(), summand.item()))
        else:
            add(Algorithm.BINARY_MUL, factor)
            add(Algorithm.BINARY_ADD, summand)

    if il.size == 1 and ih.size == 1:
        post_ops.append(Eltwise(Algorithm.CLIP, il.item(), ih.item()))
    else:
        add(Algorithm.BINARY_MAX, il)
        add(Algorithm.BINARY_MIN, ih)
    linear(scale, -il * scale)
    post_ops.append(Eltwise(Algorithm.ROUND))
    linear(back, ol)
    return post_ops, operands


def _primitive(
    builder: Builder, node: Node, post_ops: list[PostOp], operands: dict[int, Operand]
) -> bool:
    """A primitive that multiplies by 1 and does the rest as post-operations."""
    value = builder.value(node.inputs[0])
    if not value.in_reach:
        return False
    if value.strides is not None and not _has_no_gaps(value):
        value = builder.dense(value)
    layout = value.descriptor
    one = np.ones((1,) * len(value.shape), np.float32)
    made = binary(
        Algorithm.BINARY_MUL,
        layout,
        Descriptor.dense(one.shape),
        layout,
        Attributes(post_ops),
    )
    if made is None or made.is_reference:
        return False
    result = builder.new(layout)
    arguments: dict[int, Value] = {
        Arg.SRC: value,
        Arg.SRC_1: builder.constant(one),
        Arg.DST: result,
    }
    for position, operand in operands.items():
        assert not isinstance(operand.source, Value)
        index = Arg.ATTR_POST_OP * (position + 1) | operand.argument
        arguments[index] = builder.constant(operand.source)
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, (Arg.DST,)))
    builder.set(node.outputs[0], result)
    return True


def _has_no_gaps(value: Value) -> bool:
    """Whether the elements fill a run of memory, in any order of dimensions."""
    assert value.strides is not None
    reach = sum((n - 1) * s for n, s in zip(value.shape, value.strides, strict=True)) + 1
    return reach == value.elements
