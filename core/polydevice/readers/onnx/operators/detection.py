"""Boxes (NonMaxSuppression); elements put by index (MaxUnpool…)."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, FloorMod, Multiply, Subtract
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.generate import Range
from polydevice.ops.nms import NonMaxSuppression
from polydevice.ops.pad import Pad
from polydevice.ops.reduce import ReduceProd
from polydevice.ops.reshape import Reshape, ShapeOf
from polydevice.ops.scatter import ScatterElementsUpdate
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.convolution import pads
from polydevice.readers.onnx.operators.topk import axis_size
from polydevice.shape import normalize_axis


@translates("NonMaxSuppression")
def non_max_suppression(n: OnnxNode) -> Port:
    """Keep the best boxes of each class; without a number, none."""
    op = NonMaxSuppression.from_onnx(n.attributes, n.version)
    defaults = (n.value(0), n.value(np.float32(0)), n.value(np.float32(-np.inf)))
    limits = [n.optional(index) or default for index, default in enumerate(defaults, 2)]
    return n.emit(op, n.input(0), n.input(1), *limits)


@translates("MaxUnpool")
def max_unpool(n: OnnxNode) -> Port:
    """Put values back to where MaxPool took them from, zeros elsewhere.

    Indices count the elements of the unpooled tensor without `output_shape`, which only adds to
    its ends.
    """
    x, indices, target = n.input(0), n.input(1), n.optional(2)
    kernel = n.required("kernel_shape")
    begin, end = pads(n, len(kernel))
    strides = n.attribute("strides") or [1] * len(kernel)
    added = [k - s - b - e for k, s, b, e in zip(kernel, strides, begin, end, strict=True)]
    stretched = n.emit(Multiply(), n.emit(ShapeOf(), x), [1, 1, *strides])
    sizes = n.emit(Add(), stretched, [0, 0, *added])
    total = n.emit(ReduceProd(keep_dims=True), sizes, [0])
    zeros = n.emit(Broadcast(), n.like(0, x), total)
    flat = [n.emit(Reshape(special_zero=False), port, [-1]) for port in (indices, x)]
    filled = n.emit(ScatterElementsUpdate(), zeros, *flat, 0)
    y = n.emit(Reshape(special_zero=False), filled, sizes)
    if target is None:
        return y
    missing = n.emit(Subtract(), target, sizes)
    return n.emit(Pad(), y, [0] * (len(kernel) + 2), missing, n.like(0, x))


@translates("TensorScatter")
def tensor_scatter(n: OnnxNode) -> Port:
    """Write an update into each item's cache from its own position on."""
    cache, update, start = n.input(0), n.input(1), n.optional(2)
    rank = n.rank(cache)
    axis = normalize_axis(n.attribute("axis", -2), rank)
    length = axis_size(n, update, axis)
    steps = n.emit(Range(ElementType.i64), 0, length, 1)
    places = n.emit(
        Reshape(special_zero=False), steps, [-1 if i == axis else 1 for i in range(rank)]
    )
    if start is not None:
        column = n.emit(
            Reshape(special_zero=False), start, [-1 if i == 0 else 1 for i in range(rank)]
        )
        places = n.emit(Add(), places, column)
    if n.attribute("mode", "linear") == "circular":
        places = n.emit(FloorMod(), places, axis_size(n, cache, axis))
    spread = n.emit(Broadcast(), places, n.emit(ShapeOf(), update))
    return n.emit(ScatterElementsUpdate(), cache, spread, update, axis)
