"""Values that are held as 8-bit integers, and pointwise functions of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.ops.reshape import Reshape
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.rewrites.integers.quantised import quantised
from polydevice.shape import all_happen_to_be_equal
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, PostOp
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import DATA_TYPES, Descriptor
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import binary
from polydevice_cpu.plan.building.integers import Integers
from polydevice_cpu.plan.building.pending import Flow, Narrow, Operand, Pending
from polydevice_cpu.plan.value import Value
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.proof import refusal

if TYPE_CHECKING:
    from polydevice.node import Port
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(DequantizeLinear)
def lower_dequantize_linear(builder: PlanBuilder, node: Node) -> bool:
    """Hold the integers until something reads the value; one scale and zero point for all."""
    found = quantised(node.output)
    if found is None:
        return False
    value = builder.value(found.integers)
    if not value.in_reach:
        return False
    if value.strides is None or not value.has_no_gaps:
        value = builder.dense(value)
    _hold(builder, node, value, found.scale, found.zero)
    return True


def _hold(builder: PlanBuilder, node: Node, value: Value, scale: float, zero: int) -> None:
    start = partial(_start, builder, node, value, scale, zero)
    builder.hold_integers(node.output, Integers(value, scale, zero, start))


def _start(
    builder: PlanBuilder, node: Node, value: Value, scale: float, zero: int
) -> Pending | None:
    """What computes the value in f32, or a function of it on integers: max(x, x), and so on.

    The maximum of a tensor and itself takes 0.14 ms for 1,000,000 u8 that lie channels-last, a
    product with one number 0.44 (AVX-512): oneDNN has no code for that.
    """
    assert value.strides is not None
    own: list[PostOp] = [Eltwise(Algorithm.LINEAR, 1.0, -zero)] if zero else []
    own.append(Eltwise(Algorithm.LINEAR, scale, 0.0))
    shape, strides = value.shape, value.strides
    kind = DATA_TYPES[value.dtype]

    def create(
        post_ops: Sequence[PostOp], _bias: bool, source: DataType, result: DataType
    ) -> Primitive | None:
        before, after = (Descriptor.strided(shape, strides, each) for each in (source, result))
        attributes = Attributes([*own, *post_ops])
        made = binary(Algorithm.BINARY_MAX, before, before, after, attributes)
        return None if made is None or made.is_reference else made

    def narrow(post_ops: Sequence[PostOp], bias: bool, result: DataType) -> Primitive | None:
        return create(post_ops, bias, kind, result)

    make = partial(create, source=DataType.F32, result=DataType.F32)
    primitive = make([], False)
    if primitive is None:
        return None

    def links_of(source: DataType) -> list[Link]:
        same = Descriptor.strided(shape, strides, source)
        first = Link(Binary(Algorithm.BINARY_MAX, same), Arg.SRC_1, same, shape)
        return [first, *map(Link, own)]

    links = links_of(DataType.F32)
    reason = refusal(Claim(primitive, None, links))
    if reason:
        builder.refuse(node.name, reason)
        return None
    source = Flow(value, Query.SRC)
    return Pending(
        node,
        make,
        {Arg.SRC: source, Arg.SRC_1: source},
        primitive,
        builder.decisions,
        own_links=links,
        own_post_ops=len(own),
        narrow=Narrow(narrow, links_of(kind)),
    )


def operand_functions(
    builder: PlanBuilder, held: Pending, other: Port, algorithm: Algorithm
) -> tuple[list[PostOp], dict[int, Operand]] | None:
    """Post-operations that apply a value held as integers of the result's shape; None: no way."""
    if other.shape is None or held.dst.strides is None:
        return None
    if not all_happen_to_be_equal(other.shape.static, held.dst.shape):
        return None
    found = builder.integers(other)
    zero = found.zero if found is not None else _rounded_zero(builder, other)
    if algorithm is not Algorithm.BINARY_ADD and not (
        algorithm is Algorithm.BINARY_MUL and zero == 0
    ):
        return None
    found = found or _rounded(builder, other)
    if found is None:
        return None
    scale, zero = found.scale, found.zero
    layout = Descriptor.strided(held.dst.shape, held.dst.strides, DATA_TYPES[found.value.dtype])
    binary_function = Binary(algorithm, layout)
    chain: list[PostOp]
    if algorithm is Algorithm.BINARY_ADD:
        # y / scale + integers - zero is of the integers' size: no digits are lost.
        chain = [Eltwise(Algorithm.LINEAR, 1 / scale, 0.0), binary_function]
        if zero:
            chain.append(Eltwise(Algorithm.LINEAR, 1.0, -zero))
        chain.append(Eltwise(Algorithm.LINEAR, scale, 0.0))
    else:
        chain = [binary_function, Eltwise(Algorithm.LINEAR, scale, 0.0)]
    return chain, {chain.index(binary_function): Operand(Arg.SRC_1, found.value, layout)}


def _rounded_zero(builder: PlanBuilder, port: Port) -> int | None:
    """The zero point of what is held back for a port, if it ends with a rounding."""
    held = builder.pending(port)
    return None if held is None or held.levels is None else held.levels.zero


def _rounded(builder: PlanBuilder, port: Port) -> Integers | None:
    """Emit what is held back for a port as the integers that it was rounded to."""
    held = builder.pending(port)
    levels = None if held is None else held.levels
    if held is None or levels is None or not held.round():
        return None
    node = held.node
    value = held.emit(builder)
    builder.release(port)
    start = partial(_start, builder, node, value, levels.scale, levels.zero)
    builder.hold_integers(port, Integers(value, levels.scale, levels.zero, start))
    return builder.integers(port)


_TO_F32 = Convert(destination_type=ElementType.f32)


def lower_in_float(builder: PlanBuilder, node: Node) -> None:
    """Compute a product of integers in f32, where oneDNN has no right code for integers."""
    op = node.operation(IntegerProduct)
    x, w, scale, zero, factor, *rest = node.inputs
    build = Emitter(node.name, origins=node.layers)
    value = build.emit(_TO_F32, x, name=f"{node.name}/f32")
    offset, numbers = zero.desc.constant, scale.desc.constant
    assert numbers is not None
    if offset is None:
        less = build.emit(_TO_F32, zero, name=f"{node.name}/zero")
        value = build.emit(Subtract(), value, less, name=f"{node.name}/less")
    elif offset.any():
        less = constant(f"{node.name}/zero", offset.astype(np.float32)).output
        value = build.emit(Subtract(), value, less, name=f"{node.name}/less")
    integers = w.desc.constant
    assert integers is not None
    weights = constant(f"{node.name}/w", builder.derived(integers, "f32", _wide)).output
    value = build.emit(op.product, value, weights, *rest, name=f"{node.name}/product")
    known = factor.desc.constant
    by = constant(f"{node.name}/scale", numbers if known is None else numbers * known.reshape(()))
    value = build.emit(Multiply(), value, by.output)
    if known is None:
        axes = constant(f"{node.name}/axes", np.zeros(0, np.int64)).output
        one = build.emit(Reshape(), factor, axes, name=f"{node.name}/factor")
        build.emit(Multiply(), value, one)
    builder.lower_instead(node.output, build.emitted)


def _wide(array: Array) -> Array:
    return array.astype(np.float32)
