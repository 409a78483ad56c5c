"""TopK: where the largest element lies, if nothing asks for the element itself (ArgMax)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.topk import TopK, TopKMode
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.by_machine.code import Told
from polydevice_cpu.algorithms.by_machine.rows import shares
from polydevice_cpu.algorithms.by_machine.rows.best import prepared_first
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
    """Find the place of one element: of one row of 60 in 1.3 µs, with the element in 7."""
    op, count = node.operation(TopK), node.inputs[1].desc.constant
    values, index = node.outputs
    if count is None or count.size != 1 or count.item() != 1 or builder.uses(values):
        return False
    assert index.shape is not None
    source = builder.array_value(node.inputs[0])
    axis = normalize_axis(op.axis, len(source.shape))
    result = builder.new_dense(index.shape.static, index.element_type.dtype)
    start, code = partial(_start, op, axis), "numpy"
    is_last = axis == len(source.shape) - 1 and 0 not in source.shape
    if is_last and source.dtype == np.float32 and shares.is_there() and result.dtype.kind == "i":
        start, code = partial(_start_code, op, axis), MACHINE_CODE
    builder.emit(ArrayStep(node.name, node.type, start, [source], [result], code, writes=True))
    builder.set(index, result)
    return True


def _start_code(op: TopK, axis: int, context: Context) -> Compute:
    def prepare(values: Sequence[Value]) -> Told | None:
        source, result = values
        length = source.shape[-1]
        if length < FEW or length >= 1 << 31:
            return None
        is_wide, is_largest = result.dtype.itemsize == 8, op.mode is TopKMode.MAX
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
