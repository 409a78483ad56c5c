"""Pooling over windows and over whole channels."""

from __future__ import annotations

import functools
import math
from typing import Any

from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, FloorMod, Multiply, Power, Subtract
from polydevice.ops.math import Abs
from polydevice.ops.pooling import AvgPool, MaxPool, MaxPoolWithIndices
from polydevice.ops.reduce import ReduceL1, ReduceL2, ReduceMax, ReduceMean, ReduceSum
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
        values, indices = n.emit_all(MaxPoolWithIndices(**window, axis=0), x)
        if n.attribute("storage_order", 0):
            indices = _column_major(n, x, indices)
        return [values, indices]
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


def _column_major(n: OnnxNode, x: Port, indices: Port) -> Port:
    """Count the elements of each channel by columns; only spatial axes change their order."""
    sizes = [axis_size(n, x, axis) for axis in range(2, n.rank(x))]
    channel = functools.reduce(lambda a, b: n.emit(Multiply(), a, b), sizes)
    inner = n.emit(FloorMod(), indices, channel)
    result = n.emit(Subtract(), indices, inner)
    column_pitch: Port | None = None
    row_pitch = channel
    for size in sizes:
        row_pitch = n.emit(Divide(), row_pitch, size)
        place = n.emit(FloorMod(), n.emit(Divide(), inner, row_pitch), size)
        step = place if column_pitch is None else n.emit(Multiply(), place, column_pitch)
        result = n.emit(Add(), result, step)
        column_pitch = size if column_pitch is None else n.emit(Multiply(), column_pitch, size)
    return result


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
