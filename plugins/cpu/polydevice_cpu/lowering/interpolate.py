"""Resizing of images: where oneDNN samples at the same places by it, else by tables of places."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.convolution import Convolution
from polydevice.ops.interpolate import (
    CoordinateMode,
    Interpolate,
    Interpolate1,
    Interpolate4,
    InterpolateMode,
    Resize,
    ShapeCalculation,
)
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad
from polydevice.ops.resampling import AxisTable
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.rewrites.integers.quantised import NARROW
from polydevice.symbolic_size import is_formula, is_symbolic
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.resampling import resampled, taken
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import DATA_TYPES, Descriptor, row_major
from polydevice_cpu.onednn.primitives import reorder, resampling
from polydevice_cpu.ops.interpolate import interpolate_tables, resize_tables
from polydevice_cpu.plan.step import PrimitiveStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node, Port
    from polydevice_cpu.plan.building.builder import PlanBuilder


SHORT, LONG = 8, 1 << 20
"""Axes of 8 elements stand for all up to this length where `_repeats` says so: it takes 180 us
for others to find out how each is resized."""

ROUNDED = 256
"""Up to this length, f32 rounds positions by less than a weight may differ from oneDNN's."""

_BY_STEPS = (
    CoordinateMode.HALF_PIXEL,
    CoordinateMode.PYTORCH_HALF_PIXEL,
    CoordinateMode.ASYMMETRIC,
)
_SCALES = (1.0, 2.0, 4.0, 8.0)


@lowers(Interpolate, Interpolate1, Interpolate4, Resize)
def lower_interpolate(builder: PlanBuilder, node: Node) -> bool:
    """Resize axes as oneDNN does, else by tables of what each result reads."""
    source, *others = node.inputs
    constants = [port.desc.constant for port in others]
    shape, target = source.shape, node.outputs[0].shape
    if shape is None or target is None:
        return False
    before, after = shape.static, target.static
    if any(c is None for c in constants) or 0 in before or 0 in after:
        return False
    known = [c for c in constants if c is not None]
    output = _for_integers(builder, node, before, known)
    if output is None:
        output = _as_onednn(builder, node, before, after, known)
    if output is None:
        output = _by_tables(builder, node, before, known)
    if output is None:
        return False
    builder.set(node.outputs[0], output)
    return True


MANY_CHANNELS = 8
"""Bytes from which on those of a pixel are copied at once."""


def _for_integers(
    builder: PlanBuilder, node: Node, before: tuple[int, ...], constants: list[Array]
) -> Value | None:
    """Take the nearest bytes where a convolution of integers reads them, channels side by side.

    It reads them so, and a picture is smaller before it is enlarged: 24 channels from 28x28 to
    56x56 take 25 us with bringing them there, and oneDNN 62 and 19 more behind it.
    """
    source = node.inputs[0]
    is_picture = source.element_type in NARROW and len(before) == 4 and has_avx512()
    if not is_picture or any(map(is_symbolic, before)) or any(map(is_formula, constants)):
        return None
    if before[1] < MANY_CHANNELS or not _is_convolved(builder, node.outputs[0]):
        return None
    tables = _tables(node.op, before, constants)
    if not tables or any(
        table.axis < 2 or table.weight is not None or table.outside is not None for table in tables
    ):
        return None
    value = builder.value(source)
    if not value.in_reach:
        return None
    layout = Descriptor.channels_last(before, DATA_TYPES[value.dtype])
    return taken(builder, node, builder.in_layout(value, layout), tables)


def _is_convolved(builder: PlanBuilder, port: Port) -> bool:
    """Whether a convolution of integers alone reads a port, perhaps with a border around it."""
    reader = builder.reader(port)
    while reader is not None and isinstance(reader.op, Pad):
        reader = builder.reader(reader.output)
    if reader is None or not isinstance(reader.op, IntegerProduct):
        return False
    return isinstance(reader.op.product, Convolution)


def _as_onednn(
    builder: PlanBuilder,
    node: Node,
    before: tuple[int, ...],
    after: tuple[int, ...],
    constants: list[Array],
) -> Value | None:
    """Resize one to three neighbouring axes, nearest or linear; None where oneDNN does not."""
    source = node.inputs[0]
    if source.element_type not in (ElementType.f32, *NARROW):
        return None
    way = _way(node.op, before, constants)
    if way is None:
        return None
    linear, axes = way
    value = builder.value(source)
    if not value.in_reach or (linear and source.element_type is not ElementType.f32):
        return None
    if 3 <= len(before) <= 5 and min(axes, default=2) > 1:
        wanted = Descriptor.any(after, value.descriptor.data_type)
        return _resized(builder, node, value, wanted, linear=linear)
    return _resized_inside(builder, node, value, after, axes, linear=linear)


