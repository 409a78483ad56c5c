"""What averages of windows with gaps are made of: a depthwise convolution, which oneDNN has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.convolution import GroupConvolution
from polydevice.ops.op import Op
from polydevice.ops.pooling import AvgPool
from polydevice.ops.window import PadType
from polydevice.rewrites.facts import shape_of
from polydevice.rewrites.rule import Rule


def _has_gaps(op: Op, inputs: Sequence[Port]) -> bool:
    if not isinstance(op, AvgPool) or inputs[0].element_type is not ElementType.f32:
        return False
    desc = inputs[0].desc
    return max(op.window.dilations) > 1 and desc.is_static and 0 not in shape_of(inputs[0])


def _as_convolution(build: Emitter, op: Op, inputs: Sequence[Port]) -> list[Port]:
    assert isinstance(op, AvgPool)
    x = inputs[0]
    channels, sizes, window = shape_of(x)[1], shape_of(x)[2:], op.window
    begin, end = window.pads(sizes)
    desc = op.infer([x.desc])[0]
    assert desc.shape is not None
    output = desc.shape.static[2:]
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
    return [total if is_even else build.emit(Multiply(), total, build.value(shares[None, None]))]


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


WITH_GAPS = Rule(_as_convolution, _has_gaps)
"""Of an `AvgPool` in f32 with dilations."""
