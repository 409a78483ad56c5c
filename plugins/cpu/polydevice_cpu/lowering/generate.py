"""OneHot by machine code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.generate import NegativeIndices, OneHot
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.by_machine.code import Told, has_avx512
from polydevice_cpu.algorithms.by_machine.indexed import one_hot
from polydevice_cpu.lower import lowers
from polydevice_cpu.ops.generate import one_hot as computed
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(OneHot)
def lower_one_hot(builder: PlanBuilder, node: Node) -> bool:
    """Fill the result, and put one number for each index, where the depth is known."""
    op, (indices, depth, *numbers), target = node.operation(OneHot), node.inputs, node.output
    if depth.desc.constant is None or target.shape is None or not has_avx512():
        return False
    shape, kind = target.shape.static, target.element_type.dtype
    are_indices = indices.element_type.dtype in (np.dtype(np.int32), np.dtype(np.int64))
    if 0 in shape or not are_indices or kind.hasobject or kind.itemsize not in (1, 2, 4, 8):
        return False
    given = [builder.array_value(port) for port in (indices, *numbers)]
    result = builder.new_dense(shape, kind)
    start = partial(_start, op, normalize_axis(op.axis, len(shape)))
    step = ArrayStep(node.name, node.type, start, given, [result], MACHINE_CODE, writes=True)
    builder.emit(step)
    builder.set(target, result)
    return True


def _start(op: OneHot, axis: int, _: Context) -> Compute:
    wraps = op.negative_indices_mode is NegativeIndices.NORMALIZE

    def compute(indices: Array, on: Array, off: Array, result: Array) -> tuple[()]:
        np.copyto(result, computed(op, indices, np.array(result.shape[axis]), on, off))
        return ()

    def prepare(values: Sequence[Value]) -> Told:
        indices, _, _, result = values
        sizes = result.dtype.itemsize, indices.dtype.itemsize
        return one_hot.prepared(result.shape, axis, sizes, wraps=wraps)

    return ByMachine(compute, prepare, may_refuse=False)
