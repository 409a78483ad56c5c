"""Pointwise operations of two values: fused into what computes one of them, or a primitive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops import arithmetic
from polydevice.ops.activation import PRelu, slope_shape
from polydevice.ops.op import Op
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise
from polydevice.ops.softmax import SoftMax
from polydevice.shape import Shape, all_happen_to_be_equal, happen_to_be_equal
from polydevice.symbolic_size import is_symbolic
from polydevice.symbolic_trace import chosen
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.rows import elementwise
from polydevice_cpu.algorithms.precision import fits_f32
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.activation import apply
from polydevice_cpu.lowering.integers import operand_functions
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, PostOp, Prelu
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import (
    DATA_TYPES,
    Descriptor,
    meaningful_strides,
    row_major,
)
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import binary, prelu
from polydevice_cpu.plan.array_steps.small import with_code
from polydevice_cpu.plan.array_steps.start import writer
from polydevice_cpu.plan.building.pending import Flow, Make, Operand, Packed, Pending
from polydevice_cpu.plan.building.sight import AS_IS, Runs, Sight
from polydevice_cpu.plan.step import ArrayStep
from polydevice_cpu.plan.value import Value
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.proof import refusal

if TYPE_CHECKING:
    from polydevice.node import Node, Port
    from polydevice_cpu.plan.building.builder import PlanBuilder

ALGORITHMS: dict[type[Op], Algorithm] = {
    arithmetic.Add: Algorithm.BINARY_ADD,
    arithmetic.Subtract: Algorithm.BINARY_SUB,
    arithmetic.Multiply: Algorithm.BINARY_MUL,
    arithmetic.Divide: Algorithm.BINARY_DIV,
    arithmetic.Maximum: Algorithm.BINARY_MAX,
    arithmetic.Minimum: Algorithm.BINARY_MIN,
    arithmetic.SquaredDifference: Algorithm.BINARY_SUB,
}
_COMMUTATIVE = (arithmetic.Add, arithmetic.Multiply, arithmetic.Maximum, arithmetic.Minimum)


@lowers(*ALGORITHMS)
def lower_arithmetic(builder: PlanBuilder, node: Node) -> bool:
    """Fuse or emit a pointwise operation of two f32 values under NumPy's broadcasting."""
    assert isinstance(node.op, BinaryPointwise)
    (target,) = node.outputs
    numpy_rule = node.op.auto_broadcast is not AutoBroadcast.PDPD
    if target.element_type is not ElementType.f32 or not numpy_rule or not target.desc.is_static:
        return False
    return (
        _with_scalar(builder, node)
        or _fused(builder, node)
        or _in_runs(builder, node)
        or _binary_primitive(builder, node)
        or _by_numpy(builder, node)
    )


def _with_scalar(builder: PlanBuilder, node: Node) -> bool:
    """One input is a constant of one element: a function of the other."""
    a, b = node.inputs
    for source, other in ((a, b), (b, a)):
        constant = other.desc.constant
        if constant is None or constant.size != 1 or source.shape != node.outputs[0].shape:
            continue
        scalar = float(constant.reshape(-1)[0])
        functions = _scalar_functions(node.op, scalar, other is a)
        if not functions and source is a and scalar and _is_softened(builder, node):
            functions = [Eltwise(Algorithm.LINEAR, 1 / scalar, 0.0)] * fits_f32(1 / scalar)
        return bool(functions) and apply(builder, node, source, functions)
    return False


def _is_softened(builder: PlanBuilder, node: Node) -> bool:
    """Whether quotients, with a mask perhaps, are powers of e in the end: as scores of attention.

    These do not keep the last bits. Of four times 100x100 scores quotients take oneDNN 6 us behind
    a product, which takes 25, and products 1.
    """
    reader: Node | None = node
    while reader is not None and isinstance(reader.op, (arithmetic.Add, arithmetic.Divide)):
        reader = builder.reader(reader.output)
    is_quotient = isinstance(node.op, arithmetic.Divide)
    return is_quotient and reader is not None and isinstance(reader.op, SoftMax)


