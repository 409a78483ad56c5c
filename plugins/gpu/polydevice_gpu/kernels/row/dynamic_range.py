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
"""A core reads them in the time of one launch, where reductions are four (PoCL 3.1)."""


@kernel(DynamicRange)
class DynamicRangeRef(SingleLaunch):
    """One work-item reads everything."""

    source = "row/dynamic_range_ref.cl"
    modes = ({"WIDTH": 1}, {"WIDTH": 8}, {"WIDTH": 16})

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats."""
        return unless((compute_type(node.inputs[0].storage) == "float", NO_FLOATS))

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Vectors need elements side by side."""
        x = node.inputs[0]
        return mode["WIDTH"] == 1 or step_along(x.placed, x.shape, [_all_axes(node)]) == 1

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The device's vectors."""
        if not self.mode_supports(node, self.modes[2], target):
            return 0
        return 2 if target.vector_width >= self.modes[2]["WIDTH"] else 1

    def describe(self, call: Call, op: DynamicRange, mode: Mode) -> None:
        """All elements are one row, in the order of memory."""
        x, (_, zero) = call.node.inputs[0], call.node.outputs
        widths = (mode["WIDTH"],) if mode["WIDTH"] > 1 else ()
        call.tensor("IN0", x, [_all_axes(call.node)], widths)
        call.tensor("OUT1", zero, [()])
        call.define(**mode)
        call.scalars(COUNT=math.prod(x.shape))
        call.result([()])
        call.options(ROUNDED_DIVISIONS)
        call.dispatch((1,))


def _all_axes(node: GpuNode) -> tuple[int, ...]:
    x = node.inputs[0]
    return tuple(x.placed.order(x.shape))
