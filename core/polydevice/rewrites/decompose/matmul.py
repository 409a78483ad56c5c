"""What Einsum and GroupedMatMul are made of: matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Union

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.broadcast import Broadcast, BroadcastMode
from polydevice.ops.concat import Concat
from polydevice.ops.gather import Gather
from polydevice.ops.matmul import Einsum, GroupedMatMul, MatMul, parse_equation
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.reshape import Reshape, ShapeOf
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.facts import Declined, count_of, rank_of, shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.shape import DimLike, Shape

Term = tuple[Port, str]
"""A value and one label per axis."""

Size = Union[int, Port]  # noqa: UP007 - evaluated at import, on Python 3.10 too
"""A size; where it is not known yet, a vector of one element that tells it."""


@decomposes(GroupedMatMul, where=lambda _, inputs: len(inputs) == 2)
def _grouped(build: Emitter, _: GroupedMatMul, inputs: Sequence[Port]) -> list[Port]:
    """With offsets, whose groups depend on data, it runs on the host."""
    return build.emit_all(MatMul(transpose_b=True), *inputs)


def _labelled(op: Einsum, inputs: Sequence[Port]) -> tuple[list[str], str]:
    """Give the axes under the ellipsis digits as labels, counted from the last."""
    terms, output = parse_equation(op.equation, len(inputs))
    hidden = [
        rank_of(value) - len(term.replace(".", "")) if "." in term else 0
        for term, value in zip(terms, inputs, strict=True)
    ]
    digits = "".join(chr(0x30 + i) for i in range(max(hidden, default=0)))

    def last(count: int) -> str:
        return digits[len(digits) - count :]

    named = [term.replace(".", last(n)) for term, n in zip(terms, hidden, strict=True)]
    return named, output.replace(".", digits)


@decomposes(Einsum)
def _einsum(build: Emitter, op: Einsum, inputs: Sequence[Port]) -> list[Port]:
    """Multiply the inputs pair by pair, from the left."""
    terms, output = _labelled(op, inputs)
    stretched = _stretched_labels(inputs, terms)
    left: Term | None = None
    for i, (value, labels) in enumerate(zip(inputs, terms, strict=True)):
        later = output + "".join(terms[i + 1 :])
        term = _without_ones(build, _diagonal(build, (value, labels)), stretched)
        if left is None:
            left = _summed(build, term, later)
            continue
        left = _multiplied(build, left, _summed(build, term, later + left[1]), later)
    assert left is not None
    return [_ordered(build, left, output)]


def _shape_of(value: Port) -> Shape:
    """Return the sizes, of which some may not be known; raises Declined without the rank."""
    if value.shape is None:
        raise Declined(f"the rank of {value.name} is not known")
    return value.shape


def _stretched_labels(inputs: Sequence[Port], terms: Sequence[str]) -> set[str]:
    """Return the named labels that have size 1 in one input, and may have another elsewhere."""
    sizes: dict[str, list[DimLike]] = {}
    for value, labels in zip(inputs, terms, strict=True):
        for label, size in zip(labels, _shape_of(value), strict=True):
            sizes.setdefault(label, []).append(size)
    stretched = set()
    for label, found in sizes.items():
        # Equal ones are not asked for their number, which symbolic sizes would note.
        if label.isalpha() and not all(size == found[0] for size in found[1:]):
            ones = [size == 1 for size in found]
            if any(ones) and not all(ones):
                stretched.add(label)
    return stretched


def _without_ones(build: Emitter, term: Term, stretched: AbstractSet[str]) -> Term:
    """Leave out axes of size 1 whose label has another size elsewhere: the factor is the same."""
    value, labels = term
    shape = _shape_of(value)
    kept = [i for i, label in enumerate(labels) if label not in stretched or shape[i] != 1]
    if len(kept) == len(labels):
        return term
    sizes = _sizes(build, value)
    return _reshaped(build, value, [sizes[i] for i in kept]), "".join(labels[i] for i in kept)


def _diagonal(build: Emitter, term: Term) -> Term:
    """Keep of repeated labels the elements where all their positions are equal."""
    value, labels = term
    unique = "".join(dict.fromkeys(labels))
    if len(unique) == len(labels):
        return term
    sizes = [shape_of(value)[labels.index(label)] for label in unique]
    places = np.indices(sizes).reshape(len(sizes), -1)
    index = np.ravel_multi_index([places[unique.index(label)] for label in labels], shape_of(value))
    flat = build.reshape(value, (count_of(value),))
    axis = 0
    picked = build.emit(Gather(), flat, build.value(index.astype(np.int32)), axis)
    return build.reshape(picked, sizes), unique


def _summed(build: Emitter, term: Term, needed: str) -> Term:
    """Sum over labels that nobody needs any more."""
    value, labels = term
    axes = [i for i, label in enumerate(labels) if label not in needed]
    if not axes:
        return term
    where = build.value(np.array(axes, np.int64))
    kept = "".join(label for label in labels if label in needed)
    return build.emit(ReduceSum(keep_dims=False), value, where), kept


def _multiplied(build: Emitter, a: Term, b: Term, needed: str) -> Term:
    """Multiply two terms as matrices: shared labels are batches, or summed over.

    Where no sums are left, or each is of a row by a row, that would be matrices of one element.
    """
    a = _summed(build, a, needed + b[1])
    shared = [label for label in a[1] if label in b[1]]
    batch = "".join(label for label in shared if label in needed)
    inner = "".join(label for label in shared if label not in needed)
    rows = "".join(label for label in a[1] if label not in shared)
    columns = "".join(label for label in b[1] if label not in shared)
    if not inner or not rows + columns:
        return _element_by_element(build, a, b, batch + rows + columns, inner)
    first = _ordered(build, _evened(build, a, b, inner), batch + rows + inner)
    second = _ordered(build, _evened(build, b, a, inner), batch + inner + columns)
    left = _merged(build, first, [*[1] * len(batch), len(rows), len(inner)])
    right = _merged(build, second, [*[1] * len(batch), len(inner), len(columns)])
    product = build.emit(MatMul(), left, right)
    if len(rows) != 1 or len(columns) != 1:
        sizes = _sizes(build, product)[: len(batch)]
        sizes += _sizes(build, first)[len(batch) : len(batch + rows)]
        sizes += _sizes(build, second)[len(batch + inner) :]
        product = _reshaped(build, product, sizes)
    return product, batch + rows + columns


def _evened(build: Emitter, term: Term, other: Term, inner: str) -> Term:
    """Repeat a term along sums where its size may turn out as 1, which products do not stretch."""
    sizes = dict(zip(term[1], _sizes(build, term[0]), strict=True))
    if not any(isinstance(sizes[label], Port) for label in inner):
        return term
    others = dict(zip(other[1], _sizes(build, other[0]), strict=True))
    target = [
        others[label] if label in inner and isinstance(size, Port) else 1
        for label, size in sizes.items()
    ]
    repeat = Broadcast(mode=BroadcastMode.BIDIRECTIONAL)
    return build.emit(repeat, term[0], _vector(build, target)), term[1]


def _merged(build: Emitter, value: Port, counts: Sequence[int]) -> Port:
    """Show neighbouring axes as one: so many each, none as an axis of size 1."""
    if all(count == 1 for count in counts):
        return value
    sizes = iter(_sizes(build, value))
    groups = [list(islice(sizes, count)) for count in counts]
    return _reshaped(build, value, [_product(build, group) for group in groups])


def _element_by_element(build: Emitter, a: Term, b: Term, kept: str, inner: str) -> Term:
    """Multiply two terms that stretch over each other's axes, and sum up the last ones."""
    # In the order of the longer term, which then lies as it does.
    longer = a[1] if len(a[1]) >= len(b[1]) else b[1]
    kept = "".join(sorted(kept, key=(longer + kept).index))
    labels = kept + inner
    product = build.emit(Multiply(), _stretched(build, a, labels), _stretched(build, b, labels))
    return _summed(build, (product, labels), kept)


