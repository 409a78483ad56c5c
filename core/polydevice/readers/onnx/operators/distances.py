"""Distances between rows: CDist."""

from __future__ import annotations

from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.comparison import Less
from polydevice.ops.math import IsFinite, Sqrt
from polydevice.ops.matmul import MatMul
from polydevice.ops.reduce import ReduceMean, ReduceSum
from polydevice.ops.reshape import Unsqueeze
from polydevice.ops.select import Select
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode


def squared_distances(n: OnnxNode, a: Port, b: Port) -> Port:
    """Return squared distances [rows of a, rows of b], of which none is below 0."""
    across = n.emit(MatMul(False, True), a, b)
    of_a = n.emit(ReduceSum(keep_dims=True), n.emit(Multiply(), a, a), [1])
    of_b = n.emit(ReduceSum(keep_dims=False), n.emit(Multiply(), b, b), [1])
    both = n.emit(Add(), of_a, n.emit(Unsqueeze(), of_b, [0]))
    twice = n.emit(Multiply(), across, n.like(2, across))
    apart = n.emit(Subtract(), both, twice)  # what is no number stays so
    return n.emit(Select(), n.emit(Less(), apart, n.like(0, apart)), n.like(0, apart), apart)


@translates("CDist", domain="com.microsoft")
def cdist(n: OnnxNode) -> Port:
    """Distances between the rows of two matrices; `metric` says whether squared ones."""
    a, b = n.required_inputs()
    metric = n.attribute("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise n.unsupported(f"metric {metric!r}; legal: 'euclidean', 'sqeuclidean'")
    if n.rank(a) != 2 or n.rank(b) != 2:
        raise n.unsupported(f"inputs of rank {n.rank(a)} and {n.rank(b)}; legal: 2")
    center = n.emit(ReduceMean(keep_dims=True), b, [0])  # far from 0 squares would take the digits
    center = n.emit(Select(), n.emit(IsFinite(), center), center, n.like(0, center))
    squares = squared_distances(n, *(n.emit(Subtract(), each, center) for each in (a, b)))
    return n.emit(Sqrt(), squares) if metric == "euclidean" else squares
