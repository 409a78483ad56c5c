"""Resample: every kind of interpolation, by tables of elements and weights, in vectors or not."""

from __future__ import annotations

import math

from polydevice.dtype import ElementType
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import step_along
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.pointwise.expression import literal
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.ops import LinearResize, Resample


class _Resampling(SingleLaunch):
    """Sums over the taps of up to three axes."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The kernel has three table slots."""
        return unless((len(_axes(node)) <= _SLOTS, "it has more than three axes"))

    @staticmethod
    def groups(op: Resample | LinearResize) -> list[tuple[int, ...]]:
        """Return the axes of each slot: the resampled ones are the last."""
        return [*[()] * (_SLOTS - len(op.axes)), *[(axis,) for axis in op.axes]]

    @staticmethod
    def declare_taps(call: Call, op: Resample | LinearResize) -> list[int]:
        """Declare what each result reads along each axis; return how many results there are."""
        node = call.node
        missing, sizes = _SLOTS - len(op.axes), []
        for slot in range(_SLOTS):
            if slot < missing:
                sizes.append(1)
                call.define(**{f"TAPS_{slot}": 1})
                call.define(**{f"INDEX_{slot}(o, t)": 0, f"WEIGHT_{slot}(o, t)": "1.0f"})
            elif isinstance(op, Resample):
                sizes.append(_declare_table(call, slot, slot - missing))
            else:
                sizes.append(node.output.shape[op.axes[slot - missing]])
                _declare_places(call, op, slot, slot - missing)
        call.define(INTEGER=compute_type(node.inputs[0].storage) not in _FLOATS)
        call.define(LINEAR=isinstance(op, LinearResize))
        call.define(**{"ROUNDED(v)": "round(v)" if op.half_away else "rint(v)"})
        call.scalars(OUT_0=sizes[0], OUT_1=sizes[1], OUT_2=sizes[2])
        return sizes


def _declare_table(call: Call, slot: int, place: int) -> int:
    """Declare the tables of an axis; return how many results there are along it."""
    index, weight = call.node.inputs[1 + 2 * place], call.node.inputs[2 + 2 * place]
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
    size: int = index.shape[0]
    return size


def _declare_places(call: Call, op: LinearResize, slot: int, place: int) -> None:
    """Declare the two elements that a result lies between along an axis."""
    size = call.node.inputs[0].shape[op.axes[place]]
    scale = literal(op.scales[place], "float") if op.scales else "0.0f"
    at = f"linear_place(o, SIZE_{slot}, OUT_{slot}, {scale})"
    call.scalars(**{f"SIZE_{slot}": size})
    call.define(PLACES=op.places.value, BY_SCALES=bool(op.scales))
    call.define(**{
        f"TAPS_{slot}": 2,
        f"INDEX_{slot}(o, t)": f"min((int){at}.x + (t), SIZE_{slot} - 1)",
        f"WEIGHT_{slot}(o, t)": f"((t) ? {at}.y : 1.0f - {at}.y)",
    })  # fmt: skip


@kernel(Resample, LinearResize)
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

    def describe(self, call: Call, op: Resample | LinearResize, mode: Mode) -> None:
        """Sum up vectors along the innermost axis."""
        node, width = call.node, mode["WIDTH"]
        x, out = node.inputs[0], node.output
        inner = _inner(node)
        assert inner is not None
        others = tuple(axis for axis in range(x.rank) if axis not in (*op.axes, inner))
        groups = [*self.groups(op), others, (inner,)]
        call.vectors_anywhere()
        call.tensor("IN0", x, groups, (width,))
        sizes = self.declare_taps(call, op)
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


@kernel(Resample, LinearResize)
class ResampleRef(_Resampling):
    """One work-item computes one element; up to three axes at once."""

    def describe(self, call: Call, op: Resample | LinearResize, mode: Mode) -> None:
        """Sum over the taps of up to three axes, the others being one coordinate."""
        node = call.node
        x, out = node.inputs[0], node.output
        kept = tuple(axis for axis in range(x.rank) if axis not in op.axes)
        groups = [*self.groups(op), kept]
        call.tensor("IN0", x, groups)
        sizes = self.declare_taps(call, op)
        kind = compute_type(x.storage)
        wide = kind == "double" or any(
            each.storage is ElementType.f64 for each in node.inputs[2::2]
        )
        rest = math.prod(out.shape[axis] for axis in kept)
        call.define(SUM="double" if wide else "float")
        call.scalars(REST=rest)
        if kind not in _FLOATS:
            call.define(SATURATE=f"convert_{kind}_sat")
        call.result(groups)
        # Processors make vectors along the first coordinate, which a few channels do not fill.
        fills = call.target.is_throughput or chosen(lambda: rest >= _VECTOR)
        inside = x.placed.order(x.shape)[-1] in kept and fills
        call.define(REST_INSIDE=inside)
        if inside:
            call.dispatch((rest, sizes[2], sizes[1] * sizes[0]))
        else:
            call.dispatch((sizes[2], sizes[1] * sizes[0], rest))


def _inner(node: GpuNode) -> int | None:
    """The axis along which elements lie closest, if it is not resampled."""
    x = node.inputs[0]
    axis: int = x.placed.order(x.shape)[-1]
    return None if axis in _axes(node) else axis


def _axes(node: GpuNode) -> tuple[int, ...]:
    op = node.op
    assert isinstance(op, (Resample, LinearResize))
    return op.axes


_SLOTS, _SHORTEST = 3, 4
"""Axes that are resampled, and elements along another from which on there are vectors."""

_VECTOR = 8
"""The same of vectors that compilers make. 192x192 of 3 channels by 16 taps each, with what is
rounded behind it, took 13 instead of 5 ms on Intel's runtime, and 7.8 instead of 2.4 on PoCL."""

_POSITIONS = 16
"""A cache line of f32. To planes of 96x96, which lie a multiple of 4 KiB apart, each result by
itself took 1 ms, nearly all of it for lines that others had driven from the cache."""
_FLOATS = ("float", "double")
