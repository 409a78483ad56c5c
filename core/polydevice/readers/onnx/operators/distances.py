"""Distances between rows, and what compares rows with support vectors: SVMRegressor, CDist.

Where the specification leaves a case open, ONNX Runtime's answer counts.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Multiply, Power, Subtract
from polydevice.ops.comparison import Greater, Less
from polydevice.ops.math import Exp, IsFinite, Sqrt, Tanh
from polydevice.ops.matmul import MatMul
from polydevice.ops.reduce import ReduceMean, ReduceSum
from polydevice.ops.reshape import Unsqueeze
from polydevice.ops.select import Select
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.linear import rows_of


@translates("SVMRegressor", domain="ai.onnx.ml")
def svm_regressor(n: OnnxNode) -> Port:
    """Sums [rows, 1] of what rows and support vectors have in common; 1 or -1 with one class."""
    name = n.attribute("post_transform", "NONE")
    if name != "NONE":
        raise n.unsupported(f"post_transform {name!r}; legal: 'NONE'")
    count = n.attribute("n_supports", 0)
    coefficients = np.asarray(n.required("coefficients"), np.float32)
    given = np.asarray(n.attribute("support_vectors") or [], np.float32)
    is_whole = len(coefficients) == count and len(given) > 0 and not len(given) % max(count, 1)
    if count and not (count > 0 and is_whole):
        raise n.unsupported(
            f"{len(coefficients)} coefficients and {len(given)} numbers of {count} support vectors"
        )
    rho = n.required("rho")
    if len(rho) != 1:
        raise n.unsupported(f"rho of {len(rho)} numbers; legal: 1")
    x = rows_of(n, n.input(0))
    if count:
        likeness = _kernel(n, x, given.reshape(count, -1))
        sums = n.emit(MatMul(), likeness, n.value(coefficients.reshape(-1, 1)))
    else:  # without support vectors the coefficients are one, of a linear kernel
        sums = n.emit(MatMul(False, True), x, n.value(coefficients.reshape(1, -1)))
    sums = n.emit(Add(), sums, n.like(rho[0], sums))
    if not n.attribute("one_class", 0):
        return sums
    inside = n.emit(Greater(), sums, n.like(0, sums))
    return n.emit(Select(), inside, n.like(1, sums), n.like(-1, sums))


def _kernel(n: OnnxNode, x: Port, vectors: Array) -> Port:
    """What x [rows, features] has in common with vectors [vectors, features]: one number each."""
    kind = n.attribute("kernel_type", "LINEAR")
    if kind not in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        raise n.unsupported(f"kernel_type {kind!r}; legal: 'LINEAR', 'POLY', 'RBF', 'SIGMOID'")
    params = n.attribute("kernel_params") or []
    if kind != "LINEAR" and len(params) != 3:
        raise n.unsupported(
            f"kernel_params of {len(params)} numbers; legal: 3 (gamma, coef0, degree)"
        )
    gamma, offset, degree = params if len(params) == 3 else (0.0, 0.0, 0.0)
    if kind == "RBF":
        center = vectors.mean(0, keepdims=True)  # far from 0 squares would take the digits
        near = n.emit(Subtract(), x, n.like(center, x))
        squares = _squared(n, near, n.value(vectors - center))
        return n.emit(Exp(), n.emit(Multiply(), squares, n.like(-gamma, squares)))
    product = n.emit(MatMul(False, True), x, n.value(vectors))
    if kind == "LINEAR":
        return product
    product = n.emit(Multiply(), product, n.like(gamma, product))
    product = n.emit(Add(), product, n.like(offset, product))
    if kind == "SIGMOID":
        return n.emit(Tanh(), product)
    return n.emit(Power(), product, n.like(degree, product))


def _squared(n: OnnxNode, a: Port, b: Port) -> Port:
    """Squared distances [rows of a, rows of b], of which none is below 0."""
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
    squares = _squared(n, *(n.emit(Subtract(), each, center) for each in (a, b)))
    return n.emit(Sqrt(), squares) if metric == "euclidean" else squares
