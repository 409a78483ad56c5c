"""What embedding bags are made of: gathered rows, and a product with who belongs to which bag."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
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
from polydevice.rewrites.facts import array_of, count_of, is_known, shape_of
from polydevice.rewrites.rule import decomposes

MAX_MEMBERS = 1 << 22
"""Largest product of bags and indices; each pair is one element of a matrix."""


def _taken(build: Emitter, table: Port, indices: Port) -> Port:
    """Return the rows of the table, each flattened to one axis: [..., D]."""
    flat = build.reshape(table, (shape_of(table)[0], math.prod(shape_of(table)[1:])))
    return build.emit(Gather(), flat, indices, 0)


@decomposes(EmbeddingBagPackedSum, where=lambda _, inputs: inputs[0].element_type.is_float)
def _packed(build: Emitter, op: EmbeddingBagPackedSum, inputs: Sequence[Port]) -> list[Port]:
    table, indices, *weights = inputs
    rows = _taken(build, table, indices)
    if weights:
        rows = build.emit(Multiply(), rows, build.reshape(weights[0], (*shape_of(indices), 1)))
    mean = isinstance(op, EmbeddingBagPacked) and op.reduction is BagReduction.MEAN
    kind = ReduceMean if mean else ReduceSum
    y = build.emit(kind(keep_dims=False), rows, [1])
    return [build.reshape(y, (shape_of(indices)[0], *shape_of(table)[1:]))]


def _is_small(op: EmbeddingBagOffsetsSum, inputs: Sequence[Port]) -> bool:
    members = count_of(inputs[1]) * count_of(inputs[2])
    return inputs[0].element_type.is_float and 0 < members <= MAX_MEMBERS


@decomposes(EmbeddingBagOffsetsSum, where=_is_small)
def _offsets(build: Emitter, op: EmbeddingBagOffsetsSum, inputs: Sequence[Port]) -> list[Port]:
    """Index n lies in bag b if it is at or behind b's offset, and before the next one's."""
    table, indices, offsets, *rest = inputs
    count, n, kind = count_of(offsets), count_of(indices), offsets.element_type
    end = build.value([n], kind)
    following = end
    if is_known(offsets):
        known = np.append(array_of(offsets).reshape(-1)[1:], n)
        following = build.value(known, kind)
    elif count > 1:
        limits = [[v] for v in (1, count, 1, 0)]
        following = build.emit(Concat(axis=0), build.emit(Slice(), offsets, *limits), end)
    place = build.value(np.arange(n, dtype=kind.dtype).reshape(1, n), kind)
    behind = build.emit(LessEqual(), build.reshape(offsets, (count, 1)), place)
    before = build.emit(Less(), place, build.reshape(following, (count, 1)))
    member = build.emit(LogicalAnd(), behind, before)
    mean = isinstance(op, EmbeddingBagOffsets) and op.reduction is BagReduction.MEAN
    return [_of_members(build, table, indices, member, rest, mean=mean)]


def _has_count(op: EmbeddingSegmentsSum, inputs: Sequence[Port]) -> bool:
    if not is_known(inputs[3]) or not inputs[0].element_type.is_float:
        return False
    return 0 < int(array_of(inputs[3]).reshape(-1)[0]) * count_of(inputs[1]) <= MAX_MEMBERS


@decomposes(EmbeddingSegmentsSum, where=_has_count)
def _segments(build: Emitter, op: EmbeddingSegmentsSum, inputs: Sequence[Port]) -> list[Port]:
    table, indices, segments, count, *rest = inputs
    number, kind = int(array_of(count).reshape(-1)[0]), segments.element_type
    column = build.value(np.arange(number, dtype=kind.dtype).reshape(number, 1), kind)
    member = build.emit(Equal(), column, build.reshape(segments, (1, count_of(segments))))
    return [_of_members(build, table, indices, member, rest, mean=False)]


def _of_members(
    build: Emitter, table: Port, indices: Port, member: Port, rest: Sequence[Port],
    *, mean: bool,
) -> Port:  # fmt: skip
    """Multiply the bags' members [bags, n] with the rows of the indices."""
    kind = table.element_type
    default, weights = (*rest, None, None)[:2]
    belongs = build.emit(Convert(destination_type=kind), member)
    factor = belongs
    if weights is not None:
        factor = build.emit(Multiply(), belongs, build.reshape(weights, (1, count_of(weights))))
    rows = _taken(build, table, build.reshape(indices, (count_of(indices),)))
    y = build.emit(MatMul(), factor, rows)
    if mean or default is not None:
        axis = [1]
        sizes = build.emit(ReduceSum(keep_dims=True), belongs, axis)
    if mean:
        one = build.value(1, kind)
        y = build.emit(Divide(), y, build.emit(Maximum(), sizes, one))
    if default is not None:
        index = build.reshape(default, (1,))
        zero = build.value(np.zeros(1, index.element_type.dtype), index.element_type)
        row = _taken(build, table, build.emit(Maximum(), index, zero))
        none = build.emit(Equal(), sizes, build.value(0, kind))
        given = build.emit(GreaterEqual(), index, zero)
        empty = build.emit(LogicalAnd(), none, build.reshape(given, (1, 1)))
        y = build.emit(Select(), empty, row, y)
    return build.reshape(y, (shape_of(member)[0], *shape_of(table)[1:]))
