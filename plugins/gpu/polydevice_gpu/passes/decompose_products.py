"""What Einsum and BinaryConvolution are made of: matrix products and a convolution of signs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.ops.comparison import Greater
from polydevice.ops.convolution import Convolution
from polydevice.ops.convolution_special import BinaryConvolution, binary_weights
from polydevice.ops.gather import Gather
from polydevice.ops.matmul import Einsum, GroupedMatMul, MatMul, parse_equation
from polydevice.ops.pad import Pad
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.select import Select
from polydevice.ops.transpose import Transpose
from polydevice.window import PadType
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

Term = tuple[Value, str]
"""A value and one label per axis."""


@decomposes(BinaryConvolution, when=lambda _, inputs: inputs[1].constant is not None)
def _binary(build: Builder, op: BinaryConvolution, inputs: Sequence[Value]) -> list[Value]:
    x, w = inputs
    kind = x.element_type

    def number(value: float) -> Value:
        return build.constant(np.asarray(value, kind.dtype), kind)

    positive = build.one(Greater(), x, number(0.0))
    signs = build.one(Select(), positive, number(1.0), number(-1.0))
    begin, end = op.window(w.shape).pads(x.shape[2:])
    if any(begin) or any(end):
        pads = (build.constant(np.array([0, 0, *pad], np.int64)) for pad in (begin, end))
        signs = build.one(Pad(), signs, *pads, number(op.pad_value))
    plain = Convolution(strides=op.strides, dilations=op.dilations, auto_pad=PadType.VALID)
    weights = binary_weights(np.asarray(w.constant)).astype(kind.dtype)
    return build.add(plain, signs, build.constant(weights, kind))


@decomposes(GroupedMatMul, when=lambda _, inputs: len(inputs) == 2)
def _grouped(build: Builder, _: GroupedMatMul, inputs: Sequence[Value]) -> list[Value]:
    """With offsets, whose groups depend on data, it runs on the host."""
    return build.add(MatMul(transpose_b=True), *inputs)


# -- Einsum ---------------------------------------------------------------------------------------


def _has_equal_sizes(op: Einsum, inputs: Sequence[Value]) -> bool:
    """Whether each named label has one size; a size of 1 may stretch under an ellipsis only."""
    terms, _ = _labelled(op, inputs)
    sizes: dict[str, set[int]] = {}
    for value, labels in zip(inputs, terms, strict=True):
        for label, size in zip(labels, value.shape, strict=True):
            sizes.setdefault(label, set()).add(size)
    return all(len(found) == 1 for label, found in sizes.items() if label.isalpha())


def _labelled(op: Einsum, inputs: Sequence[Value]) -> tuple[list[str], str]:
    """Give the axes under the ellipsis digits as labels, counted from the last."""
    terms, output = parse_equation(op.equation, len(inputs))
    hidden = [
        value.rank - len(term.replace(".", "")) if "." in term else 0
        for term, value in zip(terms, inputs, strict=True)
    ]
    digits = "".join(chr(0x30 + i) for i in range(max(hidden, default=0)))

    def last(count: int) -> str:
        return digits[len(digits) - count :]

    named = [term.replace(".", last(n)) for term, n in zip(terms, hidden, strict=True)]
    return named, output.replace(".", digits)


@decomposes(Einsum, when=_has_equal_sizes)
def _einsum(build: Builder, op: Einsum, inputs: Sequence[Value]) -> list[Value]:
    """Multiply the inputs pair by pair, from the left."""
    terms, output = _labelled(op, inputs)
    left: Term | None = None
    for i, (value, labels) in enumerate(zip(inputs, terms, strict=True)):
        later = output + "".join(terms[i + 1 :])
        term = _diagonal(build, (value, labels))
        if left is None:
            left = _summed(build, term, later)
            continue
        left = _multiplied(build, left, _summed(build, term, later + left[1]), later)
    assert left is not None
    return [_ordered(build, left, output)]


def _diagonal(build: Builder, term: Term) -> Term:
    """Keep of repeated labels the elements where all their positions are equal."""
    value, labels = term
    unique = "".join(dict.fromkeys(labels))
    if len(unique) == len(labels):
        return term
    sizes = [value.shape[labels.index(label)] for label in unique]
    places = np.indices(sizes).reshape(len(sizes), -1)
    index = np.ravel_multi_index([places[unique.index(label)] for label in labels], value.shape)
    flat = reshape(build, value, (value.elements,))
    axis = build.constant(np.asarray(0, np.int64))
    picked = build.one(Gather(), flat, build.constant(index.astype(np.int32)), axis)
    return reshape(build, picked, sizes), unique


def _summed(build: Builder, term: Term, needed: str) -> Term:
    """Sum over labels that nobody needs any more."""
    value, labels = term
    axes = [i for i, label in enumerate(labels) if label not in needed]
    if not axes:
        return term
    where = build.constant(np.array(axes, np.int64))
    kept = "".join(label for label in labels if label in needed)
    return build.one(ReduceSum(keep_dims=False), value, where), kept


def _multiplied(build: Builder, a: Term, b: Term, needed: str) -> Term:
    """Multiply two terms as matrices: shared labels are batches, or summed over."""
    a = _summed(build, a, needed + b[1])
    shared = [label for label in a[1] if label in b[1]]
    batch = "".join(label for label in shared if label in needed)
    inner = "".join(label for label in shared if label not in needed)
    rows = "".join(label for label in a[1] if label not in shared)
    columns = "".join(label for label in b[1] if label not in shared)
    first, second = (
        _ordered(build, a, batch + rows + inner),
        _ordered(build, b, batch + inner + columns),
    )
    n = len(batch)
    depth = math.prod(first.shape[n + len(rows) :])
    left = reshape(
        build, first, (*first.shape[:n], first.elements // _outer(first, n, depth), depth)
    )
    right = reshape(
        build, second, (*second.shape[:n], depth, second.elements // _outer(second, n, depth))
    )
    product = build.one(MatMul(), left, right)
    shape = (
        *product.shape[:n], *first.shape[n : n + len(rows)], *second.shape[n + len(inner) :]
    )  # fmt: skip
    return reshape(build, product, shape), batch + rows + columns


def _outer(value: Value, batches: int, depth: int) -> int:
    return max(math.prod(value.shape[:batches]) * depth, 1)


def _ordered(build: Builder, term: Term, labels: str) -> Value:
    """Transpose to the order of the labels; axes that it lacks get size 1."""
    value, own = term
    order = [own.index(label) for label in labels if label in own]
    if order != sorted(order):
        value = build.one(Transpose(), value, build.constant(np.array(order, np.int64)))
    return value
