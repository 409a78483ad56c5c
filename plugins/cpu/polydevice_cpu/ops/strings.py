"""Operations on strings."""

from __future__ import annotations

import functools
import math
from collections import Counter
from typing import Any

import numpy as np

from polydevice.bounds import bounded, current_bounds
from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.strings import (
    CaseChange,
    LabelEncoder,
    RegexFullMatch,
    StringConcat,
    StringNormalizer,
    StringSplit,
    TfIdfMode,
    TfIdfVectorizer,
)
from polydevice_cpu.algorithms.regular_expression import Pattern, PatternError
from polydevice_cpu.implement import implements

STRING_BYTES = 56
"""What Python takes for a short text, besides a byte or more per character."""

POINTER_BYTES = 8


def _strings(items: list[str], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


@implements(StringConcat)
def string_concat(_op: StringConcat, a: Array, b: Array) -> Array:
    """Join element by element."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    size = math.prod(shape)
    characters = sum(
        sum(map(len, map(str, x.reshape(-1)))) * size // max(x.size, 1) for x in (a, b)
    )
    current_bounds().admit(characters + size * STRING_BYTES, "StringConcat")
    left, right = (np.broadcast_to(x, shape).reshape(-1) for x in (a, b))
    return _strings([f"{x}{y}" for x, y in bounded(zip(left, right, strict=True))], shape)


@implements(RegexFullMatch)
def regex_full_match(op: RegexFullMatch, x: Array) -> Array:
    """Match each string."""
    try:
        pattern = _compiled(op.pattern)
    except PatternError as error:
        raise InferenceError(f"RegexFullMatch: pattern {op.pattern!r}: {error}") from None
    found = [pattern.fullmatch(str(item)) for item in x.reshape(-1)]
    return np.array(found, np.bool_).reshape(x.shape)


_compiled = functools.lru_cache(maxsize=64)(Pattern)


MOST_TEXTS = 1 << 27
"""NumPy fills an array in one go, which nothing can interrupt: so many take it half a second."""


@implements(StringSplit)
def string_split(op: StringSplit, x: Array) -> tuple[Array, Array]:
    """Split, then fill up to the longest list."""
    limit = -1 if op.maxsplit is None else op.maxsplit
    lists = [_split(str(item), op.delimiter, limit) for item in bounded(x.reshape(-1))]
    counts = np.array([len(parts) for parts in lists], np.int64)
    width = int(counts.max(initial=0))
    if x.size * width > MOST_TEXTS:
        raise InferenceError(
            f"StringSplit: {x.size} lists of {width} texts, the longest one's length, are too "
            f"many; at most {MOST_TEXTS} texts are made"
        )
    # The empty texts that fill up are one object.
    bounds = current_bounds()
    bounds.admit(x.size * width * POINTER_BYTES + int(counts.sum()) * STRING_BYTES, "StringSplit")
    filled = np.full((x.size, width), "", object)
    for row, parts in zip(filled, bounded(lists), strict=True):
        row[: len(parts)] = parts
    return filled.reshape(*x.shape, width), counts.reshape(x.shape)


def _split(text: str, delimiter: str, limit: int) -> list[str]:
    if delimiter:
        return text.split(delimiter, limit) if text else []
    return text.split(None, limit)


@implements(StringNormalizer)
def string_normalizer(op: StringNormalizer, x: Array) -> Array:
    """Compare with the stop words first, in lower case unless case matters."""
    fold = str if op.is_case_sensitive else str.lower
    stop = {fold(word) for word in op.stopwords}
    change = {CaseChange.LOWER: str.lower, CaseChange.UPPER: str.upper}.get(
        op.case_change_action, str
    )
    kept = [change(str(word)) for word in x.reshape(-1) if fold(str(word)) not in stop]
    kept = kept or [""]
    return _strings(kept, (*x.shape[:-1], len(kept)))


@implements(TfIdfVectorizer)
def tf_idf_vectorizer(op: TfIdfVectorizer, x: Array) -> Array:
    """Count the n-grams of each row in a dictionary."""
    grams = op.grams()
    places = {gram: i for i, gram in reversed(list(enumerate(grams)))}
    width = max(op.columns, default=-1) + 1
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    y = np.zeros((len(rows), width), np.float32)
    for row, items in enumerate(rows.tolist()):
        for index, count in _counted(op, items, places).items():
            weight = op.weights[index] if op.weights else 1.0
            value = {TfIdfMode.TF: count, TfIdfMode.IDF: weight}.get(op.mode, count * weight)
            y[row, op.columns[index]] += value
    return y.reshape(*x.shape[:-1], width)


def _counted(
    op: TfIdfVectorizer, items: list[Any], places: dict[tuple[Any, ...], int]
) -> Counter[int]:
    counts: Counter[int] = Counter()
    lengths = {len(gram) for gram in places}  # others are never found
    for length in sorted(each for each in lengths if op.shortest <= each <= op.longest):
        # A single element has no distances, so it counts once; more must lie within the row.
        most = 1 if length == 1 else min(op.longest_skip + 1, (len(items) - 1) // (length - 1))
        for distance in bounded(range(1, most + 1)):
            reach = (length - 1) * distance
            for start in bounded(range(len(items) - reach)):
                found = places.get(tuple(items[start : start + reach + 1 : distance]))
                if found is not None:
                    counts[found] += 1
    return counts


@implements(LabelEncoder)
def label_encoder(op: LabelEncoder, x: Array) -> Array:
    """Look every element up; NaN is a key like any other."""
    table = dict(zip(map(_key, op.keys), op.values, strict=True))
    found = [table.get(_key(item), op.default) for item in x.reshape(-1).tolist()]
    dtype = op.destination_type.dtype
    if dtype.hasobject:
        return _strings([str(item) for item in found], x.shape)
    try:
        return np.array(found, dtype).reshape(x.shape)
    except (ValueError, OverflowError) as error:
        raise InferenceError(f"LabelEncoder: a value does not fit {dtype}: {error}") from error


def _key(item: Any) -> Any:
    return "NaN key" if isinstance(item, float) and math.isnan(item) else item
