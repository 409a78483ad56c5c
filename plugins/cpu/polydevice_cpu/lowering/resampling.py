"""Resampling with any weights, one axis after the other: sums of taps, or matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Protocol

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.resampling import AxisTable
from polydevice_cpu.algorithms.by_machine import copies
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.resampling import taps
from polydevice_cpu.lowering.matmul import multiplied_along
from polydevice_cpu.onednn import openmp
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute, Start
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

WORTH = 256
"""Terms of the products for each result up to which they are faster than NumPy's weighted sums."""

TERMS = 24
"""Of a product that a core multiplies in a cycle, where they lie side by side, 16 at a time."""

MOST_IN_ANY_ORDER = 4
"""Axes of which the best order is looked for."""


def resampled(
    builder: PlanBuilder, node: Node, value: Value, tables: list[AxisTable]
) -> Value | None:
    """Add up what each axis' table says, or multiply the axis with a matrix of its weights.

    The order of axes in memory stays. In a product an infinity or NaN makes NaN of its row and
    column.

    Returns:
        None where NumPy is faster, some results lie outside, or oneDNN has no code.
    """
    if any(table.weight is None or table.outside is not None for table in tables) or not tables:
        return None
    result, places = _in_order(builder, value)
    ordered = _ordered(result.shape, [(places.index(table.axis), table) for table in tables])
    if ordered is None:
        return None
    for axis, table in ordered:
        if has_avx512() and _cycles(result.shape, axis, table)[0] == "taps":
            result = _summed(builder, node, result, axis, _taps(table))
            continue
        made = multiplied_along(builder, node, result, _matrix(table, result.shape[axis]), axis)
        if made is None:
            return None
        result = made
    return result.from_memory_order(places)


def taken(
    builder: PlanBuilder, node: Node, value: Value, tables: Sequence[AxisTable]
) -> Value | None:
    """Take what each axis' table says of a value of any type, in its order; None of objects."""
    if value.dtype.hasobject:
        return None
    value, places = _in_order(builder, value)
    for table in sorted(tables, key=lambda each: len(each.index) / value.shape[each.axis]):
        axis, index = places.index(table.axis), np.ascontiguousarray(table.index[:, 0], np.int64)
        start = partial(_start_repeating, axis, _Told(index))
        value = _along(builder, node, value, (axis, len(index)), start)
    return value.from_memory_order(places)


class Repeating(Protocol):
    """Which elements of an axis results repeat."""

    def elements(self, size: int) -> Array:
        """Return which element of an axis of so many each result repeats."""

    def runs(self, size: int) -> Sequence[tuple[int, int]] | None:
        """Return the same by formulas: runs of elements, where each begins, and how long it is.

        None where they are too many, or no formula tells.
        """


@dataclass(frozen=True)
class _Told:
    """Elements that are told, of an axis of whatever size."""

    index: Array

    def elements(self, size: int) -> Array:
        return self.index

    def runs(self, size: int) -> None:
        return None


def repeated(
    builder: PlanBuilder, node: Node, value: Value, axes: Sequence[tuple[int, int, Repeating]]
) -> Value:
    """Repeat elements along axes of a value of numbers, whose sizes may be formulas, in its order.

    Args:
        builder: of the plan.
        node: whose steps these are.
        value: what has them.
        axes: how many more results an axis has than elements, and which these are.
    """
    value, places = _in_order(builder, value)
    for given, more, repeating in axes:
        axis = places.index(given)
        start = partial(_start_repeating, axis, repeating)
        value = _along(builder, node, value, (axis, value.shape[axis] + more), start)
    return value.from_memory_order(places)


def _along(
    builder: PlanBuilder, node: Node, value: Value, sized: tuple[int, int], start: Start
) -> Value:
    """Emit a step that gives an axis of a row-major value so many elements."""
    axis, size = sized
    shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
    result = builder.new_dense(shape, value.dtype)
    step = ArrayStep(node.name, node.type, start, [value], [result], MACHINE_CODE, writes=True)
    builder.emit(step)
    return result


