"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.convolution import (
    Convolution,
    ConvolutionBackpropData,
    ConvolutionLike,
    GroupConvolution,
    GroupConvolutionBackpropData,
)
from polydevice.ops.window import Window
from polydevice.shape import bounds
from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.convolution import digits, groups
from polydevice_cpu.lowering.convolution.depthwise import is_by_machine, replacement
from polydevice_cpu.lowering.convolution.groups import is_as_good
from polydevice_cpu.onednn.attributes import Attributes, Binary, PostOp
from polydevice_cpu.onednn.constants import Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import convolution, deconvolution, matmul
from polydevice_cpu.plan.building.column import Order, as_is, orders, sight, turned
from polydevice_cpu.plan.building.pending import Flow, Make, Packed, Pending
from polydevice_cpu.plan.building.sight import Merged, Rows
from polydevice_cpu.plan.holding import hold_seen
from polydevice_cpu.plan.replacement import Replacement
from polydevice_cpu.plan.result_types import READERS, is_read_in_f32

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

Sizes = tuple[int, ...]

PRODUCT_BYTES = 1 << 17
"""Up to which transposed convolutions become products: the weights are read for every row."""

SHORT_ROW = 4
"""Numbers of a row up to which functions behind a product are computed by themselves: where a row
has two, a logistic function of 73,728 numbers takes 350 us within the product, and 40 alone."""

NO_TILES = 30
"""Terms up to which oneDNN's products take no AMX tiles, and are slower in bfloat16 than in f32."""


@lowers(Convolution, GroupConvolution, heavy=True)
def lower_convolution(builder: PlanBuilder, node: Node) -> bool:
    """Convolve in the layouts that oneDNN chooses; weights may be constant or computed."""
    weights = weights_of(builder, node)
    if weights is None:
        return False
    if isinstance(weights, Packed) and _convolve_two_axes(builder, node, weights.array):
        return True
    return any(_convolve(builder, node, weights, order) for order in orders(node))


def _convolve(builder: PlanBuilder, node: Node, weights: Flow | Packed, order: Order) -> bool:
    op = node.operation(Convolution)
    window = op.window(node.inputs[1].shape or ())
    sizes = _sizes(node)
    begin, _ = window.pads(sizes)
    end = end_padding(window, sizes, _output_sizes(node), begin)
    weights_shape = node.inputs[1].shape
    assert weights_shape is not None
    last = _channels_last(builder, node, order)
    wanted = Descriptor.any(order(weights_shape.static), last[0].data_type)
    channels = Descriptor.dense((last[1].shape[1],))
    strides, dilations = order(window.strides), order(window.dilations)
    before, behind = order(begin), order(end)

    def make(post_ops: Sequence[PostOp], bias: bool) -> Primitive | None:
        attributes = Attributes(post_ops)

        def create(source: Descriptor, result: Descriptor) -> Primitive | None:
            given = channels if bias else None
            return convolution(
                *(source, wanted, given, result, strides, dilations, before, behind, attributes)
            )

        made = _best(builder, node, create, order, last, (*map(type, post_ops), bias))
        if (
            made is not None
            and made.implementation.startswith("x64:gemm")
            and any(isinstance(post_op, Binary) for post_op in post_ops)
        ):
            # What oneDNN 3.2 takes for groups when a tensor is fused. In bf16 it computes nonsense
            # then (measured: a product of 0 where 23.7 is right), in f32 element by element: a
            # grouped 1x1 of ShuffleNet took 50 ms with a normalisation fused.
            return None
        return made

    other = replacement(builder, node) or groups.replacement(builder, node)
    if order is as_is:
        other = other or digits.replacement(builder, node)
    return _hold(builder, node, make, weights, order, last, by_machine=other)


