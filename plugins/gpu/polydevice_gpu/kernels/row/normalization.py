"""MVN and NormalizeL2 along axes, and LRN."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.ops.normalization import LRN, MVN, EpsMode, NormalizeL2
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import unless
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
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers


def normalized_axes(node: GpuNode) -> tuple[int, ...]:
    """Return the axes of a normalisation, in ascending order."""
    rank = node.inputs[0].rank
    return tuple(sorted({normalize_axis(axis, rank) for axis in integers(node, 1)}))


class Normalization(RowKernel):
    """What all kernels have in common: mean and deviation, or a norm, that rows are divided by."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Axes must be known."""
        if node.inputs[1].constant is None:
            return "its axes are not known ahead"
        return super().refuses(node, target)

    def axes(self, node: GpuNode) -> Sequence[int]:
        """The axes of the operation."""
        return normalized_axes(node)

    def formula(self, node: GpuNode) -> Formula:
        """The sum and the squares about the mean, or the sum of squares."""
        op = node.op
        if isinstance(op, MVN):
            inside = op.eps_mode is EpsMode.INSIDE_SQRT
            root = "sqrt((b) / COUNT + EPSILON)" if inside else "(sqrt((b) / COUNT) + EPSILON)"
            scaled = op.normalize_variance
            return Formula(
                start="0",
                combine="a + v",
                centre="(a) / (n)",
                term="(v - centre) * (v - centre)" if scaled else "",
                part="(b) + (n) * ((own) - centre) * ((own) - centre)",
                scale=f"1 / {root}" if scaled else "1",
                result="(v - centre) * scale",
            )
        assert isinstance(op, NormalizeL2)
        add = op.eps_mode is EpsMode.ADD
        return Formula(
            start="0",
            combine="a + v * v",
            join="a + v",
            scale="sqrt((a) + EPSILON)" if add else "sqrt((a) < EPSILON ? EPSILON : (a))",
            result="v / scale",
        )

    def declare_constants(self, call: Call) -> None:
        """What keeps a divisor from being 0."""
        op = call.node.op
        assert isinstance(op, (MVN, NormalizeL2))
        call.scalars(EPSILON=float(op.eps))

    def declare_result(self, call: Call, rows: Rows) -> None:
        """One element for each of the input."""
        call.result([rows.kept, rows.axes])


@kernel(MVN, NormalizeL2)
class NormalizationHeld(RowHeld, Normalization):
    """A warp normalises a row that it keeps in registers."""


@kernel(MVN, NormalizeL2)
class NormalizationGroup(Normalization, RowGroup):
    """A work-group normalises a row or a part of it."""


@kernel(MVN, NormalizeL2)
class NormalizationVector(RowVector, Normalization):
    """A work-item normalises a row in vectors."""


@kernel(MVN, NormalizeL2)
class NormalizationRef(Normalization, RowRef):
    """A work-item normalises a row or a part of it."""


@kernel(LRN)
class LrnRef(SingleLaunch):
    """One work-item computes one element; up to three axes."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Axes must be known and not be more than three."""
        if node.inputs[1].constant is None:
            return "its axes are not known ahead"
        return unless((len(normalized_axes(node)) <= 3, "it has more than three axes"))

    def describe(self, call: Call, op: LRN, mode: Mode) -> None:
        """Sum squares over a window of up to three axes, the others being one coordinate."""
        node = call.node
        x = node.inputs[0]
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