def _in_order(builder: PlanBuilder, value: Value) -> tuple[Value, list[int]]:
    """Return a value row-major, its axes as they lie in memory, and which these are."""
    if value.strides is None or not value.has_no_gaps:
        value = builder.dense(value)
    return value.in_memory_order()


def _start_repeating(axis: int, repeating: Repeating, _: Context) -> Compute:
    def compute(x: Array, y: Array) -> tuple[()]:
        np.take(x, repeating.elements(x.shape[axis]), axis, out=y, mode="clip")
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        shape, item_bytes = values[0].shape, values[0].dtype.itemsize
        if not has_avx512():
            return None
        runs = repeating.runs(shape[axis])
        if runs is not None:
            return copies.in_runs(shape, axis, runs, item_bytes)
        index = np.ascontiguousarray(repeating.elements(shape[axis]), np.int64)
        if taps.may_copy(shape, axis, item_bytes):
            return taps.copying(shape, axis, index)
        return copies.taken(shape, axis, index, item_bytes)

    return ByMachine(compute, prepare, may_refuse=False)


def _ordered(
    shape: Sequence[int], tables: list[tuple[int, AxisTable]]
) -> list[tuple[int, AxisTable]] | None:
    """Return axes and tables in the order that takes least; None where NumPy is faster."""
    by_growth = sorted(tables, key=lambda each: len(each[1].index) / shape[each[0]])
    if has_avx512():
        many = len(tables) > MOST_IN_ANY_ORDER
        orders = [by_growth] if many else [list(order) for order in permutations(by_growth)]
        return min(orders, key=partial(_cost, shape))
    sizes, work = [*shape], 0
    for axis, table in by_growth:
        terms, sizes[axis] = sizes[axis], len(table.index)
        work += math.prod(sizes) * terms
    return by_growth if work <= WORTH * math.prod(sizes) else None


def _cost(shape: Sequence[int], order: Sequence[tuple[int, AxisTable]]) -> float:
    sizes, total = [*shape], 0.0
    for axis, table in order:
        total += _cycles(sizes, axis, table)[1]
        sizes[axis] = len(table.index)
    return total


def _cycles(shape: Sequence[int], axis: int, table: AxisTable) -> tuple[str, float]:
    """Return how an axis is resampled fastest, and about how many cycles that takes."""
    inner = math.prod(shape[axis + 1 :])
    sums = taps.cycles(shape, axis, _taps(table))
    products = math.prod(shape) * len(table.index) / TERMS
    if 1 < inner < taps.LANES:
        products *= taps.LANES / inner
    return min(("taps", sums), ("product", products), key=lambda each: each[1])


def _taps(table: AxisTable) -> taps.Table:
    assert table.weight is not None
    return taps.Table(table.index, table.weight)


def _summed(builder: PlanBuilder, node: Node, value: Value, axis: int, table: taps.Table) -> Value:
    """Emit the sums along an axis of a row-major value."""
    start = partial(_start, axis, table, openmp.thread_count())
    return _along(builder, node, value, (axis, len(table.read)), start)


def _start(axis: int, table: taps.Table, threads: int, _: Context) -> Compute:
    def compute(x: Array, y: Array) -> tuple[()]:
        behind, weight = (1,) * (x.ndim - axis - 1), table.weight.astype(x.dtype)
        np.multiply(x.take(table.read[:, 0], axis), weight[:, 0].reshape(-1, *behind), out=y)
        for tap in range(1, table.read.shape[1]):
            y += x.take(table.read[:, tap], axis) * weight[:, tap].reshape(-1, *behind)
        return ()

    def prepare(values: Sequence[Value]) -> Code:
        return taps.code_of(values[0].shape, axis, table, threads)

    return ByMachine(compute, prepare, may_refuse=False)


def _matrix(table: AxisTable, size: int) -> Array:
    """Weights of every element of the axis for every result."""
    matrix = np.zeros((len(table.index), size))
    rows = np.arange(len(table.index))
    assert table.weight is not None
    for tap in range(table.index.shape[1]):
        np.add.at(matrix, (rows, table.index[:, tap]), table.weight[:, tap])
    return matrix.astype(np.float32)
