"""Other shapes for the same elements, and what is asked about shapes."""

from __future__ import annotations

from polydevice.emitter import Input
from polydevice.node import Port
from polydevice.ops.broadcast import Broadcast, BroadcastMode
from polydevice.ops.concat import Concat
from polydevice.ops.reduce import ReduceProd
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice
from polydevice.ops.transpose import Transpose
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.shape import normalize_axis


def axes_input(n: OnnxNode, index: int, name: str = "axes") -> Port | None:
    """Return the axes that an input gives (newer opsets) or an attribute (older ones)."""
    port = n.optional(index)
    if port is not None:
        return port
    axes = n.attribute(name)
    return None if axes is None else n.value([axes] if isinstance(axes, int) else axes)


def flattened(n: OnnxNode, x: Port, axis: int) -> Port:
    """Make a matrix of x: axes before `axis` become rows, the others columns."""
    rank = n.rank(x)
    if not -rank <= axis <= rank:
        raise n.unsupported(f"axis {axis} is outside [{-rank}, {rank}]")
    axis = axis + rank if axis < 0 else axis
    if axis == 1:
        return n.emit(Reshape(special_zero=True), x, [0, -1])
    if axis in (0, rank):
        return n.emit(Reshape(special_zero=False), x, [1, -1] if axis == 0 else [-1, 1])
    height = n.emit(ReduceProd(keep_dims=True), part_of_shape(n, x, 0, axis), [0])
    width = n.emit(ReduceProd(keep_dims=True), part_of_shape(n, x, axis, rank), [0])
    return n.emit(Reshape(special_zero=False), x, joined(n, height, width))


def joined(n: OnnxNode, *parts: Input) -> Port:
    """Concatenate 1-D int64 values."""
    return n.emit(Concat(0), *[n.value(part) for part in parts])


def part_of_shape(n: OnnxNode, x: Port, start: int, stop: int) -> Port:
    """Return the sizes of some axes of x as a 1-D int64 value."""
    return n.emit(Slice(), n.emit(ShapeOf(), x), [start], [stop], [1], [0])


def vector_of_scalar(n: OnnxNode, x: Port) -> Port:
    """Return a scalar as one element along an axis, and anything else as it is.

    PyTorch exports scalars with operators along an axis of 0 or -1, which they do not have.
    """
    return n.emit(Reshape(special_zero=False), x, [1]) if x.desc.rank == 0 else x


def reshaped_like(n: OnnxNode, x: Port, model: Port) -> Port:
    """Give x the shape of another value with as many elements."""
    return n.emit(Reshape(special_zero=False), x, n.emit(ShapeOf(), model))


@translates("Reshape")
def reshape(n: OnnxNode) -> Port:
    """With allowzero, 0 in the pattern is a size of 0; else it copies the input's size."""
    pattern: Input = n.required("shape") if n.version < 5 else n.input(1)
    return n.emit(Reshape(special_zero=not n.attribute("allowzero", 0)), n.input(0), pattern)


@translates("Flatten")
def flatten(n: OnnxNode) -> Port:
    """A matrix with the axes before `axis` as rows."""
    return flattened(n, n.input(0), n.attribute("axis", 1))


@translates("Squeeze")
def squeeze(n: OnnxNode) -> Port:
    """Remove the given axes, or all of size 1."""
    axes = axes_input(n, 1)
    return n.emit(Squeeze(), n.input(0), *([] if axes is None else [axes]))


@translates("Unsqueeze")
def unsqueeze(n: OnnxNode) -> Port:
    """Insert axes of size 1."""
    axes = axes_input(n, 1)
    if axes is None:
        raise n.unsupported("axes are missing")
    return n.emit(Unsqueeze(), n.input(0), axes)


@translates("ExpandDims", domain="com.microsoft")
def expand_dims(n: OnnxNode) -> Port:
    """Insert one axis of size 1."""
    return n.emit(Unsqueeze(), n.input(0), n.input(1))


@translates("Transpose")
def transpose(n: OnnxNode) -> Port:
    """Without perm, the order of the axes is reversed; PyTorch counts some from the end."""
    x, order = n.input(0), n.attribute("perm", [])
    if any(axis < 0 for axis in order):
        order = [normalize_axis(axis, n.rank(x)) for axis in order]
    return n.emit(Transpose(), x, order)


@translates("Shape")
def shape(n: OnnxNode) -> Port:
    """The sizes from `start` to `end`."""
    x = n.input(0)
    sizes = n.emit(ShapeOf(), x)
    start, end = n.attribute("start", 0), n.attribute("end")
    if start == 0 and end is None:
        return sizes
    stop = 2**31 - 1 if end is None else end
    return n.emit(Slice(), sizes, [start], [stop], [1], [0])


@translates("Size")
def size(n: OnnxNode) -> Port:
    """The number of elements."""
    return n.emit(ReduceProd(keep_dims=False), n.emit(ShapeOf(), n.input(0)), [0])


@translates("Expand")
def expand(n: OnnxNode) -> Port:
    """Broadcast in both directions."""
    return n.emit(Broadcast(BroadcastMode.BIDIRECTIONAL), n.input(0), n.input(1))


@translates("Identity")
def identity(n: OnnxNode) -> Port:
    """The input itself."""
    return n.input(0)
