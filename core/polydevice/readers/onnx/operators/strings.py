"""Strings, and the simple operators of ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.dtype import ElementType
from polydevice.errors import ModelFormatError
from polydevice.node import Port
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.comparison import Greater
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.reshape import Reshape
from polydevice.ops.strings import LabelEncoder, TfIdfMode, TfIdfVectorizer
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.protos.attributes import TensorValue

_ML = "ai.onnx.ml"


@translates("TfIdfVectorizer")
def tf_idf_vectorizer(n: OnnxNode) -> Port:
    """Counts of the n-grams of a pool."""
    pool = n.attribute("pool_strings") or n.attribute("pool_int64s") or []
    op = TfIdfVectorizer(
        pool=tuple(pool),
        starts=tuple(n.required("ngram_counts")),
        columns=tuple(n.required("ngram_indexes")),
        shortest=n.required("min_gram_length"),
        longest=n.required("max_gram_length"),
        longest_skip=n.required("max_skip_count"),
        mode=TfIdfMode(n.required("mode")),
        weights=tuple(n.attribute("weights") or ()),
    )
    return n.emit(op, n.input(0))


_LABEL_TYPES = {
    "strings": (ElementType.string, "default_string", "_Unused"),
    "int64s": (ElementType.i64, "default_int64", -1),
    "floats": (ElementType.f32, "default_float", -0.0),
}


@translates("LabelEncoder", since=2, domain=_ML)
def label_encoder(n: OnnxNode) -> Port:
    """A table of keys and values."""
    keys = next((_listed(v) for k, v in n.attributes.items() if k.startswith("keys_")), None)
    if keys is None:
        raise n.unsupported("keys are missing")
    kind, values = _values(n)
    op = LabelEncoder(keys=keys, values=values, default=_default(n, kind), destination_type=kind)
    return n.emit(op, n.input(0))


def _values(n: OnnxNode) -> tuple[ElementType, tuple[Any, ...]]:
    """Return what keys become, and its type."""
    tensor: TensorValue | None = n.attribute("values_tensor")
    if tensor is not None:
        return tensor.element_type, _listed(tensor)
    for name, (kind, _, _) in _LABEL_TYPES.items():
        values = n.attribute(f"values_{name}")
        if values is not None:
            return kind, tuple(values)
    raise n.unsupported("values are missing")


def _default(n: OnnxNode, kind: ElementType) -> Any:
    """Return what a key that is not in the table becomes."""
    given: TensorValue | None = n.attribute("default_tensor")
    if given is not None:
        if given.array.size != 1:
            raise ModelFormatError(f"default_tensor has {given.array.size} elements instead of 1")
        return _listed(given)[0]
    for own, name, default in _LABEL_TYPES.values():
        if own is kind:
            return n.attribute(name, default)
    return -1 if kind.is_integer else -0.0


@translates("LabelEncoder", "CategoryMapper", domain=_ML)
def category_mapper(n: OnnxNode) -> Port:
    """Texts and the numbers of theirs, in either direction, as the first versions have them."""
    texts = n.attribute("classes_strings") or n.attribute("cats_strings") or []
    numbers = n.attribute("cats_int64s") or []
    if n.op_type == "LabelEncoder":
        numbers = list(range(len(texts)))
    if not texts or len(texts) != len(numbers):
        raise n.unsupported(f"{len(texts)} texts for {len(numbers)} numbers")
    is_text = n.input(0).element_type is ElementType.string
    kind, name, default = _LABEL_TYPES["int64s" if is_text else "strings"]
    op = LabelEncoder(
        keys=tuple(texts if is_text else numbers),
        values=tuple(numbers if is_text else texts),
        default=n.attribute(name, default),
        destination_type=kind,
    )
    return n.emit(op, n.input(0))


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value.array.reshape(-1).tolist() if isinstance(value, TensorValue) else value)


@translates("ArrayFeatureExtractor", domain=_ML)
def array_feature_extractor(n: OnnxNode) -> Port:
    """Elements along the last axis."""
    x = n.input(0)
    if x.desc.rank == 1:
        x = n.emit(Reshape(special_zero=False), x, [1, -1])
    places = n.emit(Reshape(special_zero=False), n.input(1), [-1])
    return n.emit(Gather(), x, places, -1)


@translates("Binarizer", domain=_ML)
def binarizer(n: OnnxNode) -> Port:
    """1 above the threshold, else 0."""
    x = n.input(0)
    above = n.emit(Greater(), x, n.like(n.attribute("threshold", 0.0), x))
    return n.emit(Convert(x.element_type), above)


@translates("Scaler", domain=_ML)
def scaler(n: OnnxNode) -> Port:
    """(x - offset) * scale per feature, in float32."""
    x = n.input(0)
    if x.element_type is not ElementType.f32:
        x = n.emit(Convert(ElementType.f32), x)
    offset = np.asarray(n.attribute("offset") or [0.0], np.float32)
    scale = np.asarray(n.attribute("scale") or [1.0], np.float32)
    return n.emit(Multiply(), n.emit(Subtract(), x, n.like(offset, x)), n.like(scale, x))
