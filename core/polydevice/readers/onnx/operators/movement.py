"""Parts of tensors put elsewhere: split, slice, pad, gather, scatter and the like."""

from __future__ import annotations

from polydevice.emitter import Input
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Maximum, Minimum, Multiply, Subtract
from polydevice.ops.blocks import DepthMode, SpaceToDepth
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.concat import Concat
from polydevice.ops.gather import Gather, GatherElements, GatherND
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.reshape import Reshape, ShapeOf
from polydevice.ops.scatter import (
    Reduction,
    ScatterElementsUpdate,
    ScatterNDUpdate,
    ScatterUpdate,
)
from polydevice.ops.slice import Slice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.reshape import vector_of_scalar
from polydevice.shape import normalize_axis


@translates("Split")
def split(n: OnnxNode) -> list[Port]:
    """Into parts of given lengths, or of equal ones (the last may be shorter)."""
    x, axis = n.input(0), n.attribute("axis", 0)
    lengths: Input | None = n.optional(1) or n.attribute("split")
    if lengths is not None:
        if isinstance(lengths, Port) and not (lengths.shape and isinstance(lengths.shape[0], int)):
            # As many as there are outputs, whatever the model says of the input's sizes.
            lengths = n.emit(Reshape(special_zero=False), lengths, [len(n.outputs)])
        return n.emit_all(VariadicSplit(), x, axis, lengths)
    count = n.attribute("num_outputs", len(n.outputs))
    if count != len(n.outputs):
        raise n.unsupported(f"num_outputs {count} does not fit {len(n.outputs)} outputs")
    size = None if x.shape is None else x.shape[normalize_axis(axis, len(x.shape))]
    if n.version < 18 or (isinstance(size, int) and size % count == 0):
        return n.emit_all(Split(count), x, axis)
    return n.emit_all(VariadicSplit(), x, axis, _lengths(n, x, axis, count))


def _lengths(n: OnnxNode, x: Port, axis: int, count: int) -> Port:
    """Return the lengths of `count` parts, equal but for the last ones, which get what is left."""
    size = n.emit(Gather(), n.emit(ShapeOf(), x), axis, 0)
    chunk = n.emit(Divide(), n.emit(Add(), size, count - 1), count)
    before = n.emit(Multiply(), chunk, list(range(count)))
    left = n.emit(Maximum(), n.emit(Subtract(), size, before), 0)
    return n.emit(Minimum(), chunk, left)


@translates("Slice")
def slice_(n: OnnxNode) -> Port:
    """Ranges along some axes."""
    x = n.input(0)
    if n.version < 10:
        starts, ends = n.value(n.required("starts")), n.value(n.required("ends"))
        axes: Input = n.attribute("axes") or list(range(len(n.required("starts"))))
        return n.emit(Slice(), x, starts, ends, [1] * len(n.required("starts")), axes)
    starts, ends = n.input(1), n.input(2)
    given, steps = n.optional(3), n.optional(4)
    if steps is None:
        count = starts.shape[0] if starts.shape else None
        one = n.like(1, starts)
        if isinstance(count, int):
            steps = n.like([1] * count, starts)
        else:
            steps = n.emit(Broadcast(), one, n.emit(ShapeOf(), starts))
    return n.emit(Slice(), x, starts, ends, steps, *([] if given is None else [given]))


@translates("Pad")
@translates("Pad", domain="com.microsoft")
def pad(n: OnnxNode) -> Port:
    """A border of constants, edges, mirrored or wrapped elements."""
    x = n.input(0)
    mode = PadMode(n.attribute("mode", "constant"))
    if n.version < 11 and not n.domain:
        both, value = n.value(n.required("pads")), n.like(n.attribute("value", 0.0), x)
        axes = None
    else:
        both = n.input(1)
        if both.desc.rank == 2:  # as ONNX Runtime's own may be
            both = n.emit(Reshape(special_zero=False), both, [-1])
        filler, axes = n.optional(2), n.optional(3)
        value = n.like(0, x) if filler is None else filler
    begin, end = _pad_ends(n, x, both, axes)
    return n.emit(Pad(mode), x, begin, end, *([value] if mode is PadMode.CONSTANT else []))


