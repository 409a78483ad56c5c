"""Convert from narrow integers to f32, which a reorder does on all threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydevice.dtype import ElementType
from polydevice.ops.convert import Convert
from polydevice_cpu.lowering.table import lowers
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitives import reorder
from polydevice_cpu.plan.step import PrimitiveStep

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.builder import Builder

INTEGERS = (ElementType.u8, ElementType.i8)


@lowers(Convert)
def lower_convert(builder: Builder, node: Node) -> bool:
    """Keep the layout and change the type; other conversions round or wrap in their own way."""
    source, (target,) = node.inputs[0], node.outputs
    if source.element_type is target.element_type:
        builder.set(target, builder.value(source))
        return True
    if source.element_type not in INTEGERS or target.element_type is not ElementType.f32:
        return False
    value = builder.value(source)
    if not value.in_reach or value.strides is None:
        return False
    result = builder.new(Descriptor.strided(value.shape, value.strides))
    made = reorder(value.descriptor, result.descriptor, Attributes())
    if made is None or made.is_reference or result.storage.size_bytes != value.elements * 4:
        return False
    builder.emit(
        PrimitiveStep(node.name, node.type, made, {Arg.SRC: value, Arg.DST: result}, (Arg.DST,))
    )
    builder.set(target, result)
    return True
