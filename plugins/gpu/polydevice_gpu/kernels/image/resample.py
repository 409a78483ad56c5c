"""Resample: every kind of interpolation, by tables of elements and weights, in vectors or not."""

from __future__ import annotations

import math

from polydevice.dtype import ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import step_along
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.ops import Resample


class _Resampling(SingleLaunch):
    """Sums over the taps of up to three axes."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The kernel has three table slots."""
        axes = node.operation(Resample).axes
        return unless((len(axes) <= _SLOTS, "it has more than three axes"))

    @staticmethod
    def groups(op: Resample) -> list[tuple[int, ...]]:
        """Return the axes of each slot: the resampled ones are the last."""
        return [*[()] * (_SLOTS - len(op.axes)), *[(axis,) for axis in op.axes]]

    @staticmethod
    def declare_tables(call: Call, op: Resample) -> list[int]:
        """Declare what each result reads along each axis; return how many results there are."""
        node = call.node
        x, missing, sizes = node.inputs[0], _SLOTS - len(op.axes), []
        for slot in range(_SLOTS):
            place = slot - missing
            if place < 0:
                sizes.append(1)
                call.define(**{f"TAPS_{slot}": 1})
                call.define(**{f"INDEX_{slot}(o, t)": 0, f"WEIGHT_{slot}(o, t)": "1.0f"})
                continue
            index, weight = node.inputs[1 + 2 * place], node.inputs[2 + 2 * place]
            roles = f"IN{1 + 2 * place}", f"IN{2 + 2 * place}"
            call.tensor(roles[0], index)
            call.tensor(roles[1], weight)
            # Few taps are worth unrolling; many (antialiasing) are not.
            taps = {f"TAPS_{slot}": index.shape[1]}
            if index.shape[1] <= 4:
                call.define(**taps)
            else:
                call.scalars(**taps)
            call.define(**{
                f"INDEX_{slot}(o, t)": f"{roles[0]}_LOAD({roles[0]}_AT(o, t))",
                f"WEIGHT_{slot}(o, t)": f"{roles[1]}_LOAD({roles[1]}_AT(o, t))",
            })  # fmt: skip
            sizes.append(index.shape[0])
        call.define(INTEGER=compute_type(x.storage) not in _FLOATS)
        call.define(**{"ROUNDED(v)": "round(v)" if op.half_away else "rint(v)"})
        call.scalars(OUT_0=sizes[0], OUT_1=sizes[1], OUT_2=sizes[2])
        return sizes


@kernel(Resample)
class ResampleVector(_Resampling):
    """One work-item computes WIDTH neighbours along an axis that is not resampled: channels, say.

    PoCL's own vectors are of neighbouring work-items, each with its own tables and divisions: 21
    channels of 12x12 to 96x96 took 0.95 ms, of bytes 2.1.
    """

    modes = ({"WIDTH": 4}, {"WIDTH": 8}, {"WIDTH": 16})

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Kept axes are contiguous, with enough elements, on a processor."""
        x = node.inputs[0]
        refused = super().refuses(node, target)
        inner = _inner(node)
        kind = compute_type(x.storage)
        wide = any(each.storage is ElementType.f64 for each in node.inputs[2::2])
        return refused or unless(
            (not target.is_throughput, "its work-items make vectors by themselves"),
            (kind in ("float", "char", "uchar") and not wide, "it is of neither f32 nor bytes"),
            (
                inner is not None and x.placed.pitches[inner] == 1,
                "no axis that is not resampled is contiguous",
            ),
            (inner is not None and x.shape[inner] >= _SHORTEST, "that axis is short"),
        )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The longest vectors that fit."""
        fitting = [
            number
            for number, mode in enumerate(self.modes)
            if mode["WIDTH"] <= target.vector_width and self.mode_supports(node, mode, target)
        ]
        return max(fitting, default=0)

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """A vector fits into the axis."""
        inner = _inner(node)
        return inner is not None and node.inputs[0].shape[inner] >= mode["WIDTH"]

    def describe(self, call: Call, op: Resample, mode: Mode) -> None:
        """Sum up vectors along the innermost axis."""
        node, width = call.node, mode["WIDTH"]
        x, out = node.inputs[0], node.output
        inner = _inner(node)
        assert inner is not None
        others = tuple(axis for axis in range(x.rank) if axis not in (*op.axes, inner))
        groups = [*self.groups(op), others, (inner,)]
        call.vectors_anywhere()
        call.tensor("IN0", x, groups, (width,))
        sizes = self.declare_tables(call, op)
        count, outer = x.shape[inner], math.prod(out.shape[axis] for axis in others)
        chunks = -(-count // width)
        positions = 1 if step_along(out.placed, out.shape, groups) == 1 else _POSITIONS
        call.define(WIDTH=width, POSITIONS=positions)
        kind = compute_type(x.storage)
        stored = "sum" if kind in _FLOATS else f"convert_{kind}{width}_sat(ROUNDED(sum))"
        call.define(**{"MADE(sum)": stored})
        call.scalars(INNER=count, OUTER=outer, CHUNKS=chunks)
        call.result(groups, (width,))
        call.dispatch((chunks * outer, -(-sizes[2] // positions), sizes[1] * sizes[0]))


@kernel(Resample)
class ResampleRef(_Resampling):
    """One work-item computes one element; up to three axes at once."""

    def describe(self, call: Call, op: Resample, mode: Mode) -> None:
        """Sum over the taps of up to three axes, the others being one coordinate."""
        node = call.node
        x, out = node.inputs[0], node.output
        kept = tuple(axis for axis in range(x.rank) if axis not in op.axes)
        groups = [*self.groups(op), kept]
        call.tensor("IN0", x, groups)
        sizes = self.declare_tables(call, op)
        kind = compute_type(x.storage)
        wide = node.inputs[2].storage is ElementType.f64 or kind == "double"
        rest = math.prod(out.shape[axis] for axis in kept)
        call.define(SUM="double" if wide else "float")
        call.scalars(REST=rest)
        if kind not in _FLOATS:
            call.define(SATURATE=f"convert_{kind}_sat")
        call.result(groups)
        inside = x.placed.order(x.shape)[-1] in kept
        call.define(REST_INSIDE=inside)
        if inside:
            call.dispatch((rest, sizes[2], sizes[1] * sizes[0]))
        else:
            call.dispatch((sizes[2], sizes[1] * sizes[0], rest))


def _inner(node: GpuNode) -> int | None:
    """The axis along which elements lie closest, if it is not resampled."""
    x = node.inputs[0]
    axis: int = x.placed.order(x.shape)[-1]
    return None if axis in node.operation(Resample).axes else axis


_SLOTS, _SHORTEST = 3, 4
"""Axes that are resampled, and elements along another from which on there are vectors."""

_POSITIONS = 16
"""A cache line of f32. To planes of 96x96, which lie a multiple of 4 KiB apart, each result by
itself took 1 ms, nearly all of it for lines that others had driven from the cache."""
_FLOATS = ("float", "double")
