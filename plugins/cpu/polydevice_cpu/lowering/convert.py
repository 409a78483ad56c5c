"""Convert: narrow integers to f32 by a reorder, on all threads; others while they are copied.

Between f32 and f16 it takes the processor's own instructions: 100,000 numbers 10 instead of 166 us.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.convert import Convert
from polydevice.processor.halves import convert_halves
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitives import reorder
from polydevice_cpu.plan.array_steps.small import copying, with_code
from polydevice_cpu.plan.channels_last import as_channels_last
from polydevice_cpu.plan.step import ArrayStep, PrimitiveStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

INTEGERS = (ElementType.u8, ElementType.i8)
PLAIN = (
    *(ElementType.i8, ElementType.i16, ElementType.i32, ElementType.i64),
    *(ElementType.u8, ElementType.u16, ElementType.u32, ElementType.u64),
    *(ElementType.f32, ElementType.f64),
)
"""Types that NumPy converts to and from as Convert does, but for floats to narrow integers."""


@lowers(Convert)
def lower_convert(builder: PlanBuilder, node: Node) -> bool:
    """Keep the layout and change the type; other conversions round or wrap in their own way."""
    source, (target,) = node.inputs[0], node.outputs
    if source.element_type is target.element_type:
        builder.set(target, builder.value(source))
        return True
    if {source.element_type, target.element_type} == {ElementType.f16, ElementType.f32}:
        return _written(builder, node, _converting_halves)
    if source.element_type not in INTEGERS or target.element_type is not ElementType.f32:
        return _copied(builder, node)
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


def _copied(builder: PlanBuilder, node: Node) -> bool:
    """Let NumPy convert while it copies, where that is all there is to do (see `narrow`)."""
    source, (target,) = node.inputs[0], node.outputs
    if source.element_type in PLAIN and target.element_type is ElementType.boolean:
        return _written(builder, node, _comparing_with_zero)
    is_plain = source.element_type in PLAIN or source.element_type is ElementType.boolean
    if not is_plain or target.element_type not in PLAIN:
        return False
    if source.element_type.is_float and target.element_type.bits < 32:
        return False
    return _written(builder, node, copying)


def _written(
    builder: PlanBuilder, node: Node, step: Callable[[str, str, Value, Value], ArrayStep]
) -> bool:
    source, (target,) = node.inputs[0], node.outputs
    assert target.shape is not None
    seen = as_channels_last(node, [builder.value(source)])
    shape = target.shape.static
    result = builder.new_dense(shape if seen is None else seen.shape, target.element_type.dtype)
    value = builder.array_value(source) if seen is None else seen.inputs[0]
    made = step(node.name, node.type, value, result)
    builder.emit(replace(made, start=with_code(node.op, made.start)))
    builder.set(target, result if seen is None else result.view(shape, seen.strides))
    return True


def _comparing_with_zero(name: str, type_: str, source: Value, target: Value) -> ArrayStep:
    def write(x: Array, y: Array) -> tuple[()]:
        np.not_equal(x, 0, out=y)
        return ()

    return ArrayStep(name, type_, lambda _: write, [source], [target], writes=True)


def _converting_halves(name: str, type_: str, source: Value, target: Value) -> ArrayStep:
    def write(x: Array, y: Array) -> tuple[()]:
        convert_halves(x, y)
        return ()

    return ArrayStep(name, type_, lambda _: write, [source], [target], writes=True)