def two_axes(
    op: ConvolutionLike, window: Window, begin: Sequence[int], end: Sequence[int]
) -> slice | None:
    """The two axes that the windows of a grouped convolution of three span; None for others.

    The first two where the last two may be one, the last two where the first one may be batch.
    """
    if not op.grouped or window.rank != 3:
        return None
    first, *others = (
        each != (1, 1, 0, 0) for each in zip(window.kernel, window.strides, begin, end, strict=True)
    )
    if first and any(others):
        return None
    return slice(1, 3) if any(others) else slice(0, 2)


def _convolve_two_axes(builder: PlanBuilder, node: Node, weights: Array) -> bool:
    """A grouped convolution as one of two axes: of three whose windows span one or two, and of one.

    For groups of three axes, and for depthwise windows of one, oneDNN 3.2 multiplies matrices, each
    group's by itself.
    """
    op = node.operation(Convolution)
    sizes = _sizes(node)
    window = op.window(weights.shape)
    begin, _ = window.pads(sizes)
    end = end_padding(window, sizes, _output_sizes(node), begin)
    is_row = op.grouped and window.rank == 1 and weights.shape[2] == 1
    kept = slice(0, 1) if is_row else two_axes(op, window, begin, end)
    if kept is None:
        return False
    into_batch = kept.start == 1
    more = (1,) if is_row else ()
    strides, dilations = (*more, *window.strides[kept]), (*more, *window.dilations[kept])
    none = (0,) * len(more)
    before, behind = (*none, *begin[kept]), (*none, *end[kept])
    # Of the last two, one spans nothing.
    kernel = weights.reshape(*weights.shape[: -window.rank], *more, *window.kernel[kept])
    network = _channels_last(builder, node, as_is)
    merged = Merged(network[0].shape, network[1].shape, into_batch=into_batch)
    kind = network[0].data_type
    source, result = (Descriptor.channels_last(merged.sizes(each.shape), kind) for each in network)

    def make(post_ops: Sequence[PostOp], bias: bool) -> Primitive | None:
        made = convolution(
            source,
            Descriptor.any(kernel.shape, kind),
            Descriptor.dense((result.shape[1],)) if bias else None,
            result,
            strides,
            dilations,
            before,
            behind,
            Attributes(post_ops),
        )
        is_slow = made is None or made.is_reference or made.implementation.startswith("x64:gemm")
        return None if is_slow else made

    return hold_seen(
        *(builder, node, "two axes", make, builder.value(node.inputs[0]), kernel, result),
        (1, result.shape[1], *[1] * len(sizes)),
        merged,
    )


@lowers(ConvolutionBackpropData, GroupConvolutionBackpropData, heavy=True)
def lower_deconvolution(builder: PlanBuilder, node: Node) -> bool:
    """Transposed convolution; its weights are [C, O, …] here and [O, C, …] in oneDNN."""
    op = node.operation(ConvolutionBackpropData)
    weights = weights_of(builder, node)
    if weights is None or not isinstance(weights, Packed):
        return False
    if _multiply(builder, node, weights.array):
        return True
    first = 1 if op.grouped else 0
    packed = Packed(np.swapaxes(weights.array, first, first + 1), Query.WEIGHTS)
    return any(_deconvolve(builder, node, packed, order) for order in orders(node))


