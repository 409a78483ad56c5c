"""TopK: the first few of rows, and where the largest lies if nothing asks for itself (ArgMax)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512
from polydevice_cpu.algorithms.by_machine.indexed.elements import taking
from polydevice_cpu.algorithms.by_machine.rows import extremes
from polydevice_cpu.algorithms.by_machine.rows.best import keeps_few, prepared_few, prepared_first
from polydevice_cpu.algorithms.ranking import extreme
from polydevice_cpu.lower import lowers
from polydevice_cpu.ops.topk import topk
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


FEW = 8
"""Shorter rows are compared position by position, where there are many."""


@lowers(TopK)
def lower_topk(builder: PlanBuilder, node: Node) -> bool:
    """Find the first few by machine code; the place of one: of a row of 60 in 1.3 µs."""
    count = node.inputs[1].desc.constant
    if count is None or count.size != 1:
        return False
    if count.item() == 1 and not builder.uses(node.outputs[0]):
        return _find_one(builder, node)
    return _find_few(builder, node, count.item())


def _find_one(builder: PlanBuilder, node: Node) -> bool:
    op, index = node.operation(TopK), node.outputs[1]
    assert index.shape is not None
    source = builder.array_value(node.inputs[0])
    axis = normalize_axis(op.axis, len(source.shape))
    result = builder.new_dense(index.shape.static, index.element_type.dtype)
    start, code = partial(_start, op, axis), "numpy"
    if (
        0 not in source.shape
        and source.dtype == np.float32
        and has_avx512()
        and result.dtype.kind == "i"
    ):
        start, code = partial(_start_code, op, axis), MACHINE_CODE
    builder.emit(ArrayStep(node.name, node.type, start, [source], [result], code, writes=True))
    builder.set(index, result)
    return True


def _find_few(builder: PlanBuilder, node: Node, count: int) -> bool:
    """Find so many of each row of f32, and take them."""
    op, index = node.operation(TopK), node.outputs[1]
    source = builder.array_value(node.inputs[0])
    axis = normalize_axis(op.axis, len(source.shape))
    is_last = axis == len(source.shape) - 1 and 0 not in source.shape
    is_plain = source.dtype == np.float32 and index.element_type is ElementType.i64
    if not is_last or not is_plain or op.sort is TopKSort.INDEX or not has_avx512():
        return False
    if not keeps_few(math.prod(source.shape[:-1]), count, source.shape[-1]):
        return False
    shape = (*source.shape[:-1], count)
    results = [
        builder.new_dense(shape, each.element_type.dtype) for each in (index, node.outputs[0])
    ]
    start = partial(_start_few, op)
    builder.emit(
        ArrayStep(node.name, node.type, start, [source], results, MACHINE_CODE, writes=True)
    )
    for port, value in zip((index, node.outputs[0]), results, strict=True):
        builder.set(port, value)
    return True


def _start_few(op: TopK, _: Context) -> Compute:
    def compute(x: Array, *results: Array) -> tuple[()]:
        found = topk(op, x, np.array(results[0].shape[-1]))
        for result, each in zip(results, reversed(found), strict=True):
            np.copyto(result, each)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        shape, count = values[0].shape, values[1].shape[-1]
        rows = values[0].elements // shape[-1]
        if not keeps_few(rows, count, shape[-1]):
            return None
        is_largest = op.mode is TopKMode.MAX
        found, kept = prepared_few(rows, shape[-1], count, descending=is_largest)
        taken = taking((rows, shape[-1]), 1, count, (4, 8))
        return Code.of([found, taken], kept)

    return ByMachine(compute, prepare)


def _start_code(op: TopK, axis: int, context: Context) -> Compute:
    def prepare(values: Sequence[Value]) -> Told | None:
        source, result = values
        length = source.shape[-1]
        is_wide, is_largest = result.dtype.itemsize == 8, op.mode is TopKMode.MAX
        if axis != len(source.shape) - 1 or length < FEW:
            fits = source.elements <= extremes.MOST
            sizes = source.shape, axis
            return extremes.where(*sizes, largest=is_largest, is_wide=is_wide) if fits else None
        if length >= 1 << 31:
            return None
        rows = source.elements // length
        return prepared_first(rows, length, descending=is_largest, is_wide=is_wide)

    return ByMachine(_start(op, axis, context), prepare)


def _start(op: TopK, axis: int, _: Context) -> Compute:
    largest, one = op.mode is TopKMode.MAX, np.array(1)

    def compute(x: Array, result: Array) -> tuple[()]:
        found = extreme(x, axis, largest=largest)
        np.copyto(result, topk(op, x, one)[1] if found is None else found[0], casting="unsafe")
        return ()

    return compute
