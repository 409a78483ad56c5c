"""MVN and NormalizeL2 along axes, and LRN."""

from __future__ import annotations

import math

from polydevice.ops.normalization import LRN, MVN, EpsMode, NormalizeL2
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.softmax import declare_rows
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers


def normalized_axes(node: GpuNode) -> tuple[int, ...]:
    """Return the axes of a normalisation, in ascending order."""
    rank = node.inputs[0].rank
    return tuple(sorted({normalize_axis(axis, rank) for axis in integers(node, 1)}))


def _declare(call: Call) -> int:
    op = call.node.op
    rows, _ = declare_rows(call, normalized_axes(call.node))
    if isinstance(op, MVN):
        inside = op.eps_mode is EpsMode.INSIDE_SQRT
        call.define(CENTRE=1, SCALE=op.normalize_variance, DIVISOR="COUNT")
        root = "sqrt((s) + EPSILON)" if inside else "(sqrt(s) + EPSILON)"
    else:
        assert isinstance(op, NormalizeL2)
        call.define(CENTRE=0, SCALE=1, DIVISOR=1)
        add = op.eps_mode is EpsMode.ADD
        root = "sqrt((s) + EPSILON)" if add else "sqrt(fmax(s, (IN0_C)EPSILON))"
    call.define(**{"ROOT(s)": root})
    call.scalars(EPSILON=float(op.eps))
    return rows


@kernel(MVN, NormalizeL2)
class NormalizationGroup(Kernel):
    """One work-group normalises one row."""

    modes = ({"LANES": 64}, {"LANES": 256})

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Rows of a work-group's size, on devices with real local memory."""
        if node.inputs[1].constant is None or not target.local_memory_bytes:
            return False
        return math.prod(node.inputs[0].shape[axis] for axis in normalized_axes(node)) >= 64

    def describe(self, call: Call, mode: Mode) -> None:
        """Mean, deviation, result: three sweeps by LANES work-items."""
        rows = _declare(call)
        call.define(LANES=mode["LANES"])
        call.dispatch((mode["LANES"], rows), (mode["LANES"], 1))


@kernel(MVN, NormalizeL2)
class NormalizationRef(Kernel):
    """One work-item normalises one row."""

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Axes must be known."""
        return node.inputs[1].constant is not None

    def describe(self, call: Call, mode: Mode) -> None:
        """Mean, deviation, result."""
        call.dispatch((_declare(call),))


@kernel(LRN)
class LrnRef(Kernel):
    """One work-item computes one element; up to three axes."""

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Axes must be known and not be more than three."""
        return node.inputs[1].constant is not None and len(normalized_axes(node)) <= 3

    def describe(self, call: Call, mode: Mode) -> None:
        """Sum squares over a window of up to three axes, the others being one coordinate."""
        node = call.node
        op, x = node.op, node.inputs[0]
        assert isinstance(op, LRN)
        axes = normalized_axes(node)
        kept = tuple(axis for axis in range(x.rank) if axis not in axes)
        groups: list[tuple[int, ...]] = [kept, *[()] * (3 - len(axes)), *[(a,) for a in axes]]
        sizes = [1] * (3 - len(axes)) + [x.shape[a] for a in axes]
        call.tensor("IN0", x, groups)
        call.scalars(SIZE_0=sizes[0], SIZE_1=sizes[1], SIZE_2=sizes[2])
        call.scalars(
            ALPHA=op.alpha / op.size ** len(axes), BETA=float(op.beta), BIAS=float(op.bias)
        )
        call.define(BEFORE=(op.size - 1) // 2, AFTER=op.size // 2)
        call.result(groups)
        rows = math.prod(x.shape[axis] for axis in kept)
        call.dispatch((sizes[2], sizes[1] * sizes[0], rows))
