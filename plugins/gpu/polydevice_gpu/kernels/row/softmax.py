"""SoftMax and LogSoftmax."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import kernel
from polydevice_gpu.kernels.row.row import (
    Formula,
    RowGroup,
    RowHeld,
    RowKernel,
    RowRef,
    Rows,
    RowVector,
)
from polydevice_gpu.kernels.source import Call


class Normalizer(RowKernel):
    """What all kernels have in common: the maximum, then the sum of exponentials below it."""

    def axes(self, node: GpuNode) -> Sequence[int]:
        """The axis of the operation."""
        return (normalize_axis(node.operation(SoftMax).axis, node.inputs[0].rank),)

    def formula(self, node: GpuNode) -> Formula:
        """A part of -infinity alone adds nothing; a row of it is NaN."""
        logarithm = isinstance(node.op, LogSoftmax)
        return Formula(
            start="-INFINITY",
            combine="fmax(a, v)",
            centre="(a) == -INFINITY ? 0 : (a)",
            term="exp(v - centre)",
            part="(b) * exp((a) - centre)",
            scale="log(b)" if logarithm else "1 / (b)",
            result="v - centre - scale" if logarithm else "exp(v - centre) * scale",
        )

    def declare_result(self, call: Call, rows: Rows) -> None:
        """One element for each of the input."""
        call.result([rows.kept, rows.axes])


@kernel(SoftMax, LogSoftmax)
class SoftmaxHeld(RowHeld, Normalizer):
    """A warp normalises a row that it keeps in registers."""


@kernel(SoftMax, LogSoftmax)
class SoftmaxGroup(Normalizer, RowGroup):
    """A work-group normalises a row or a part of it."""


@kernel(SoftMax, LogSoftmax)
class SoftmaxVector(RowVector, Normalizer):
    """A work-item normalises a row in vectors."""


@kernel(SoftMax, LogSoftmax)
class SoftmaxRef(Normalizer, RowRef):
    """A work-item normalises a row or a part of it."""
