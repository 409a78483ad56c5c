"""Searches in sorted numbers compare with all of them, and count."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.comparison import Less, LessEqual
from polydevice.ops.convert import Convert
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.search import Bucketize, SearchSorted
from polydevice.rewrites.facts import count_of, rank_of, shape_of
from polydevice.rewrites.rule import decomposes

MAX_ENTRIES = 4096
"""Longest table that is compared as a whole, in place of a binary search."""


def _is_short(op: Bucketize | SearchSorted, inputs: Sequence[Port]) -> bool:
    table = inputs[0] if isinstance(op, SearchSorted) else inputs[1]
    return 0 < shape_of(table)[-1] <= MAX_ENTRIES


def _counted(
    build: Emitter, table: Port, values: Port, kind: ElementType, *, or_equal: bool
) -> Port:
    """Count, for values [..., M], the entries of table [..., K] below them (or equal)."""
    if table.element_type is not values.element_type:
        whole = table.element_type.is_integer and values.element_type.is_integer
        common = ElementType.i64 if whole else ElementType.f32
        table, values = (build.emit(Convert(destination_type=common), v) for v in (table, values))
    entries = build.reshape(table, (*shape_of(table)[:-1], 1, shape_of(table)[-1]))
    column = build.reshape(values, (*shape_of(values), 1))
    found = build.emit(LessEqual() if or_equal else Less(), entries, column)
    ones = build.emit(Convert(destination_type=ElementType.i32), found)
    axis = [len(shape_of(values))]
    count = build.emit(ReduceSum(keep_dims=False), ones, axis)
    return build.emit(Convert(destination_type=kind), count)


@decomposes(Bucketize, where=_is_short)
def _bucketize(build: Emitter, op: Bucketize, inputs: Sequence[Port]) -> list[Port]:
    x, buckets = inputs
    flat = build.reshape(x, (count_of(x),))
    found = _counted(build, buckets, flat, op.output_type, or_equal=not op.with_right_bound)
    return [build.reshape(found, shape_of(x))]


@decomposes(SearchSorted, where=_is_short)
def _search_sorted(build: Emitter, op: SearchSorted, inputs: Sequence[Port]) -> list[Port]:
    table, values = inputs
    if rank_of(table) > 1:
        return [_counted(build, table, values, op.output_type, or_equal=op.right_mode)]
    flat = build.reshape(values, (count_of(values),))
    found = _counted(build, table, flat, op.output_type, or_equal=op.right_mode)
    return [build.reshape(found, shape_of(values))]
