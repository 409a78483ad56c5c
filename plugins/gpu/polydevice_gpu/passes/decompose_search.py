"""What searches in sorted numbers are made of: comparisons with all of them, counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import ElementType
from polydevice.ops.comparison import Less, LessEqual
from polydevice.ops.convert import Convert
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.search import Bucketize, SearchSorted
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

MAX_ENTRIES = 4096
"""Longest table that is compared as a whole, in place of a binary search."""


def _is_short(op: Bucketize | SearchSorted, inputs: Sequence[Value]) -> bool:
    table = inputs[0] if isinstance(op, SearchSorted) else inputs[1]
    return 0 < table.shape[-1] <= MAX_ENTRIES


def _counted(
    build: Builder, table: Value, values: Value, kind: ElementType, *, or_equal: bool
) -> Value:
    """Count, for values [..., M], the entries of table [..., K] below them (or equal)."""
    if table.element_type is not values.element_type:
        whole = table.element_type.is_integer and values.element_type.is_integer
        common = ElementType.i64 if whole else ElementType.f32
        table, values = (build.one(Convert(destination_type=common), v) for v in (table, values))
    entries = reshape(build, table, (*table.shape[:-1], 1, table.shape[-1]))
    column = reshape(build, values, (*values.shape, 1))
    found = build.one(LessEqual() if or_equal else Less(), entries, column)
    ones = build.one(Convert(destination_type=ElementType.i32), found)
    axis = build.constant(np.array([len(values.shape)], np.int64))
    count = build.one(ReduceSum(keep_dims=False), ones, axis)
    return build.one(Convert(destination_type=kind), count)


@decomposes(Bucketize, when=_is_short)
def _bucketize(build: Builder, op: Bucketize, inputs: Sequence[Value]) -> list[Value]:
    x, buckets = inputs
    flat = reshape(build, x, (x.elements,))
    found = _counted(build, buckets, flat, op.output_type, or_equal=not op.with_right_bound)
    return [reshape(build, found, x.shape)]


@decomposes(SearchSorted, when=_is_short)
def _search_sorted(build: Builder, op: SearchSorted, inputs: Sequence[Value]) -> list[Value]:
    table, values = inputs
    if table.rank > 1:
        return [_counted(build, table, values, op.output_type, or_equal=op.right_mode)]
    flat = reshape(build, values, (values.elements,))
    found = _counted(build, table, flat, op.output_type, or_equal=op.right_mode)
    return [reshape(build, found, values.shape)]
