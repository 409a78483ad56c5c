"""Scatters by machine code: elements along an axis, and rows by their coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.scatter import Reduction, ScatterElementsUpdate, ScatterNDUpdate
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.indexed import put
from polydevice_cpu.lower import lowers
from polydevice_cpu.ops.scatter import scatter_elements_update, scatter_nd_update
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

_CodeOf = Callable[[Sequence[Value]], Code | None]


@lowers(ScatterElementsUpdate)
def lower_scatter_elements(builder: PlanBuilder, node: Node) -> bool:
    """Put few elements, where sizes differ along a known axis alone."""
    op, axis = node.operation(ScatterElementsUpdate), node.inputs[3].desc.constant
    if axis is None or not (op.use_init_val or op.reduction is Reduction.NONE):
        return False
    values = [builder.array_value(port) for port in node.inputs[:3]]
    if values[2].shape != values[1].shape or values[2].dtype != values[0].dtype:
        return False
    x, indices, _ = values
    along = normalize_axis(int(axis.reshape(-1)[0]), len(x.shape))
    where, kinds = np.array(along), (x.dtype, indices.dtype)
    if put.meeting_of_elements((x.shape, indices.shape), along, kinds, op.reduction) is None:
        return False

    def code_of(values: Sequence[Value]) -> Code | None:
        x, indices, *_ = values
        return put.elements((x.shape, indices.shape), along, kinds, op.reduction)

    def compute(x: Array, indices: Array, updates: Array, result: Array) -> tuple[()]:
        np.copyto(result, scatter_elements_update(op, x, indices, updates, where))
        return ()

    return _emit(builder, node, values, code_of, compute)


@lowers(ScatterNDUpdate)
def lower_scatter_nd(builder: PlanBuilder, node: Node) -> bool:
    """Put rows of elements of 4 or 8 bytes."""
    op = node.operation(ScatterNDUpdate)
    values = [builder.array_value(port) for port in node.inputs]
    x, indices, updates = values
    sizes, kinds = (x.shape, indices.shape, updates.shape), (x.dtype, indices.dtype)
    if updates.dtype != x.dtype or put.meeting_of_rows(sizes, kinds, op.reduction) is None:
        return False

    def code_of(values: Sequence[Value]) -> Code | None:
        x, indices, updates, *_ = values
        return put.rows((x.shape, indices.shape, updates.shape), kinds, op.reduction)

    def compute(x: Array, indices: Array, updates: Array, result: Array) -> tuple[()]:
        np.copyto(result, scatter_nd_update(op, x, indices, updates))
        return ()

    return _emit(builder, node, values, code_of, compute)


def _emit(
    builder: PlanBuilder, node: Node, values: list[Value], code_of: _CodeOf, compute: Compute
) -> bool:
    result = builder.new_dense(values[0].shape, values[0].dtype)
    start = partial(_start, ByMachine(compute, code_of))
    builder.emit(
        ArrayStep(node.name, node.type, start, values, [result], MACHINE_CODE, writes=True)
    )
    builder.set(node.outputs[0], result)
    return True


def _start(computed: ByMachine, _: Context) -> Compute:
    return computed
