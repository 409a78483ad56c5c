"""TopK: the first few of rows, and where the largest lies if nothing asks for itself (ArgMax)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512
from polydevice_cpu.algorithms.by_machine.ranking import first, rows, wide
from polydevice_cpu.algorithms.by_machine.ranking.best import prepared_first
from polydevice_cpu.algorithms.by_machine.ranking.keys import KINDS
from polydevice_cpu.algorithms.by_machine.rows import extremes
from polydevice_cpu.algorithms.ranking import extreme
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
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
    return _find_first(builder, node, count.item())


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


def _find_first(builder: PlanBuilder, node: Node, count: int) -> bool:
    """Find so many along the axis, and take them."""
    op, index = node.operation(TopK), node.outputs[1]
    source = builder.array_value(node.inputs[0])
    axis = normalize_axis(op.axis, len(source.shape))
    is_half = source.dtype == np.float16 and source.in_reach
    if not (is_half or source.dtype in (*KINDS, *wide.KINDS)) or 0 in source.shape:
        return False
    if not has_avx512() or not 0 < count <= min(source.shape[axis], rows.MOST):
        return False
    if is_half:  # which f32 has all of
        source = builder.dense(source, np.dtype(np.float32))
    shape = (*source.shape[:axis], count, *source.shape[axis + 1 :])
    results = [builder.new_dense(shape, each) for each in (index.element_type.dtype, source.dtype)]
    start = partial(_start_first, op, axis, openmp.thread_count())
    builder.emit(
        ArrayStep(node.name, node.type, start, [source], results, MACHINE_CODE, writes=True)
    )
    for port, value in zip((index, node.outputs[0]), results, strict=True):
        builder.set(port, value)
    return True


def _start_first(op: TopK, axis: int, threads: int, _: Context) -> Compute:
    def compute(x: Array, *results: Array) -> tuple[()]:
        found = topk(op, x, np.array(results[0].shape[axis]))
        for result, each in zip(results, reversed(found), strict=True):
            np.copyto(result, each)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        x, index, _ = values
        shape = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
        how = op.mode is TopKMode.MAX, op.sort is TopKSort.INDEX, threads
        return first.code_of(shape, x.dtype, index.shape[axis], index.dtype, *how)

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
