"""Resampling with any weights as matrix products, one for each axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.resampling import AxisTable
from polydevice_cpu.lowering.matmul import multiplied_along
from polydevice_cpu.onednn.descriptor import row_major
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

WORTH = 256
"""Terms of the products for each result up to which they are faster than NumPy's weighted sums."""


def resampled(
    builder: PlanBuilder, node: Node, value: Value, tables: list[AxisTable]
) -> Value | None:
    """Multiply each axis with a matrix of its weights, most of which are zeros.

    The order of axes in memory stays. An infinity or NaN makes NaN of its row and column.

    Returns:
        None where NumPy is faster, some results lie outside, or oneDNN has no code.
    """
    if any(table.weight is None or table.outside is not None for table in tables):
        return None
    tables = sorted(tables, key=lambda table: len(table.index) / value.shape[table.axis])
    sizes, work = list(value.shape), 0
    for table in tables:
        terms, sizes[table.axis] = sizes[table.axis], len(table.index)
        work += math.prod(sizes) * terms
    if not tables or work > WORTH * math.prod(sizes):
        return None
    if value.strides is None or not value.has_no_gaps:
        value = builder.dense(value)
    strides = value.strides
    assert strides is not None
    places = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    shape = tuple(value.shape[axis] for axis in places)
    result = value.view(shape, row_major(shape))
    for table in tables:
        axis = places.index(table.axis)
        factor = _matrix(table, result.shape[axis])
        made = multiplied_along(builder, node, result, factor, axis)
        if made is None:
            return None
        result = made
    steps = row_major(result.shape)
    back = [places.index(axis) for axis in range(len(places))]
    return result.view(tuple(result.shape[n] for n in back), tuple(steps[n] for n in back))


def _matrix(table: AxisTable, size: int) -> Array:
    """Weights of every element of the axis for every result."""
    matrix = np.zeros((len(table.index), size))
    rows = np.arange(len(table.index))
    assert table.weight is not None
    for tap in range(table.index.shape[1]):
        np.add.at(matrix, (rows, table.index[:, tap]), table.weight[:, tap])
    return matrix.astype(np.float32)
