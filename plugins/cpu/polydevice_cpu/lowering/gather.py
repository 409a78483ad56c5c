"""Gather: a view where the indices are evenly spaced, else rows copied where they are wanted.

And GatherElements and GatherND, where machine code computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.gather import Gather, GatherElements, GatherND
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.by_machine.code import Told, has_avx512
from polydevice_cpu.algorithms.by_machine.indexed import coordinates, elements
from polydevice_cpu.algorithms.by_machine.indexed import taken as rows_taken
from polydevice_cpu.algorithms.by_machine.indexed.scattered import MOST_COORDINATES
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn.descriptor import row_major
from polydevice_cpu.ops.gather import gather, gather_elements, gather_nd
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(Gather)
def lower_gather(builder: PlanBuilder, node: Node) -> bool:
    """Look at what constant, evenly spaced indices select; copy what others do."""
    return _look(builder, node) or _copy(builder, node)


def _look(builder: PlanBuilder, node: Node) -> bool:
    op = node.operation(Gather)
    source, indices_port, axis_port = node.inputs
    indices, axis_array = indices_port.desc.constant, axis_port.desc.constant
    if indices is None or axis_array is None or op.batch_dims or not indices.size:
        return False
    value = builder.value(source)
    if value.strides is None:
        value = builder.dense(value)
    assert value.strides is not None
    axis = int(axis_array.reshape(-1)[0]) % len(value.shape)
    size = value.shape[axis]
    flat = indices.reshape(-1).astype(np.int64)
    low, high = flat.min().item(), flat.max().item()
    first = flat[0].item()
    if low < 0:
        if high >= 0 or not op.negative_indices:
            return False  # from both ends
        low, high, first = low + size, high + size, first + size
    steps = np.diff(flat)
    step = int(steps[0]) if steps.size else 1
    if low < 0 or high >= size or step <= 0 or (steps != step).any():
        return False
    stride = value.strides[axis]
    inner = row_major(indices.shape)
    shape = (*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])
    strides = (
        *value.strides[:axis],
        *(stride * step * s for s in inner),
        *value.strides[axis + 1 :],
    )
    skip = first * stride * value.dtype.itemsize
    builder.set(node.outputs[0], value.view(shape, strides, skip_bytes=skip))
    return True


def _copy(builder: PlanBuilder, node: Node) -> bool:
    """Take rows straight into the result; what NumPy returns would have to be copied there."""
    op, target = node.op, node.output
    assert isinstance(op, Gather)
    source, indices, axis_port = node.inputs
    axis = axis_port.desc.constant
    if axis is None or op.batch_dims or source.shape is None or target.shape is None:
        return False
    at = int(axis.reshape(-1)[0]) % len(source.shape)
    if 0 in (*source.shape.static, *target.shape.static):
        return False
    rows, places = builder.array_value(source), builder.value(indices)
    as_they_are = places.strides is not None and places.dtype == indices.element_type.dtype
    if not as_they_are or _is_for_code(rows, builder.array_value(indices)):
        places = builder.array_value(indices)  # NumPy takes them as they lie
    inputs = [rows, places]
    result = builder.new_dense(target.shape.static, target.element_type.dtype)
    start, code = partial(_start, op, at), "numpy"
    if _is_for_code(*inputs):
        start, code = partial(_start_code, op, at), MACHINE_CODE
    builder.emit(ArrayStep(node.name, node.type, start, inputs, [result], code, writes=True))
    builder.set(target, result)
    return True


def _is_for_code(source: Value, indices: Value) -> bool:
    """Whether machine code takes rows: of plain numbers, by numbers with a sign."""
    is_plain = not source.dtype.hasobject and indices.dtype.kind == "i" and indices.is_dense
    return is_plain and indices.dtype.itemsize in rows_taken.INDEX_BYTES and has_avx512()


def _start_code(op: Gather, axis: int, context: Context) -> Compute:
    compute = _start(op, axis, context)

    def prepare(values: Sequence[Value]) -> Told | None:
        source, indices, _ = values
        least = -source.shape[axis] if op.negative_indices else 0
        sizes = source.dtype.itemsize, indices.dtype.itemsize
        return rows_taken.prepared(source.shape, axis, indices.elements, sizes, least)

    return ByMachine(compute, prepare, may_refuse=False)  # what lies outside is 0


@lowers(GatherElements)
def lower_gather_elements(builder: PlanBuilder, node: Node) -> bool:
    """Take elements by machine code: of plain numbers, where sizes differ along the axis alone."""
    op = node.operation(GatherElements)
    inputs = [builder.array_value(port) for port in node.inputs]
    source, indices = inputs
    axis = normalize_axis(op.axis, len(source.shape))
    others = [(*each.shape[:axis], *each.shape[axis + 1 :]) for each in inputs]
    if others[0] != others[1] or 0 in indices.shape or not _is_for_code(*inputs):
        return False
    result = builder.new_dense(indices.shape, source.dtype)
    start = partial(_start_elements, op, axis)
    builder.emit(
        ArrayStep(node.name, node.type, start, inputs, [result], MACHINE_CODE, writes=True)
    )
    builder.set(node.outputs[0], result)
    return True


def _start_elements(op: GatherElements, axis: int, _: Context) -> Compute:
    def compute(x: Array, indices: Array, result: Array) -> tuple[()]:
        np.copyto(result, gather_elements(op, x, indices))
        return ()

    def prepare(values: Sequence[Value]) -> Told:
        source, indices, _ = values
        sizes = source.dtype.itemsize, indices.dtype.itemsize
        return elements.taking(source.shape, axis, indices.shape[axis], sizes)

    return ByMachine(compute, prepare)


@lowers(GatherND)
def lower_gather_nd(builder: PlanBuilder, node: Node) -> bool:
    """Take rows by their coordinates by machine code: of plain numbers."""
    op, target = node.operation(GatherND), node.output
    inputs = [builder.array_value(port) for port in node.inputs]
    source, indices = inputs
    if target.shape is None or 0 in (*source.shape, *indices.shape, *target.shape.static):
        return False
    if not 0 < indices.shape[-1] <= MOST_COORDINATES or not _is_for_code(*inputs):
        return False
    if source.shape[: op.batch_dims] != indices.shape[: op.batch_dims]:
        return False
    result = builder.new_dense(target.shape.static, source.dtype)
    start = partial(_start_rows, op)
    builder.emit(
        ArrayStep(node.name, node.type, start, inputs, [result], MACHINE_CODE, writes=True)
    )
    builder.set(target, result)
    return True


def _start_rows(op: GatherND, _: Context) -> Compute:
    def compute(x: Array, indices: Array, result: Array) -> tuple[()]:
        np.copyto(result, gather_nd(op, x, indices))
        return ()

    def prepare(values: Sequence[Value]) -> Told:
        source, indices, _ = values
        sizes = source.dtype.itemsize, indices.dtype.itemsize
        return coordinates.taking(source.shape, indices.shape, op.batch_dims, sizes)

    return ByMachine(compute, prepare)


SMALL_BYTES = 1 << 12
"""Results up to this size may be copied twice, which takes less than to look for bad indices."""


def _start(op: Gather, axis: int, _: Context) -> Compute:
    where = np.array(axis)

    def compute(x: Array, indices: Array, result: Array) -> tuple[Array, ...]:
        if result.nbytes <= SMALL_BYTES and op.negative_indices:
            try:  # which looks at the indices itself
                x.take(indices, axis, result, "raise")
            except IndexError:
                np.copyto(result, gather(op, x, indices, where))
            return ()
        size = x.shape[axis]
        low, high = (indices.min(), indices.max()) if indices.size > 1 else (indices.item(),) * 2
        if high < size and low >= (-size if op.negative_indices else 0):
            x.take(indices, axis, result, "wrap")  # other modes copy twice
        else:
            np.copyto(result, gather(op, x, indices, where))
        return ()

    return compute
