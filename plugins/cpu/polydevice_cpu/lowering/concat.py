"""Concatenation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polydevice.dtype import Array
from polydevice.ops.concat import Concat
from polydevice.symbolic_trace import chosen, gains
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitives import concat
from polydevice_cpu.plan.array_steps.small import copying
from polydevice_cpu.plan.instead_of_primitives import joining
from polydevice_cpu.plan.step import ArrayStep, ByMachine, PrimitiveStep, Start
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(Concat)
def lower_concat(builder: PlanBuilder, node: Node) -> bool:
    """Join channels-last if most of the data is so (or blocked), else in row-major order."""
    op = node.operation(Concat)
    values = [builder.value(port) for port in node.inputs]
    axis = op.axis % len(values[0].shape)
    if not all(value.in_reach for value in values):
        return _copied(builder, node, axis)
    strides = chosen(lambda: _preferred(values))
    data_type = values[0].descriptor.data_type
    layouts = [ordered(value.shape, strides, data_type) for value in values]
    (target,) = node.outputs
    assert target.shape is not None
    result = builder.new(ordered(target.shape.static, strides, data_type))
    runs = _short_runs(values, strides, axis)
    if runs is not None:
        parts = [builder.in_layout(v, layout) for v, layout in zip(values, layouts, strict=True)]
        builder.emit(ArrayStep(node.name, node.type, runs, parts, [result], writes=True))
        builder.set(target, result)
        return True
    made = concat(result.descriptor, axis, layouts, Attributes())
    if made is None:
        return False
    arguments = {
        Arg.MULTIPLE_SRC + k: builder.in_layout(value, layout)
        for k, (value, layout) in enumerate(zip(values, layouts, strict=True))
    }
    arguments[Arg.DST] = result
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, (Arg.DST,)))
    builder.set(target, result)
    return True


_PARTS = 8
"""Up to so many, to copy each takes less than to join them and to copy the result: where there are
few integers, machine code does it in one call with what is beside it (20 times two parts 6 instead
of 44 us)."""


def _copied(builder: PlanBuilder, node: Node, axis: int) -> bool:
    """Copy parts of a type that oneDNN does not know to their places."""
    (target,) = node.outputs
    if len(node.inputs) > _PARTS or target.element_type.dtype.hasobject or target.shape is None:
        return False
    result = builder.new_dense(target.shape.static, target.element_type.dtype)
    assert result.strides is not None
    first = 0
    for port in node.inputs:
        part = builder.array_value(port)
        skipped = first * result.strides[axis] * result.dtype.itemsize
        place = result.view(part.shape, result.strides, skip_bytes=skipped)
        if part.elements:
            builder.emit(copying(node.name, node.type, part, place))
        first += part.shape[axis]
    builder.set(target, result)
    return True


_RUN_BYTES = 64
"""Up to which NumPy copies runs of memory as elements of that size, from `_POSITIONS` of them on.

oneDNN calls a function for each: 16,384 times 16 bytes and 16 take it 160 us, and NumPy 25; 4,096
times 64 bytes and 64 45 and 23."""
_POSITIONS = 512

_FEW_POSITIONS = 2048
"""Up to which machine code joins them, where NumPy takes 10 us for its calls: 700 times 8 bytes and
8 take 2."""


def _short_runs(values: Sequence[Value], strides: Sequence[int], axis: int) -> Start | None:
    """Return what joins short runs of memory that alternate; None where oneDNN joins as fast."""
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    outer = order.index(axis)

    def is_faster() -> bool:
        positions = math.prod(values[0].shape[d] for d in order[:outer])
        longest = max(value.elements * value.dtype.itemsize for value in values)
        return positions >= _POSITIONS and longest <= _RUN_BYTES * positions

    return _joining(order, outer) if gains(is_faster) else None


def _joining(order: Sequence[int], outer: int) -> Start:
    """Join parts whose dimensions lie in this order, along that one and those behind it."""

    def write(*arrays: Array) -> tuple[()]:
        *parts, out = (array.transpose(order) for array in arrays)
        rows = out.reshape(math.prod(out.shape[:outer]), -1)
        begin = 0
        for part in parts:
            run = part.reshape(len(rows), -1)
            end = begin + run.shape[1]
            element = f"V{run.shape[1] * run.itemsize}"
            rows[:, begin:end].view(element)[...] = run.view(element)
            begin = end
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        return joining(values, order[outer], _are_few)

    return lambda _: ByMachine(write, prepare, may_refuse=False)


def _are_few(_count: int, rows: int) -> bool:
    return rows <= _FEW_POSITIONS


def ordered(shape: Sequence[int], strides: Sequence[int], data_type: DataType) -> Descriptor:
    """A tensor without gaps whose dimensions lie in memory in the order of `strides`."""
    return Descriptor.strided(shape, order_like(strides, shape), data_type)


def order_like(strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps for `shape`, dimensions in the same order as with `strides`."""
    order = sorted(range(len(shape)), key=lambda d: -strides[d])
    result, step = [0] * len(shape), 1
    for dimension in reversed(order):
        result[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(result)


def _preferred(values: Sequence[Value]) -> tuple[int, ...]:
    """Strides that most of the data has, up to the sizes."""
    weight: dict[tuple[int, ...], int] = {}
    for value in values:
        rank = len(value.shape)
        strides = value.strides
        if strides is None:
            strides = (rank, 0, *range(rank - 1, 1, -1))
        order = tuple(sorted(range(rank), key=lambda d: (-strides[d], d)))
        weight[order] = weight.get(order, 0) + value.elements
    best = max(weight, key=lambda order: weight[order])
    return tuple(len(best) - best.index(d) for d in range(len(best)))
