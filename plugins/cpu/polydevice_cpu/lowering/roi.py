"""ROIAlign and ROIPooling of pictures whose channels lie next to each other, by machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.roi import ROIAlign, RoiMode, ROIPooling
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.regions.pooled import Pooling, code_of
from polydevice_cpu.algorithms.roi_align import FEW_CHANNELS
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.ops.roi import aligning, pooling, roi_align, roi_pooling
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(ROIAlign)
def lower_roi_align(builder: PlanBuilder, node: Node) -> bool:
    """Read the picture channels last, as convolutions leave it."""
    op = node.operation(ROIAlign)
    if not has_avx512():  # NumPy makes a picture of its own for maxima, and for few channels
        source = node.inputs[0].shape
        is_few = source is None or not isinstance(source[1], int) or source[1] <= FEW_CHANNELS
        if op.mode is not RoiMode.AVG or is_few:
            return False
    return _lower(builder, node, partial(roi_align, op), aligning(op))


@lowers(ROIPooling)
def lower_roi_pooling(builder: PlanBuilder, node: Node) -> bool:
    """The same of maxima of elements."""
    op = node.operation(ROIPooling)
    return op.method == "max" and _lower(builder, node, partial(roi_pooling, op), pooling(op))


def _lower(
    builder: PlanBuilder, node: Node, compute: Callable[..., Array], pooling_: Pooling
) -> bool:
    source, result = node.inputs[0], node.outputs[0]
    if source.element_type is not ElementType.f32:
        return False
    value = builder.value(source)
    if not value.in_reach:
        return False
    picture = builder.in_layout(value, Descriptor.channels_last(value.shape))
    others = [builder.array_value(port) for port in node.inputs[1:]]
    assert result.shape is not None
    target = builder.new_dense(result.shape.static, result.element_type.dtype)
    has_code = has_avx512() and others[0].dtype == np.float32
    start = partial(_start, compute, pooling_, openmp.thread_count() if has_code else 0)
    name = MACHINE_CODE if has_code else "numpy"
    given = [picture, *others]
    builder.emit(ArrayStep(node.name, node.type, start, given, [target], name, writes=True))
    builder.set(result, target)
    return True


def _start(function: Callable[..., Array], pooling_: Pooling, threads: int, _: Context) -> Compute:
    def compute(*arrays: Array) -> tuple[()]:
        *given, result = arrays
        np.copyto(result, function(*given))
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        picture, rois, *images, result = values
        if not threads or not result.elements:
            return None
        kind = images[0].dtype if images else None
        return code_of(pooling_, picture.shape, rois.shape[0], kind, threads)

    return ByMachine(compute, prepare)
