"""Reductions: sums, products, means, extremes, norms and logic over some axes."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.ops import reduce
from polydevice.ops.op import Op
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import kernel
from polydevice_gpu.kernels.pooling.pooling import lowest
from polydevice_gpu.kernels.row.row import Formula, RowGroup, RowKernel, RowRef, Rows
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.views import integers

FORMULAS: dict[type[Op], Formula] = {
    reduce.ReduceSum: Formula("0", "a + v"),
    reduce.ReduceMean: Formula("0", "a + v", finish="a / DIVISOR"),
    reduce.ReduceProd: Formula("1", "a * v"),
    reduce.ReduceMax: Formula("LOWEST", "v > a || v != v ? v : a"),
    reduce.ReduceMin: Formula("HIGHEST", "v < a || v != v ? v : a"),
    reduce.ReduceLogicalAnd: Formula("1", "a && v"),
    reduce.ReduceLogicalOr: Formula("0", "a || v"),
    reduce.ReduceL1: Formula("0", "a + (v < 0 ? -v : v)", join="a + v"),
    reduce.ReduceL2: Formula("0", "a + v * v", join="a + v", finish="ROOT(a)"),
}


def highest(kind: str) -> str:
    """Return the largest value of a compute type, as OpenCL C."""
    names = {"char": "CHAR", "short": "SHRT", "int": "INT", "long": "LONG"}
    if kind in names:
        return f"{names[kind]}_MAX"
    unsigned = {"uchar": "UCHAR_MAX", "ushort": "USHRT_MAX", "uint": "UINT_MAX"}
    return unsigned.get(kind, "ULONG_MAX" if kind == "ulong" else "INFINITY")


class Reduction(RowKernel):
    """What both kernels have in common."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Axes must be known."""
        if node.inputs[1].constant is None:
            return "its axes are not known ahead"
        return super().refuses(node, target)

    def axes(self, node: GpuNode) -> Sequence[int]:
        """The axes that the reduction removes."""
        rank = node.inputs[0].rank
        return sorted({normalize_axis(axis, rank) for axis in integers(node, 1)})

    def formula(self, node: GpuNode) -> Formula:
        """Of the operation."""
        return FORMULAS[type(node.op)]

    def sum_type(self, node: GpuNode) -> ElementType:
        """64 bits for means and norms of integers, which fit the type when sums do not."""
        storage = node.inputs[0].storage
        if storage.is_integer and isinstance(node.op, (reduce.ReduceMean, reduce.ReduceL2)):
            return ElementType.u64 if storage.dtype.kind == "u" else ElementType.i64
        return super().sum_type(node)

    def declare_constants(self, call: Call) -> None:
        """Limits of the type; divisor and root."""
        kind = compute_type(call.node.inputs[0].storage)
        call.define(LOWEST=lowest(kind), HIGHEST=highest(kind))
        if kind in ("float", "double"):
            call.define(**{"DIVISOR": "COUNT", "ROOT(a)": "sqrt(a)"})
        else:  # processors trap at integers divided by 0; floats beyond an integer are undefined
            call.define(**{"DIVISOR": "max(COUNT, 1)", "ROOT(a)": "(long)sqrt((float)(a))"})

    def declare_result(self, call: Call, rows: Rows) -> None:
        """One element for a row."""
        op = call.node.operation(reduce.Reduction)
        left = sorted(rows.kept)
        call.result([rows.kept if op.keep_dims else tuple(left.index(a) for a in rows.kept)])


@kernel(*FORMULAS)
class ReduceGroup(Reduction, RowGroup):
    """A work-group reduces a row or a part of it."""

    least_terms = 256


@kernel(*FORMULAS)
class ReduceRef(Reduction, RowRef):
    """A work-item reduces a row or a part of it."""
