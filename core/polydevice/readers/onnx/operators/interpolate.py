"""Resize, Upsample, AffineGrid and ONNX Runtime's GridSample."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Maximum, Multiply, Subtract
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.generate import Range
from polydevice.ops.grid_sample import GridSample
from polydevice.ops.interpolate import (
    CoordinateMode,
    Interpolate,
    InterpolateMode,
    KeepAspectRatio,
    NearestMode,
    Resize,
    ShapeCalculation,
)
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode

_MODES = {
    "nearest": InterpolateMode.NEAREST,
    "linear": InterpolateMode.LINEAR_ONNX,
    "bilinear": InterpolateMode.LINEAR_ONNX,
    "cubic": InterpolateMode.CUBIC,
}
_ONLY_ONNX = (CoordinateMode.HALF_PIXEL_SYMMETRIC, CoordinateMode.TF_CROP_AND_RESIZE)


def _mode(n: OnnxNode) -> InterpolateMode:
    name = n.attribute("mode", "nearest")
    if name not in _MODES:
        raise n.unsupported(f"mode {name!r}; legal: {', '.join(_MODES)}")
    return _MODES[name]


@translates("Upsample", since=7)
def upsample(n: OnnxNode) -> Port:
    """Enlarge by scales; element i comes from floor(i / scale)."""
    scales = n.optional(1) or n.value(np.array(n.required("scales"), np.float32))
    return interpolated(
        n, scales, CoordinateMode.ASYMMETRIC, NearestMode.FLOOR, list(range(n.rank(n.input(0))))
    )


@translates("Resize", since=10)
def resize_10(n: OnnxNode) -> Port:
    """The first version: as Upsample, also smaller."""
    axes = list(range(n.rank(n.input(0))))
    return interpolated(n, n.input(1), CoordinateMode.ASYMMETRIC, NearestMode.FLOOR, axes)


@translates("Resize", since=11)
def resize(n: OnnxNode) -> Port:
    """By scales or to sizes; Interpolate where it has the settings, else an operation of its own.

    Interpolate has no weights that leave out what lies outside, no region of interest, no policy
    for the aspect ratio, and other rules for antialiasing and for corners that are aligned when
    size times scale is no integer.
    """
    x = n.input(0)
    roi, scales, sizes = (_given(n, index) for index in (1, 2, 3))
    target = scales if sizes is None else sizes
    if target is None:
        raise n.unsupported("neither scales nor sizes are given")
    coordinates = CoordinateMode(n.attribute("coordinate_transformation_mode", "half_pixel"))
    nearest = NearestMode(n.attribute("nearest_mode", "round_prefer_floor"))
    policy = KeepAspectRatio(n.attribute("keep_aspect_ratio_policy", "stretch"))
    antialias = bool(n.attribute("antialias", 0))
    outside = bool(n.attribute("exclude_outside", 0))
    axes = n.attribute("axes")
    if axes is None:
        axes = list(range(n.rank(x)))
    plain = (
        coordinates not in _ONLY_ONNX
        and policy is KeepAspectRatio.STRETCH
        and not antialias
        and not outside
        and not (coordinates is CoordinateMode.ALIGN_CORNERS and _cuts_lengths(x, target))
    )
    if plain:
        return interpolated(n, target, coordinates, nearest, axes)
    op = Resize(
        mode=_mode(n),
        axes=tuple(axes),
        coordinate_transformation_mode=coordinates,
        nearest_mode=nearest,
        antialias=antialias,
        cube_coeff=float(n.attribute("cubic_coeff_a", -0.75)),
        exclude_outside=outside,
        extrapolation_value=float(n.attribute("extrapolation_value", 0.0)),
        keep_aspect_ratio_policy=policy,
    )
    needs_roi = coordinates is CoordinateMode.TF_CROP_AND_RESIZE
    return n.emit(op, x, target, *([roi] if needs_roi and roi is not None else []))


def _cuts_lengths(x: Port, scales: Port) -> bool:
    """Whether a scaled length may not be whole; ONNX aligns corners before it is rounded down."""
    known = scales.desc.constant
    if not scales.element_type.is_float:
        return False
    return (
        known is None
        or x.shape is None
        or any(
            isinstance(size, int) and not (size * float(scale)).is_integer()
            for size, scale in zip(x.shape, known.reshape(-1))
        )
    )


def _given(n: OnnxNode, index: int) -> Port | None:
    """Return an input; an empty tensor counts as left out."""
    port = n.optional(index)
    return None if port is None or port.shape == (0,) else port


def interpolated(
    n: OnnxNode,
    target: Port,
    coordinates: CoordinateMode,
    nearest: NearestMode,
    axes: list[int],
) -> Port:
    """Emit Interpolate over the axes that really change."""
    x = n.input(0)
    by_scales = target.element_type.is_float
    known = target.desc.constant
    if known is not None and len(known) == len(axes) and x.shape is not None:
        values = known.reshape(-1).tolist()
        kept = [
            i
            for i, (axis, value) in enumerate(zip(axes, values))
            if value != (1 if by_scales else x.shape[axis])
        ]
        if not kept:
            return x
        axes = [axes[i] for i in kept]
        target = n.value(known[kept], target.element_type)
    if by_scales and target.element_type is not ElementType.f32:
        target = n.emit(Convert(ElementType.f32), target)
    op = Interpolate(
        mode=_mode(n),
        shape_calculation_mode=ShapeCalculation.SCALES if by_scales else ShapeCalculation.SIZES,
        coordinate_transformation_mode=coordinates,
        nearest_mode=nearest,
        cube_coeff=float(n.attribute("cubic_coeff_a", -0.75)),
        exact=not by_scales,
    )
    return n.emit(op, x, target, axes)


@translates("GridSample", domain="com.microsoft")
def grid_sample(n: OnnxNode) -> Port:
    """ONNX's operator before it was in ONNX."""
    return n.emit(GridSample.from_onnx(n.attributes, n.version), n.input(0), n.input(1))


