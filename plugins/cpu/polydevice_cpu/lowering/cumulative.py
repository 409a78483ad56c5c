"""CumSum by machine code: columns side by side, in the order in which NumPy adds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.signal import CumSum
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.by_machine.code import Told, has_avx512
from polydevice_cpu.algorithms.by_machine.indexed import elements
from polydevice_cpu.lower import lowers
from polydevice_cpu.ops.signal import cum_sum
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(CumSum)
def lower_cum_sum(builder: PlanBuilder, node: Node) -> bool:
    """Sum numbers of 4 and integers of 8 bytes along a known axis."""
    op, given = node.operation(CumSum), node.inputs
    axis = given[1].desc.constant if len(given) > 1 else np.zeros(1, np.int64)
    source = builder.array_value(given[0])
    kind = elements.KINDS.get(source.dtype.kind, {}).get(source.dtype.itemsize)
    if axis is None or kind is None or not source.shape or 0 in source.shape:
        return False
    if not has_avx512():
        return False
    along = normalize_axis(int(axis.reshape(-1)[0]), len(source.shape))
    result = builder.new_dense(source.shape, source.dtype)
    start = partial(_start, op, along, kind)
    builder.emit(
        ArrayStep(node.name, node.type, start, [source], [result], MACHINE_CODE, writes=True)
    )
    builder.set(node.outputs[0], result)
    return True


def _start(op: CumSum, axis: int, kind: str, _: Context) -> Compute:
    where = np.array(axis)

    def compute(x: Array, result: Array) -> tuple[()]:
        np.copyto(result, cum_sum(op, x, where))
        return ()

    def prepare(values: Sequence[Value]) -> Told:
        shape = values[0].shape
        return elements.summing(shape, axis, kind, exclusive=op.exclusive, reverse=op.reverse)

    return ByMachine(compute, prepare, may_refuse=False)
