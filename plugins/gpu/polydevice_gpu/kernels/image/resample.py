"""Resample: every kind of interpolation, by tables of elements and weights, in vectors or not."""

from __future__ import annotations

import math
from abc import abstractmethod

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.ops.interpolate import NearestMode
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import step_along
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.launch import Launch, Scratch
from polydevice_gpu.kernels.pointwise.expression import literal
from polydevice_gpu.kernels.pointwise.fragment import ROUNDED_DIVISIONS
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.ops import Resample
from polydevice_gpu.resize_ops import PlacedResize


@dataclass(frozen=True)
class _Computed:
    """Tables that a launch before computes.

    Attributes:
        taps: elements that each result reads along an axis.
        starts: where each axis begins, in results.
        index, weight: the tables, each axis behind the other; no weights for the nearest element.
    """

    taps: int
    starts: list[int]
    index: Scratch
    weight: Scratch | None

    @classmethod
    def of(cls, node: GpuNode, op: PlacedResize) -> _Computed:
        """Return tables for a node."""
        taps = 1 if op.nearest is not None else 2 if op.cube is None else 4
        sizes = [node.output.shape[axis] for axis in op.axes]
        count = sum(sizes) * taps
        weight = None if op.nearest is not None else Scratch(count, ElementType.f32)
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        return cls(taps, starts, Scratch(count, ElementType.i32), weight)


