"""Concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polydevice.ops.concat import Concat
from polydevice_cpu.lowering.table import lowers
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitives import concat
from polydevice_cpu.plan.step import PrimitiveStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.network import Node
    from polydevice_cpu.plan.builder import Builder


@lowers(Concat)
def lower_concat(builder: Builder, node: Node) -> bool:
    """Join channels-last if most of the data is so (or blocked), else in row-major order."""
    op = node.op
    assert isinstance(op, Concat)
    values = [builder.value(port) for port in node.inputs]
    if not all(value.in_reach for value in values):
        return False
    axis = op.axis % len(values[0].shape)
    strides = _preferred(values)
    data_type = values[0].descriptor.data_type
    layouts = [ordered(value.shape, strides, data_type) for value in values]
    (target,) = node.outputs
    assert target.shape is not None
    result = builder.new(ordered(target.shape.static, strides, data_type))
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