def _deconvolve(builder: PlanBuilder, node: Node, weights: Packed, order: Order) -> bool:
    op = node.operation(ConvolutionBackpropData)
    window = op.window(node.inputs[1].shape or ())
    sizes, wanted = _sizes(node), _output_sizes(node)
    begin = op.crops(sizes, window, wanted)
    end = []
    for size, stride, extent, start, out in zip(
        sizes, window.strides, window.extent, begin, wanted, strict=True
    ):
        assert isinstance(extent, int)
        end.append(stride * (size - 1) + extent - start - out)
    if min(end) < -min(window.strides) or min(begin) < 0:
        return False
    last = _channels_last(builder, node, order)

    def make(post_ops: Sequence[PostOp], bias: bool) -> Primitive | None:
        attributes = Attributes(post_ops)

        def create(source: Descriptor, result: Descriptor) -> Primitive | None:
            return deconvolution(
                source,
                Descriptor.any(order(weights.array.shape), source.data_type),
                Descriptor.dense((result.shape[1],)) if bias else None,
                result,
                order(window.strides),
                order(window.dilations),
                order(begin),
                order(end),
                attributes,
            )

        made = _best(builder, node, create, order, last, (*map(type, post_ops), bias))
        if made is not None and made.implementation.startswith("conv:") and (post_ops or bias):
            # Built on the gradient of a convolution; what is fused into it runs as plain loops
            # (measured: 29 us without, 1.2 ms with a bias, 12 ms with ReLU).
            return None
        return made

    # Fused functions are applied too often by oneDNN 3.2 where many taps meet in a result.
    text = f"kernel {window.kernel} strides {window.strides} dilations {window.dilations}"
    return _hold(builder, node, make, weights, order, last, text)


def beside(
    op: ConvolutionBackpropData, weights: Array, sizes: Sequence[int], wanted: Sequence[int]
) -> bool:
    """Whether windows of one or two axes lie side by side, more than one number each."""
    window = op.window(weights.shape)
    if op.grouped or len(sizes) > 2 or math.prod(window.strides) == 1:
        return False
    if not window.kernel == window.extent == window.strides or any(op.crops(sizes, window, wanted)):
        return False
    return tuple(wanted) == tuple(n * step for n, step in zip(sizes, window.strides, strict=True))


def by_rows(weights: Array) -> Array:
    """Weights [C, O, rows, columns] of windows side by side as matrices [1, rows, C, columns*O]."""
    grid = weights.reshape(*weights.shape[:2], -1, weights.shape[-1])
    rows, source, columns, result = (grid.shape[n] for n in (2, 0, 3, 1))
    made = np.ascontiguousarray(grid.transpose(2, 0, 3, 1))
    return made.reshape(1, rows, source, columns * result)


def _is_product(node: Node, weights: Array) -> bool:
    """Whether a transposed convolution is computed as a matrix product."""
    op = node.operation(ConvolutionBackpropData)
    is_small = weights.nbytes <= PRODUCT_BYTES
    return is_small and beside(op, weights, _sizes(node), _output_sizes(node))


def _multiply(builder: PlanBuilder, node: Node, weights: Array) -> bool:
    """A transposed convolution whose windows lie side by side: as a matrix product.

    Channels-last, row h of the source times the weights of kernel row a is row h * stride + a of
    the result: [N*H, 1, W, C] x [1, A, C, B*O] is [N*H, A, W, B*O], the very bytes of
    [N, H*A, W*B, O]. This runs in 0.2 to 1 of the time of oneDNN's own, and takes 0.5 ms to make
    for unseen sizes instead of 2 to 15; only weights that no cache holds are better there.
    """
    op = node.operation(ConvolutionBackpropData)
    if not _is_product(node, weights):
        return False
    sizes, channels = _sizes(node), weights.shape[1]
    (*_, rows, columns) = (1, *op.window(weights.shape).strides)
    packed = builder.derived(weights, "rows of a transposed convolution", by_rows)
    network = _channels_last(builder, node, as_is)
    batch = network[0].shape[0] * math.prod(sizes[:-1])
    kind = network[0].data_type
    source = Descriptor.dense((batch, 1, sizes[-1], weights.shape[0]), kind)
    result = Descriptor.dense((batch, rows, sizes[-1], columns * channels), kind)

    def make(post_ops: Sequence[PostOp], bias: bool) -> Primitive | None:
        made = matmul(
            source,
            Descriptor.any(packed.shape, kind),
            Descriptor.dense((1, 1, 1, columns * channels)) if bias else None,
            result,
            Attributes(post_ops),
        )
        return None if made is None or made.is_reference else made

    return hold_seen(
        *(builder, node, "product", make, builder.value(node.inputs[0]), packed, result),
        (1, channels, *[1] * len(sizes)),
        Rows((network[0], source), (network[1], result)),
        by_rows=columns * channels <= SHORT_ROW,
    )


