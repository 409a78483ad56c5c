"""Reductions."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.comparison import Equal
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.math import Exp, IsFinite, Log
from polydevice.ops.reduce import (
    ReduceL1,
    ReduceL2,
    ReduceLogicalAnd,
    ReduceLogicalOr,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)
from polydevice.ops.reshape import ShapeOf
from polydevice.ops.select import Select
from polydevice.ops.slice import Slice
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.reshape import axes_input

_DIRECT = {
    "ReduceL1": ReduceL1,
    "ReduceL2": ReduceL2,
    "ReduceMax": ReduceMax,
    "ReduceMean": ReduceMean,
    "ReduceMin": ReduceMin,
    "ReduceProd": ReduceProd,
    "ReduceSum": ReduceSum,
}
_BOOLEAN = {"ReduceMax": ReduceLogicalOr, "ReduceMin": ReduceLogicalAnd}


def _axes(n: OnnxNode, x: Port) -> Port | None:
    """Return the axes to reduce over; None when nothing is to be reduced.

    A scalar has none, though PyTorch exports it with 0 or -1.
    """
    axes = axes_input(n, 1)
    if x.desc.rank == 0 and axes is not None:
        return n.value([])
    empty = axes is None or (axes.shape is not None and axes.shape == (0,))
    if axes is not None and not empty:
        known = axes.shape is not None and isinstance(axes.shape[0], int)
        return axes if known or n.attribute("noop_with_empty_axes", 0) else _or_all(n, x, axes)
    return None if n.attribute("noop_with_empty_axes", 0) else n.value(list(range(n.rank(x))))


def _or_all(n: OnnxNode, x: Port, axes: Port) -> Port:
    """Return the axes, or all of x when an inference gives none: as many of both as are wanted."""
    rank = n.rank(x)
    count = n.emit(ShapeOf(), axes)
    wanted = n.emit(Select(), n.emit(Equal(), count, [0]), [rank], count)
    both = n.emit(Concat(0), axes, n.like(range(rank), axes))
    return n.emit(Slice(), both, [0], wanted, [1], [0])


@translates(*_DIRECT)
def reduce(n: OnnxNode) -> Port:
    """One reduction over the given axes, or all."""
    x = n.input(0)
    axes = _axes(n, x)
    if axes is None:
        # Nothing is summed, but the function of a single element is still applied.
        axes = n.value([])
    keep = bool(n.attribute("keepdims", 1))
    table = _BOOLEAN if x.element_type is ElementType.boolean else _DIRECT
    if n.op_type not in table:
        raise n.unsupported("x is boolean; legal: numbers. Put a Cast in front of it")
    return n.emit(table[n.op_type](keep_dims=keep), x, axes)


@translates("ReduceSumSquare")
def reduce_sum_square(n: OnnxNode) -> Port:
    """Sum of x²."""
    x = n.input(0)
    square = n.emit(Multiply(), x, x)
    axes = _axes(n, x)
    if axes is None:
        return square
    return n.emit(ReduceSum(keep_dims=bool(n.attribute("keepdims", 1))), square, axes)


@translates("ReduceLogSum")
def reduce_log_sum(n: OnnxNode) -> Port:
    """log of the sum."""
    x = n.input(0)
    axes = _axes(n, x)
    keep = bool(n.attribute("keepdims", 1))
    return n.emit(Log(), x if axes is None else n.emit(ReduceSum(keep_dims=keep), x, axes))


@translates("ReduceLogSumExp")
def reduce_log_sum_exp(n: OnnxNode) -> Port:
    """log of the sum of exp(x), shifted by the maximum so that nothing overflows."""
    x = n.input(0)
    axes = _axes(n, x)
    if axes is None:
        return x
    kind = x.element_type
    wide = x if kind.is_float else n.emit(Convert(ElementType.f32), x)
    keep = bool(n.attribute("keepdims", 1))
    largest = n.emit(ReduceMax(keep_dims=True), wide, axes)
    finite = n.emit(IsFinite(), largest)
    shift = n.emit(Select(), finite, largest, n.like(0, largest))
    total = n.emit(ReduceSum(keep_dims=keep), n.emit(Exp(), n.emit(Subtract(), wide, shift)), axes)
    back = shift if keep else n.emit(ReduceSum(keep_dims=False), shift, axes)
    result = n.emit(Add(), n.emit(Log(), total), back)
    return result if wide is x else n.emit(Convert(kind), result)