def _by_tables(
    builder: PlanBuilder, node: Node, before: tuple[int, ...], constants: list[Array]
) -> Value | None:
    """Take the nearest elsewhere, or weigh what is near; for sizes that are numbers."""
    source = node.inputs[0]
    if any(map(is_symbolic, before)) or any(map(is_formula, constants)):
        return None
    tables = _tables(node.op, before, constants)
    if not tables or any(table.outside is not None for table in tables):
        return None
    if all(table.weight is None for table in tables):
        return taken(builder, node, builder.array_value(source), tables)
    is_of_bytes = source.element_type in NARROW and _rounds_to_even(node.op)
    if source.element_type is not ElementType.f32 and not is_of_bytes:
        return None
    value = builder.wide(builder.value(source))
    if not value.in_reach:
        return None
    output = resampled(builder, node, value, tables)
    return _in_bytes(builder, output, source.element_type) if output and is_of_bytes else output


def _rounds_to_even(op: Op) -> bool:
    """Whether integers are rounded in the end, half-way ones to the even neighbour."""
    if isinstance(op, Resize):
        return True
    mode = getattr(op, "mode", None)
    return mode in (InterpolateMode.LINEAR_ONNX, InterpolateMode.CUBIC)


def _in_bytes(builder: PlanBuilder, value: Value, kind: ElementType) -> Value:
    """Emit what rounds f32, and cuts it to what a byte holds.

    Where there are no gaps all is one row: of three or four axes oneDNN takes code that is there
    for recurrent layers, and 15 ns for each element.
    """
    assert value.strides is not None
    shape, strides = value.shape, value.strides
    if value.has_no_gaps:
        value = value.view((value.elements,), (1,))
    assert value.strides is not None
    target = Descriptor.strided(value.shape, value.strides, DATA_TYPES[kind.dtype])
    made = reorder(value.descriptor, target, Attributes())
    assert made is not None, f"oneDNN cannot reorder {value} to {target}"
    output = builder.new(target)
    builder.emit(PrimitiveStep("", "Reorder", made, {Arg.SRC: value, Arg.DST: output}, (Arg.DST,)))
    return output.view(shape, strides)


def _resized(
    builder: PlanBuilder, node: Node, value: Value, wanted: Descriptor, *, linear: bool
) -> Value | None:
    """Emit the primitive for [N, C, spatial...]; None where oneDNN has none."""
    made = resampling(value.descriptor, wanted, Attributes(), linear=linear)
    if made is None or made.is_reference:
        return None
    output = builder.new(made.dst)
    builder.emit(
        PrimitiveStep(node.name, node.type, made, {Arg.SRC: value, Arg.DST: output}, (Arg.DST,))
    )
    return output


