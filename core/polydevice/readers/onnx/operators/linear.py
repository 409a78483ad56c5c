"""Linear models of ai.onnx.ml, and what stands before them: what scikit-learn's exports consist of.

Where the specification leaves a case open, ONNX Runtime's answer counts.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import ModelFormatError
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.comparison import Equal, Greater
from polydevice.ops.concat import Concat
from polydevice.ops.containers import ZipMap
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.math import Abs, IsNaN, Sqrt
from polydevice.ops.matmul import MatMul
from polydevice.ops.pad import Pad
from polydevice.ops.reduce import ReduceMax, ReduceSum
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.slice import Slice
from polydevice.ops.strings import LabelEncoder
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.forest import transformed

_ML = "ai.onnx.ml"
_LARGEST = TopK(axis=1, mode=TopKMode.MAX, sort=TopKSort.VALUE, index_element_type=ElementType.i64)


@translates("LinearRegressor", domain=_ML)
def linear_regressor(n: OnnxNode) -> Port:
    """Scores [rows, targets]."""
    return transformed(n, _scores(n, n.attribute("targets", 1)), _transform(n))


@translates("LinearClassifier", domain=_ML)
def linear_classifier(n: OnnxNode) -> list[Port]:
    """Labels [rows] and scores [rows, labels]; two labels may share one score, the second's."""
    texts, numbers = n.attribute("classlabels_strings"), n.attribute("classlabels_ints")
    labels = np.array(texts or numbers or [], object if texts else np.int64)
    targets = len(n.attribute("intercepts") or labels)
    scores = _scores(n, targets)
    if targets == 1 and len(labels) == 2:
        return _of_two(n, scores, labels)
    if targets != len(labels) or targets < 2:
        raise n.unsupported(f"{targets} scores for {len(labels)} labels; give each label a score")
    _, index = n.emit_all(_LARGEST, scores, 1)
    index = n.emit(Squeeze(), index, [1])
    return [n.emit(Gather(), n.value(labels), index, 0), transformed(n, scores, _transform(n))]


def _of_two(n: OnnxNode, score: Port, labels: Array) -> list[Port]:
    transform = _transform(n)
    if transform not in ("NONE", "LOGISTIC"):
        raise n.unsupported(
            f"post_transform {transform!r} of one score for two labels; use 'NONE' or 'LOGISTIC'"
        )
    second = n.emit(Greater(), score, n.like(0, score))
    index = n.emit(Squeeze(), n.emit(Convert(ElementType.i64), second), [1])
    score = transformed(n, score, transform)
    first = n.emit(Subtract(), n.like(1, score), score)
    return [n.emit(Gather(), n.value(labels), index, 0), n.emit(Concat(1), first, score)]


def _transform(n: OnnxNode) -> str:
    name: str = n.attribute("post_transform", "NONE")
    return name


def _scores(n: OnnxNode, targets: int) -> Port:
    """Emit x [rows, features] by the coefficients [targets, features], and the intercepts."""
    coefficients = np.asarray(n.required("coefficients"), np.float32)
    if targets < 1 or len(coefficients) % targets:
        raise n.unsupported(f"{len(coefficients)} coefficients for {targets} targets")
    x = rows_of(n, n.input(0))
    y = n.emit(MatMul(False, True), x, n.value(coefficients.reshape(targets, -1)))
    intercepts = n.attribute("intercepts")
    if not intercepts:
        return y
    if len(intercepts) != targets:
        raise n.unsupported(f"{len(intercepts)} intercepts for {targets} targets")
    return n.emit(Add(), y, n.like(np.asarray(intercepts, np.float32), y))


def rows_of(n: OnnxNode, x: Port) -> Port:
    """Return features as f32 [rows, features]; a vector is one row."""
    if x.element_type is not ElementType.f32:
        x = n.emit(Convert(ElementType.f32), x)
    rank = n.rank(x)
    if rank not in (1, 2):
        raise n.unsupported(f"features of rank {rank}; legal: 1, 2")
    return x if rank == 2 else n.emit(Reshape(special_zero=False), x, [1, -1])


