"""Reductions: sums, products, means, extremes, norms and logic over some axes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polydevice.ops import reduce
from polydevice.ops.op import Op
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.pooling import lowest
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.views import integers


@dataclass(frozen=True)
class Formula:
    """A reduction as expressions over the accumulator ``a``, an element ``v`` and the COUNT."""

    start: str
    combine: str
    finish: str = "a"
    join: str = ""
    """How two accumulators become one, when not by `combine`."""


FORMULAS: dict[type[Op], Formula] = {
    reduce.ReduceSum: Formula("0", "a + v"),
    reduce.ReduceMean: Formula("0", "a + v", "a / (IN0_C)COUNT"),
    reduce.ReduceProd: Formula("1", "a * v"),
    reduce.ReduceMax: Formula("LOWEST", "v > a || v != v ? v : a"),
    reduce.ReduceMin: Formula("HIGHEST", "v < a || v != v ? v : a"),
    reduce.ReduceLogicalAnd: Formula("1", "a && v"),
    reduce.ReduceLogicalOr: Formula("0", "a || v"),
    reduce.ReduceL1: Formula("0", "a + (v < 0 ? -v : v)", join="a + v"),
    reduce.ReduceL2: Formula("0", "a + v * v", "sqrt((float)a)", "a + v"),
}


def highest(kind: str) -> str:
    """Return the largest value of a compute type, as OpenCL C."""
    names = {"char": "CHAR", "short": "SHRT", "int": "INT", "long": "LONG"}
    if kind in names:
        return f"{names[kind]}_MAX"
    unsigned = {"uchar": "UCHAR_MAX", "ushort": "USHRT_MAX", "uint": "UINT_MAX"}
    return unsigned.get(kind, "ULONG_MAX" if kind == "ulong" else "INFINITY")


def reduced_axes(node: GpuNode) -> list[int]:
    """Return the axes that a reduction removes, in ascending order."""
    rank = node.inputs[0].rank
    return sorted({normalize_axis(axis, rank) for axis in integers(node, 1)})


def declare_reduction(call: Call) -> tuple[int, int]:
    """Declare input, result and formula; return the numbers of results and of terms."""
    node = call.node
    x = node.inputs[0]
    assert isinstance(node.op, reduce.Reduction)
    axes = reduced_axes(node)
    kept = [axis for axis in range(x.rank) if axis not in axes]
    out_axes = kept if node.op.keep_dims else range(len(kept))
    call.tensor("IN0", x, [tuple(kept), tuple(axes)])
    formula = FORMULAS[type(node.op)]
    kind = compute_type(x.storage)
    call.define(LOWEST=lowest(kind), HIGHEST=highest(kind))
    call.define(START=formula.start)
    call.define(**{"COMBINE(a, v)": f"({formula.combine})", "FINISH(a)": f"({formula.finish})"})
    call.define(**{"JOIN_PARTS(a, v)": f"({formula.join or formula.combine})"})
    rows = math.prod(x.shape[axis] for axis in kept)
    count = math.prod(x.shape[axis] for axis in axes)
    call.scalars(ROWS=rows, COUNT=count)
    call.result([tuple(out_axes)])
    return rows, count


@kernel(*FORMULAS)
class ReduceGroup(Kernel):
    """One work-group reduces one row: many terms, lanes that run in lockstep."""

    modes = ({"LANES": 64}, {"LANES": 256})

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Rows long enough to keep a work-group busy, on devices with real local memory."""
        if not target.local_memory_bytes or node.inputs[1].constant is None:
            return False
        count = math.prod(node.inputs[0].shape[axis] for axis in reduced_axes(node))
        return count >= 256 and isinstance(node.op, reduce.Reduction)

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The group fits the device."""
        return mode["LANES"] <= target.max_work_group_size

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The largest group with 16 terms for each lane, if rows leave the device idle."""
        count = math.prod(node.inputs[0].shape[axis] for axis in reduced_axes(node))
        rows = node.inputs[0].elements // max(count, 1)
        if rows >= 8 * target.compute_units:
            return 0
        fitting = [
            number
            for number, mode in enumerate(self.modes)
            if self.mode_supports(node, mode, target) and 16 * mode["LANES"] <= count
        ]
        return max(fitting, default=0)

    def describe(self, call: Call, mode: Mode) -> None:
        """Each lane takes every LANES-th term, then the lanes' results are joined."""
        rows, _ = declare_reduction(call)
        call.define(LANES=mode["LANES"])
        call.dispatch((mode["LANES"], rows), (mode["LANES"], 1))


@kernel(*FORMULAS)
class ReduceRef(Kernel):
    """One work-item reduces one row."""

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Axes must be known."""
        return node.inputs[1].constant is not None

    def describe(self, call: Call, mode: Mode) -> None:
        """Loop over the terms."""
        rows, _ = declare_reduction(call)
        call.dispatch((rows,))
