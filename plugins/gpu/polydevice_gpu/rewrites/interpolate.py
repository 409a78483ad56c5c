"""Interpolation with known sizes is `Resample`: weighted sums of elements that tables choose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.color import FromYuv
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.interpolate import (
    CoordinateMode,
    Interpolate,
    Interpolate1,
    Interpolate4,
    InterpolateMode,
    NearestMode,
    Resize,
    ShapeCalculation,
)
from polydevice.ops.pad import Pad
from polydevice.ops.resampling import AxisTable, interpolate_table, resize_table
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.facts import (
    array_of,
    numbers_of,
    parameters_known,
    rank_of,
    result_shapes,
    shape_of,
)
from polydevice.shape import are_same, normalize_axis
from polydevice.symbolic_size import array_of as sizes_array
from polydevice.symbolic_size import is_symbolic, number_of
from polydevice_gpu.ops import Resample
from polydevice_gpu.resize_ops import PlacedResize, Places

AXES = 3
"""Most axes that the kernel interpolates at once."""


def resample(
    build: Emitter, x: Port, tables: Sequence[AxisTable], *, half_away: bool = False
) -> list[Port]:
    """Apply the tables of an interpolation."""
    if not tables:
        return [x]
    exact = not x.element_type.is_integer or all(table.weight is None for table in tables)
    if len(tables) > AXES and exact:  # what is rounded in between would be rounded twice
        (x,) = resample(build, x, tables[:-AXES])
        tables = tables[-AXES:]
    parameters = []
    for table in tables:
        parameters.append(table.index.astype(np.int32))
        weight = np.ones(table.index.shape) if table.weight is None else table.weight
        if table.outside is not None:
            weight = np.where(table.outside[:, None], 0.0, weight)
        # Halves are common where integers are resampled; in f32 they would round either way.
        wide = half_away and x.element_type.is_integer
        parameters.append(weight.astype(np.float64 if wide else np.float32))
    op = Resample(axes=tuple(table.axis for table in tables), half_away=half_away)
    return build.emit_all(op, x, *parameters)


def interpolate_1(build: Emitter, op: Interpolate1, inputs: Sequence[Port]) -> list[Port]:
    """Interpolation of opset1."""
    x, sizes = inputs
    return interpolate(build, op.modern(rank_of(x)), [x, sizes, build.value(list(op.axes))])


def interpolate_4(build: Emitter, op: Interpolate4, inputs: Sequence[Port]) -> list[Port]:
    """Interpolation of opset4."""
    x, sizes, scales = inputs[:3]
    by_sizes = op.shape_calculation_mode is ShapeCalculation.SIZES
    return interpolate(build, op.modern(), [x, sizes if by_sizes else scales, *inputs[3:]])


def interpolate(build: Emitter, op: Interpolate, inputs: Sequence[Port]) -> list[Port]:
    """Interpolation of opset11."""
    x, target = inputs[:2]
    given = numbers_of(inputs[2]) if len(inputs) > 2 else range(rank_of(x))
    axes = [normalize_axis(int(axis), rank_of(x)) for axis in given]
    (shape,) = result_shapes(op, inputs)
    x = _padded(build, op, x)
    own = shape_of(x)
    if op.shape_calculation_mode is ShapeCalculation.SIZES:
        scales = [shape[a] / own[a] if own[a] else 1.0 for a in axes]
    else:
        scales = [float(s) for s in array_of(target).reshape(-1)]
    factors = _factors(op, own, shape, axes)
    if factors is not None:
        return [_repeated(build, x, own, factors)]
    by_sizes = op.shape_calculation_mode is ShapeCalculation.SIZES
    placed = _placed(op, own, shape, axes, () if by_sizes else tuple(scales))
    if placed is not None and not _is_of_frame(x):
        return build.emit_all(placed, x, sizes_array([shape[a] for a in placed.axes], np.int64))
    shrinks = any(scale < 1 for scale in scales)
    tables = [
        interpolate_table(op, axis, own[axis], shape[axis], scale, shrinks=shrinks)
        for axis, scale in zip(axes, scales, strict=True)
        if own[axis] and (shape[axis] != own[axis] or scale != 1)
    ]
    if op.mode in (InterpolateMode.BILINEAR_PILLOW, InterpolateMode.BICUBIC_PILLOW):
        # Pillow rounds integers after each axis, the last one first.
        for table in reversed(tables):
            (x,) = resample(build, x, [table], half_away=True)
        return [x]
    return resample(build, x, tables, half_away=op.mode is InterpolateMode.LINEAR)


def _factors(
    op: Interpolate, own: Sequence[int], shape: Sequence[int], axes: Sequence[int]
) -> list[int] | None:
    """Return how often elements along each axis are repeated, where tables would be formulas.

    None where an interpolation does something else: output i shows element i // factor both by
    its corner, rounded down, and by its centre, rounded to the nearest.
    """
    if op.mode is not InterpolateMode.NEAREST or not any(is_symbolic(own[axis]) for axis in axes):
        return None
    by_corner = (CoordinateMode.ASYMMETRIC, NearestMode.FLOOR)
    kinds = (op.coordinate_transformation_mode, op.nearest_mode)
    by_centre = kinds[0] is CoordinateMode.HALF_PIXEL and kinds[1] in (
        NearestMode.ROUND_PREFER_FLOOR,
        NearestMode.ROUND_PREFER_CEIL,
    )
    if kinds != by_corner and not by_centre:
        return None
    factors = list(map(_factor, own, shape))
    if None in factors or not all(result < 1 << 20 for result in shape):
        return None  # f32 tells all quotients of shorter ones apart
    return [factor for factor in factors if factor is not None]


def _factor(size: int, result: int) -> int | None:
    """Return how often a size goes into a result whatever the sizes are; None if it may not."""
    if result is size:
        return 1
    own, wanted = number_of(size), number_of(result)
    if not own or wanted % own or is_symbolic(size) != is_symbolic(result):
        return None
    factor = int(wanted // own)
    is_known = not is_symbolic(size) or result is size * factor or result is factor * size
    return factor if is_known else None


def _is_of_frame(x: Port) -> bool:
    """Whether it is a video frame in colour, which `fuse_frame` converts and resizes by tables."""
    node = x.node
    while isinstance(node.op, (Concat, Convert, Transpose)):
        node = node.inputs[0].node
    return isinstance(node.op, FromYuv)


_PLACES = {
    CoordinateMode.HALF_PIXEL: Places.CENTRES,
    CoordinateMode.PYTORCH_HALF_PIXEL: Places.CENTRES_OR_FIRST,
    CoordinateMode.ASYMMETRIC: Places.CORNERS,
    CoordinateMode.ALIGN_CORNERS: Places.ENDS,
    CoordinateMode.TF_HALF_PIXEL_FOR_NN: Places.BEHIND_CORNERS,
}
_LONGEST = 1 << 15
"""Products of two lengths below it are of 31 bits."""


def _placed(
    op: Interpolate,
    own: Sequence[int],
    shape: Sequence[int],
    axes: Sequence[int],
    scales: tuple[float, ...],
) -> PlacedResize | None:
    """Return an interpolation whose places are computed, where tables would be formulas."""
    places = _PLACES.get(op.coordinate_transformation_mode)
    changed = [n for n, axis in enumerate(axes) if not are_same([shape[axis]], [own[axis]])]
    kept = [axes[n] for n in changed]
    if places is None or not 0 < len(kept) <= AXES or any(map(is_symbolic, scales)):
        return None
    if not any(is_symbolic(size[axis]) for size in (own, shape) for axis in kept):
        return None
    if any(not 0 < size[axis] < _LONGEST for size in (own, shape) for axis in kept):
        return None
    if places is Places.ENDS:
        scales = ()
    scales = tuple(scales[n] for n in changed if scales)
    made = partial(PlacedResize, tuple(kept), places, scales, in_floats=not op.exact)
    if op.mode is InterpolateMode.LINEAR_ONNX:
        return made()
    if op.mode is InterpolateMode.LINEAR and not op.antialias:
        return made(half_away=True)
    if op.mode is InterpolateMode.NEAREST and (not op.exact or all(map(_is_short, scales))):
        return made(nearest=op.nearest_mode)
    if op.mode is InterpolateMode.CUBIC and all(map(_is_short, scales)):
        return made(cube=op.cube_coeff)
    return None


def _is_short(scale: float) -> bool:
    """Whether products of lengths with a scale's numerator and denominator are of 31 bits."""
    return all(number < _LONGEST for number in scale.as_integer_ratio())


