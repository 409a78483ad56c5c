"""Concat: what does not lie in place already is copied there."""

from __future__ import annotations

import functools

from polydevice.ops.concat import Concat
from polydevice.shape import normalize_axis
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.pointwise.elementwise import ElementwiseRef
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, sliced
from polydevice_gpu.ops import Fragment, Fused


def parts(node: GpuNode) -> list[Layout]:
    """Return where each input of a concatenation lies within the result."""
    op = node.operation(Concat)
    out = node.output
    axis = normalize_axis(op.axis, out.rank)
    layouts, start = [], 0
    for value in node.inputs:
        layouts.append(sliced(out.placed, [start if a == axis else 0 for a in range(out.rank)]))
        start += value.shape[axis]
    return layouts


def lies_there(value: Value, out: Value, layout: Layout) -> bool:
    """Whether a value lies in its part already; another part may hold it instead."""
    return (
        value.memory is out.memory
        and value.placed.offset == layout.offset
        and value.placed.same_as(layout, value.shape)
    )


@kernel(Concat)
class ConcatRef(Kernel):
    """One copy per input, each into its part of the result."""

    source = "pointwise/elementwise_ref.cl"

    def fuses(self, node: GpuNode) -> bool:
        """Inputs may lie in the result already, so nothing can be done to them on the way."""
        return False

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Copy every input that is not there already."""
        copier = ElementwiseRef()
        launches: list[Launch] = []
        for value, layout in zip(node.inputs, parts(node), strict=True):
            if not value.elements or lies_there(value, node.output, layout):
                continue
            part = Value(value.name, value.element_type, value.shape, storage=node.output.storage)
            part.layout, part.memory = layout, node.output.memory
            copy = GpuNode(node.name, Fused(Fragment((value.storage,))), [value], [part])
            number = chosen(functools.partial(copier.default_mode, copy, target))
            launches += copier.launches(copy, copier.modes[number], target)
        return launches
