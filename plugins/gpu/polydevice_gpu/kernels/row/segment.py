"""SegmentMax: maxima of rows by segment."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops.embedding import EmptySegment, SegmentMax
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.types import compute_type

_LOWEST = {
    "float": "-MAXFLOAT", "double": "-DBL_MAX", "char": "CHAR_MIN", "uchar": 0, "short": "SHRT_MIN",
    "ushort": 0, "int": "INT_MIN", "uint": 0, "long": "LONG_MIN", "ulong": 0,
}  # fmt: skip


@kernel(SegmentMax)
class SegmentMaxRef(SingleLaunch):
    """One work-item finds one element of one segment."""

    def describe(self, call: Call, op: SegmentMax, mode: Mode) -> None:
        """Loop over the rows; segments come in ascending order."""
        node = call.node
        x, segments, out = node.inputs[0], node.inputs[1], node.output
        rest = tuple(range(1, x.rank))
        call.tensor("IN0", x, [(0,), rest])
        call.tensor("IN1", segments, [(0,)])
        columns = out.elements // out.shape[0]
        call.scalars(ROWS=x.shape[0], COLUMNS=columns, SEGMENTS=out.shape[0])
        half = x.element_type is ElementType.f16
        lowest = "-65504.0f" if half else _LOWEST[compute_type(x.storage)]
        call.define(EMPTY=0 if op.fill_mode is EmptySegment.ZERO else lowest)
        call.result([(0,), rest])
        call.dispatch((columns, out.shape[0]))