def _repeated(build: Emitter, x: Port, own: Sequence[int], factors: Sequence[int]) -> Port:
    """Repeat elements: a view of a smaller value, which is then laid out."""
    split = [size for pair in zip(own, [1] * len(own), strict=True) for size in pair]
    wide = [size for pair in zip(own, factors, strict=True) for size in pair]
    spread = build.emit(Broadcast(), build.reshape(x, split), sizes_array(wide, np.int64))
    return build.reshape(spread, [n * factor for n, factor in zip(own, factors, strict=True)])


def _padded(build: Emitter, op: Interpolate, x: Port) -> Port:
    missing = (0,) * rank_of(x)
    begin, end = (*op.pads_begin, *missing)[: rank_of(x)], (*op.pads_end, *missing)[: rank_of(x)]
    if not any(begin) and not any(end):
        return x
    return build.emit(Pad(), x, list(begin), list(end))


def can_resize(op: Resize, inputs: Sequence[Port]) -> bool:
    """Whether a Resize is a sum of elements: nothing outside of the image has a value."""
    return parameters_known(op, inputs) and op.extrapolation_value == 0


def resize(build: Emitter, op: Resize, inputs: Sequence[Port]) -> list[Port]:
    """ONNX's interpolation."""
    x, target = inputs[:2]
    own, rank = shape_of(x), rank_of(x)
    axes = [normalize_axis(a, rank) for a in (range(rank) if op.axes is None else op.axes)]
    (shape,) = result_shapes(op, inputs)
    numbers = array_of(target).reshape(-1)
    if numbers.dtype.kind == "f":
        scales = [float(s) for s in numbers]
    else:
        scales = op.fitted(own, [int(n) for n in numbers])[1]
    region = [0.0] * len(axes) + [1.0] * len(axes)
    given = array_of(inputs[2]).reshape(-1) if len(inputs) > 2 else np.empty(0)
    if given.size == len(region):
        region = [float(v) for v in given]
    tables = [
        resize_table(
            op, axis, own[axis], shape[axis], scale, (region[i], region[i + len(axes)])
        )
        for i, (axis, scale) in enumerate(zip(axes, scales, strict=True))
        if own[axis] and (shape[axis] != own[axis] or scale != 1 or len(inputs) > 2)
    ]  # fmt: skip
    return resample(build, x, tables)