@translates("Normalizer", domain=_ML)
def normalizer(n: OnnxNode) -> Port:
    """Rows divided by their norm; those whose norm is 0 stay."""
    x, name = n.input(0), n.attribute("norm", "MAX")
    if x.element_type is not ElementType.f32:
        x = n.emit(Convert(ElementType.f32), x)
    if n.rank(x) not in (1, 2):
        raise n.unsupported(f"input of rank {x.desc.rank}; legal: 1, 2")
    if name == "MAX":  # of the numbers themselves, not of their absolute values
        norm = n.emit(ReduceMax(keep_dims=True), x, [-1])
    elif name == "L1":
        norm = n.emit(ReduceSum(keep_dims=True), n.emit(Abs(), x), [-1])
    elif name == "L2":
        norm = n.emit(Sqrt(), n.emit(ReduceSum(keep_dims=True), n.emit(Multiply(), x, x), [-1]))
    else:
        raise n.unsupported(f"norm {name!r}; legal: MAX, L1, L2")
    is_zero = n.emit(Equal(), norm, n.like(0, norm))
    return n.emit(Divide(), x, n.emit(Select(), is_zero, n.like(1, norm), norm))


@translates("OneHotEncoder", domain=_ML)
def one_hot_encoder(n: OnnxNode) -> Port:
    """1 at the category that each element is, along a new last axis."""
    x = n.input(0)
    texts, numbers = n.attribute("cats_strings"), n.attribute("cats_int64s")
    if not n.attribute("zeros", 1):
        raise n.unsupported(
            "zeros=0, which fails on unknown categories; export with handle_unknown='ignore'"
        )
    if texts:
        table = LabelEncoder(
            keys=tuple(texts),
            values=tuple(range(len(texts))),
            default=-1,
            destination_type=ElementType.i64,
        )
        x, numbers = n.emit(table, x), range(len(texts))
    elif x.element_type is not ElementType.i64:
        x = n.emit(Convert(ElementType.i64), x)
    wanted = n.value(np.array(list(numbers or []), np.int64))
    equal = n.emit(Equal(), n.emit(Unsqueeze(), x, [-1]), wanted)
    return n.emit(Convert(ElementType.f32), equal)


@translates("Imputer", domain=_ML)
def imputer(n: OnnxNode) -> Port:
    """Replaces one number, or what is not a number, per feature."""
    x = n.input(0)
    kind = "int64" if x.element_type.is_integer else "float"
    missing = n.attribute(f"replaced_value_{kind}", 0)
    values = n.attribute(f"imputed_value_{kind}s")
    if not values:
        raise n.unsupported(f"imputed_value_{kind}s are missing")
    if math.isnan(missing):
        is_missing = n.emit(IsNaN(), x)
    else:
        is_missing = n.emit(Equal(), x, n.like(missing, x))
    return n.emit(Select(), is_missing, n.like(np.asarray(values), x), x)


@translates("FeatureVectorizer", domain=_ML)
def feature_vectorizer(n: OnnxNode) -> Port:
    """Features of several inputs, one behind the other, in f32."""
    inputs = [rows_of(n, x) for x in n.required_inputs()]
    widths = n.attribute("inputdimensions") or []
    if widths and len(widths) != len(inputs):
        raise ModelFormatError(
            f"inputdimensions has {len(widths)} numbers for {len(inputs)} inputs"
        )
    return n.emit(Concat(1), *map(partial(_of_width, n), inputs, widths) if widths else inputs)


def _of_width(n: OnnxNode, x: Port, width: int) -> Port:
    """Return the first features of [rows, features], followed by zeros where there are too few."""
    if width < 0:
        raise ModelFormatError(f"inputdimensions has {width}; legal: 0 and more")
    size = None if x.shape is None else x.shape[1]
    if size == width:
        return x
    if isinstance(size, int) and size < width:
        return n.emit(Pad(), x, [0, 0], [0, width - size], n.like(0, x))
    if not isinstance(size, int):
        x = n.emit(Pad(), x, [0, 0], [0, width], n.like(0, x))
    return n.emit(Slice(), x, [0], [width], [1], [1])


@translates("ZipMap", domain=_ML)
def zip_map(n: OnnxNode) -> Port:
    """Maps from label to score, one for each row."""
    labels = n.attribute("classlabels_strings") or n.attribute("classlabels_int64s") or []
    if not labels:
        raise n.unsupported("classlabels_strings and classlabels_int64s are missing; give one")
    return n.emit(ZipMap(tuple(labels)), n.required_inputs()[0])
