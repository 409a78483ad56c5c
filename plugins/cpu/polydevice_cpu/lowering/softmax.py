"""SoftMax and LogSoftmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from polydevice.dtype import ElementType
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.concat import ordered
from polydevice_cpu.onednn.attributes import Attributes, Eltwise
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitives import softmax
from polydevice_cpu.ops.softmax import FEW_TERMS
from polydevice_cpu.plan.step import PrimitiveStep
from polydevice_cpu.proof.proof import inaccuracy

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

MANY_ROWS = 1024
"""From here on short axes are normalised by NumPy, column by column, which needs 20 µs to start."""


@lowers(SoftMax, LogSoftmax)
def lower_softmax(builder: PlanBuilder, node: Node) -> bool:
    """Normalise along the axis; it must lie contiguously for oneDNN to be fast.

    A sure prediction is the logarithm of a sum near 1, so oneDNN's logarithm must be right there.
    """
    op = node.operation(SoftMax)
    source = node.inputs[0]
    if source.element_type is not ElementType.f32:
        return False
    value = builder.value(source)
    if not value.in_reach:
        return False
    if isinstance(op, LogSoftmax) and (reason := inaccuracy(Eltwise(Algorithm.LOG))):
        builder.refuse(node.name, reason)
        return False
    axis = op.axis % len(value.shape)
    rows = math.prod(value.shape) // max(value.shape[axis], 1)
    is_short = 1 < value.shape[axis] <= FEW_TERMS and rows >= MANY_ROWS
    if is_short and not isinstance(op, LogSoftmax):
        return False
    layouts = [value.descriptor, Descriptor.dense(value.shape, value.descriptor.data_type)]
    # Along any other axis oneDNN is slow: bring the axis to the end of the memory order.
    inner = tuple(0 if d == axis else len(value.shape) - d for d in range(len(value.shape)))
    layouts.append(ordered(value.shape, inner, value.descriptor.data_type))
    for layout in layouts:
        made = softmax(layout, layout, axis, Attributes(), logarithm=isinstance(op, LogSoftmax))
        if made is None or made.is_reference:
            continue
        candidate = builder.in_layout(value, layout)
        result = builder.new(layout)
        builder.emit(
            PrimitiveStep(
                node.name, node.type, made, {Arg.SRC: candidate, Arg.DST: result}, (Arg.DST,)
            )
        )
        builder.set(node.outputs[0], result)
        return True
    return False
