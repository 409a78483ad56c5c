"""ROIAlign, for which channels lie next to each other as convolutions leave them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from polydevice.dtype import ElementType
from polydevice.ops.roi import ROIAlign, RoiMode
from polydevice_cpu.algorithms.roi_align import FEW_CHANNELS
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.ops.roi import roi_align
from polydevice_cpu.plan.step import ArrayStep

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(ROIAlign)
def lower_roi_align(builder: PlanBuilder, node: Node) -> bool:
    """Read the picture channels last, as convolutions leave it."""
    op, source, result = node.operation(ROIAlign), node.inputs[0], node.outputs[0]
    if source.element_type is not ElementType.f32 or op.mode is not RoiMode.AVG:
        return False
    value = builder.value(source)
    if not value.in_reach or value.shape[1] <= FEW_CHANNELS:
        return False
    picture = builder.in_layout(value, Descriptor.channels_last(value.shape))
    others = [builder.array_value(port) for port in node.inputs[1:]]
    assert result.shape is not None
    target = builder.new_dense(result.shape.static, result.element_type.dtype)
    compute = partial(roi_align, op)
    step = ArrayStep(node.name, node.type, lambda _: compute, [picture, *others], [target])
    builder.emit(step)
    builder.set(result, target)
    return True
