"""Pooling over windows and over whole channels."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Multiply, Power, Subtract
from polydevice.ops.concat import Concat
from polydevice.ops.generate import Range
from polydevice.ops.math import Abs
from polydevice.ops.pooling import AvgPool, MaxPool, MaxPoolWithIndices
from polydevice.ops.reduce import ReduceL1, ReduceL2, ReduceMax, ReduceMean, ReduceProd, ReduceSum
from polydevice.ops.reshape import Reshape, ShapeOf
from polydevice.ops.slice import Slice
from polydevice.ops.window import PadType, RoundingType
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.convolution import auto_pad, in_channels_first, pads
from polydevice.readers.onnx.operators.topk import axis_size


def _window(n: OnnxNode) -> dict[str, Any]:
    """Return the attributes that every pooling operation has."""
    kernel = tuple(n.required("kernel_shape"))
    begin, end = pads(n, len(kernel))
    # ONNX never starts a window in the padding at the end.
    ceil = RoundingType.CEIL_TORCH if n.attribute("ceil_mode", 0) else RoundingType.FLOOR
    return {
        "kernel": kernel,
        "strides": tuple(n.attribute("strides") or [1] * len(kernel)),
        "pads_begin": begin,
        "pads_end": end,
        "auto_pad": auto_pad(n),
        "rounding_type": ceil,
        "dilations": tuple(n.attribute("dilations") or [1] * len(kernel)),
    }


@translates("AveragePool")
def average_pool(n: OnnxNode) -> Port:
    """Average of each window, with or without the padding."""
    return average(n, n.input(0))


def average(n: OnnxNode, x: Port) -> Port:
    """Emit an average pooling of `x` by the node's attributes."""
    op = AvgPool(**_window(n), exclude_pad=not n.attribute("count_include_pad", 0))
    padded = any(op.pads_begin) or any(op.pads_end)
    if padded and not op.exclude_pad and op.rounding_type is not RoundingType.FLOOR:
        op = op.replace(counts_overhang=False)  # else it says nothing, and IR cannot say it
    return n.emit(op, x)


@translates("MaxPool")
def max_pool(n: OnnxNode) -> Port | list[Port]:
    """Maximum of each window, and where it is."""
    x, window = n.input(0), _window(n)
    if n.wants(1):
        by_columns = n.attribute("storage_order", 0) and n.rank(x) > 3
        values, indices = n.emit_all(MaxPoolWithIndices(**window, axis=2 if by_columns else 0), x)
        return [values, _column_major(n, x, indices) if by_columns else indices]
    return maximum(n, x)


@translates("NhwcMaxPool", domain="com.microsoft")
def nhwc_max_pool(n: OnnxNode) -> Port:
    """Maximum of each window, with channels behind everything."""
    return in_channels_first(n, lambda x: maximum(n, x), last=True)


def maximum(n: OnnxNode, x: Port) -> Port:
    """Emit a maximum pooling of `x` by the node's attributes."""
    window = _window(n)
    if any(step != 1 for step in window["dilations"]):
        return n.emit(MaxPoolWithIndices(**window, axis=0), x)
    return n.emit(MaxPool(**window), x)


def _column_major(n: OnnxNode, x: Port, places: Port) -> Port:
    """Count the elements of all channels by columns; only spatial axes change their order.

    Of a place p = (a H + b) W + c in a channel, p / W and p / (W H) tell that it becomes
    a + D (b + H c) = D H p - (D H W - D) (p / W) - (D H - 1) (p / (W H)).
    """
    sizes = [axis_size(n, x, axis) for axis in range(2, n.rank(x))]
    pitches: list[Port | int] = [1, sizes[0]]
    for size in sizes[1:-1]:
        pitches.append(n.emit(Multiply(), pitches[-1], size))
    result, left = n.emit(Multiply(), places, pitches[-1]), places
    for size, before, pitch in zip(sizes[:0:-1], pitches[-2::-1], pitches[:0:-1], strict=True):
        left = n.emit(Divide(), left, size)
        factor = n.emit(Subtract(), n.emit(Multiply(), pitch, size), before)
        result = n.emit(Subtract(), result, n.emit(Multiply(), left, factor))
    plane = functools.reduce(lambda a, b: n.emit(Multiply(), a, b), sizes)
    channels = n.emit(Slice(), n.emit(ShapeOf(), x), [0], [2], [1], [0])
    count = n.emit(ReduceProd(keep_dims=False), channels, [0])
    numbers = n.emit(Range(ElementType.i64), 0, count, 1)
    shape = n.emit(Concat(0), channels, np.ones(len(sizes), np.int64))
    starts = n.emit(Reshape(), n.emit(Multiply(), numbers, plane), shape)
    return n.emit(Add(), result, starts)


@translates("LpPool")
def lp_pool(n: OnnxNode) -> Port:
    """p-norm of each window: the mean of |x|^p, times the window, to the power of 1/p."""
    x, p = n.input(0), float(n.attribute("p", 2))
    window = _window(n)
    if window["rounding_type"] is not RoundingType.FLOOR and not window["auto_pad"].is_same:
        window = _without_overhang(window)
    powers = n.emit(Power(), n.emit(Abs(), x), n.like(p, x))
    mean = n.emit(AvgPool(**window, exclude_pad=False), powers)
    total = n.emit(Multiply(), mean, n.like(math.prod(window["kernel"]), x))
    return n.emit(Power(), total, n.like(1 / p, x))


def _without_overhang(window: dict[str, Any]) -> dict[str, Any]:
    """Return a window that stops in the same places, all of them within the padding.

    Rounding up adds stops that reach at most stride - 1 beyond the padding, except where they
    would start behind the data. Every mean is then over as many elements as the kernel has.
    """
    end = tuple(
        min((k - 1) * d, e + s - 1)
        for k, d, e, s in zip(
            window["kernel"], window["dilations"], window["pads_end"], window["strides"],
            strict=True,
        )
    )  # fmt: skip
    explicit = {"auto_pad": PadType.EXPLICIT, "rounding_type": RoundingType.FLOOR}
    return {**window, "pads_end": end, **explicit}


@translates("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n: OnnxNode) -> Port:
    """Reduction over the spatial axes."""
    x = n.input(0)
    kind = ReduceMean if n.op_type == "GlobalAveragePool" else ReduceMax
    return n.emit(kind(keep_dims=True), x, list(range(2, n.rank(x))))


@translates("GlobalLpPool")
def global_lp_pool(n: OnnxNode) -> Port:
    """p-norm over the spatial axes."""
    x, p = n.input(0), n.attribute("p", 2)
    axes = list(range(2, n.rank(x)))
    if p in (1, 2):
        return n.emit((ReduceL1 if p == 1 else ReduceL2)(keep_dims=True), x, axes)
    powers = n.emit(Power(), n.emit(Abs(), x), n.like(p, x))
    total = n.emit(ReduceSum(keep_dims=True), powers, axes)
    return n.emit(Power(), total, n.like(1 / p, x))