def _pad_ends(n: OnnxNode, x: Port, both: Port, axes: Port | None) -> tuple[Port, Port]:
    """Return begin and end for every axis; the input has both in one list."""
    known = both.desc.static_ints
    chosen = None if axes is None else axes.desc.static_ints
    if known is not None and (axes is None or chosen is not None):
        count = len(known) // 2
        if chosen is None:
            return n.value(known[:count]), n.value(known[count:])
        rank = n.rank(x)
        begin, end = [0] * rank, [0] * rank
        for position, axis in enumerate(chosen):
            begin[axis], end[axis] = known[position], known[count + position]
        return n.value(begin), n.value(end)
    ends = n.emit_all(Split(2), both, 0)
    if axes is None:
        return ends[0], ends[1]
    zeros = n.like([0] * n.rank(x), both)
    scatter: Op = ScatterElementsUpdate()
    if chosen is not None:  # then sizes stay known as formulas; an IR has no negative ones there
        scatter, axes = ScatterUpdate(), n.value([axis % n.rank(x) for axis in chosen])
    spread = [n.emit(scatter, zeros, axes, part, 0) for part in ends]
    return spread[0], spread[1]


@translates("Gather")
def gather(n: OnnxNode) -> Port:
    """Slices along an axis by index."""
    x = vector_of_scalar(n, n.input(0))
    return n.emit(Gather(), x, n.input(1), n.attribute("axis", 0))


@translates("GatherElements")
def gather_elements(n: OnnxNode) -> Port:
    """Elements along an axis by index."""
    return n.emit(GatherElements(n.attribute("axis", 0)), n.input(0), n.input(1))


@translates("GatherND")
@translates("GatherND", domain="com.microsoft")
def gather_nd(n: OnnxNode) -> Port:
    """Slices by coordinates."""
    return n.emit(GatherND(batch_dims=n.attribute("batch_dims", 0)), n.input(0), n.input(1))


_REDUCTIONS = {
    "none": Reduction.NONE,
    "add": Reduction.SUM,
    "mul": Reduction.PROD,
    "min": Reduction.MIN,
    "max": Reduction.MAX,
}


def _reduction(n: OnnxNode) -> Reduction:
    name = n.attribute("reduction", "none")
    if name not in _REDUCTIONS:
        raise n.unsupported(f"reduction {name!r}; legal: {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[name]


@translates("Scatter", "ScatterElements")
def scatter_elements(n: OnnxNode) -> Port:
    """Put elements along an axis by index."""
    op = ScatterElementsUpdate(reduction=_reduction(n))
    return n.emit(op, n.input(0), n.input(1), n.input(2), n.attribute("axis", 0))


@translates("ScatterND")
def scatter_nd(n: OnnxNode) -> Port:
    """Put slices by coordinates."""
    op = ScatterNDUpdate(reduction=_reduction(n))
    return n.emit(op, n.input(0), n.input(1), n.input(2))


@translates("Concat")
def concat(n: OnnxNode) -> Port:
    """Along an axis; a single input stays as it is."""
    return n.emit(Concat(n.required("axis")), *n.required_inputs())


@translates("SpaceToDepth")
def space_to_depth(n: OnnxNode) -> Port:
    """Blocks of pixels into the depth, before (DCR) or behind (CRD) the channel."""
    mode = n.attribute("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise n.unsupported(f"mode {mode!r} is not DCR or CRD")
    order = DepthMode.BLOCKS_FIRST if mode == "DCR" else DepthMode.DEPTH_FIRST
    return n.emit(SpaceToDepth(order, n.required("blocksize")), n.input(0))
