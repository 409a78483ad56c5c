"""Groups of pointwise operations in one launch; also every copy between layouts."""

from __future__ import annotations

import math

from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.fragment import Operand, function, is_vectorizable
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.source import Call, step_along
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.layout import Layout, broadcast
from polydevice_gpu.ops import Fused


def iteration_groups(shape: tuple[int, ...], layouts: list[Layout]) -> list[tuple[int, ...]]:
    """Order and merge the axes of a result so that few loops remain, the densest innermost.

    Args:
        shape: of the result.
        layouts: of the result (first) and of all inputs, over the result's axes.

    Returns:
        Three groups of axes, outermost first; together they cover all axes above size 1.
    """
    axes = [axis for axis in layouts[0].order(shape) if shape[axis] > 1]
    groups: list[tuple[int, ...]] = []
    for axis in axes:
        if groups and all(
            layout.pitches[groups[-1][-1]] == layout.pitches[axis] * shape[axis]
            for layout in layouts
        ):
            groups[-1] = (*groups[-1], axis)
        else:
            groups.append((axis,))
    while len(groups) > 3:
        groups[:2] = [groups[0] + groups[1]]
    return [()] * (3 - len(groups)) + groups


@kernel(Fused)
class ElementwiseRef(Kernel):
    """One work-item computes WIDTH neighbours along the innermost axis in memory."""

    source = "elementwise_ref.cl"
    modes = ({"WIDTH": 1}, {"WIDTH": 4}, {"WIDTH": 8}, {"WIDTH": 16})

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """Use the device's vectors where all types are floats."""
        assert isinstance(node.op, Fused)
        if not is_vectorizable(node.op.fragment):
            return 0
        wanted = 4 if target.is_throughput else target.vector_width
        return {4: 1, 8: 2, 16: 3}.get(wanted, 0)

    def describe(self, call: Call, mode: Mode) -> None:
        """Iterate over the result; every input is addressed by its own pitches."""
        node = call.node
        assert isinstance(node.op, Fused)
        out, fragment = node.output, node.op.fragment
        layouts = [broadcast(v.placed, v.shape, out.shape) for v in node.inputs]
        groups = iteration_groups(out.shape, [out.placed, *layouts])
        sizes = [math.prod(out.shape[axis] for axis in group) for group in groups]
        width = mode["WIDTH"]
        contiguous = step_along(out.placed, out.shape, groups) == 1
        if not (is_vectorizable(fragment) and contiguous and sizes[2] >= width):
            width = 1
        if compute_type(out.storage) != "float":
            width = 1
        widths = (width,) if width > 1 else ()
        operands = []
        for number, (value, layout) in enumerate(zip(node.inputs, layouts, strict=True)):
            role = f"IN{number}"
            call.operand(role, value, layout, out.shape, groups, widths)
            operands.append(Operand(role, step_along(layout, out.shape, groups)))
        call.tensor("OUT0", out, groups, widths)
        call.function(function("compute", fragment, operands, 3))
        if width > 1:
            call.function(function(f"compute{width}", fragment, operands, 3, width))
        call.define(WIDTH=width)
        call.scalars(SIZE=sizes[2])
        columns = -(-sizes[2] // width)
        lanes = call.target.scalar_lanes
        local = min(call.target.max_work_group_size, 4 * lanes) if lanes > 1 else None
        call.dispatch((columns, sizes[1], sizes[0]), None if local is None else (local, 1, 1))