def weights_of(builder: PlanBuilder, node: Node) -> Flow | Packed | None:
    """The weights as an argument of a primitive; None where oneDNN does not compute the node."""
    data, weights = node.inputs[:2]
    if data.element_type is not ElementType.f32 or not node.outputs[0].desc.is_static:
        return None
    if 0 in node.outputs[0].desc.shape or 0 in data.desc.shape:  # type: ignore[operator]
        return None
    constant = weights.desc.constant
    if constant is not None:
        return Packed(constant, Query.WEIGHTS)
    value = builder.value(weights)
    return Flow(value, Query.WEIGHTS) if value.in_reach else None


def _hold(
    builder: PlanBuilder,
    node: Node,
    make: Make,
    weights: Flow | Packed,
    order: Order,
    layouts: tuple[Descriptor, Descriptor],
    window: str = "",
    by_machine: Replacement | None = None,
) -> bool:
    last = layouts[1]
    key = (node.name, "convolution", order is turned)
    primitive = None
    if builder.decisions.assumed(key) is None:
        primitive = make([], False)
        if primitive is None:
            return False
        if primitive.dst == last:
            builder.decisions.note(key, True)
    if order is turned and isinstance(weights, Packed):
        weights = Packed(np.swapaxes(weights.array, -1, -2), weights.query)
    source = builder.value(node.inputs[0])
    rank = len(source.shape)
    pending = Pending(
        node,
        make,
        {Arg.SRC: Flow(source, Query.SRC), Arg.WEIGHTS: weights},
        primitive,
        builder.decisions,
        dst=last,
        assumed=[key] if primitive is None else [],
        bias_shape=(1, last.shape[1], *[1] * (rank - 2)),
        sight=sight(order),
        window=window,
        replacement=by_machine,
    )
    builder.hold(node.outputs[0], pending)
    return True


Create = Callable[[Descriptor, Descriptor], "Primitive | None"]
"""(source, result) → the primitive for these layouts."""


def _best(
    builder: PlanBuilder,
    node: Node,
    create: Create,
    order: Order,
    last: tuple[Descriptor, Descriptor],
    what: tuple[object, ...],
) -> Primitive | None:
    """The primitive in the layouts oneDNN likes best, channels-last where that costs nothing.

    For some cases oneDNN prefers channels in blocks of 16 although the same code is as fast
    channels-last (within 10 % on every case measured), which spares reorders around it. Where it
    was so for other sizes, oneDNN is not asked again, as long as it has the same code.
    """
    key = (node.name, "channels last", order is turned, what)
    known = builder.decisions.assumed(key)
    if known is not None:
        other = create(*last)
        if other is not None and other.implementation == known:
            return other
        builder.decisions.vary([key])
    any_ = [Descriptor.any(each.shape, each.data_type) for each in last]
    made = create(*any_)
    if made is None or made.is_reference:
        return None
    if made.src == last[0] and made.dst == last[1]:
        builder.decisions.note(key, made.implementation)
        return made
    other = create(*last)
    if other is None or not is_as_good(other, made, node):
        return made
    builder.decisions.note(key, made.implementation)
    return other


def _channels_last(builder: PlanBuilder, node: Node, order: Order) -> tuple[Descriptor, Descriptor]:
    """The source and the result with channels next to each other, as the primitive sees them."""
    heavy = _element_type(builder, node)
    shapes = (node.inputs[0].shape, node.outputs[0].shape)
    source, result = (order(shape.static) for shape in shapes if shape is not None)
    is_wide = type(node.op) is Convolution and is_read_in_f32(builder, node, _READERS)
    made = DataType.F32 if is_wide else heavy
    return Descriptor.channels_last(source, heavy), Descriptor.channels_last(result, made)


