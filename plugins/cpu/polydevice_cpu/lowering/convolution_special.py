"""What deformable convolutions read, by machine code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.lower import lowers
from polydevice_cpu.ops.convolution_special import columns_code, deformable_columns
from polydevice_cpu.passes.convolution.deformable_convolution import DeformableColumns
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(DeformableColumns)
def lower_deformable_columns(builder: PlanBuilder, node: Node) -> bool:
    """Sample all taps in one go."""
    shape = node.output.shape
    if not has_avx512() or shape is None:
        return False
    values = [builder.array_value(port) for port in node.inputs]
    result = builder.new_dense(shape.static, values[0].dtype)
    start = partial(_start, node.operation(DeformableColumns))
    step = ArrayStep(node.name, node.type, start, values, [result], MACHINE_CODE, writes=True)
    builder.emit(step)
    builder.set(node.output, result)
    return True


def _start(op: DeformableColumns, _: Context) -> Compute:
    def compute(*arrays: Array) -> tuple[()]:
        *given, result = arrays
        np.copyto(result, deformable_columns(op, *given))
        return ()

    def prepare(values: Sequence[Value]) -> Code:
        return columns_code(op, [value.shape for value in values[:-1]])

    return ByMachine(compute, prepare)
