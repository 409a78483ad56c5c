"""DynamicRange of few elements; of many it is reductions, which all cores share."""

from __future__ import annotations

import math

from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import step_along
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.pointwise.fragment import ROUNDED_DIVISIONS
from polydevice_gpu.kernels.reason import NO_FLOATS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type

MOST_ELEMENTS = 1 << 16
"""So many take one core no longer than reductions take, whose launches are four: to quantise 65,536
numbers at run time takes 130 us instead of 155 (PoCL 3.1), 176 instead of 240 (Intel's runtime)."""


@kernel(DynamicRange)
class DynamicRangeRef(SingleLaunch):
    """One work-item reads everything."""

    source = "row/dynamic_range_ref.cl"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats."""
        return unless((compute_type(node.inputs[0].storage) == "float", NO_FLOATS))

    def describe(self, call: Call, op: DynamicRange, mode: Mode) -> None:
        """All elements are one row, in the order of memory, and in vectors of neighbours."""
        x, (_, zero) = call.node.inputs[0], call.node.outputs
        axes = tuple(x.placed.order(x.shape))
        vectors = step_along(x.placed, x.shape, [axes]) == 1
        width = min(16, call.target.vector_width) if vectors else 1
        call.tensor("IN0", x, [axes], (width,) if vectors else ())
        call.tensor("OUT1", zero, [()])
        call.define(WIDTH=width)
        call.scalars(COUNT=math.prod(x.shape))
        call.result([()])
        call.options(ROUNDED_DIVISIONS)
        call.dispatch((1,))
