"""Resizing of images where oneDNN samples at the same places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.interpolate import (
    Interpolate,
    Interpolate1,
    Interpolate4,
    Resize,
    ShapeCalculation,
)
from polydevice.ops.op import Op
from polydevice.ops.resampling import AxisTable
from polydevice_cpu.lowering.table import lowers
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitives import resampling
from polydevice_cpu.ops.interpolate import interpolate_tables, resize_tables
from polydevice_cpu.plan.step import PrimitiveStep

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.builder import Builder


@lowers(Interpolate, Interpolate1, Interpolate4, Resize)
def lower_interpolate(builder: Builder, node: Node) -> bool:
    """Resize the spatial axes, nearest or linear."""
    source, *others = node.inputs
    constants = [port.desc.constant for port in others]
    shape, target = source.shape, node.outputs[0].shape
    if source.element_type is not ElementType.f32 or shape is None or target is None:
        return False
    before, after = shape.static, target.static
    if any(c is None for c in constants) or not 3 <= len(before) <= 5 or before[:2] != after[:2]:
        return False
    if 0 in before or 0 in after:
        return False
    given = [c for c in constants if c is not None]
    linear = _linear(node, before, given)
    if linear is None:
        return False
    value = builder.value(source)
    if not value.in_reach:
        return False
    result = Descriptor.any(after, value.descriptor.data_type)
    made = resampling(value.descriptor, result, Attributes(), linear=linear)
    if made is None or made.is_reference:
        return False
    output = builder.new(made.dst)
    builder.emit(
        PrimitiveStep(node.name, node.type, made, {Arg.SRC: value, Arg.DST: output}, (Arg.DST,))
    )
    builder.set(node.outputs[0], output)
    return True


def _linear(node: Node, before: tuple[int, ...], constants: list[Array]) -> bool | None:
    """True: the same as oneDNN's linear; False: as its nearest; None: neither."""
    kinds = {False, True}
    tables = _tables(node.op, before, constants)
    if tables is None:
        return None
    for table in tables:
        if table.axis < 2 or (table.outside is not None and table.outside.any()):
            return None
        kinds = {kind for kind in kinds if _same(table, before[table.axis], linear=kind)}
    return min(kinds) if kinds else None


def _tables(op: Op, sizes: tuple[int, ...], constants: list[Array]) -> list[AxisTable] | None:
    """What the NumPy function reads for each output, per axis; None with a border of zeros."""
    axes: Array | None
    match op:
        case Resize():
            return resize_tables(op, sizes, *constants)
        case Interpolate1():
            axes = np.array(op.axes, np.int64)
            modern, target = op.modern(len(sizes)), constants[0]
        case Interpolate4():
            by_sizes = op.shape_calculation_mode is ShapeCalculation.SIZES
            target = constants[0 if by_sizes else 1]
            modern, axes = op.modern(), constants[2] if len(constants) > 2 else None
        case Interpolate():
            modern, target = op, constants[0]
            axes = constants[1] if len(constants) > 1 else None
        case _:
            return None
    if modern.padded(sizes) != list(sizes):
        return None
    return interpolate_tables(modern, sizes, target, axes)


def _same(table: AxisTable, size: int, *, linear: bool) -> bool:
    resized = len(table.index)
    position = np.clip((np.arange(resized) + 0.5) * size / resized - 0.5, 0, size - 1)
    if not linear:
        # Half-way positions are rounded away from zero in oneDNN.
        nearest = np.minimum(np.floor(position + 0.5).astype(int), size - 1)
        return table.weight is None and np.array_equal(table.index[:, 0], nearest)
    if table.weight is None:
        return False
    low = np.floor(position).astype(int)
    found = np.zeros((resized, size), np.float32)
    expected = np.zeros((resized, size), np.float32)
    rows = np.arange(resized)
    np.add.at(expected, (rows, low), 1 - (position - low))
    np.add.at(expected, (rows, np.minimum(low + 1, size - 1)), position - low)
    for tap in range(table.index.shape[1]):
        np.add.at(found, (rows, table.index[:, tap]), table.weight[:, tap])
    return bool(np.allclose(found, expected, atol=1e-4))