def _reads_wide(builder: PlanBuilder, node: Node) -> bool:
    is_wide = _is_narrow(node) or _is_slow_in_groups(builder, node)
    return is_wide and not is_by_machine(builder, node)


_READERS = {GroupConvolution: _reads_wide, ConvolutionBackpropData: _reads_wide, **READERS}


def _element_type(builder: PlanBuilder, node: Node) -> DataType:
    """The type to compute in: f32 for one input channel, where bf16 is up to 8 times slower.

    And for groups of one: a network for hands takes 2.2 ms so, 3.0 with those in bf16, 2.2 in f32
    alone; in f16 they are 10 to 20 times slower (oneDNN 3.2, a Xeon with AMX). And for transposed
    convolutions that are products of few terms: 24 channels of 48x96 to 24 181 instead of 245 us.
    """
    is_wide = _is_narrow(node) or _is_slow_in_groups(builder, node)
    return DataType.F32 if is_wide else builder.heavy_type(node)


def _is_narrow(node: Node) -> bool:
    """Whether there is one input channel, in all or in each group, or a product has few terms."""
    if isinstance(node.op, ConvolutionBackpropData):
        known = node.inputs[1].desc.constant
        return known is not None and len(known) <= NO_TILES and _is_product(node, known)
    source, weights = node.inputs[0].shape, node.inputs[1].shape
    if source is not None and source[1] == 1:
        return True
    return isinstance(node.op, GroupConvolution) and weights is not None and weights[2] == 1


SLOW = "jit_bf16:", "x64:gemm"
"""oneDNN's code for groups in bfloat16 that takes 1.5 to 2 times as long as the one in f32."""


def _is_slow_in_groups(builder: PlanBuilder, node: Node) -> bool:
    """Whether oneDNN has no good code in bfloat16 for groups of a few channels.

    32 groups of 4 channels, 3x3 over 28x28: 244 us, in f32 143; 16 of 12, 128 terms: 590 and 302.
    Groups of other sizes (6, 48) are multiplied by tiles.
    """
    weights = node.inputs[1].shape
    if builder.settings.heavy is not DataType.BF16 or not isinstance(node.op, GroupConvolution):
        return False
    sizes, wanted = _sizes(node), _output_sizes(node)
    if weights is None or any(map(is_symbolic, (*sizes, *wanted, *weights))):
        return False
    window = node.op.window(weights)
    begin, _ = window.pads(sizes)
    end = end_padding(window, sizes, wanted, begin)
    shapes = (node.inputs[0].shape, node.output.shape)
    given, made = (shape.static for shape in shapes if shape is not None)
    steps, gaps = tuple(window.strides), tuple(window.dilations)
    return _is_slow(given, weights.static, made, steps, gaps, tuple(begin), tuple(end))


@lru_cache(maxsize=256)
def _is_slow(
    given: Sizes,
    weights: Sizes,
    result: Sizes,
    steps: Sizes,
    gaps: Sizes,
    begin: Sizes,
    end: Sizes,
) -> bool:
    source, kernel, target = (
        Descriptor.any(each, DataType.BF16) for each in (given, weights, result)
    )
    made = convolution(source, kernel, None, target, steps, gaps, begin, end, Attributes())
    return made is None or made.implementation.startswith(SLOW)


def _sizes(node: Node) -> Sizes:
    shape = node.inputs[0].shape
    assert shape is not None
    return shape.static[2:]


def _output_sizes(node: Node) -> Sizes:
    shape = node.outputs[0].shape
    assert shape is not None
    return shape.static[2:]


def end_padding(
    window: Window, sizes: Sequence[int], outputs: Sequence[int], begin: Sequence[int]
) -> tuple[int, ...]:
    """Padding at the end that lets the last window end there, as oneDNN demands; may be < 0."""
    return tuple(
        (out - 1) * stride + bounds(extent)[0] - size - start
        for size, out, stride, extent, start in zip(
            sizes, outputs, window.strides, window.extent, begin, strict=True
        )
    )