@translates("AffineGrid", since=20)
def affine_grid(n: OnnxNode) -> Port:
    """Where each point of an image of `size` comes from: (x, y[, z], 1) times theta, transposed.

    ONNX's own definition drops the batch with the axis that it means to drop when there is one
    image only. Along a single point, which has no distance to the next, `align_corners` gives -1.
    """
    theta, size = n.input(0), n.input(1)
    count = size.shape[0] if size.shape else None
    if not isinstance(count, int):
        raise n.unsupported("how many numbers `size` has must be known")
    spatial = n.emit(Slice(), size, [2], [count], [1], [0])
    target = n.emit(Concat(0), spatial, [1])
    columns = [
        n.emit(Broadcast(), _coordinates(n, spatial, axis, count - 2, theta.element_type), target)
        for axis in reversed(range(count - 2))
    ]
    columns.append(n.emit(Broadcast(), n.like(1, theta), target))
    points = n.emit(Reshape(special_zero=False), n.emit(Concat(-1), *columns), [-1, count - 1])
    moved = n.emit(MatMul(transpose_b=True), points, theta)
    images = n.emit(Slice(), size, [0], [1], [1], [0])
    shape = n.emit(Concat(0), images, spatial, [count - 2])
    return n.emit(Reshape(special_zero=False), moved, shape)


def _coordinates(n: OnnxNode, spatial: Port, axis: int, rank: int, kind: ElementType) -> Port:
    """Return the coordinates along an axis, from -1 to 1, as [1, …, size, …, 1, 1]."""
    size = n.emit(Squeeze(), n.emit(Slice(), spatial, [axis], [axis + 1], [1], [0]), [0])
    places = n.emit(Convert(kind), n.emit(Range(ElementType.i64), 0, size, 1))
    if n.attribute("align_corners", 0):
        steps = n.emit(Maximum(), n.emit(Subtract(), size, 1), 1)
    else:
        steps, places = size, n.emit(Add(), places, n.like(0.5, places))
    twice = n.emit(Multiply(), places, n.like(2, places))
    along = n.emit(
        Subtract(), n.emit(Divide(), twice, n.emit(Convert(kind), steps)), n.like(1, places)
    )
    return n.emit(Unsqueeze(), along, [a for a in range(rank + 1) if a != axis])
