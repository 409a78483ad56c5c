"""What grouped convolutions are made of: others for which oneDNN has faster code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.convolution import GroupConvolution
from polydevice.ops.gather import Gather
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad
from polydevice.ops.window import PadType
from polydevice.rewrites.facts import is_known, rank_of, shape_of, size_of
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.rewrites.rule import Rule

LANES = 8
"""Numbers in a register of AVX2: oneDNN computes so many results of a channel side by side."""

_END = np.iinfo(np.int64).max

FAR = 6
"""Zeros beside a row up to which oneDNN 3.2 has code of its own for dilated depthwise windows."""


def _is_made_of_others(op: Op, inputs: Sequence[Port]) -> bool:
    if not isinstance(op, GroupConvolution) or inputs[0].element_type is not ElementType.f32:
        return False
    return _multiplies(inputs) or _spans_all(inputs) or _is_far_padded(op, inputs)


def _is_far_padded(op: GroupConvolution, inputs: Sequence[Port]) -> bool:
    """Whether dilated depthwise windows reach far beyond the rows."""
    weights = shape_of(inputs[1])
    if weights[1:3] != (1, 1) or len(weights) > 5 or max(op.dilations, default=1) == 1:
        return False
    return _pads(op, inputs)[0][-1] > FAR


def _pads(op: GroupConvolution, inputs: Sequence[Port]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    x, w = inputs
    return op.window(shape_of(w)).pads([size_of(x, axis) for axis in range(2, rank_of(x))])


def _multiplies(inputs: Sequence[Port]) -> bool:
    """Whether every channel becomes several, and not as many as a register has."""
    _, outputs, sources, *_ = shape_of(inputs[1])
    return sources == 1 and outputs > 1 and outputs % LANES != 0 and is_known(inputs[1])


def _spans_all(inputs: Sequence[Port]) -> bool:
    """Whether windows are longer than 1 along the first of three axes, and along others."""
    kernel = shape_of(inputs[1])[3:]
    return rank_of(inputs[0]) == 5 and kernel[0] > 1 and max(kernel[1:]) > 1


def _grouped(build: Emitter, op: Op, inputs: Sequence[Port]) -> list[Port]:
    assert isinstance(op, GroupConvolution)
    if _multiplies(inputs):
        return _repeated(build, op, inputs)
    return (_by_planes if _spans_all(inputs) else _padded_before)(build, op, inputs)


def _padded_before(build: Emitter, op: GroupConvolution, inputs: Sequence[Port]) -> list[Port]:
    """Write the zeros beside the rows first."""
    x, w = inputs
    begin, end = _pads(op, inputs)
    before, after = ([0] * (rank_of(x) - 1) + [pads[-1]] for pads in (begin, end))
    wide = build.emit(Pad(), x, before, after, np.zeros((), x.element_type.dtype))
    rest = op.replace(
        pads_begin=(*begin[:-1], 0), pads_end=(*end[:-1], 0), auto_pad=PadType.EXPLICIT
    )
    return build.emit_all(rest, wide, w)


def _repeated(build: Emitter, op: GroupConvolution, inputs: Sequence[Port]) -> list[Port]:
    """Convolve each channel as often as it has results, each time for one of them."""
    x, w = inputs
    groups, outputs, _, *kernel = shape_of(w)
    index = np.arange(groups).repeat(outputs)
    repeated = build.emit(Gather(), x, build.value(index), 1)
    return build.emit_all(op, repeated, build.reshape(w, (groups * outputs, 1, 1, *kernel)))


def _integers_by_planes(build: Emitter, op: IntegerProduct, inputs: Sequence[Port]) -> list[Port]:
    """The same of integers, whose padding is their zero point."""
    x, w, scale, zero, *rest = inputs
    fill = zero.node.constant
    assert fill is not None
    assert isinstance(op.product, GroupConvolution)

    def emit(plane: GroupConvolution, read: Port, weights: Port) -> Port:
        return build.emit(IntegerProduct(plane), read, weights, scale, zero, *rest)

    return _by_planes(build, op.product, (x, w), int(fill.reshape(())), emit)


def _by_planes(
    build: Emitter,
    op: GroupConvolution,
    inputs: Sequence[Port],
    fill: int = 0,
    emit: Callable[[GroupConvolution, Port, Port], Port] | None = None,
) -> list[Port]:
    """Add up what each plane of the windows makes of the planes that it meets.

    Args:
        build: makes operations.
        op: the convolution.
        inputs: source and weights.
        fill: what padding is.
        emit: convolves planes; the operation itself does where that is left out.
    """
    x, w = inputs
    emit = emit or build.emit
    window = op.window(shape_of(w))
    sizes = [size_of(x, axis) for axis in (2, 3, 4)] if op.auto_pad.is_same else []
    begin, end = window.pads(sizes)
    if begin[0] or end[0]:
        before, after = ([0, 0, pads[0], 0, 0] for pads in (begin, end))
        x = build.emit(Pad(), x, before, after, np.full((), fill, x.element_type.dtype))
    step, gap, reach = window.strides[0], window.dilations[0], window.extent[0]
    plane = GroupConvolution(
        strides=(1, *window.strides[1:]),
        dilations=(1, *window.dilations[1:]),
        pads_begin=(0, *begin[1:]),
        pads_end=(0, *end[1:]),
        auto_pad=PadType.EXPLICIT,
    )
    total: Port | None = None
    for tap in range(shape_of(w)[3]):
        first = tap * gap
        # As far from the end as the window's last plane is from this one.
        last = first - (int(reach) - 1) or _END
        read = build.cut(x, 2, first, last, step)
        term = emit(plane, read, build.cut(w, 3, tap, tap + 1))
        total = term if total is None else build.emit(Add(), total, term)
    assert total is not None
    return [total]


def _is_made_of_planes(op: IntegerProduct, inputs: Sequence[Port]) -> bool:
    """Whether windows of groups span three axes, for which oneDNN multiplies a matrix for each.

    64 channels, 3x3x3 windows of 2x6x6: 517 us.
    """
    if not isinstance(op.product, GroupConvolution) or inputs[3].node.constant is None:
        return False
    return _spans_all(inputs)


GROUPED = Rule(_grouped, _is_made_of_others)
"""Of a `GroupConvolution` in f32."""

GROUPED_INTEGERS = Rule(_integers_by_planes, _is_made_of_planes)
"""Of an `IntegerProduct` of groups."""
