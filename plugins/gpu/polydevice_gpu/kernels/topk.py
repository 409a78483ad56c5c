"""TopK: the largest or smallest elements along an axis."""

from __future__ import annotations

import math

from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target


@kernel(TopK)
class TopkRef(Kernel):
    """One work-item finds the elements of one row, one after the other."""

    def supports(self, node: GpuNode, target: Target) -> bool:
        """The number must be known, as the result's shape is."""
        return node.inputs[1].constant is not None

    def describe(self, call: Call, mode: Mode) -> None:
        """Rows are all other axes."""
        node = call.node
        op, x, values, indices = node.op, node.inputs[0], *node.outputs
        assert isinstance(op, TopK)
        axis = normalize_axis(op.axis, x.rank)
        rows = tuple(a for a in range(x.rank) if a != axis)
        for role, value in (("IN0", x), ("OUT1", indices)):
            call.tensor(role, value, [rows, (axis,)])
        call.scalars(COUNT=x.shape[axis], K=values.shape[axis])
        call.scalars(ROWS=math.prod(x.shape[a] for a in rows))
        call.define(BY_INDEX=op.sort is TopKSort.INDEX)
        # NaN counts as the largest number.
        more = "((a) > (b) || ((a) != (a) && (b) == (b)))"
        less = "((a) < (b) || ((b) != (b) && (a) == (a)))"
        call.define(**{"BEFORE(a, b)": more if op.mode is TopKMode.MAX else less})
        call.result([rows, (axis,)])
        call.dispatch((math.prod(x.shape[a] for a in rows),))