def _scalar_functions(op: Op, scalar: float, scalar_first: bool) -> list[Eltwise]:
    """The functions that are ``op(x, scalar)``, or ``op(scalar, x)``; none if there are none."""
    linear = Algorithm.LINEAR
    infinity = float("inf")
    match op:
        case arithmetic.Add():
            return [Eltwise(linear, 1.0, scalar)]
        case arithmetic.Subtract():
            return [Eltwise(linear, -1.0, scalar) if scalar_first else Eltwise(linear, 1, -scalar)]
        case arithmetic.Multiply():
            return [Eltwise(linear, scalar, 0.0)]
        case arithmetic.Divide():
            if scalar_first or not _is_power_of_two(scalar):
                return []
            return [Eltwise(linear, 1.0 / scalar, 0.0)]
        case arithmetic.Maximum():
            return [Eltwise(Algorithm.CLIP, scalar, infinity)]
        case arithmetic.Minimum():
            return [Eltwise(Algorithm.CLIP, -infinity, scalar)]
        case _:
            return [Eltwise(linear, 1.0, -scalar), Eltwise(Algorithm.SQUARE)]


def _is_power_of_two(value: float) -> bool:
    """Whether multiplying by the inverse is the same as dividing, to the last bit."""
    return value != 0 and np.frexp(value)[0] in (0.5, -0.5)


def _is_whole(port: Port, target: Port) -> bool:
    """Whether an input has the result's shape; what is made of one that has not takes that, too."""
    assert port.shape is not None
    assert target.shape is not None
    return all_happen_to_be_equal(port.shape.static, target.shape.static)


def _fused(builder: PlanBuilder, node: Node) -> bool:
    """Fuse into the primitive that computes one of the inputs."""
    a, b = node.inputs
    (target,) = node.outputs
    pairs = [(a, b)]
    if isinstance(node.op, (*_COMMUTATIVE, arithmetic.Subtract)):
        pairs.append((b, a))
    # What is computed anyway before what is only held as integers; and integers as operand.
    pairs.sort(key=lambda pair: builder.integers(pair[0]) is not None)
    for extend in (_extend_by_integers, _extend):
        for main, other in pairs:
            held = builder.pending(main)
            if held is None or not _is_whole(main, target) or main is other:
                continue
            if extend(builder, node, held, other, swapped=main is b):
                builder.fused(node, main, held)
                return True
    return False


def _extend_by_integers(
    builder: PlanBuilder, node: Node, held: Pending, other: Port, *, swapped: bool
) -> bool:
    if swapped and not isinstance(node.op, _COMMUTATIVE):
        return False
    applied = operand_functions(builder, held, other, ALGORITHMS[type(node.op)])
    return applied is not None and held.extend(node, *applied)


def _extend(builder: PlanBuilder, node: Node, held: Pending, other: Port, *, swapped: bool) -> bool:
    assert other.shape is not None
    rank = len(held.dst.shape)
    shape = (1,) * (rank - len(other.shape)) + other.shape.static
    constant = other.desc.constant
    is_sum = constant is not None and isinstance(node.op, arithmetic.Add)
    if is_sum and constant is not None and held.add_bias(node, constant.reshape(shape)):
        return True
    algorithm = ALGORITHMS[type(node.op)]
    post_ops: list[PostOp] = []
    if swapped and isinstance(node.op, arithmetic.Subtract):
        post_ops.append(Eltwise(Algorithm.LINEAR, -1.0, 0.0))
        algorithm = Algorithm.BINARY_ADD
    operand = _operand(builder, held, other, shape, constant)
    if operand is None:
        return False
    position = len(post_ops)
    post_ops.append(Binary(algorithm, operand.descriptor))
    if isinstance(node.op, arithmetic.SquaredDifference):
        post_ops.append(Eltwise(Algorithm.SQUARE))
    return held.extend(node, post_ops, {position: operand})


