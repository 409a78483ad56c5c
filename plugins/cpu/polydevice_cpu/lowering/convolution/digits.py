"""Convolutions of numbers rounded to 16 bits with weights of 8.

Two digits of 8 bits are multiplied by AMX tiles, exactly, where oneDNN multiplies f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.convolution import Convolution
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.amx.instructions import has_tiles_of_bytes
from polydevice_cpu.algorithms.by_machine.indexed.levels import Grid
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.following import LONGEST_ROUNDED, Link
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Binary
from polydevice_cpu.onednn.constants import DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.passes.integers.grids import grid_of
from polydevice_cpu.plan.post_ops import OF_ONE_NUMBER, OF_TENSORS, link_of
from polydevice_cpu.plan.replacement import Fused, Replacement
from polydevice_cpu.plan.step import IN_TILES, CodeStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.algorithms.by_machine.amx.digits import Digits
    from polydevice_cpu.plan.building.builder import PlanBuilder

LEAST, LEAST_ROW = 1 << 18, 8
"""Fewer products are left to oneDNN, and windows with fewer numbers to a row: of 64 that tiles have
others are zeros. Of three colours, 7x7 over 112x112 to 64 take 0.30 ms instead of 1.85, 3x3 over as
many to 32 0.3 instead of 0.45."""

_LARGEST, _ERROR = 128, 2.0**-22
"""The largest integer without its sign; how far a weight may be from its own, as rounding is."""

_SOME = 16
"""Weights of a result that are looked at first."""


def replacement(builder: PlanBuilder, node: Node) -> Replacement | None:
    """What takes the place of oneDNN's primitive; None where it stays.

    Not in plans that are filled in for new shapes, which have code for all of them.
    """
    if type(node.op) is not Convolution or not may_be_digits(builder, node):
        return None
    grid, weights, result = grid_of(node.inputs[0]), node.inputs[1].desc.constant, node.output.shape
    if grid is None or weights is None or result is None:
        return None
    windows = _windows(node, weights)
    if windows is None or math.prod(result.static) * weights[0].size < LEAST:
        return None
    integers = builder.derived(weights, "integers of 8 bits", integers_of)
    if not integers.size:
        return None
    return partial(_emit, node, windows, grid, integers)


def may_be_digits(builder: PlanBuilder, node: Node) -> bool:
    """Whether digits may be multiplied, as far as numbers and sizes do not decide."""
    settings = builder.settings
    return (
        current_trace() is None
        and settings.heavy is DataType.F32
        and settings.integers.of_products
        and not settings.kept.has(node.layers)
        and has_tiles_of_bytes()
    )


_ONE = Windows((1, 1), (1, 1), (0, 0), (0, 0), False)
"""Of one element, each of which is there."""


def _windows(node: Node, weights: Array) -> Windows | None:
    """How windows lie, in two axes; None where they have three, or too little to a row."""
    window, source = node.operation(Convolution).window(weights.shape), node.inputs[0].shape
    assert source is not None
    assert node.output.shape is not None
    sizes, (pads, _) = source.static[2:], window.pads(source.static[2:])
    is_same = node.output.shape.static[2:] == sizes
    if is_same and {*weights.shape[2:], *window.strides} == {1} and not any(pads):
        return _ONE
    if window.rank > 2 or min(pads) < 0 or weights.shape[1] * weights.shape[-1] < LEAST_ROW:
        return None
    lines = (1,) * (2 - window.rank)  # of one axis, the second one
    none = (0,) * len(lines)
    return Windows(
        (*lines, *weights.shape[2:]),
        (*lines, *window.strides),
        (*none, *(each - 1 for each in window.dilations)),
        (*none, *pads),
        is_depthwise=False,
    )


def integers_of(weights: Array) -> Array:
    """Return [results, channels] i8: what weights are, times a factor for each result.

    Nothing where they are no such integers. In quantised models the largest one of a result, or of
    all, is 127 or 128, but for factors that were rounded, or results that share one.
    """
    rows = weights.reshape(len(weights), -1)
    found = np.zeros(rows.shape, np.int8)
    largest = np.maximum(rows.max(1, initial=0), -rows.min(1, initial=0))
    if not np.isfinite(largest).all():
        return found[:0]
    left = largest.nonzero()[0]
    shared = np.full_like(largest, largest.max(initial=0))
    sizes = [(shared, _LARGEST - 1), (shared, _LARGEST)]
    for most, number in (*sizes, *((largest, number) for number in range(_LARGEST, 0, -1))):
        factors = most[left, np.newaxis] / np.float32(number)
        may_be, _ = _fit(rows[left, :_SOME], factors)
        chosen, factors = left[may_be], factors[may_be]
        are, levels = _fit(rows[chosen], factors)
        found[chosen[are]] = levels[are]
        left = np.setdiff1d(left, chosen[are], assume_unique=True)
        if not left.size:
            return found
    return found[:0]


def _fit(rows: Array, factors: Array) -> tuple[Array, Array]:
    """Which rows consist of integers of 8 bits times their factor; and all integers, as f32."""
    levels = rows / factors
    np.rint(levels, out=levels)
    errors = levels * factors
    errors -= rows
    np.abs(errors, out=errors)
    fit = (errors <= np.float32(_ERROR) * np.abs(rows)).all(1)
    fit &= (levels.max(1, initial=0) < _LARGEST) & (levels.min(1, initial=0) >= -_LARGEST)
    return fit, levels


def factors_of(integers: Array, weights: Array) -> Array:
    """Return what integers are multiplied by, one number for each result."""
    rows = weights.reshape(integers.shape)
    places = np.abs(rows).argmax(1, keepdims=True)
    largest, levels = (np.take_along_axis(each, places, 1)[:, 0] for each in (rows, integers))
    factors: Array = largest.astype(np.float64) / np.where(levels, levels, 1)
    return factors.astype(np.float32)


def _emit(
    node: Node,
    windows: Windows,
    grid: Grid,
    integers: Array,
    builder: PlanBuilder,
    fused: Fused,
) -> Value | None:
    """Emit the step; None where there is no code for a function that was fused."""
    source, target = node.inputs[0].shape, node.output.shape
    weights = node.inputs[1].desc.constant
    assert source is not None
    assert target is not None
    assert weights is not None
    found = _links(fused, target.static)
    if found is None:
        return None
    links, added = found
    factors = builder.derived(weights, "factors of integers", partial(factors_of, integers))
    bias = None if fused.bias is None else np.ascontiguousarray(fused.bias, np.float32)
    layer = layer_of(grid, integers, factors, bias, links, windows)
    positions, threads = source.static[0] * math.prod(source.static[2:]), openmp.thread_count()
    if windows is _ONE:
        code = layer.code(positions, threads)
    else:
        sides = _as_picture(source.static), _as_picture(target.static)
        code = layer.code_of_pictures(*sides, windows, threads)
    if code is None:
        return None
    wanted = Descriptor.channels_last(source.static)
    last = Descriptor.channels_last(target.static)
    read = builder.in_layout(builder.value(node.inputs[0]), wanted)
    other = read if added is None else builder.in_layout(added, last)
    inputs = [read, other, builder.constant(layer.zero)]
    result = builder.new(last)
    room = builder.new_dense((layer.room(positions),), np.dtype(np.uint8))
    step = CodeStep(*(fused.name, fused.type, code, inputs, [result, room], fused.layers), IN_TILES)
    builder.emit(step)
    builder.refuse(node.name, "")
    return result


def _as_picture(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes with two axes behind the channels."""
    return shape if len(shape) == 4 else (*shape[:2], 1, *shape[2:])


