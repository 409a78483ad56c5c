"""Scatters by machine code: elements along an axis, and rows by their coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.scatter import Reduction, ScatterElementsUpdate, ScatterNDUpdate
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512
from polydevice_cpu.algorithms.by_machine.indexed import scattered
from polydevice_cpu.lower import lowers
from polydevice_cpu.ops.scatter import scatter_elements_update, scatter_nd_update
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

MOST_ELEMENTS = 1 << 14
"""Put one by one, 2 ns each: of more, where rows lie behind the axis, NumPy finds in some 20 us
those that are put as a whole."""

_KINDS = {Reduction.NONE: "", Reduction.SUM: "add"}


@lowers(ScatterElementsUpdate)
def lower_scatter_elements(builder: PlanBuilder, node: Node) -> bool:
    """Put few elements, where sizes differ along a known axis alone."""
    op, axis = node.operation(ScatterElementsUpdate), node.inputs[3].desc.constant
    kind = _kind(node, op.reduction)
    if axis is None or kind is None or not (op.use_init_val or op.reduction is Reduction.NONE):
        return False
    values = [builder.array_value(port) for port in node.inputs[:3]]
    x, indices, updates = values
    along = normalize_axis(int(axis.reshape(-1)[0]), len(x.shape))
    others = [(*each.shape[:along], *each.shape[along + 1 :]) for each in (x, indices)]
    if others[0] != others[1] or updates.shape != indices.shape or 0 in indices.shape:
        return False
    if indices.elements > MOST_ELEMENTS and math.prod(x.shape[along + 1 :]) > 1:
        return False
    _emit(builder, node, values, partial(_start_elements, op, along, kind))
    return True


@lowers(ScatterNDUpdate)
def lower_scatter_nd(builder: PlanBuilder, node: Node) -> bool:
    """Put rows of elements of 4 or 8 bytes."""
    op = node.operation(ScatterNDUpdate)
    kind = _kind(node, op.reduction)
    values = [builder.array_value(port) for port in node.inputs]
    x, indices, updates = values
    coordinates = indices.shape[-1]
    if kind is None or kind == "i" or x.dtype.itemsize not in (4, 8):
        return False
    if not 0 < coordinates <= scattered.MOST_COORDINATES or 0 in updates.shape:
        return False
    if updates.shape != (*indices.shape[:-1], *x.shape[coordinates:]):
        return False
    _emit(builder, node, values, partial(_start_rows, op, kind))
    return True


def _kind(node: Node, reduction: Reduction) -> str | None:
    """How updates meet what is there, as code has it; None where it has none."""
    x, indices = (each.element_type for each in node.inputs[:2])
    found = _KINDS.get(reduction)
    if found is None or not has_avx512() or x.dtype.hasobject:
        return None
    if indices.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
        return None
    if not found:
        return found if x.dtype.itemsize in (1, 2, 4, 8) else None
    if x.dtype == np.float32:
        return "f"
    return "i" if x.dtype.kind in "iu" and x.dtype.itemsize in (4, 8) else None


def _emit(builder: PlanBuilder, node: Node, values: list[Value], start: partial[Compute]) -> None:
    result = builder.new_dense(values[0].shape, values[0].dtype)
    builder.emit(
        ArrayStep(node.name, node.type, start, values, [result], MACHINE_CODE, writes=True)
    )
    builder.set(node.outputs[0], result)


def _code(x: Value, put: Told) -> Code:
    return Code.of([scattered.copying(x.elements * x.dtype.itemsize), put])


def _start_elements(op: ScatterElementsUpdate, axis: int, kind: str, _: Context) -> Compute:
    where = np.array(axis)

    def compute(x: Array, indices: Array, updates: Array, result: Array) -> tuple[()]:
        np.copyto(result, scatter_elements_update(op, x, indices, updates, where))
        return ()

    def prepare(values: Sequence[Value]) -> Code:
        x, indices, *_ = values
        sizes = x.dtype.itemsize, indices.dtype.itemsize
        return _code(x, scattered.elements(x.shape, axis, indices.shape[axis], sizes, kind))

    return ByMachine(compute, prepare)


def _start_rows(op: ScatterNDUpdate, kind: str, _: Context) -> Compute:
    def compute(x: Array, indices: Array, updates: Array, result: Array) -> tuple[()]:
        np.copyto(result, scatter_nd_update(op, x, indices, updates))
        return ()

    def prepare(values: Sequence[Value]) -> Code:
        x, indices, *_ = values
        sizes, coordinates = (x.dtype.itemsize, indices.dtype.itemsize), indices.shape[-1]
        count = indices.elements // coordinates
        return _code(x, scattered.rows(x.shape, coordinates, count, sizes, kind))

    return ByMachine(compute, prepare)
