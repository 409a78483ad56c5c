"""Values from a few numbers, and where values are."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.comparison import GreaterEqual, LessEqual
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.generate import Eye, NegativeIndices, OneHot, Range
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.search import NonZero, Unique
from polydevice.ops.select import Select
from polydevice.ops.slice import Slice
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.topk import axis_size
from polydevice.readers.onnx.protos.element_types import element_type_of


@translates("Range")
def range_(n: OnnxNode) -> Port:
    """start, start + delta, … before limit."""
    start = n.input(0)
    return n.emit(Range(start.element_type), start, n.input(1), n.input(2))


@translates("Range", domain="com.microsoft")
def microsoft_range(n: OnnxNode) -> Port:
    """The same before it was in ONNX; numbers may be vectors of one, and delta be left out."""
    start, delta = n.input(0), n.optional(2)
    given = [start, n.input(1), n.like(1, start) if delta is None else delta]
    scalars = [n.emit(Squeeze(), x, [0]) if x.desc.rank == 1 else x for x in given]
    return n.emit(Range(start.element_type), *scalars)


@translates("EyeLike")
def eye_like(n: OnnxNode) -> Port:
    """Ones on the k-th diagonal of a matrix."""
    x = n.input(0)
    dtype = n.attribute("dtype")
    kind = x.element_type if dtype is None else element_type_of(dtype)
    return n.emit(Eye(kind), axis_size(n, x, 0), axis_size(n, x, 1), n.attribute("k", 0))


@translates("OneHot")
def one_hot(n: OnnxNode) -> Port:
    """values[1] at the position of each index, values[0] elsewhere; indices may be negative."""
    indices, depth, values = n.input(0), n.input(1), n.input(2)
    if not indices.element_type.is_integer:
        indices = n.emit(Convert(ElementType.i64), indices)
    if not depth.element_type.is_integer:
        depth = n.emit(Convert(ElementType.i64), depth)
    if depth.desc.rank == 1:
        depth = n.emit(Squeeze(), depth, [0])
    off, on = (
        n.emit(Squeeze(), n.emit(Slice(), values, [i], [i + 1], [1], [0]), [0]) for i in (0, 1)
    )
    op = OneHot(n.attribute("axis", -1), NegativeIndices.NORMALIZE)
    return n.emit(op, indices, depth, on, off)


@translates("Trilu")
@translates("Trilu", domain="com.microsoft")
def trilu(n: OnnxNode) -> Port:
    """The upper or lower triangle, zeros elsewhere: columns are compared with rows + k."""
    x, k = n.input(0), n.optional(1)
    rows = n.emit(Range(ElementType.i64), 0, axis_size(n, x, -2), 1)
    columns = n.emit(Range(ElementType.i64), 0, axis_size(n, x, -1), 1)
    diagonal = n.emit(Unsqueeze(), rows, [1])
    if k is not None:
        diagonal = n.emit(Add(), diagonal, k)
    upper = bool(n.attribute("upper", 1))
    kept = n.emit(GreaterEqual() if upper else LessEqual(), columns, diagonal)
    return n.emit(Select(), kept, x, n.like(0, x))


@translates("NonZero")
def non_zero(n: OnnxNode) -> Port:
    """Coordinates of the elements that are not 0."""
    return n.emit(NonZero(), n.input(0))


@translates("Unique")
def unique(n: OnnxNode) -> list[Port]:
    """Distinct elements, first positions, inverse, counts."""
    axis = n.attribute("axis")
    extra = [] if axis is None else [n.value(axis)]
    return n.emit_all(Unique(sorted=bool(n.attribute("sorted", 1))), n.input(0), *extra)


@translates("Unique", domain="com.microsoft")
def microsoft_unique(n: OnnxNode) -> list[Port]:
    """Distinct elements of a vector, in the order in which they come; where; how many."""
    values, _, places, counts = n.emit_all(Unique(sorted=False), n.input(0))
    return [values, places, counts]


@translates("Compress")
def compress(n: OnnxNode) -> Port:
    """The slices (or elements) where the condition holds; what it says beyond them is left out."""
    x, condition, axis = n.input(0), n.input(1), n.attribute("axis")
    if axis is None:
        x, axis = n.emit(Reshape(special_zero=False), x, [-1]), 0
    size = axis_size(n, x, axis)
    condition = n.emit(Slice(), condition, [0], n.emit(Unsqueeze(), size, [0]), [1], [0])
    places = n.emit(Squeeze(), n.emit(NonZero(), condition), [0])
    return n.emit(Gather(), x, places, axis)
