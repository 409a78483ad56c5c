"""Interpolate: images resized along chosen axes. How it samples is in `resampling`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, DimLike, Shape, bounds, dim, normalize_axis
from polydevice.symbolic_size import is_symbolic
from polydevice.tensor import TensorDesc


class InterpolateMode(Enum):
    """The filter."""

    NEAREST = "nearest"
    LINEAR = "linear"
    LINEAR_ONNX = "linear_onnx"
    CUBIC = "cubic"
    BILINEAR_PILLOW = "bilinear_pillow"
    BICUBIC_PILLOW = "bicubic_pillow"


class CoordinateMode(Enum):
    """Where an output element lies in the input (resampling.source_coordinates)."""

    HALF_PIXEL = "half_pixel"
    PYTORCH_HALF_PIXEL = "pytorch_half_pixel"
    ASYMMETRIC = "asymmetric"
    TF_HALF_PIXEL_FOR_NN = "tf_half_pixel_for_nn"
    ALIGN_CORNERS = "align_corners"
    HALF_PIXEL_SYMMETRIC = "half_pixel_symmetric"
    """ONNX only."""
    TF_CROP_AND_RESIZE = "tf_crop_and_resize"
    """ONNX only."""


class NearestMode(Enum):
    """How mode nearest rounds a coordinate."""

    ROUND_PREFER_FLOOR = "round_prefer_floor"
    ROUND_PREFER_CEIL = "round_prefer_ceil"
    FLOOR = "floor"
    CEIL = "ceil"
    SIMPLE = "simple"
    """Towards zero, but up when the axis shrinks."""


class ShapeCalculation(Enum):
    """Which input decides the output's shape."""

    SIZES = "sizes"
    SCALES = "scales"


class InterpolateOp(Op):
    """What all versions of Interpolate share: pads, and output sizes from sizes or scales."""

    sized_by_values = True

    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()

    def padded(self, shape: Sequence[DimLike]) -> list[DimLike]:
        """Return the input's shape with the zero border of the pads."""
        missing = (0,) * len(shape)
        begin, end = (*self.pads_begin, *missing), (*self.pads_end, *missing)
        if min(*begin, *end, 0, 0) < 0:
            raise ShapeError(f"pads {self.pads_begin} and {self.pads_end} must not be negative")
        return [size + b + e for size, b, e in zip(shape, begin, end, strict=False)]


def scaled_size(size: int, scale: float) -> int:
    """Return the resized length: rounded down, with OpenVINO's allowance for f32 scales."""
    if is_symbolic(size) and scale == int(scale) and size * scale < 1 << 24:  # exact in f32
        return size * int(scale)
    if is_symbolic(size):
        exact: Any = size
        length = (exact.single() * float(np.float32(scale))).single()
        made: int = math.floor((length + float(np.float32(1e-6))).single())
        return made
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.floor(np.float32(size) * np.float32(scale) + np.float32(1e-6))
    if not np.isfinite(length):
        raise ShapeError(f"the scale {scale} makes no length of {size}")
    return int(length)


def resized_shape(
    padded: Sequence[DimLike],
    axes: Sequence[int] | None,
    sizes: Sequence[DimLike] | None,
    scales: Sequence[float] | None,
) -> Shape:
    """Return the output's shape from the sizes, or else the scales, of the axes.

    Raises:
        ShapeError: when their number is not that of the axes, or a size is negative.
    """
    rank = len(padded)
    if axes is None:
        return Shape([Dim()] * rank)
    places = [normalize_axis(axis, rank) for axis in axes]
    if len(set(places)) < len(places):
        raise ShapeError(f"the axes {list(axes)} name one axis twice")
    given = sizes if sizes is not None else scales
    result = list(padded)
    if given is not None and len(given) != len(places):
        raise ShapeError(f"{len(given)} sizes or scales are given for {len(places)} axes")
    for i, axis in enumerate(places):
        if sizes is not None:
            size = sizes[i]
            if isinstance(size, int) and size < 0:
                raise ShapeError(f"output size {size} at axis {axis} is negative")
            result[axis] = size
        elif scales is not None:
            if not scales[i] > 0:
                raise ShapeError(f"scale {scales[i]} at axis {axis} is not positive")
            low, high = bounds(padded[axis])
            result[axis] = dim(
                scaled_size(low, scales[i]), None if high is None else scaled_size(high, scales[i])
            )
        else:
            result[axis] = Dim()
    return Shape(result)


