"""Operations that only look at the same bytes in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydevice.ops.resampling import AxisTable
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.resampling import taken
from polydevice_cpu.onednn.descriptor import row_major
from polydevice_cpu.plan.building.looks import OPS, Look, backwards, looks
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(*OPS)
def lower_view(builder: PlanBuilder, node: Node) -> bool:
    """Compute nothing where the outputs are parts of the first input, or other looks at it.

    Where elements would have to be copied, the value is brought into row-major order first.
    """
    source, *others = node.inputs
    if any(port.desc.constant is None for port in others):
        return False
    value = builder.value(source)
    if value.strides is None:
        value = builder.dense(value)
    found = _looks(node, value)
    if found is None and not value.is_dense:
        value = builder.dense(value)
        found = _looks(node, value)
    if found is None:
        return _turned(builder, node, value)
    for port, (shape, strides, skipped) in zip(node.outputs, found, strict=True):
        skip_bytes = 0 if 0 in shape else skipped * value.dtype.itemsize
        builder.set(port, value.view(shape, strides, skip_bytes=skip_bytes))
    return True


def _turned(builder: PlanBuilder, node: Node, value: Value) -> bool:
    """Take elements from back to front by machine code: to find the slice takes NumPy 9 us."""
    found = None if 0 in value.shape or not has_avx512() else backwards(node, value.shape)
    if found is None or value.dtype.hasobject:
        return False
    tables = [AxisTable(axis, index[:, None], None) for axis, index in found.indices.items()]
    result = taken(builder, node, value, tables)
    if result is None or result.strides is None:
        return False
    shape, strides, skipped = found.look(node, result.shape, result.strides)
    skip_bytes = 0 if 0 in shape else skipped * value.dtype.itemsize
    builder.set(node.outputs[0], result.view(shape, strides, skip_bytes=skip_bytes))
    return True


def _looks(node: Node, value: Value) -> list[Look] | None:
    if isinstance(node.op, (Reshape, Squeeze, Unsqueeze)) and value.is_dense:
        shape = node.outputs[0].desc.shape
        if shape is None:
            return None
        return [(shape.static, row_major(shape.static), 0)]
    assert value.strides is not None
    return looks(node, value.shape, value.strides)
