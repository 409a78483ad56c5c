"""Support vector machines of ai.onnx.ml.

Where the specification leaves a case open, ONNX Runtime's answer counts.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.node import Port
from polydevice.ops.activation import Clamp, Sigmoid
from polydevice.ops.arithmetic import Add, Multiply, Power, Subtract
from polydevice.ops.comparison import Greater, GreaterEqual
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.coupling import PairwiseCoupling
from polydevice.ops.gather import Gather
from polydevice.ops.math import Exp, Negative, Tanh
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Squeeze
from polydevice.ops.select import Select
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.distances import squared_distances
from polydevice.readers.onnx.operators.forest import transformed
from polydevice.readers.onnx.operators.linear import rows_of

_ML = "ai.onnx.ml"
_LARGEST = TopK(axis=1, mode=TopKMode.MAX, sort=TopKSort.VALUE, index_element_type=ElementType.i64)
_SURE = 1e-7
"""Probabilities of pairs are at least as far from 0 and 1."""


@translates("SVMRegressor", domain=_ML)
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


@translates("SVMClassifier", domain=_ML)
def svm_classifier(n: OnnxNode) -> list[Port]:
    """Labels [rows] and scores: of classes, or of pairs of them where nobody made these likely.

    Without support vectors there is a sum for each class; else each pair of classes has one, which
    says for which of both it votes.
    """
    texts, numbers = n.attribute("classlabels_strings"), n.attribute("classlabels_ints")
    labels = np.array(texts or numbers or [], object if texts else np.int64)
    if len(labels) < 2:
        raise n.unsupported(f"{len(labels)} labels; give 2 or more")
    counts = n.attribute("vectors_per_class") or []
    x = rows_of(n, n.input(0))
    if not sum(counts):
        index, scores = _of_classes(n, x, len(labels))
    elif len(counts) != len(labels) or min(counts) < 0:
        raise n.unsupported(f"vectors_per_class {counts} of {len(labels)} labels")
    else:
        index, scores = _of_pairs(n, x, counts)
    return [n.emit(Gather(), n.value(labels), index, 0), scores]


def _of_classes(n: OnnxNode, x: Port, classes: int) -> tuple[Port, Port]:
    """Return which class each row is of, and scores; what ONNX Runtime does without vectors."""
    coefficients = np.asarray(n.required("coefficients"), np.float32)
    rho = n.required("rho")
    if not len(coefficients) or len(coefficients) % classes or not rho:
        raise n.unsupported(
            f"{len(coefficients)} coefficients and rho of {len(rho)} numbers for {classes} classes"
        )
    sums = n.emit(MatMul(False, True), x, n.value(coefficients.reshape(classes, -1)))
    sums = n.emit(Add(), sums, n.like(rho[0], sums))
    largest, index = n.emit_all(_LARGEST, sums, 1)
    index = n.emit(Squeeze(), index, [1])
    if classes == 2:
        largest = n.emit(Squeeze(), largest, [1])
        if np.all(coefficients >= 0):
            second = n.emit(GreaterEqual(), largest, n.like(0.5, largest))
        else:
            second = n.emit(Greater(), largest, n.like(0, largest))
        index = n.emit(Select(), second, n.like(1, index), index)
    return index, transformed(n, sums, n.attribute("post_transform", "NONE"))


def _of_pairs(n: OnnxNode, x: Port, counts: list[int]) -> tuple[Port, Port]:
    """Return which class each row is of, and scores; support vectors are listed by classes."""
    classes, vectors, starts = len(counts), sum(counts), np.cumsum([0, *counts])
    coefficients = np.asarray(n.required("coefficients"), np.float32)
    given = np.asarray(n.attribute("support_vectors") or [], np.float32)
    rho, pairs = n.required("rho"), list(combinations(range(classes), 2))
    if len(coefficients) != (classes - 1) * vectors or len(given) % vectors or not len(given):
        raise n.unsupported(
            f"{len(coefficients)} coefficients and {len(given)} numbers of {vectors} support "
            f"vectors of {classes} classes"
        )
    if len(rho) != len(pairs):
        raise n.unsupported(f"rho of {len(rho)} numbers; legal: {len(pairs)}, one for each pair")
    n.take_dense(vectors * len(pairs) * 4)
    rows = coefficients.reshape(classes - 1, vectors)
    matrix = np.zeros((vectors, len(pairs)), np.float32)
    votes = np.zeros((len(pairs), classes), np.float32)
    for pair, (i, j) in enumerate(pairs):
        first, second = slice(*starts[i : i + 2]), slice(*starts[j : j + 2])
        matrix[first, pair], matrix[second, pair] = rows[j - 1, first], rows[i, second]
        votes[pair, [i, j]] = 1, -1
    likeness = _kernel(n, x, given.reshape(vectors, -1))
    sums = n.emit(MatMul(), likeness, n.value(matrix))
    sums = n.emit(Add(), sums, n.like(rho, sums))
    # Each pair votes for the second class, unless its sum is above 0.
    is_first = n.emit(Convert(ElementType.f32), n.emit(Greater(), sums, n.like(0, sums)))
    found = n.emit(MatMul(), is_first, n.value(votes))
    found = n.emit(Add(), found, n.like((votes < 0).sum(0), found))
    index = n.emit(Squeeze(), n.emit_all(_LARGEST, found, 1)[1], [1])
    return index, _scores_of_pairs(n, sums, classes)


def _scores_of_pairs(n: OnnxNode, sums: Port, classes: int) -> Port:
    """Return probabilities of classes where there is what makes them of sums, or the sums."""
    transform = n.attribute("post_transform", "NONE")
    a, b = (n.attribute(f"prob_{name}") or [] for name in "ab")
    if not a and classes > 2:
        return transformed(n, sums, transform)
    if not a:
        against = n.emit(Negative(), sums)
        if transform == "PROBIT":
            raise n.unsupported("post_transform 'PROBIT' of one score for two labels; use 'NONE'")
        if transform.startswith("SOFTMAX"):  # as ONNX Runtime has it
            against = n.emit(Subtract(), n.like(1, sums), sums)
            transform = "NONE"
        return transformed(n, n.emit(Concat(1), against, sums), transform)
    if not len(a) == len(b) == classes * (classes - 1) // 2:
        raise n.unsupported(f"prob_a and prob_b of {len(a)} and {len(b)} numbers")
    sums = n.emit(Add(), n.emit(Multiply(), sums, n.like(a, sums)), n.like(b, sums))
    likely = n.emit(Subtract(), n.like(1, sums), n.emit(Sigmoid(), sums))
    likely = n.emit(Clamp(_SURE, 1 - _SURE), likely)
    return transformed(n, n.emit(PairwiseCoupling(classes), likely), transform)


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
        squares = squared_distances(n, near, n.value(vectors - center))
        return n.emit(Exp(), n.emit(Multiply(), squares, n.like(-gamma, squares)))
    product = n.emit(MatMul(False, True), x, n.value(vectors))
    if kind == "LINEAR":
        return product
    product = n.emit(Multiply(), product, n.like(gamma, product))
    product = n.emit(Add(), product, n.like(offset, product))
    if kind == "SIGMOID":
        return n.emit(Tanh(), product)
    return n.emit(Power(), product, n.like(degree, product))
