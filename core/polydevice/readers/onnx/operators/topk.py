"""Choosing along an axis: the largest elements, where they are, hard maximum."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.emitter import Input
from polydevice.node import Port
from polydevice.ops.arithmetic import Maximum, Subtract
from polydevice.ops.concat import Concat
from polydevice.ops.generate import OneHot
from polydevice.ops.pad import Pad
from polydevice.ops.reshape import ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.reshape import (
    flattened,
    reshaped_like,
    vector_of_scalar,
)
from polydevice.shape import bounds, normalize_axis


def _top(n: OnnxNode, x: Port, k: Input, axis: int, mode: TopKMode, sort: TopKSort) -> list[Port]:
    op = TopK(
        axis=normalize_axis(axis, n.rank(x)),
        mode=mode,
        sort=sort,
        index_element_type=ElementType.i64,
    )
    return n.emit_all(op, x, k)


@translates("TopK")
def top_k(n: OnnxNode) -> list[Port]:
    """The k largest or smallest elements, by value, and their positions."""
    given = n.input(0)
    x = vector_of_scalar(n, given)
    k: Input = n.required("k") if n.version < 10 else n.input(1)
    if isinstance(k, Port):
        k = n.emit(Squeeze(), k, [0]) if k.desc.rank == 1 else k
    mode = TopKMode.MAX if n.attribute("largest", 1) else TopKMode.MIN
    found = _top(n, x, k, n.attribute("axis", -1), mode, TopKSort.VALUE)
    return found if x is given else [reshaped_like(n, port, given) for port in found]


@translates("ArgMax", "ArgMin")
def arg_extreme(n: OnnxNode) -> Port:
    """Index of the first (or last) extreme: TopK of one element, on the reversed axis for last."""
    given, axis = n.input(0), n.attribute("axis", 0)
    x = vector_of_scalar(n, given)
    last = bool(n.attribute("select_last_index", 0))
    mode = TopKMode.MAX if n.op_type == "ArgMax" else TopKMode.MIN
    source = n.emit(Slice(), x, [-1], [-(2**31)], [-1], [axis]) if last else x
    index = _top(n, source, 1, axis, mode, TopKSort.VALUE)[1]
    if last:
        size = axis_size(n, x, axis)
        index = n.emit(Subtract(), n.emit(Subtract(), size, 1), index)
    keeps = n.attribute("keepdims", 1) and x is given
    return index if keeps else n.emit(Squeeze(), index, [axis])


def axis_size(n: OnnxNode, x: Port, axis: int) -> Port:
    """Return the size of one axis as a scalar."""
    axis = normalize_axis(axis, n.rank(x))
    part = n.emit(Slice(), n.emit(ShapeOf(), x), [axis], [axis + 1], [1], [0])
    return n.emit(Squeeze(), part, [0])


@translates("Hardmax")
def hardmax(n: OnnxNode) -> Port:
    """1 at the first maximum, 0 elsewhere; before opset 13 over all axes from `axis` on."""
    x = n.input(0)
    axis = n.attribute("axis", 1 if n.version < 13 else -1)
    flat = x if n.version >= 13 else flattened(n, x, axis)
    axis = normalize_axis(axis, n.rank(x)) if n.version >= 13 else 1
    source = _at_least_one(n, flat, axis)
    index = n.emit(Squeeze(), _top(n, source, 1, axis, TopKMode.MAX, TopKSort.VALUE)[1], [axis])
    ones, zeros = n.like(1, x), n.like(0, x)
    result = n.emit(OneHot(axis), index, axis_size(n, flat, axis), ones, zeros)
    return result if flat is x else reshaped_like(n, result, x)


def _at_least_one(n: OnnxNode, x: Port, axis: int) -> Port:
    """Return x, with one element along an axis that has none: something to choose from."""
    size = None if x.shape is None else x.shape[axis]
    if size is not None and bounds(size)[0] > 0:
        return x
    missing = n.emit(Maximum(), n.emit(Subtract(), 1, axis_size(n, x, axis)), 0)
    count = n.emit(Unsqueeze(), missing, [0])
    before, behind = ([0] * axis, [0] * (n.rank(x) - axis - 1))
    ends = n.emit(Concat(0), n.like(before, count), count, n.like(behind, count))
    return n.emit(Pad(), x, n.like([0] * n.rank(x), ends), ends, n.like(0, x))
