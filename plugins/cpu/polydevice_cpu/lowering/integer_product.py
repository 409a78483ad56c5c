"""Convolutions and matrix products of 8-bit integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.ops.convolution import Convolution, ConvolutionBackpropData, ConvolutionLike
from polydevice.ops.matmul import MatMul
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.symbolic_size import largest
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.convolution.primitives import beside, by_rows, end_padding, two_axes
from polydevice_cpu.lowering.integers import lower_in_float
from polydevice_cpu.lowering.matmul import matrix, retyped, rows_together
from polydevice_cpu.onednn.attributes import Attributes, Binary, PostOp, Quantisation
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import DATA_TYPES, Descriptor
from polydevice_cpu.onednn.primitive import Primitive, built
from polydevice_cpu.onednn.primitives import convolution, deconvolution, matmul
from polydevice_cpu.plan.building.column import Order, orders, sight, turned
from polydevice_cpu.plan.building.pending import Basis, Flow, Narrow, Packed, Pending
from polydevice_cpu.plan.building.sight import AS_IS, Flat, Rows, Sight
from polydevice_cpu.plan.value import Value
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.proof import refusal

if TYPE_CHECKING:
    from polydevice.dtype import Array
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

Create = Callable[[DataType, DataType, DataType, Attributes, bool], "Primitive | None"]
"""(types of source, weights and result, attributes, with a bias?) → the primitive."""

Layout = Callable[[Sequence[int], DataType], Descriptor]
"""From sizes and a type to how a tensor lies in memory."""

_FEW = 4
"""Channels of results, see `_multiply_windows`."""
_SMALL_GROUP = 4
"""Channels of groups from which transposed windows in steps are faster on integers: of 16x16 to
32x32, 4x4 windows, 16 groups of 1, 2 and 4 channels took 0.37, 0.39 and 0.17 ms so, and 0.03, 0.18
and 0.18 in f32."""
_GEMM = "gemm_s8"
"""In the name of code that applies functions number by number: a transposed convolution to 16
channels of 160x160 took 225 ms with an addition fused, and 1 without."""
_ANY_ZERO = 3
"""What a primitive is tried with whose zero point is computed."""


@lowers(IntegerProduct, heavy=True)
def lower_integer_product(builder: PlanBuilder, node: Node) -> bool:
    """Multiply integers with oneDNN; where it has no right code for them, in f32."""
    op = node.operation(IntegerProduct)
    weights = node.inputs[1].desc.constant
    if weights is None or node.inputs[2].desc.constant is None:
        return False
    shape = node.output.shape
    if shape is None or not shape.is_static or 0 in (*shape, *weights.shape):
        return False
    value = builder.value(node.inputs[0])
    held = value.in_reach and (
        _multiply(builder, node, value, weights)
        if isinstance(op.product, MatMul)
        else _multiply_windows(builder, node, value, weights)
        or any(_convolve(builder, node, value, weights, order) for order in orders(node))
    )
    if not held:
        lower_in_float(builder, node)
    return True


def _convolve(builder: PlanBuilder, node: Node, value: Value, weights: Array, order: Order) -> bool:
    assert isinstance(node.op, IntegerProduct)
    op = node.op.product
    assert isinstance(op, ConvolutionLike)
    assert node.output.shape is not None
    window = op.window(weights.shape)
    result = node.output.shape.static
    sizes, wanted = value.shape[2:], result[2:]
    form: Callable[..., Primitive | None] = convolution
    if isinstance(op, ConvolutionBackpropData):
        if op.grouped and max(weights.shape[1:3]) < _SMALL_GROUP and max(window.strides) > 1:
            builder.refuse(node.name, "transposed windows of few channels take less time in f32")
            return False
        first = 1 if op.grouped else 0
        weights = np.swapaxes(weights, first, first + 1)
        form, begin = deconvolution, tuple(op.crops(sizes, window, wanted))
        end = tuple(
            stride * (size - 1) + int(extent) - start - out
            for size, stride, extent, start, out in zip(
                sizes, window.strides, window.extent, begin, wanted, strict=True
            )
        )
        if min(end) < -min(window.strides) or min(begin) < 0:
            return False
    else:
        assert isinstance(op, Convolution)
        begin = tuple(window.pads(sizes)[0])
        end = end_padding(window, sizes, wanted, begin)
        if two_axes(op, window, begin, end) is not None:
            # 3x1x1 windows take 0.1 ms so, and 2.2 on integers.
            builder.refuse(node.name, "as one of two axes in f32 it takes less time")
            return False
    steps: list[Sequence[int]] = [window.strides, window.dilations, begin, end]
    blocks = None if form is deconvolution else _in_blocks(value, weights, steps, wanted)
    if blocks is not None:
        value, weights, steps = blocks
    seen = np.swapaxes(weights, -1, -2) if order is turned else weights
    geometry = [order(each) for each in steps]

    def create(
        source: DataType, kind: DataType, to: DataType, attributes: Attributes, bias: bool
    ) -> Primitive | None:
        def made(layout: Layout) -> Primitive | None:
            return form(
                layout(order(value.shape), source),
                Descriptor.any(seen.shape, kind),
                Descriptor.dense((result[1],)) if bias else None,
                layout(order(result), to),
                *geometry,
                attributes,
            )

        # oneDNN likes bytes best so, and layouts that are told serve other sizes, too.
        last = None if kind is DataType.F32 else made(Descriptor.channels_last)
        return made(Descriptor.any) if last is None or last.is_reference else last

    mask = 3 if op.grouped else 1
    # What no window reaches at an end is none of the code's business, and changes with the sizes.
    *others, last = geometry
    told = [*others, [largest((0, each)) for each in last]]
    text = f"{form.__name__} {list(seen.shape[-window.rank :])} {told}"
    flow = Flow(value, Query.SRC)
    channels = (1, result[1], *[1] * (len(result) - 2))
    return _hold(builder, node, create, flow, seen, mask, channels, text, sight(order))


def _in_blocks(
    value: Value, weights: Array, steps: Sequence[Sequence[int]], wanted: Sequence[int]
) -> tuple[Value, Array, list[Sequence[int]]] | None:
    """See one channel [N, 1, L], convolved with a stride, as that many channels [N, stride, T].

    Where the window is a multiple of the stride this is the same sum, and oneDNN multiplies several
    channels at once: 258 windows of 256 numbers with a stride of 128 took 176 us, and so 26.

    Args:
        value: the source.
        weights: [O, 1, window].
        steps: strides, dilations, padding before and after.
        wanted: sizes of the result.

    Returns:
        what to read, multiply with, and the steps instead; None where that is not possible.
    """
    strides, dilations, begin, end = (tuple(each) for each in steps)
    if len(strides) != 1 or value.strides is None or value.shape[1:2] != (1,):
        return None
    stride, length = strides[0], weights.shape[-1]
    if stride < 2 or length % stride or dilations != (1,) or begin != (0,) or max(end) > 0:
        return None
    count = wanted[0] - 1 + length // stride
    outer, _, inner = value.strides
    shape = value.shape[0], stride, count
    seen = value.view(shape, (outer, inner, inner * stride))
    blocks = weights.reshape(len(weights), -1, stride).swapaxes(1, 2)
    return seen, blocks, [(1,), (1,), (0,), (0,)]


def _multiply_windows(builder: PlanBuilder, node: Node, value: Value, weights: Array) -> bool:
    """A transposed convolution to few channels whose windows lie side by side, as a product.

    As in f32; there are few, since one number per channel is not fused then, and oneDNN computes
    at least 16: 16 channels of 160x160 to one of 320x320 took 1.5 ms, and so 0.74.
    """
    assert isinstance(node.op, IntegerProduct)
    op = node.op.product
    shape = node.output.shape
    if not isinstance(op, ConvolutionBackpropData) or shape is None or weights.shape[1] > _FEW:
        return False
    sizes, wanted = value.shape[2:], shape.static[2:]
    if not beside(op, weights, sizes, wanted):
        return False
    packed = builder.derived(weights, "rows of a transposed convolution", by_rows)
    batch, last = value.shape[0] * math.prod(sizes[:-1]), packed.shape[-1]
    seen = (batch, 1, sizes[-1], len(weights)), (batch, packed.shape[1], sizes[-1], last)

    def create(
        source: DataType, kind: DataType, to: DataType, attributes: Attributes, bias: bool
    ) -> Primitive | None:
        return matmul(
            Descriptor.dense(seen[0], source),
            Descriptor.any(packed.shape, kind),
            Descriptor.dense((1, 1, 1, last)) if bias else None,
            Descriptor.dense(seen[1], to),
            attributes,
        )

    rows = Rows(
        (Descriptor.channels_last(value.shape), Descriptor.dense(seen[0])),
        (Descriptor.channels_last(shape.static), Descriptor.dense(seen[1])),
    )
    channels = (1, shape.static[1], *[1] * len(sizes))
    flow = Flow(value, Query.SRC)
    return _hold(builder, node, create, flow, packed, 1 << 3, channels, "matmul", rows)


def _multiply(builder: PlanBuilder, node: Node, value: Value, weights: Array) -> bool:
    assert isinstance(node.op, IntegerProduct)
    op = node.op.product
    assert isinstance(op, MatMul)
    assert node.output.shape is not None
    shape = node.output.shape.static
    rank = len(shape)
    if min(len(value.shape), weights.ndim) < 2:
        return False
    left = matrix(builder, value, rank, transpose=op.transpose_a)
    right = np.swapaxes(weights, -1, -2) if op.transpose_b else weights
    right = right.reshape((1,) * (rank - right.ndim) + right.shape)
    if not left.in_reach:
        return False
    together = rows_together(right, shape)
    if together or left.strides is None or left.strides[-1] != 1:
        left = builder.dense(left)
    strides, result = left.strides, shape
    assert strides is not None
    read = Descriptor.strided(left.shape, strides, DATA_TYPES[left.dtype])
    seen: Sight = AS_IS
    if together:
        seen = flat = Flat(left.shape, shape)
        read, result = Descriptor.dense(flat.sizes(left.shape), read.data_type), flat.sizes(shape)
        right = right.reshape(right.shape[-2:])
    last = len(result) - 1

    def create(
        source: DataType, kind: DataType, to: DataType, attributes: Attributes, bias: bool
    ) -> Primitive | None:
        return matmul(
            retyped(read, source),
            Descriptor.any(right.shape, kind),
            Descriptor.dense((1,) * last + shape[-1:]) if bias else None,
            Descriptor.dense(result, to),
            attributes,
        )

    columns = (1,) * (rank - 1) + shape[-1:]
    flow = Flow(left, Query.SRC)
    return _hold(builder, node, create, flow, right, 1 << last, columns, "matmul", seen)


def _hold(
    builder: PlanBuilder,
    node: Node,
    create: Create,
    source: Flow,
    weights: Array,
    mask: int,
    outputs: tuple[int, ...],
    window: str,
    seen: Sight = AS_IS,
) -> bool:
    """Hold the primitive back, if it is right; `outputs` is the shape of one number per output."""
    scale, zero, factor = (port.desc.constant for port in node.inputs[2:5])
    assert scale is not None
    scales = _scales(scale, factor, seen)
    single = scales.size == 1
    kind = DATA_TYPES[source.value.dtype]
    quantisation = [Quantisation(Arg.WEIGHTS, 0 if single else mask)]
    has_zero = zero is None or bool(zero.any())
    if has_zero or factor is None:
        masks = (0 if factor is None else None, 0 if has_zero else None)
        quantisation.append(Quantisation(Arg.SRC, *masks))

    def narrow(post_ops: Sequence[PostOp], bias: bool, to: DataType) -> Primitive | None:
        made = create(kind, DataType.S8, to, Attributes(post_ops, quantisation), bias)
        if made is None or made.is_reference or (post_ops and _GEMM in made.implementation):
            return None
        return made

    def make(post_ops: Sequence[PostOp], bias: bool) -> Primitive | None:
        return narrow(post_ops, bias, DataType.F32)

    def base() -> Primitive:
        return built(create(DataType.F32, DataType.F32, DataType.F32, Attributes(), False))

    primitive = make([], False)
    if primitive is None:
        builder.refuse(node.name, "oneDNN has no code for these integers")
        return False
    memory = Descriptor.dense(scales.shape)
    argument = Arg.ATTR_SCALES | Arg.WEIGHTS
    axes = len(outputs if seen.sees_channels else primitive.dst.shape)
    shape = (1,) * axes if single else outputs
    shape = shape if seen.sees_channels else (1,) * (axes - 1) + (scales.size,)
    links = [Link(Binary(Algorithm.BINARY_MUL, memory), argument, memory, shape)]
    if factor is None:
        one, place = Descriptor.dense((1,)), Arg.ATTR_SCALES | Arg.SRC
        ones = (1,) * axes
        links.append(Link(Binary(Algorithm.BINARY_MUL, one), place, one, ones))
    offset = _ANY_ZERO if zero is None else int(zero.reshape(-1)[0])
    reason = refusal(Claim(primitive, base, links, offset, window))
    if reason:
        builder.refuse(node.name, reason)
        return False
    arguments: dict[int, Flow | Packed] = {
        Arg.SRC: source,
        Arg.WEIGHTS: Packed(weights, Query.WEIGHTS),
        argument: Packed(scales),
    }
    if zero is None:
        computed = builder.array_value(node.inputs[3])
        arguments[Arg.ATTR_ZERO_POINTS | Arg.SRC] = Flow(computed.view((1,), (1,)))
    if factor is None:
        computed = builder.array_value(node.inputs[4])
        arguments[Arg.ATTR_SCALES | Arg.SRC] = Flow(computed.view((1,), (1,)))
    if offset and zero is not None:
        arguments[Arg.ATTR_ZERO_POINTS | Arg.SRC] = Packed(zero.astype(np.int32).reshape(1))
    pending = Pending(
        node,
        make,
        arguments,
        primitive,
        builder.decisions,
        bias_shape=outputs,
        sight=seen,
        basis=Basis(base, links, offset, window),
        narrow=Narrow(narrow),
    )
    builder.hold(node.outputs[0], pending)
    return True


def _scales(scale: Array, factor: Array | None, seen: Sight) -> Array:
    """One number for all, or one for each channel of what the primitive sees."""
    scales = np.ascontiguousarray(scale, np.float32).reshape(-1)
    if factor is not None:
        scales = scales * factor.astype(np.float32).reshape(())
    return scales if scales.size == 1 else np.tile(scales, seen.copies)
