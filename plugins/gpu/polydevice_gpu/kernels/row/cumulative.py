"""Running sums and products along lines, one work-item for each.

Shifted additions instead are a launch for each power of two below the length, and other launches
for other lengths.
"""

from __future__ import annotations

import math

from polydevice.node import Node
from polydevice.ops.cumulative import CumProd
from polydevice.ops.signal import CumSum
from polydevice.rewrites.facts import count_of, is_known, numbers_of, rank_of, shape_of
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers

LONGEST = 4096
"""Steps one after the other up to which that takes less than a launch for each power of two, on a
GPU with some 5 ns for each."""


def walks_lines(node: Node, target: Target) -> bool:
    """Whether a running sum is computed line by line."""
    x = node.inputs[0]
    if x.desc.rank is None or not rank_of(x) or not count_of(x):
        return False
    if len(node.inputs) > 1 and not is_known(node.inputs[1]):
        return False
    axis = numbers_of(node.inputs[1])[0] if len(node.inputs) > 1 else 0
    return not target.is_throughput or shape_of(x)[axis % rank_of(x)] <= LONGEST


@kernel(CumSum, CumProd)
class CumulativeRef(SingleLaunch):
    """One work-item walks along one line."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The axis must be known."""
        known = all(value.constant is not None for value in node.own_inputs[1:2])
        return unless((known, "its axis is not known ahead"))

    def describe(self, call: Call, op: CumSum | CumProd, mode: Mode) -> None:
        """Walk along the axis; all others are one coordinate."""
        node = call.node
        x, out = node.inputs[0], node.output
        axis = integers(node, 1)[0] % x.rank if len(node.own_inputs) > 1 else 0
        others = tuple(other for other in range(x.rank) if other != axis)
        groups = [others, (axis,)]
        call.tensor("IN0", x, groups)
        is_sum = isinstance(op, CumSum)
        call.define(**{"JOINED(sum, v)": f"(sum) {'+' if is_sum else '*'} (v)"})
        call.define(FIRST=0 if is_sum else 1, EXCLUSIVE=op.exclusive, REVERSE=op.reverse)
        lines = math.prod(out.shape[other] for other in others)
        call.scalars(LINES=lines, LENGTH=out.shape[axis])
        call.result(groups)
        call.dispatch((lines,))