def _stretched(build: Emitter, term: Term, labels: str) -> Port:
    """Give a term all of the labels' axes, with size 1 where it has none."""
    value = _ordered(build, term, labels)
    if len(term[1]) == len(labels):
        return value
    sizes = dict(zip(term[1], _sizes(build, term[0]), strict=True))
    return _reshaped(build, value, [sizes.get(label, 1) for label in labels])


def _ordered(build: Emitter, term: Term, labels: str) -> Port:
    """Transpose to the order of the labels that it has."""
    value, own = term
    order = [own.index(label) for label in labels if label in own]
    if order != sorted(order):
        value = build.emit(Transpose(), value, build.value(np.array(order, np.int64)))
    return value


def _sizes(build: Emitter, value: Port) -> list[Size]:
    """Return all sizes of a value."""
    sizes = _shape_of(value)
    if sizes.is_static:
        return list(sizes.static)
    shape = build.emit(ShapeOf(), value)
    return [
        size if isinstance(size, int) else build.emit(Gather(), shape, [axis], 0)
        for axis, size in enumerate(sizes)
    ]


def _product(build: Emitter, sizes: Sequence[Size]) -> Size:
    """Multiply sizes."""
    total: Size = math.prod(size for size in sizes if isinstance(size, int))
    for size in sizes:
        if isinstance(size, Port):
            total = size if total == 1 else build.emit(Multiply(), size, _vector(build, [total]))
    return total


def _vector(build: Emitter, sizes: Sequence[Size]) -> Port:
    """Return sizes as what Reshape and Broadcast read."""
    return build.emit(
        Concat(axis=0), *(size if isinstance(size, Port) else [size] for size in sizes)
    )


def _reshaped(build: Emitter, value: Port, sizes: Sequence[Size]) -> Port:
    """Show a value in another shape."""
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes):
        return build.reshape(value, known)
    return build.emit(Reshape(special_zero=False), value, _vector(build, sizes))
