"""Sequences and optionals: 1-D arrays of objects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError, ShapeError
from polydevice.ops.containers import (
    ConcatFromSequence,
    OptionalConstruct,
    OptionalGetElement,
    OptionalHasElement,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
    ZipMap,
)
from polydevice.shape import normalize_axis
from polydevice_cpu.implement import implements, once


def kept(tensor: Array) -> Array:
    """Return a tensor for a container: a copy, as later steps write where this one lies.

    Containers and texts are not written again.
    """
    return tensor if tensor.dtype.hasobject else np.array(tensor, order="C")


def container(items: Iterable[object]) -> Array:
    """Return a 1-D array of objects; NumPy alone would join arrays of one shape."""
    listed = list(items)
    return np.fromiter(listed, object, len(listed))


def _position(position: Array, count: int, last: int) -> int:
    """Return a position from the front; raises InferenceError outside [-count, last]."""
    index = int(position.reshape(-1)[0])
    if not -count <= index <= last:
        raise InferenceError(f"position {index} is outside [{-count}, {last}] of the sequence")
    return index + count if index < 0 else index


@implements(SequenceConstruct)
def sequence_construct(_op: SequenceConstruct, *items: Array) -> Array:
    """Put the inputs together."""
    return container(map(kept, items))


@implements(SequenceEmpty)
def sequence_empty(_op: SequenceEmpty) -> Array:
    """Return no tensors."""
    return container([])


@implements(SequenceInsert)
def sequence_insert(
    _op: SequenceInsert, x: Array, tensor: Array, position: Array | None = None
) -> Array:
    """Copy the list, and of the tensors the new one alone: by NumPy, for what grows in a loop."""
    index = len(x) if position is None else _position(position, len(x), len(x))
    y = np.empty(len(x) + 1, object)
    y[:index], y[index + 1 :] = x[:index], x[index:]
    y[index] = kept(tensor)
    return y


@implements(SequenceErase)
def sequence_erase(_op: SequenceErase, x: Array, position: Array | None = None) -> Array:
    """Copy the list without one."""
    index = len(x) - 1 if position is None else _position(position, len(x), len(x) - 1)
    if not len(x):
        raise InferenceError("the sequence is empty; nothing can be erased")
    y = np.empty(len(x) - 1, object)
    y[:index], y[index:] = x[:index], x[index + 1 :]
    return y


@implements(SequenceAt)
def sequence_at(_op: SequenceAt, x: Array, position: Array) -> Array:
    """Return one tensor."""
    return np.asarray(x[_position(position, len(x), len(x) - 1)])


@implements(SequenceLength)
def sequence_length(_op: SequenceLength, x: Array) -> Array:
    """Return the number of tensors."""
    return np.array(len(x), np.int64)


@implements(SplitToSequence)
def split_to_sequence(op: SplitToSequence, x: Array, split: Array | None = None) -> Array:
    """Return views of a copy: of 19 rows in 3 us, where `np.split` takes 14."""
    x = kept(x)
    axis = normalize_axis(op.axis, x.ndim)
    size = x.shape[axis]
    before = (slice(None),) * axis
    if split is None and not op.keepdims:
        return _parts(x, [(*before, number, ...) for number in range(size)])
    if split is None:
        ends: Iterable[int] = range(1, size + 1)
    elif split.ndim == 0:
        length = int(split)
        if length < 1:
            raise InferenceError(f"parts of length {length} are not possible")
        ends = (*range(length, size, length), *([size] if size else []))
    else:
        lengths = split.tolist()
        if min(lengths, default=0) < 0 or sum(lengths) != size:
            raise InferenceError(f"parts {lengths} do not add up to the size {size}")
        ends = accumulate(lengths)
    return _parts(x, [(*before, slice(*cut)) for cut in pairwise((0, *ends))])


def _parts(x: Array, places: Sequence[tuple[Any, ...]]) -> Array:
    return container([x[place] for place in places])


@implements(ConcatFromSequence)
def concat_from_sequence(op: ConcatFromSequence, x: Array) -> Array:
    """Join along the axis."""
    parts: list[Array] = x.tolist()
    if not parts:
        raise InferenceError("the sequence is empty; there is nothing to join")
    try:
        return np.stack(parts, op.axis) if op.new_axis else np.concatenate(parts, op.axis)
    except ValueError as error:
        shapes = ", ".join(sorted({str(list(part.shape)) for part in parts}))
        raise ShapeError(f"tensors of the shapes {shapes} cannot be joined: {error}") from None


@implements(OptionalConstruct)
def optional_construct(_op: OptionalConstruct, *items: Array) -> Array:
    """Hold the input, if there is one."""
    return container(map(kept, items))


@implements(OptionalHasElement)
def optional_has_element(_op: OptionalHasElement, x: Array) -> Array:
    """Look for the one item."""
    return np.array(len(x) > 0)


@implements(OptionalGetElement)
def optional_get_element(_op: OptionalGetElement, x: Array) -> Array:
    """Return the one item."""
    if not len(x):
        raise InferenceError("the optional is empty; ask OptionalHasElement first")
    item: Array = x[0]
    return item


MOST_LABELS = 256
"""Up to so many a function has the dictionary as its own text: to fill 50 of 4 labels one by one
takes 12 us, and 5 so."""


@once
def _maps_of(op: ZipMap) -> Callable[[Array], list[dict[int | str, float]]]:
    """Return what makes a dictionary, in the order of labels, of each row."""
    order = sorted(range(op.size), key=op.labels.__getitem__)
    labels = [op.labels[index] for index in order]
    if not 0 < op.size <= MOST_LABELS:
        return functools.partial(_maps, order, labels)
    pairs = ", ".join(f"k{number}: v{index}" for number, index in enumerate(order))
    names = "".join(f"v{index}, " for index in range(op.size))
    text = f"lambda rows: [{{{pairs}}} for {names}in rows.tolist()]"
    made: Callable[[Array], list[dict[int | str, float]]] = eval(  # noqa: S307 - our own text
        text, {f"k{number}": label for number, label in enumerate(labels)}
    )
    return made


def _maps(order: list[int], labels: list[int | str], rows: Array) -> list[dict[int | str, float]]:
    maps: list[dict[int | str, float]] = [{} for _ in rows]
    for label, scores in zip(labels, rows.T[order].tolist(), strict=True):
        for map_, score in zip(maps, scores, strict=True):  # a third of `dict`'s time
            map_[label] = score
    return maps


@implements(ZipMap)
def zip_map(op: ZipMap, x: Array) -> Array:
    """Return a dictionary for each row, of Python's numbers."""
    rows = x if x.ndim == 2 else np.atleast_2d(x)
    if rows.shape[1] != op.size:
        raise InferenceError(f"there are {rows.shape[1]} scores for {op.size} labels")
    return container(_maps_of(op)(rows))
