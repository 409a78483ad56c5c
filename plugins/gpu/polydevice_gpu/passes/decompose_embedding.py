# ruff: noqa: ARG001 - every decomposition takes builder, operation and inputs
"""What embedding bags are made of: gathered rows, and a product with who belongs to which bag."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.ops.arithmetic import Divide, Maximum, Multiply
from polydevice.ops.comparison import Equal, GreaterEqual, Less, LessEqual
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.embedding import (
    BagReduction,
    EmbeddingBagOffsets,
    EmbeddingBagOffsetsSum,
    EmbeddingBagPacked,
    EmbeddingBagPackedSum,
    EmbeddingSegmentsSum,
)
from polydevice.ops.gather import Gather
from polydevice.ops.logical import LogicalAnd
from polydevice.ops.matmul import MatMul
from polydevice.ops.reduce import ReduceMean, ReduceSum
from polydevice.ops.select import Select
from polydevice.ops.slice import Slice
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

MAX_MEMBERS = 1 << 22
"""Largest product of bags and indices; each pair is one element of a matrix."""


def _taken(build: Builder, table: Value, indices: Value) -> Value:
    """Return the rows of the table, each flattened to one axis: [..., D]."""
    flat = reshape(build, table, (table.shape[0], math.prod(table.shape[1:])))
    return build.one(Gather(), flat, indices, build.constant(np.asarray(0, np.int64)))


@decomposes(EmbeddingBagPackedSum, when=lambda _, inputs: inputs[0].element_type.is_float)
def _packed(build: Builder, op: EmbeddingBagPackedSum, inputs: Sequence[Value]) -> list[Value]:
    table, indices, *weights = inputs
    rows = _taken(build, table, indices)
    if weights:
        rows = build.one(Multiply(), rows, reshape(build, weights[0], (*indices.shape, 1)))
    mean = isinstance(op, EmbeddingBagPacked) and op.reduction is BagReduction.MEAN
    kind = ReduceMean if mean else ReduceSum
    y = build.one(kind(keep_dims=False), rows, build.constant(np.array([1], np.int64)))
    return [reshape(build, y, (indices.shape[0], *table.shape[1:]))]


def _is_small(op: EmbeddingBagOffsetsSum, inputs: Sequence[Value]) -> bool:
    members = inputs[1].elements * inputs[2].elements
    return inputs[0].element_type.is_float and 0 < members <= MAX_MEMBERS


@decomposes(EmbeddingBagOffsetsSum, when=_is_small)
def _offsets(build: Builder, op: EmbeddingBagOffsetsSum, inputs: Sequence[Value]) -> list[Value]:
    """Index n lies in bag b if it is at or behind b's offset, and before the next one's."""
    table, indices, offsets, *rest = inputs
    count, n, kind = offsets.elements, indices.elements, offsets.element_type
    end = build.constant(np.array([n], kind.dtype), kind)
    following = end
    if offsets.constant is not None:
        known = np.append(np.asarray(offsets.constant).reshape(-1)[1:], n)
        following = build.constant(known.astype(kind.dtype), kind)
    elif count > 1:
        limits = [build.constant(np.array([v], np.int64)) for v in (1, count, 1, 0)]
        following = build.one(Concat(axis=0), build.one(Slice(), offsets, *limits), end)
    place = build.constant(np.arange(n, dtype=kind.dtype).reshape(1, n), kind)
    behind = build.one(LessEqual(), reshape(build, offsets, (count, 1)), place)
    before = build.one(Less(), place, reshape(build, following, (count, 1)))
    member = build.one(LogicalAnd(), behind, before)
    mean = isinstance(op, EmbeddingBagOffsets) and op.reduction is BagReduction.MEAN
    return [_of_members(build, table, indices, member, rest, mean=mean)]


def _has_count(op: EmbeddingSegmentsSum, inputs: Sequence[Value]) -> bool:
    if inputs[3].constant is None or not inputs[0].element_type.is_float:
        return False
    return (
        0 < int(np.asarray(inputs[3].constant).reshape(-1)[0]) * inputs[1].elements <= MAX_MEMBERS
    )


@decomposes(EmbeddingSegmentsSum, when=_has_count)
def _segments(build: Builder, op: EmbeddingSegmentsSum, inputs: Sequence[Value]) -> list[Value]:
    table, indices, segments, count, *rest = inputs
    number, kind = int(np.asarray(count.constant).reshape(-1)[0]), segments.element_type
    column = build.constant(np.arange(number, dtype=kind.dtype).reshape(number, 1), kind)
    member = build.one(Equal(), column, reshape(build, segments, (1, segments.elements)))
    return [_of_members(build, table, indices, member, rest, mean=False)]


def _of_members(
    build: Builder, table: Value, indices: Value, member: Value, rest: Sequence[Value],
    *, mean: bool,
) -> Value:  # fmt: skip
    """Multiply the bags' members [bags, n] with the rows of the indices."""
    kind = table.element_type
    default, weights = (*rest, None, None)[:2]
    belongs = build.one(Convert(destination_type=kind), member)
    factor = belongs
    if weights is not None:
        factor = build.one(Multiply(), belongs, reshape(build, weights, (1, weights.elements)))
    rows = _taken(build, table, reshape(build, indices, (indices.elements,)))
    y = build.one(MatMul(), factor, rows)
    if mean or default is not None:
        axis = build.constant(np.array([1], np.int64))
        sizes = build.one(ReduceSum(keep_dims=True), belongs, axis)
    if mean:
        one = build.constant(np.asarray(1, kind.dtype), kind)
        y = build.one(Divide(), y, build.one(Maximum(), sizes, one))
    if default is not None:
        index = reshape(build, default, (1,))
        zero = build.constant(np.zeros(1, index.element_type.dtype), index.element_type)
        row = _taken(build, table, build.one(Maximum(), index, zero))
        none = build.one(Equal(), sizes, build.constant(np.asarray(0, kind.dtype), kind))
        given = build.one(GreaterEqual(), index, zero)
        empty = build.one(LogicalAnd(), none, reshape(build, given, (1, 1)))
        y = build.one(Select(), empty, row, y)
    return reshape(build, y, (member.shape[0], *table.shape[1:]))