@operation("Interpolate")
class Interpolate1(InterpolateOp):
    """Resize the axes in `axes` to given sizes (the version of opset1 to opset3).

    Inputs:  x      rank 1 to 5, numeric
             sizes  [number of axes], integer
    Outputs: y      type of x
    Raises:  ShapeError when the sizes do not fit the axes
    Source:  OpenVINO opset1 Interpolate
    """

    axes: tuple[int, ...] = attribute()
    mode: str = attribute()
    align_corners: bool = attribute(default=True)
    antialias: bool = attribute(default=False)
    pads_begin: tuple[int, ...] = attribute(default=())
    pads_end: tuple[int, ...] = attribute(default=())

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's shape with the new sizes."""
        x, sizes = inputs
        if self.mode not in {"nearest", "linear", "linear_onnx", "cubic", "area"}:
            raise ShapeError(
                f"mode {self.mode!r} is not nearest, linear, linear_onnx, cubic or area"
            )
        if x.shape is None:
            return [x.with_shape(None)]
        return [x.with_shape(resized_shape(self.padded(x.shape), self.axes, sizes.sizes, None))]

    def modern(self, rank: int) -> Interpolate:
        """Return the newer operation that computes the same for an input of `rank`."""
        padded = any(self.pads_begin) or any(self.pads_end)
        mode = InterpolateMode.LINEAR if self.mode == "area" else InterpolateMode(self.mode)
        if self.mode == "linear" and rank < 5:
            mode = InterpolateMode.LINEAR_ONNX
        coordinates = CoordinateMode.ASYMMETRIC
        image = rank == 4 and sorted(self.axes) == [2, 3]
        if self.align_corners:
            coordinates = CoordinateMode.ALIGN_CORNERS
        elif mode in (InterpolateMode.LINEAR, InterpolateMode.LINEAR_ONNX) and not (
            padded or image
        ):
            coordinates = CoordinateMode.HALF_PIXEL
        return Interpolate(
            mode=mode,
            shape_calculation_mode=ShapeCalculation.SIZES,
            coordinate_transformation_mode=coordinates,
            nearest_mode=NearestMode.SIMPLE,
            antialias=self.antialias,
            pads_begin=self.pads_begin,
            pads_end=self.pads_end,
        )


class InterpolateModern(InterpolateOp):
    """The attributes of Interpolate since opset4."""

    mode: InterpolateMode
    shape_calculation_mode: ShapeCalculation


@operation("Interpolate", since=4)
class Interpolate4(InterpolateModern):
    """Resize axes to sizes or by scales, whichever `shape_calculation_mode` names.

    Inputs:  x       numeric
             sizes   [number of axes], integer
             scales  [number of axes], floating point
             axes    optional, integer; all axes when left out
    Outputs: y       type of x
    Raises:  ShapeError when sizes or scales do not fit the axes
    Source:  OpenVINO opset4 Interpolate
    """

    mode: InterpolateMode = attribute()
    shape_calculation_mode: ShapeCalculation = attribute()
    coordinate_transformation_mode: CoordinateMode = attribute(default=CoordinateMode.HALF_PIXEL)
    nearest_mode: NearestMode = attribute(default=NearestMode.ROUND_PREFER_FLOOR)
    antialias: bool = attribute(default=False)
    pads_begin: tuple[int, ...] = attribute(default=())
    pads_end: tuple[int, ...] = attribute(default=())
    cube_coeff: float = attribute(default=-0.75)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's shape with the new sizes."""
        self.check_count(inputs, 3, 4)
        x, sizes, scales = inputs[:3]
        by_sizes = self.shape_calculation_mode is ShapeCalculation.SIZES
        return [_resized(self, x, sizes if by_sizes else scales, inputs[3:])]

    def modern(self) -> Interpolate:
        """Return the newest version; it takes one of sizes and scales."""
        return Interpolate(**self.attributes())


@operation("Interpolate", since=11)
class Interpolate(InterpolateModern):
    """Resize axes to sizes or by scales, whichever `shape_calculation_mode` names.

    Inputs:  x                numeric
             sizes_or_scales  [number of axes], integer or floating point
             axes             optional, integer; all axes when left out
    Outputs: y                type of x
    Raises:  ShapeError when sizes or scales do not fit the axes, or a Pillow mode has not two axes
    Source:  OpenVINO opset11 Interpolate
    """

    mode: InterpolateMode = attribute()
    shape_calculation_mode: ShapeCalculation = attribute()
    coordinate_transformation_mode: CoordinateMode = attribute(default=CoordinateMode.HALF_PIXEL)
    nearest_mode: NearestMode = attribute(default=NearestMode.ROUND_PREFER_FLOOR)
    antialias: bool = attribute(default=False)
    pads_begin: tuple[int, ...] = attribute(default=())
    pads_end: tuple[int, ...] = attribute(default=())
    cube_coeff: float = attribute(default=-0.75)
    exact: bool = attribute(default=False, hint=True)
    """Positions in f64, as ONNX's sizes ask; in f32, OpenVINO's, a half may come out below it."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's shape with the new sizes."""
        self.check_count(inputs, 2, 3)
        return [_resized(self, inputs[0], inputs[1], inputs[2:])]