def _operand(
    builder: PlanBuilder, held: Pending, other: Port, shape: tuple[int, ...], constant: Array | None
) -> Operand | None:
    """What a post-operation reads: in the result's layout when it is as large, else dense."""
    dst = held.dst
    channels = dst.shape[1 % len(dst.shape)]
    if constant is not None and chosen(lambda: bool(constant.size <= channels * 64)):
        array = np.ascontiguousarray(constant.reshape(shape))
        return Operand(Arg.SRC_1, array, Descriptor.dense(shape, DATA_TYPES[array.dtype]))
    value = reshaped(builder, builder.value(other), shape)
    if not value.in_reach:
        return None
    if all_happen_to_be_equal(shape, dst.shape):
        return Operand(Arg.SRC_1, value, dst)
    return Operand(Arg.SRC_1, value, Descriptor.dense(shape, DATA_TYPES[value.dtype]))


def reshaped(builder: PlanBuilder, value: Value, shape: tuple[int, ...]) -> Value:
    """Return a value with sizes of 1 put in front."""
    if all_happen_to_be_equal(value.shape, shape):
        return value
    if value.strides is None:
        value = builder.dense(value)
    assert value.strides is not None
    added = len(shape) - len(value.shape)
    strides = (row_major(shape)[0],) * added + value.strides
    return value.view(shape, strides)


def _binary_primitive(builder: PlanBuilder, node: Node) -> bool:
    """A primitive of its own; the first source has the result's shape."""
    a, b = node.inputs
    (target,) = node.outputs
    assert target.shape is not None
    shape = target.shape.static
    if not _is_whole(a, target):
        if not _is_whole(b, target) or not isinstance(node.op, _COMMUTATIVE):
            return False
        a, b = b, a
    assert b.shape is not None
    left = builder.value(a)
    right = reshaped(builder, builder.value(b), (1,) * (len(shape) - len(b.shape)) + b.shape.static)
    if not left.in_reach or not right.in_reach:
        return False
    is_whole = all_happen_to_be_equal(right.shape, shape)
    if _has_few_channels_last(left) and not is_whole:
        left = builder.dense(left)
    layout = left.descriptor
    if is_whole:
        right = builder.in_layout(right, layout)
        second = layout  # not its own, which may differ from it in the strides of sizes of 1
    else:
        right = builder.dense(right)
        second = right.descriptor
    arguments: dict[int, Flow | Packed] = {Arg.SRC: Flow(left), Arg.SRC_1: Flow(right)}
    strides = left.strides if len(shape) > 2 and not happen_to_be_equal(right.shape[1], 1) else None
    by_rows = strides is not None and strides[1] == 1 and second is not layout
    by_rows = by_rows and not _is_by_machine(builder, shape)
    return _hold_binary(builder, node, arguments, layout, second, by_rows=by_rows)