def layer_of(
    grid: Grid,
    integers: Array,
    factors: Array,
    bias: Array | None,
    links: Sequence[Link],
    windows: Windows = _ONE,
) -> Digits:
    """Return a layer; its weights are packed once for all plans.

    Args:
        grid: of the source.
        integers: weights, [results, channels and elements of a window], i8.
        factors: see `Digits.of`.
        bias: likewise.
        links: likewise.
        windows: where they lie.
    """
    # Networks without numbers of 16 bits need none of what these import.
    from polydevice_cpu.algorithms.by_machine.amx.digits import Digits
    from polydevice_cpu.plan.filling.by_machine.tiles import shared_weights

    sizes = len(integers), -1, *windows.sizes
    turned = np.moveaxis(integers.reshape(sizes), (0, 1), (-1, -2))
    packed = shared_weights(integers, turned, windows.gaps[1])
    return Digits.of(grid, packed, factors, bias, links)


def _links(fused: Fused, shape: tuple[int, ...]) -> tuple[list[Link], Value | None] | None:
    """What follows, and what is added of the result's size; None where there is no code for it."""
    links, added = list[Link](), list[Value]()
    for position, post_op in enumerate(fused.post_ops):
        operand = fused.operands[position].source if position in fused.operands else None
        if not isinstance(post_op, Binary):
            link = link_of(post_op)
        elif isinstance(operand, np.ndarray):
            function = OF_ONE_NUMBER.get(post_op.algorithm)
            is_one = function is not None and operand.size == 1
            link = function(float(operand.item())) if function and is_one else None
        elif operand is None or post_op.algorithm not in OF_TENSORS:
            link = None
        else:
            is_whole = operand.shape == shape and operand.dtype == np.float32
            link = (OF_TENSORS[post_op.algorithm], 0.0, 0.0) if is_whole else None
            added.append(operand)
        if link is None:
            return None
        links.append(link)
    if len(added) > 1 or len(links) > LONGEST_ROUNDED:
        return None
    return links, added[0] if added else None