def _resized(
    op: InterpolateModern, x: TensorDesc, target: TensorDesc, axes: Sequence[TensorDesc]
) -> TensorDesc:
    if x.shape is None:
        return x.with_shape(None)
    chosen = axes[0].static_ints if axes else list(range(len(x.shape)))
    if (
        op.mode in (InterpolateMode.BILINEAR_PILLOW, InterpolateMode.BICUBIC_PILLOW)
        and chosen is not None
        and len(chosen) != 2
    ):
        raise ShapeError(f"mode {op.mode.value} resizes two axes, not {len(chosen)}")
    if op.shape_calculation_mode is ShapeCalculation.SIZES:
        return x.with_shape(resized_shape(op.padded(x.shape), chosen, target.sizes, None))
    factors = target.constant
    scales = None if factors is None else [float(scale) for scale in factors.reshape(-1)]
    return x.with_shape(resized_shape(op.padded(x.shape), chosen, None, scales))


class KeepAspectRatio(Enum):
    """What Resize does with sizes that would distort the image."""

    STRETCH = "stretch"
    NOT_LARGER = "not_larger"
    NOT_SMALLER = "not_smaller"


@operation("Resize", domain="onnx")
class Resize(Op):
    """ONNX Resize, for the settings that Interpolate does not have.

    Inputs:  x        numeric
             target   [number of axes]: scales (f32) or sizes (integer)
             roi      optional, [2 × number of axes]: starts, then ends, as parts of the axes
    Outputs: y        type of x
    Raises:  ShapeError when sizes or scales do not fit the axes
    Source:  ONNX Resize-11 to Resize-19
    """

    sized_by_values = True

    mode: InterpolateMode = attribute()
    axes: tuple[int, ...] | None = attribute(default=None)
    coordinate_transformation_mode: CoordinateMode = attribute(default=CoordinateMode.HALF_PIXEL)
    nearest_mode: NearestMode = attribute(default=NearestMode.ROUND_PREFER_FLOOR)
    antialias: bool = attribute(default=False)
    cube_coeff: float = attribute(default=-0.75)
    exclude_outside: bool = attribute(default=False)
    extrapolation_value: float = attribute(default=0.0)
    keep_aspect_ratio_policy: KeepAspectRatio = attribute(default=KeepAspectRatio.STRETCH)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's shape with the new sizes."""
        self.check_count(inputs, 2, 3)
        x, target = inputs[:2]
        if x.shape is None:
            return [x.with_shape(None)]
        axes = range(len(x.shape)) if self.axes is None else self.axes
        if target.element_type.is_float:
            factors = target.constant
            scales = None if factors is None else [float(s) for s in factors.reshape(-1)]
            return [x.with_shape(resized_shape(x.shape, list(axes), None, scales))]
        sizes = target.sizes
        if sizes is not None and self.keep_aspect_ratio_policy is not KeepAspectRatio.STRETCH:
            static = target.static_ints
            if static is None or not x.shape.is_static:
                sizes = None
            else:
                sizes = list(self.fitted(x.shape.static, static)[0])
        return [x.with_shape(resized_shape(x.shape, list(axes), sizes, None))]

    def fitted(self, shape: Sequence[int], sizes: Sequence[int]) -> tuple[list[int], list[float]]:
        """Return output sizes and scales of the axes under the aspect ratio policy."""
        axes = [normalize_axis(a, len(shape)) for a in self.axes or range(len(shape))]
        pairs = [(size, shape[axis]) for axis, size in zip(axes, sizes, strict=True)]
        scales = [wanted / size if size else 1.0 for wanted, size in pairs]
        if self.keep_aspect_ratio_policy is KeepAspectRatio.STRETCH:
            return list(sizes), scales
        smaller = self.keep_aspect_ratio_policy is KeepAspectRatio.NOT_LARGER
        scale = min(scales) if smaller else max(scales)
        # round() would round halves to even; ONNX rounds them up
        return [math.floor(scale * shape[a] + 0.5) for a in axes], [scale] * len(axes)