def _is_by_machine(builder: PlanBuilder, shape: tuple[int, ...]) -> bool:
    """Whether our own code goes through rows of channels, for which no function is slow."""
    if any(map(is_symbolic, shape)) or builder.settings.is_alone:
        return False
    if openmp.thread_count() > 1 or not has_avx512():
        return False
    return elementwise.are_no_slower(math.prod(shape), math.prod(shape) // max(shape[1], 1))


FEW_CHANNELS = 12
"""Fewer that lie last are brought to lie first: a number for each of 3 in 160x160 takes oneDNN 220
us where they lie last, and 34 with bringing them there. Of 12 and more, convolutions want them
last."""


def _has_few_channels_last(value: Value) -> bool:
    if value.strides is None or len(value.shape) < 3 or is_symbolic(value.shape[1]):
        return False
    return value.strides[1] == 1 and 1 < value.shape[1] < FEW_CHANNELS


RUN = 64
"""Pixels, and channels from which on their own row is long enough: 224x224 pixels of 3 channels
take 0.03 ms in rows of 64 pixels, and 0.45 one by one (oneDNN 3.2, AVX-512)."""

SHORT, LONG = 16, 512
"""Numbers of a row at least and at most, where the pixels do not come in rows of 64."""


def _in_runs(builder: PlanBuilder, node: Node) -> bool:
    """A primitive on rows of many pixels, for a constant with one number for each of few channels.

    So pictures are normalised as they come, with their channels next to each other.
    """
    (target,) = node.outputs
    pairs = [node.inputs, node.inputs[::-1]][: 2 if isinstance(node.op, _COMMUTATIVE) else 1]
    for a, b in pairs:
        constant = b.desc.constant
        if constant is None or a.shape != target.shape or not 1 < constant.size < RUN:
            continue
        left = builder.value(a)
        constant = constant.reshape((1,) * (len(left.shape) - constant.ndim) + constant.shape)
        sight = _runs(left, constant.shape)
        layout = None if sight is None else sight.seen(left.descriptor, Arg.SRC)
        if sight is not None and layout is not None:
            packed = Packed(sight.constant(constant))
            second = Descriptor.dense(packed.array.shape, DATA_TYPES[constant.dtype])
            arguments: dict[int, Flow | Packed] = {Arg.SRC: Flow(left), Arg.SRC_1: packed}
            return _hold_binary(builder, node, arguments, layout, second, sight=sight)
    return False


def _runs(value: Value, constant: tuple[int, ...]) -> Runs | None:
    """How few channels are seen in rows of pixels; None where they do not lie so."""
    strides = value.strides
    if not value.in_reach or strides is None or not value.has_no_gaps:
        return None
    channels = max(constant)
    axis = constant.index(channels)
    if constant.count(1) < len(constant) - 1 or value.shape[axis] != channels or strides[axis] != 1:
        return None
    pixels = value.elements // channels
    copies = RUN
    if not happen_to_be_equal(pixels % RUN, 0):
        # So many of all, or of the next axis, come out even, for these sizes alone.
        count = pixels
        if is_symbolic(pixels):
            steps = zip(value.shape, strides, strict=True)
            count = next((n for n, step in steps if step == channels), 1)
        if is_symbolic(count):
            return None
        copies = max(n for n in range(1, max(LONG // channels, 1) + 1) if count % n == 0)
    is_long = copies > 1 and copies * channels >= SHORT
    return Runs(value.descriptor, axis, copies) if is_long else None


def _hold_binary(
    builder: PlanBuilder,
    node: Node,
    arguments: dict[int, Flow | Packed],
    layout: Descriptor,
    second: Descriptor,
    *,
    sight: Sight = AS_IS,
    by_rows: bool = False,
) -> bool:
    algorithm = ALGORITHMS[type(node.op)]
    head: list[PostOp] = []
    if isinstance(node.op, arithmetic.SquaredDifference):
        head.append(Eltwise(Algorithm.SQUARE))

    def make(post_ops: Sequence[PostOp], _bias: bool) -> Primitive | None:
        made = binary(algorithm, layout, second, layout, Attributes([*head, *post_ops]))
        return None if made is None or made.is_reference else made

    links = [Link(Binary(algorithm, second), Arg.SRC_1, second, second.shape), *map(Link, head)]
    return _hold(
        builder, node, make, arguments, layout, links, len(head), sight=sight, by_rows=by_rows
    )


def _by_numpy(builder: PlanBuilder, node: Node) -> bool:
    """Let NumPy compute in the order in which a source of the result's shape lies in memory.

    Channels next to each other, [1, 16, 20, 100] + [1, 16, 1, 100] are 20 rows of 1,600 numbers:
    4 us, where putting them into another order, adding 320 rows and going back takes 30.
    """
    write = writer(node.op)
    (target,) = node.outputs
    if write is None or target.shape is None:
        return False
    shape = target.shape.static
    if any(port.element_type is not ElementType.f32 for port in node.inputs):
        return False
    values = [builder.wide(builder.value(port)) for port in node.inputs]
    if not all(value.in_reach for value in values):
        return False
    whole = [value for value in values if all_happen_to_be_equal(value.shape, shape)]
    lead = next((value for value in whole if not value.is_dense and value.has_no_gaps), None)
    if lead is None or lead.strides is None:
        return False
    strides = lead.strides
    places = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    back = [places.index(axis) for axis in range(len(shape))]
    seen = []
    for value in values:
        own = (1,) * (len(shape) - len(value.shape)) + value.shape
        value = reshaped(builder, value, own)
        sizes = tuple(own[axis] for axis in places)
        steps = row_major(sizes)
        if value is not lead:
            wanted = Descriptor.strided(own, meaningful_strides(own, [steps[n] for n in back]))
            value = builder.in_layout(value, wanted)
        seen.append(value.view(sizes, steps))
    result = builder.new_dense(tuple(shape[axis] for axis in places), lead.dtype)
    start = with_code(node.op, write)
    builder.emit(ArrayStep(node.name, node.type, start, seen, [result], writes=True))
    builder.set(target, result.from_memory_order(places))
    return True


def _hold(
    builder: PlanBuilder,
    node: Node,
    make: Make,
    arguments: dict[int, Flow | Packed],
    layout: Descriptor,
    links: Sequence[Link],
    own_post_ops: int = 0,
    *,
    sight: Sight = AS_IS,
    by_rows: bool = False,
) -> bool:
    key = (node.name, "own primitive")
    primitive = None
    if builder.decisions.assumed(key) is None:
        primitive = make([], False)
        if primitive is None:
            return False
        reason = refusal(Claim(primitive, None, links))
        if reason:
            builder.refuse(node.name, reason)
            return False
        if primitive.dst == layout:
            builder.decisions.note(key, True)
    pending = Pending(
        node,
        make,
        arguments,
        primitive,
        builder.decisions,
        dst=layout,
        assumed=[key] if primitive is None else [],
        own_links=links,
        own_post_ops=own_post_ops,
        sight=sight,
        by_rows=by_rows,
    )
    builder.hold(node.outputs[0], pending)
    return True


@lowers(PRelu)
def lower_prelu(builder: PlanBuilder, node: Node) -> bool:
    """PReLU with a constant slope per channel: a post-operation, or a primitive."""
    source, slope = node.inputs
    (target,) = node.outputs
    constant = slope.desc.constant
    if target.element_type is not ElementType.f32 or constant is None or target.shape is None:
        return False
    shape = target.shape.static
    aligned = slope_shape(shape, Shape(constant.shape)).static
    if constant.size == 1:
        return apply(
            builder,
            node,
            source,
            [Eltwise(Algorithm.RELU, float(constant.reshape(-1)[0]))],
        )
    array = np.ascontiguousarray(constant.reshape((1,) * (len(shape) - len(aligned)) + aligned))
    channels = (1, shape[1] if len(shape) > 1 else 0, *[1] * (len(shape) - 2))
    held = builder.pending(source)
    if held is not None and array.shape == channels:
        operand = Operand(Arg.WEIGHTS, array.reshape(-1), Descriptor.dense((array.size,)))
        if held.extend(node, [Prelu(mask=2)], {0: operand}):
            builder.fused(node, source, held)
            return True
    value = builder.value(source)
    if not value.in_reach:
        return False
    layout, weights = value.descriptor, Descriptor.dense(array.shape)

    def make(post_ops: Sequence[PostOp], _bias: bool) -> Primitive | None:
        if post_ops:
            return None
        made = prelu(layout, weights, layout, Attributes())
        return None if made is None or made.is_reference else made

    mask = sum(1 << d for d, n in enumerate(array.shape) if n != 1)
    links = [Link(Prelu(mask), Arg.WEIGHTS, weights, array.shape)]
    arguments: dict[int, Flow | Packed] = {Arg.SRC: Flow(value), Arg.WEIGHTS: Packed(array)}
    return _hold(builder, node, make, arguments, layout, links)
