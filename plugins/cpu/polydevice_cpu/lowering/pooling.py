"""Max and average pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.convolution import GroupConvolution
from polydevice.ops.pooling import AvgPool, MaxPool, MaxPoolWithIndices, Pool
from polydevice.ops.window import PadType
from polydevice.shape import normalize_axis
from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.windows import maxima
from polydevice_cpu.algorithms.by_machine.windows.axis import Axis
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.convolution.primitives import end_padding
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Binary, PostOp
from polydevice_cpu.onednn.constants import Algorithm, Arg, Query
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import pooling
from polydevice_cpu.ops.pooling import max_pool_with_indices
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.building.column import Order, orders, sight, turned
from polydevice_cpu.plan.building.pending import Flow, Packed, Pending
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


_MAXIMA = (ElementType.f32, ElementType.u8, ElementType.i8)


@lowers(MaxPool, MaxPoolWithIndices, AvgPool, heavy=True)
def lower_pool(builder: PlanBuilder, node: Node) -> bool:
    """Pool in the layout the value has; by machine code where the indices of maxima are read."""
    op = node.operation(Pool)
    source = node.inputs[0]
    if any(builder.uses(port) for port in node.outputs[1:]):
        return _with_indices(builder, node)
    types = (ElementType.f32,) if isinstance(op, AvgPool) else _MAXIMA
    if source.element_type not in types or node.outputs[0].shape is None:
        return False
    if isinstance(op, AvgPool) and max(op.window.dilations) > 1:
        return _as_convolution(builder, node)
    algorithm = Algorithm.POOLING_MAX
    value = builder.value(source)
    if {*op.kernel, *op.window.strides} == {1} and node.outputs[0].shape == source.shape:
        builder.set(node.outputs[0], value)
        return True
    output = node.outputs[0].shape.static
    window = op.window
    begin, end = window.pads(value.shape[2:])
    needed = end_padding(window, value.shape[2:], output[2:], begin)
    if isinstance(op, AvgPool):
        inside = op.counts_overhang or all(n <= e for n, e in zip(needed, end, strict=True))
        # Without padding there is nothing else that might count.
        leaves_out = op.exclude_pad or not any((*begin, *end))
        if not leaves_out and not inside:
            # A window that reaches beyond the padding is divided by what lies inside it; oneDNN
            # would count the rest as padding.
            return _as_convolution(builder, node)
        algorithm = (
            Algorithm.POOLING_AVG_EXCLUDE_PADDING
            if leaves_out
            else Algorithm.POOLING_AVG_INCLUDE_PADDING
        )
    if algorithm is Algorithm.POOLING_MAX and _of_few_planes(builder, node, value, (begin, needed)):
        return True
    return value.in_reach and any(
        _hold(
            builder,
            node,
            value,
            order,
            algorithm,
            output,
            window.strides,
            op.kernel,
            window.dilations,
            begin,
            needed,
        )
        for order in orders(node)
    )


def _with_indices(builder: PlanBuilder, node: Node) -> bool:
    """Find maxima of f32 and where they are."""
    op, (values, indices) = node.operation(MaxPoolWithIndices), node.outputs
    if values.element_type is not ElementType.f32 or values.shape is None or not has_avx512():
        return False
    source, shape = builder.array_value(node.inputs[0]), values.shape.static
    if 0 in (*source.shape, *shape) or normalize_axis(op.axis, len(shape)) > 2:
        return False
    results = [builder.new_dense(shape, each.element_type.dtype) for each in (values, indices)]
    start = partial(_start, op, openmp.thread_count())
    builder.emit(
        ArrayStep(node.name, node.type, start, [source], results, MACHINE_CODE, writes=True)
    )
    for port, result in zip(node.outputs, results, strict=True):
        builder.set(port, result)
    return True


def _start(op: MaxPoolWithIndices, threads: int, _: Context) -> Compute:
    def compute(x: Array, *results: Array) -> tuple[()]:
        for result, found in zip(results, max_pool_with_indices(op, x), strict=True):
            np.copyto(result, found)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        source, result, indices = values
        sizes = source.shape[2:]
        window, begin = op.window, op.window.pads(sizes)[0]
        given = zip(
            sizes, result.shape[2:], op.kernel, window.strides, window.dilations, begin, strict=True
        )
        axes = [Axis(*each) for each in given]
        (images, channels), plane = source.shape[:2], math.prod(sizes)
        axis = normalize_axis(op.axis, len(source.shape))
        if source.elements >= 1 << 31:
            return None
        counted = (images, channels), (1, channels), (1, 1)
        bases = np.resize(np.arange(math.prod(counted[axis]), dtype=np.int32), images * channels)
        return maxima.code_of(axes, len(bases), bases * plane, indices.dtype.itemsize, threads)

    return ByMachine(compute, prepare)


def _as_convolution(builder: PlanBuilder, node: Node) -> bool:
    """Average windows by a depthwise convolution, for which there is code whatever the window is.

    Each is divided by as many elements as count in it.
    """
    op, x, target = node.operation(AvgPool), node.inputs[0], node.output.shape
    assert x.shape is not None
    assert target is not None
    (_, channels, *sizes), output, window = x.shape.static, target.static[2:], op.window
    if any(map(is_symbolic, (channels, *sizes))) or 0 in target.static or not channels:
        return False
    builder.value(x)
    build = Emitter(node.name, origins=node.layers)
    begin, end = window.pads(sizes)
    reach = [
        (count - 1) * step + (kernel - 1) * gap + 1 - size - before
        for count, step, kernel, gap, size, before in zip(
            output, window.strides, op.kernel, window.dilations, sizes, begin, strict=True
        )
    ]
    sums = GroupConvolution(
        strides=window.strides,
        dilations=window.dilations,
        pads_begin=tuple(begin),
        pads_end=tuple(max(each) for each in zip(reach, end, strict=True)),
        auto_pad=PadType.EXPLICIT,
    )
    shares = _shares(op, sizes, output)
    is_even = bool((shares == shares.flat[0]).all())
    weight = shares.flat[0] if is_even else np.float32(1)
    weights = np.full((channels, 1, 1, *op.kernel), weight, np.float32)
    total = build.emit(sums, x, build.value(weights))
    if not is_even:
        build.emit(Multiply(), total, build.value(shares[None, None]))
    builder.lower_instead(node.output, [each for each in build.emitted if each.constant is None])
    return True


def _shares(op: AvgPool, sizes: Sequence[int], output: Sequence[int]) -> Array:
    """One over how many elements count, of each window."""
    window = op.window
    begin, end = window.pads(sizes)
    overhangs = op.counts_overhang and any((*begin, *end))
    shares = np.ones((1,) * len(output), np.float32)
    for axis, count in enumerate(output):
        taps = np.arange(op.kernel[axis]) * window.dilations[axis]
        places = np.arange(count)[:, None] * window.strides[axis] + taps - begin[axis]
        low, high = (0, sizes[axis]) if op.exclude_pad else (-begin[axis], sizes[axis] + end[axis])
        counts = ((places >= low) & (places < high)).sum(1)
        if overhangs and not op.exclude_pad:
            counts[:] = op.kernel[axis]
        along = [1] * len(output)
        along[axis] = count
        shares = shares / np.maximum(counts, 1).astype(np.float32).reshape(along)
    return np.asarray(shares, np.float32)


FEW_PLANES = 4
"""Up to so many planes NumPy takes the maximum of shifted ones: oneDNN computes 16 channels at
once. 3x3 of [1, 1, 128, 128] take 26 and 92 us, of [1, 4, 128, 128] 82 and 142."""


def _of_few_planes(
    builder: PlanBuilder,
    node: Node,
    value: Value,
    padding: tuple[Sequence[int], Sequence[int]],
) -> bool:
    """The maxima of windows in steps of 1, from those of windows half as large."""
    op = node.operation(Pool)
    sizes = value.shape
    plain = {*op.window.strides, *op.window.dilations} == {1}
    if value.dtype != np.float32 or len(sizes) != 4 or not plain:
        return False
    if any(map(is_symbolic, sizes)) or not 0 < sizes[0] * sizes[1] <= FEW_PLANES:
        return False
    (top, left), (bottom, right) = padding
    wide = (*sizes[:2], sizes[2] + top + bottom, sizes[3] + left + right)
    inside = (..., slice(top, top + sizes[2]), slice(left, left + sizes[3]))
    halves = [
        (axis, shift)
        for axis, size in ((3, op.kernel[1]), (2, op.kernel[0]))
        for shift in _shifts(size)
    ]

    if not halves:
        return False

    def write(x: Array, y: Array) -> tuple[()]:
        if wide != x.shape:
            padded: Array = np.full(wide, -np.inf, np.float32)
            padded[inside] = x
            x = padded
        for number, (axis, shift) in enumerate(halves, 1):
            before = (slice(None),) * axis
            places = (*before, slice(-shift)), (*before, slice(shift, None))
            first, second = (x[place] for place in places)
            x = np.maximum(first, second, out=y if number == len(halves) else None)
        return ()

    output = node.outputs[0]
    assert output.shape is not None
    result = builder.new_dense(output.shape.static, value.dtype)
    source = builder.dense(value)
    builder.emit(ArrayStep(node.name, node.type, lambda _: write, [source], [result], writes=True))
    builder.set(output, result)
    return True


def _shifts(size: int) -> list[int]:
    """By how much windows are moved that make larger ones: of 9 elements by 1, 2, 4 and 1."""
    shifts, reach = [], 1
    while reach < size:
        shifts.append(min(reach, size - reach))
        reach += shifts[-1]
    return shifts


def _hold(
    builder: PlanBuilder,
    node: Node,
    value: Value,
    order: Order,
    algorithm: Algorithm,
    output: Sequence[int],
    strides: Sequence[int],
    kernel: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
) -> bool:
    """Hold a pooling primitive for the node's first output; False without a good one."""
    layout = value.descriptor.turned() if order is turned else value.descriptor

    last = Descriptor.channels_last(layout.shape, layout.data_type)

    def make(post_ops: Sequence[PostOp], _bias: bool) -> Primitive | None:
        if not all(isinstance(post_op, Binary) for post_op in post_ops):
            return None

        def made_of(source: Descriptor) -> Primitive | None:
            return pooling(
                algorithm,
                source,
                Descriptor.any(order(output), layout.data_type),
                order(strides),
                order(kernel),
                order(dilations),
                order(begin),
                order(end),
                Attributes(post_ops),
            )

        made = made_of(layout)
        if made is None or made.is_reference or made.implementation.startswith("simple"):
            # Plain loops, for planes that are few or large: 3x3 maxima of [1, 3, 512, 512] took
            # 36 ms, with channels last and what brings them there 2.3. Without code for what has
            # gaps, such as some of the channels where they are last, those are copied.
            other = made_of(last)
            made = made if other is None or other.is_reference else other
        return None if made is None or made.is_reference else made

    primitive = make([], False)
    if primitive is None:
        return False
    flow: dict[int, Flow | Packed] = {Arg.SRC: Flow(value, Query.SRC)}
    pending = Pending(node, make, flow, primitive, builder.decisions, sight=sight(order))
    builder.hold(node.outputs[0], pending)
    return True
