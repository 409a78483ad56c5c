"""What Einsum and GroupedMatMul are made of: matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.gather import Gather
from polydevice.ops.matmul import Einsum, GroupedMatMul, MatMul, parse_equation
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.facts import count_of, rank_of, shape_of
from polydevice.rewrites.rule import decomposes

Term = tuple[Port, str]
"""A value and one label per axis."""


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


def _stretched_labels(inputs: Sequence[Port], terms: Sequence[str]) -> set[str]:
    """Return the named labels that have size 1 in one input and another size elsewhere."""
    sizes: dict[str, list[int]] = {}
    for value, labels in zip(inputs, terms, strict=True):
        for label, size in zip(labels, shape_of(value), strict=True):
            sizes.setdefault(label, []).append(size)
    named = {label: [n == 1 for n in found] for label, found in sizes.items() if label.isalpha()}
    return {label for label, ones in named.items() if any(ones) and not all(ones)}


def _without_ones(build: Emitter, term: Term, stretched: AbstractSet[str]) -> Term:
    """Leave out axes of size 1 whose label has another size elsewhere: the factor is the same."""
    value, labels = term
    sizes = shape_of(value)
    kept = [i for i, label in enumerate(labels) if label not in stretched or sizes[i] != 1]
    if len(kept) == len(labels):
        return term
    return build.reshape(value, [sizes[i] for i in kept]), "".join(labels[i] for i in kept)


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
    first, second = (
        _ordered(build, a, batch + rows + inner),
        _ordered(build, b, batch + inner + columns),
    )
    n = len(batch)
    depth = math.prod(shape_of(first)[n + len(rows) :])
    left = build.reshape(
        first, (*shape_of(first)[:n], count_of(first) // _outer(first, n, depth), depth)
    )
    right = build.reshape(
        second, (*shape_of(second)[:n], depth, count_of(second) // _outer(second, n, depth))
    )
    product = build.emit(MatMul(), left, right)
    outer = (*shape_of(first)[n : n + len(rows)], *shape_of(second)[n + len(inner) :])
    shape = (*shape_of(product)[:n], *outer)
    return build.reshape(product, shape), batch + rows + columns


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
    sizes = dict(zip(term[1], shape_of(term[0]), strict=True))
    return build.reshape(value, [sizes.get(label, 1) for label in labels])


def _outer(value: Port, batches: int, depth: int) -> int:
    return max(math.prod(shape_of(value)[:batches]) * depth, 1)


def _ordered(build: Emitter, term: Term, labels: str) -> Port:
    """Transpose to the order of the labels that it has."""
    value, own = term
    order = [own.index(label) for label in labels if label in own]
    if order != sorted(order):
        value = build.emit(Transpose(), value, build.value(np.array(order, np.int64)))
    return value