class _Resampling(Kernel):
    """Sums over the taps of up to three axes."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The kernel has three table slots."""
        return unless((len(_axes(node)) <= _SLOTS, "it has more than three axes"))

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the launch, behind one that computes places if there are no tables."""
        op, tables, before = node.op, None, []
        if isinstance(op, PlacedResize):
            tables = _Computed.of(node, op)
            before.append(_computing(node, op, tables, target))
        assert isinstance(op, (Resample, PlacedResize))
        call = Call(self.name, self.source, node, target)
        self.describe(call, op, mode, tables)
        return [*before, call.launch()]

    @abstractmethod
    def describe(
        self, call: Call, op: Resample | PlacedResize, mode: Mode, tables: _Computed | None
    ) -> None:
        """Declare tensors, macros, scalars and NDRange."""

    @staticmethod
    def groups(op: Resample | PlacedResize) -> list[tuple[int, ...]]:
        """Return the axes of each slot: the resampled ones are the last."""
        return [*[()] * (_SLOTS - len(op.axes)), *[(axis,) for axis in op.axes]]

    @staticmethod
    def declare_taps(
        call: Call, op: Resample | PlacedResize, tables: _Computed | None
    ) -> list[int]:
        """Declare what each result reads along each axis; return how many results there are."""
        node = call.node
        missing, sizes = _SLOTS - len(op.axes), []
        if tables is not None:
            call.buffer("PLACES", tables.index, "int")
            if tables.weight is not None:
                call.buffer("WEIGHTS", tables.weight, "float")
        for slot in range(_SLOTS):
            if slot < missing:
                sizes.append(1)
                call.define(**{f"TAPS_{slot}": 1})
                call.define(**{f"INDEX_{slot}(o, t)": 0, f"WEIGHT_{slot}(o, t)": "1.0f"})
            elif tables is None:
                sizes.append(_declare_table(call, slot, slot - missing))
            else:
                sizes.append(node.output.shape[op.axes[slot - missing]])
                start, at = f"START_{slot}", f"(START_{slot} + (o)) * {tables.taps} + (t)"
                call.scalars(**{start: tables.starts[slot - missing]})
                weight = "1.0f" if tables.weight is None else f"weights[{at}]"
                call.define(**{f"TAPS_{slot}": tables.taps, f"INDEX_{slot}(o, t)": f"places[{at}]"})
                call.define(**{f"WEIGHT_{slot}(o, t)": weight})
        call.define(INTEGER=compute_type(node.inputs[0].storage) not in _FLOATS)
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


def _computing(node: GpuNode, op: PlacedResize, tables: _Computed, target: Target) -> Launch:
    """Return what computes tables."""
    call = Call("resample_places", "image/resample_places.cl", node, target)
    call.buffer("INDEX", tables.index, "int", written=True)
    keep = ""
    if tables.weight is not None:
        call.buffer("WEIGHT", tables.weight, "float", written=True)
        keep = "weight[at] = (value)"
    call.define(PLACES=op.places.value, BY_SCALES=bool(op.scales), TAPS=tables.taps)
    stays = op.in_floats or not op.scales  # as tables have it
    call.define(**{"STAYS(a, b)": "((a) == (b))" if stays else 0, "KEEP_WEIGHT(at, value)": keep})
    if op.nearest is not None:
        call.define(PLACED=3 if op.in_floats else 2, NEAREST=_NEAREST.index(op.nearest))
    elif op.cube is not None:
        call.define(PLACED=4, CUBE=literal(op.cube))
    else:
        call.define(PLACED=1)
    call.define(PLACE_T="int" if op.nearest is not None else "float2")
    call.options(ROUNDED_DIVISIONS)  # a quotient that is off by a bit may be another element
    results = 0
    for slot in range(_SLOTS):
        if slot < len(op.axes):
            count = node.output.shape[op.axes[slot]]
            call.scalars(**{f"OUT_{slot}": count})
            _declare_places(call, op, slot)
            results += count
        else:
            call.define(**{f"OUT_{slot}": 0, f"PLACE_{slot}(o)": 0})
            call.define(**{f"INDEX_{slot}(p, t)": 0, f"WEIGHT_{slot}(p, t)": 0})
    call.dispatch((results,))
    return call.launch()


def _declare_places(call: Call, op: PlacedResize, slot: int) -> None:
    """Declare the elements that a result shows, or lies between, along an axis."""
    axis = op.axes[slot]
    size, results = call.node.inputs[0].shape[axis], call.node.output.shape[axis]
    scale = op.scales[slot] if op.scales else None
    lengths = f"SIZE_{slot}, OUT_{slot}"
    call.scalars(**{f"SIZE_{slot}": size})
    if op.nearest is not None and op.in_floats:
        if scale is None:
            call.scalars(**{f"SCALE_{slot}": results / size})
            given = f"SCALE_{slot}, OUT_{slot} < SIZE_{slot}"
        else:
            given = f"{literal(scale)}, {int(scale < 1)}"
        made = f"float_place(o, {lengths}, {given})", "(p)", "1.0f"
    elif op.nearest is not None or op.cube is not None:
        up, down = (f"SIZE_{slot}", f"OUT_{slot}") if scale is None else _fraction(scale)
        given = f"(o, {lengths}, {up}, {down})"
        if op.nearest is not None:
            made = f"nearest_place{given}", "(p)", "1.0f"
        else:
            index = f"clamp((int)p.x + (t) - 1, 0, SIZE_{slot} - 1)"
            made = f"cubic_place{given}", index, "cubic_weight(p.y, t)"
    else:
        by = "0.0f" if scale is None else literal(scale)
        index, weight = f"min((int)p.x + (t), SIZE_{slot} - 1)", "((t) ? p.y : 1.0f - p.y)"
        made = f"linear_place(o, {lengths}, {by})", index, weight
    names = f"PLACE_{slot}(o)", f"INDEX_{slot}(p, t)", f"WEIGHT_{slot}(p, t)"
    call.define(**dict(zip(names, made, strict=True)))


def _fraction(scale: float) -> tuple[str, str]:
    down, up = scale.as_integer_ratio()
    return str(up), str(down)


@kernel(Resample, PlacedResize)
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

    def describe(
        self, call: Call, op: Resample | PlacedResize, mode: Mode, tables: _Computed | None
    ) -> None:
        """Sum up vectors along the innermost axis."""
        node, width = call.node, mode["WIDTH"]
        x, out = node.inputs[0], node.output
        inner = _inner(node)
        assert inner is not None
        others = tuple(axis for axis in range(x.rank) if axis not in (*op.axes, inner))
        groups = [*self.groups(op), others, (inner,)]
        call.vectors_anywhere()
        call.tensor("IN0", x, groups, (width,))
        sizes = self.declare_taps(call, op, tables)
        count, outer = x.shape[inner], math.prod(out.shape[axis] for axis in others)
        chunks = -(-count // width)
        turned = step_along(out.placed, out.shape, groups) != 1
        call.define(WIDTH=width, POSITIONS=_POSITIONS, TURNED=turned)
        kind = compute_type(x.storage)
        stored = "sum"
        if kind not in _FLOATS:
            # Saturating conversions of floats take compilers as long as all the rest.
            low, high = (0, 255) if kind == "uchar" else (-128, 127)
            limited = f"clamp(ROUNDED(sum), {low}.0f, {high}.0f)"
            stored = f"convert_{kind}{width}(convert_int{width}({limited}))"
        call.define(**{"MADE(sum)": stored})
        call.scalars(INNER=count, OUTER=outer, CHUNKS=chunks)
        call.result(groups, (width,))
        call.dispatch((chunks * outer, -(-sizes[2] // _POSITIONS), sizes[1] * sizes[0]))


@kernel(Resample, PlacedResize)
class ResampleRef(_Resampling):
    """One work-item computes one element; up to three axes at once."""

    def describe(
        self, call: Call, op: Resample | PlacedResize, mode: Mode, tables: _Computed | None
    ) -> None:
        """Sum over the taps of up to three axes, the others being one coordinate."""
        node = call.node
        x, out = node.inputs[0], node.output
        kept = tuple(axis for axis in range(x.rank) if axis not in op.axes)
        groups = [*self.groups(op), kept]
        call.tensor("IN0", x, groups)
        sizes = self.declare_taps(call, op, tables)
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
    assert isinstance(op, (Resample, PlacedResize))
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

_NEAREST = (
    *(NearestMode.FLOOR, NearestMode.CEIL, NearestMode.SIMPLE),
    *(NearestMode.ROUND_PREFER_FLOOR, NearestMode.ROUND_PREFER_CEIL),
)
"""By their numbers in resample_places.cl."""