def _resized_inside(
    builder: PlanBuilder,
    node: Node,
    value: Value,
    after: tuple[int, ...],
    axes: list[int],
    *,
    linear: bool,
) -> Value | None:
    """The same where other axes are resized: those behind them are seen as channels."""
    if not axes or max(axes) - min(axes) > 2:
        return None
    first, last = min(axes), max(axes) + 1
    value = builder.dense(value)

    def seen(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return math.prod(sizes[:first]), math.prod(sizes[last:]), *sizes[first:last]

    kind, before = value.descriptor.data_type, seen(value.shape)
    source, wanted = (
        Descriptor.strided(sizes, _channels_last(sizes), kind) for sizes in (before, seen(after))
    )
    # Not a view of its own making: the stride of an only image tells oneDNN the layout.
    turned = Value(
        value.storage,
        before,
        value.dtype,
        _channels_last(before),
        offset_bytes=value.offset_bytes,
        descriptor=source,
    )
    output = _resized(builder, node, turned, wanted, linear=linear)
    return None if output is None else output.view(after, row_major(after))


def _channels_last(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor [N, C, spatial...] whose channels lie next to each other."""
    batch, channels, *spatial = sizes
    outer, _, *inner = row_major((batch, 1, *spatial))
    return outer * channels, 1, *(stride * channels for stride in inner)


def _way(op: Op, before: tuple[int, ...], constants: list[Array]) -> tuple[bool, list[int]] | None:
    """Whether oneDNN resizes linearly, else to the nearest, and which axes; None: neither."""

    @lru_cache(maxsize=256)
    def way(*sizes: int) -> tuple[bool, list[int]] | None:
        rest, given = iter(sizes[len(before) :]), []
        for constant in constants:
            is_known = constant.dtype != object
            items = None if is_known else [next(rest) for _ in range(constant.size)]
            given.append(constant if is_known else np.array(items).reshape(constant.shape))
        told, found = _told(op, sizes[: len(before)], given)
        if told:
            return found
        tables = _tables(op, sizes[: len(before)], given)
        linear = None if tables is None else _linear(tables, sizes[: len(before)])
        if tables is None or linear is None:
            return None
        return linear, [table.axis for table in tables]

    repeats = _repeats(op, constants)

    def way_of_short(*sizes: int) -> tuple[bool, list[int]] | None:
        is_short = repeats and max(sizes) <= LONG
        return way(*(min(size, SHORT) for size in sizes)) if is_short else way(*sizes)

    formulas = [item for each in constants if each.dtype == object for item in each.flat]
    sizes = (*before, *formulas)
    trace = current_trace()
    return way_of_short(*sizes) if trace is None else trace.outcome(way_of_short, sizes)


def _told(
    op: Op, sizes: tuple[int, ...], constants: list[Array]
) -> tuple[bool, tuple[bool, list[int]] | None]:
    """Whether it is known without tables how axes are resized, and if so what `_way` answers."""
    if not isinstance(op, (Interpolate, Interpolate4)):
        return False, None
    modern = op if isinstance(op, Interpolate) else op.modern()
    coordinates = modern.coordinate_transformation_mode
    if modern.mode is not InterpolateMode.LINEAR_ONNX or modern.padded(sizes) != list(sizes):
        return False, None
    if coordinates is CoordinateMode.ALIGN_CORNERS:
        return True, None  # oneDNN does so for single elements alone
    if (
        coordinates is not CoordinateMode.HALF_PIXEL
        or modern.shape_calculation_mode is not ShapeCalculation.SIZES
    ):
        return False, None
    by_version = 1 if isinstance(op, Interpolate4) else 0  # scales stand before the axes
    wanted = [int(size) for size in constants[0].reshape(-1)]
    given = constants[1 + by_version :]
    axes = [int(axis) % len(sizes) for axis in given[0].reshape(-1)] if given else range(len(sizes))
    resized = dict(zip(axes, wanted, strict=True))
    if not modern.exact and max(*sizes, *wanted) > ROUNDED:
        return False, None
    changed = [axis for axis, size in resized.items() if size != sizes[axis]]
    return True, (bool(changed), changed)


def _repeats(op: Op, constants: list[Array]) -> bool:
    """Whether what is read for an element is read for the next one, too, so many elements further.

    So it is where an axis grows by a power of two, of which positions are exact: all lengths but
    very short ones, where both ends are near, are resized alike.
    """
    if not isinstance(op, (Interpolate, Interpolate4)):
        return False
    modern = op if isinstance(op, Interpolate) else op.modern()
    scales = constants[0 if isinstance(op, Interpolate) else 1]
    return (
        modern.shape_calculation_mode is ShapeCalculation.SCALES
        and modern.coordinate_transformation_mode in _BY_STEPS
        and scales.dtype.kind == "f"
        and all(constant.dtype != object for constant in constants)
        and all(float(scale) in _SCALES for scale in scales.reshape(-1))
    )


def _linear(tables: list[AxisTable], before: tuple[int, ...]) -> bool | None:
    """True: the same as oneDNN's linear; False: as its nearest; None: neither."""
    kinds = {False, True}
    for table in tables:
        if table.outside is not None and table.outside.any():
            return None
        kinds = {kind for kind in kinds if _same(table, before[table.axis], linear=kind)}
    return min(kinds) if kinds else None


def _tables(op: Op, sizes: tuple[int, ...], constants: list[Array]) -> list[AxisTable] | None:
    """What the NumPy function reads for each output, per axis; None with a border of zeros."""
    axes: Array | None
    match op:
        case Resize():
            return resize_tables(op, sizes, *constants)
        case Interpolate1():
            axes = np.array(op.axes, np.int64)
            modern, target = op.modern(len(sizes)), constants[0]
        case Interpolate4():
            by_sizes = op.shape_calculation_mode is ShapeCalculation.SIZES
            target = constants[0 if by_sizes else 1]
            modern, axes = op.modern(), constants[2] if len(constants) > 2 else None
        case Interpolate():
            modern, target = op, constants[0]
            axes = constants[1] if len(constants) > 1 else None
        case _:
            return None
    if modern.padded(sizes) != list(sizes):
        return None
    return interpolate_tables(modern, sizes, target, axes)


def _same(table: AxisTable, size: int, *, linear: bool) -> bool:
    if (table.weight is None) is linear:
        return False
    resized = len(table.index)
    position = np.clip((np.arange(resized) + 0.5) * size / resized - 0.5, 0, size - 1)
    if table.weight is None:
        # Half-way positions are rounded away from zero in oneDNN.
        nearest = np.minimum(np.floor(position + 0.5).astype(int), size - 1)
        return np.array_equal(table.index[:, 0], nearest)
    low = np.floor(position).astype(int)
    found = np.zeros((resized, size), np.float32)
    expected = np.zeros((resized, size), np.float32)
    rows = np.arange(resized)
    np.add.at(expected, (rows, low), 1 - (position - low))
    np.add.at(expected, (rows, np.minimum(low + 1, size - 1)), position - low)
    for tap in range(table.index.shape[1]):
        np.add.at(found, (rows, table.index[:, tap]), table.weight[:, tap])
    return bool(np.allclose(found, expected, atol=1e-4))
