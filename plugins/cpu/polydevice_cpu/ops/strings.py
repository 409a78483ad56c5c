"""Operations on strings."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from itertools import chain, filterfalse, repeat, zip_longest
from typing import Any, TypeVar

import numpy as np

from polydevice.bounds import current_bounds
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
from polydevice_cpu.algorithms.texts.automaton import Matcher
from polydevice_cpu.algorithms.texts.labels import Labels
from polydevice_cpu.algorithms.texts.ngrams import Grams
from polydevice_cpu.algorithms.texts.regular_expression import PatternError
from polydevice_cpu.implement import implements, once

T = TypeVar("T")

STRING_BYTES = 56
"""What Python takes for a short text, besides a byte or more per character."""

POINTER_BYTES = 8

AT_ONCE = 1 << 14
"""Elements that are computed together; others may end the inference in between."""


def texts_of(x: Array) -> list[str]:
    """Return the elements as Python's texts."""
    return _texts(x)[1]


def _texts(x: Array) -> tuple[Array, list[str]]:
    """Return the same, and as an array, which x is where it holds nothing else, as most do."""
    items: list[Any] = x.reshape(-1).tolist()
    if _TEXTS.issuperset(map(type, items)):
        return x, items
    items = list(map(str, items))
    return strings(items, x.shape), items


_TEXTS = {str}


def _of_texts(compute: Callable[[list[str]], T], x: Array) -> T:
    """Compute of the elements, which mostly are texts: to ask each takes as long as to split it.

    Args:
        compute: raises a TypeError where one is none.
        x: the elements, of which others become texts then.
    """
    try:
        return compute(x.reshape(-1).tolist())
    except TypeError:
        return compute(texts_of(x))


def strings(items: list[str], shape: tuple[int, ...]) -> Array:
    """Return texts as an array."""
    return np.fromiter(items, object, len(items)).reshape(shape)


def _parts(items: list[str]) -> Iterator[list[str]]:
    """Yield the items in lists of `AT_ONCE`, as long as the inference may go on."""
    check = current_bounds().check
    if len(items) <= AT_ONCE:
        check()
        yield items
        return
    for first in range(0, len(items), AT_ONCE):
        check()
        yield items[first : first + AT_ONCE]


@implements(StringConcat)
def string_concat(_op: StringConcat, a: Array, b: Array) -> Array:
    """Join element by element."""
    shape = a.shape if a.shape == b.shape else np.broadcast(a, b).shape
    size = math.prod(shape)
    (left, left_texts), (right, right_texts) = _texts(a), _texts(b)
    characters = sum(
        sum(map(len, each)) * size // max(len(each), 1) for each in (left_texts, right_texts)
    )
    current_bounds().admit(characters + size * STRING_BYTES, "StringConcat")
    made = np.empty(shape, object)
    if size <= AT_ONCE:
        np.add(left, right, out=made)
        return made
    left, right = (np.broadcast_to(each, shape).reshape(-1) for each in (left, right))
    for first in range(0, size, AT_ONCE):
        current_bounds().check()
        some = slice(first, first + AT_ONCE)
        np.add(left[some], right[some], out=made.reshape(-1)[some])
    return made


@implements(RegexFullMatch)
def regex_full_match(op: RegexFullMatch, x: Array) -> Array:
    """Match each string."""
    try:
        pattern = _compiled(op.pattern)
    except PatternError as error:
        raise InferenceError(f"RegexFullMatch: pattern {op.pattern!r}: {error}") from None
    return _of_texts(pattern.matches, x).reshape(x.shape)


_compiled = functools.lru_cache(maxsize=64)(Matcher)


MOST_TEXTS = 1 << 27
"""NumPy fills an array in one go, which nothing can interrupt: so many take it half a second."""


@implements(StringSplit)
def string_split(op: StringSplit, x: Array) -> tuple[Array, Array]:
    """Split, then fill up to the longest list."""
    made, counts, lists = _of_texts(functools.partial(_split, op), x)
    width = int(counts.max(initial=0))
    if x.size * width > MOST_TEXTS:
        raise InferenceError(
            f"StringSplit: {x.size} lists of {width} texts, the longest one's length, are too "
            f"many; at most {MOST_TEXTS} texts are made"
        )
    # The empty texts that fill up are one object.
    total, bounds = len(made), current_bounds()
    bounds.admit(x.size * width * POINTER_BYTES + total * STRING_BYTES, "StringSplit")
    bounds.check()
    if lists and total < x.size * width:
        columns = chain.from_iterable(zip_longest(*lists, fillvalue=""))
        by_columns = np.fromiter(columns, object, x.size * width).reshape(width, -1)
        filled = np.ascontiguousarray(by_columns.T)
        return filled.reshape(*x.shape, width), counts.reshape(x.shape)
    parts = np.fromiter(made, object, total)
    if total < x.size * width:
        filled = np.full((x.size, width), "", object)
        filled[np.arange(width) < counts[:, np.newaxis]] = parts
        parts = filled
    return parts.reshape(*x.shape, width), counts.reshape(x.shape)


FEW_LISTS = 256
"""Up to so many are filled up while they are walked through side by side: a third of the time."""


