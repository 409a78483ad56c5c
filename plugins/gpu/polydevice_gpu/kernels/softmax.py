"""SoftMax and LogSoftmax."""

from __future__ import annotations

import math

from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target


def declare_rows(call: Call, axes: tuple[int, ...]) -> tuple[int, int]:
    """Declare x and y as rows along `axes`; return the number of rows and their length."""
    x = call.node.inputs[0]
    kept = tuple(axis for axis in range(x.rank) if axis not in axes)
    call.tensor("IN0", x, [kept, axes])
    rows = math.prod(x.shape[axis] for axis in kept)
    count = math.prod(x.shape[axis] for axis in axes)
    call.scalars(ROWS=rows, COUNT=count)
    call.result([kept, axes])
    return rows, count


def _axis(node: GpuNode) -> int:
    assert isinstance(node.op, SoftMax)
    return normalize_axis(node.op.axis, node.inputs[0].rank)


@kernel(SoftMax, LogSoftmax)
class SoftmaxGroup(Kernel):
    """One work-group normalises one row."""

    modes = ({"LANES": 64}, {"LANES": 256})

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Rows of a work-group's size, on devices with real local memory."""
        return bool(target.local_memory_bytes) and node.inputs[0].shape[_axis(node)] >= 64

    def describe(self, call: Call, mode: Mode) -> None:
        """Maximum, sum, result: three sweeps by LANES work-items."""
        assert isinstance(call.node.op, SoftMax)
        rows, _ = declare_rows(call, (_axis(call.node),))
        call.define(LANES=mode["LANES"], LOGARITHM=isinstance(call.node.op, LogSoftmax))
        call.dispatch((mode["LANES"], rows), (mode["LANES"], 1))


@kernel(SoftMax, LogSoftmax)
class SoftmaxRef(Kernel):
    """One work-item normalises one row."""

    def describe(self, call: Call, mode: Mode) -> None:
        """Maximum, sum, result."""
        rows, _ = declare_rows(call, (_axis(call.node),))
        call.define(LOGARITHM=isinstance(call.node.op, LogSoftmax))
        call.dispatch((rows,))