def _split(op: StringSplit, items: list[str]) -> tuple[list[str], Array, list[list[str]]]:
    """Return the parts of all texts, and how many each has; an empty one has none.

    All at once where the end of each text may be a delimiter like those in it, and all have as many
    parts, as mostly: 90 texts of two parts take 7 us so, and 20 one by one, most of it for their
    lists. These are returned besides where there are few.
    """
    delimiter, limit = op.delimiter or None, -1 if op.maxsplit is None else op.maxsplit
    is_plain = len(op.delimiter) == 1 and op.maxsplit is None
    made: list[str] = []
    counts: list[Array] = []
    lists: list[list[str]] = []
    for some in _parts(items):
        if is_plain and some and all(some):
            alike = _split_alike(op.delimiter, some)
            if alike is not None:
                made += alike
                counts.append(np.array([len(alike) // len(some)]).repeat(len(some)))
                continue
        lists = list(map(str.split, some, repeat(delimiter), repeat(limit)))
        if delimiter and not all(some):
            lists = [each if text else [] for each, text in zip(lists, some, strict=True)]
        made += chain.from_iterable(lists)
        counts.append(np.fromiter(map(len, lists), np.int64, len(lists)))
    if len(counts) == 1:
        return made, counts[0], lists if len(lists) <= FEW_LISTS else []
    return made, np.concatenate([np.empty(0, np.int64), *counts]), []


_END = "\0"
"""Stands for the end of a text among parts: one of those characters of which Python has one text
each, so that it is found by where it is."""


def _split_alike(delimiter: str, texts: list[str]) -> list[str] | None:
    """Return the parts of texts that all have as many; None where they have not."""
    parts = f"{delimiter}{_END}{delimiter}".join(texts).split(delimiter)
    width, rest = divmod(len(parts) + 1, len(texts))
    ends = parts[width - 1 :: width]
    if rest or ends != [_END] * len(ends) or _END in "".join(texts):
        return None
    del parts[width - 1 :: width]
    return parts


@once
def _normalising(op: StringNormalizer) -> tuple[Callable[[str], str] | None, frozenset[str]]:
    """Return what changes words, and the stop words as they are compared."""
    change = {CaseChange.LOWER: str.lower, CaseChange.UPPER: str.upper}
    stop = op.stopwords if op.is_case_sensitive else map(str.lower, op.stopwords)
    return change.get(op.case_change_action), frozenset(stop)


@implements(StringNormalizer)
def string_normalizer(op: StringNormalizer, x: Array) -> Array:
    """Compare with the stop words first, in lower case unless case matters."""
    change, stop = _normalising(op)
    normalised = functools.partial(_normalised, change, stop, op.is_case_sensitive)
    kept = (normalised(texts_of(x)) if change is None else _of_texts(normalised, x)) or [""]
    return strings(kept, (*x.shape[:-1], len(kept)))


def _normalised(
    change: Callable[[str], str] | None,
    stop: frozenset[str],
    is_case_sensitive: bool,
    items: list[str],
) -> list[str]:
    kept: list[str] = []
    for words in _parts(items):
        changed = words if change is None else list(map(change, words))
        if is_case_sensitive:
            folded = words
        else:
            folded = changed if change is str.lower else list(map(str.lower, words))
        if folded is changed:
            kept += filterfalse(stop.__contains__, changed)
        else:
            kept += [word for word, same in zip(changed, folded, strict=True) if same not in stop]
    return kept


@once
def _grams(op: TfIdfVectorizer) -> tuple[Grams, Array | None, Callable[[Array], Array]]:
    """Return n-grams and their weights, and what puts numbers of n-grams into their columns.

    Where each has one of its own, n-grams are in the order of columns, if they are different ones.
    """
    pool, columns = op.grams(), np.array(op.columns, np.int64)
    weights = np.array(op.weights, np.float32) if op.weights else None
    order = columns.argsort()
    are_own = np.array_equal(columns.take(order), np.arange(len(columns)))
    is_ordered = are_own and len(pool) == len({*pool}) == len(order)
    if is_ordered:
        pool = [pool[number] for number in order.tolist()]
        weights = None if weights is None else weights.take(order)
    grams = Grams(pool, op.shortest, op.longest, op.longest_skip + 1)
    if is_ordered or (are_own and (order == np.arange(len(order))).all()):
        return grams, weights, np.asarray
    if are_own:
        return grams, weights, lambda values: values.take(order, 1)
    width = max(op.columns, default=-1) + 1
    return grams, weights, functools.partial(_added, columns, width)


def _added(columns: Array, width: int, values: Array) -> Array:
    y = np.zeros((width, len(values)), np.float32)
    np.add.at(y, columns, values.T)
    return np.ascontiguousarray(y.T)


@implements(TfIdfVectorizer)
def tf_idf_vectorizer(op: TfIdfVectorizer, x: Array) -> Array:
    """Count the n-grams of each row, then weigh them."""
    grams, weights, placed = _grams(op)
    counts = grams.counted(x.reshape(1, -1) if x.ndim == 1 else x)
    if op.mode is TfIdfMode.IDF:
        counts = np.minimum(counts, 1)
    values = counts.astype(np.float32)
    if weights is not None and op.mode is not TfIdfMode.TF:
        values *= weights
    values = placed(values)
    return values.reshape(*x.shape[:-1], values.shape[1])


@once
def _labels(op: LabelEncoder) -> Labels:
    dtype = op.destination_type.dtype
    try:
        return Labels(op.keys, op.values, op.default, dtype)
    except (ValueError, OverflowError) as error:
        raise InferenceError(f"LabelEncoder: a value does not fit {dtype}: {error}") from error


@implements(LabelEncoder)
def label_encoder(op: LabelEncoder, x: Array) -> Array:
    """Look every element up."""
    return _labels(op).of(x)
