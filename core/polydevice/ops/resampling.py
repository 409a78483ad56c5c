"""Where Interpolate and Resize read and with which weights: tables that every device uses.

All filters are separable: output element i along an axis is the sum over t of
``weight[i, t] * input[index[i, t]]``. One `AxisTable` per axis holds both, so a device needs one
kernel for all modes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.ops.interpolate import (
    CoordinateMode,
    Interpolate,
    InterpolateMode,
    NearestMode,
    Resize,
)


@dataclass(frozen=True)
class AxisTable:
    """How one axis is resampled.

    Attributes:
        axis: which axis.
        index: [output size, taps] i64: elements of the input, always within it.
        weight: [output size, taps] f64: their weights; None takes index[:, 0] alone.
        outside: [output size] bool where the extrapolation value stands instead, or None.
    """

    axis: int
    index: Array
    weight: Array | None
    outside: Array | None = None


def source_coordinates(
    mode: CoordinateMode,
    size: int,
    resized: int,
    scale: float,
    roi: tuple[float, float] = (0.0, 1.0),
    *,
    wide: bool = False,
) -> Array:
    """Return [resized]: the position in an axis of `size` that each output element shows.

    Computed in f32 as OpenVINO does, or exactly (`wide`: a division of integers in f64, where the
    scale is that of the sizes): at halves the difference decides which element is the nearest.
    """
    if wide and scale == resized / size:
        exact = _exact_coordinates(mode, size, resized)
        if exact is not None:
            return exact
    real = np.float64 if wide else np.float32
    x = np.arange(resized, dtype=real)
    half, one, factor = real(0.5), real(1), real(scale)
    if mode is CoordinateMode.TF_CROP_AND_RESIZE:
        start, end = roi
        if resized == 1:
            return np.full(1, 0.5 * (start + end) * (size - 1), real)
        return np.asarray(start * (size - 1) + x * ((end - start) * (size - 1) / (resized - 1)))
    if not wide and (factor == one or size == resized):
        return x
    if mode is CoordinateMode.ASYMMETRIC:
        return np.asarray(x / factor)
    if mode is CoordinateMode.TF_HALF_PIXEL_FOR_NN:
        return np.asarray((x + half) / factor)
    if mode is CoordinateMode.ALIGN_CORNERS:
        # ONNX divides by the length before it is rounded down
        steps = scale * size - 1 if wide else resized - 1
        return np.asarray(x * real(size - 1) / real(steps if steps > 0 else 1))
    if mode is CoordinateMode.PYTORCH_HALF_PIXEL and resized == 1:
        return np.zeros(1, real)
    if mode is CoordinateMode.HALF_PIXEL_SYMMETRIC:
        # From the centre, which is exact at edges for scales such as 0.5. ONNX's formula, with
        # size / 2 * (1 - resized / (scale * size)), is the same number, rounded to either side.
        return np.asarray((x + half - real(resized / 2)) / factor + real(size / 2) - half)
    return np.asarray((x + half) / factor - half)


def _exact_coordinates(mode: CoordinateMode, size: int, resized: int) -> Array | None:
    """Return positions as quotients of integers, None for modes that are no such quotient.

    (4 + ½) / (9 / 7) − ½ is 3; dividing by the rounded 9 / 7 gives 2.9999999999999996.
    """
    x = np.arange(resized, dtype=np.float64)
    if mode is CoordinateMode.ASYMMETRIC:
        return np.asarray(x * size / resized)
    if mode is CoordinateMode.TF_HALF_PIXEL_FOR_NN:
        return np.asarray((2 * x + 1) * size / (2 * resized))
    if mode is CoordinateMode.HALF_PIXEL_SYMMETRIC:
        about_centre = (2 * x + 1 - resized) * size
        return np.asarray((about_centre + (size - 1) * resized) / (2 * resized))
    if mode is CoordinateMode.HALF_PIXEL or (
        mode is CoordinateMode.PYTORCH_HALF_PIXEL and resized > 1
    ):
        return np.asarray(((2 * x + 1) * size - resized) / (2 * resized))
    return None


def nearest_index(mode: NearestMode, position: Array, *, shrinks: bool) -> Array:
    """Round positions to elements by the mode's rule; they may lie outside the axis."""
    floor = np.floor(position)
    if mode is NearestMode.FLOOR:
        rounded = floor
    elif mode is NearestMode.CEIL:
        rounded = np.ceil(position)
    elif mode is NearestMode.SIMPLE:
        rounded = np.ceil(position) if shrinks else np.trunc(position)
    elif mode is NearestMode.ROUND_PREFER_CEIL:
        rounded = np.floor(position + 0.5)
    else:
        rounded = np.where(position == floor + 0.5, floor, np.floor(position + 0.5))
    return np.asarray(rounded).astype(np.int64)


def cubic_weights(offset: Array, a: float) -> Array:
    """Return [n, 4]: weights of the elements at -1, 0, 1 and 2 around positions in [0, 1)."""
    distance = np.stack([offset + 1, offset, 1 - offset, 2 - offset], axis=-1)
    return _cubic(np.asarray(distance, np.float64), a)


def _cubic(distance: Array, a: float) -> Array:
    """Keys' cubic convolution kernel with parameter `a`."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))


def _triangle(distance: Array, _a: float) -> Array:
    return np.asarray(np.maximum(0.0, 1.0 - np.abs(distance)))


def _normalized(weight: Array) -> Array:
    total = weight.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(weight, total, out=np.zeros_like(weight), where=total != 0))


def interpolate_table(
    op: Interpolate, axis: int, size: int, resized: int, scale: float, *, shrinks: bool
) -> AxisTable:
    """Return the table of one axis of Interpolate.

    Args:
        op: the attributes.
        axis: the axis in the tensor, for the table.
        size: input size, pads included.
        resized: output size.
        scale: the given scale, or resized / size.
        shrinks: whether some axis of the operation has a scale below 1 (antialiasing asks).
    """
    if not resized:
        return _no_elements(axis)
    if op.mode in (InterpolateMode.BILINEAR_PILLOW, InterpolateMode.BICUBIC_PILLOW):
        return _pillow_table(op, axis, size, resized)
    position = source_coordinates(
        op.coordinate_transformation_mode, size, resized, scale, wide=op.exact
    )
    if op.mode is InterpolateMode.NEAREST:
        index = nearest_index(op.nearest_mode, position, shrinks=scale < 1)
        return AxisTable(axis, np.clip(index, 0, size - 1)[:, None], None)
    if op.mode is InterpolateMode.LINEAR_ONNX:
        position = np.clip(position, 0, size - 1)
        low = position.astype(np.int64)
        index = np.stack([low, np.minimum(low + 1, size - 1)], axis=1)
        part = (position - low).astype(np.float64)
        return AxisTable(axis, index, np.stack([1 - part, part], axis=1))
    if op.mode is InterpolateMode.CUBIC:
        low = np.floor(position).astype(np.int64)
        index = low[:, None] + np.arange(-1, 3)
        weight = cubic_weights(position - low, op.cube_coeff)
        return AxisTable(axis, np.clip(index, 0, size - 1), weight)
    factor = scale if op.antialias and shrinks else 1.0
    reach = 2 if scale > 1 else int(np.ceil(np.float32(2) / np.float32(factor)))
    centre = np.floor(np.abs(position) + 0.5) * np.sign(position)  # halves away from zero
    index = centre.astype(np.int64)[:, None] + np.arange(-reach, reach + 1)
    weight = _triangle(factor * (position[:, None].astype(np.float64) - index), 0.0)
    weight[(index < 0) | (index >= size)] = 0.0
    return _trimmed(AxisTable(axis, np.clip(index, 0, size - 1), _normalized(weight)))


def _pillow_table(op: Interpolate, axis: int, size: int, resized: int) -> AxisTable:
    """The filters of the Pillow image library, which widen with the reduction."""
    kernel, support = {
        InterpolateMode.BILINEAR_PILLOW: (_triangle, 1.0),
        InterpolateMode.BICUBIC_PILLOW: (_cubic, 2.0),
    }[op.mode]
    step = size / resized
    width = max(step, 1.0)
    centre = (np.arange(resized) + 0.5) * step
    first = np.maximum((centre - support * width + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support * width + 0.5).astype(np.int64), size)
    index = first[:, None] + np.arange(int(np.ceil(support * width)) * 2 + 1)
    weight = kernel((index - centre[:, None] + 0.5) / width, op.cube_coeff)
    weight[index >= last[:, None]] = 0.0
    return _trimmed(AxisTable(axis, np.clip(index, 0, size - 1), _normalized(weight)))


def _no_elements(axis: int) -> AxisTable:
    return AxisTable(axis, np.zeros((0, 1), np.int64), None)


def _trimmed(table: AxisTable) -> AxisTable:
    """Drop the taps whose weight is 0 everywhere."""
    if table.weight is None:
        return table
    used = (table.weight != 0).any(axis=0)
    if used.all() or not used.any():
        return table
    return AxisTable(table.axis, table.index[:, used], table.weight[:, used], table.outside)


def resize_table(
    op: Resize, axis: int, size: int, resized: int, scale: float, roi: tuple[float, float]
) -> AxisTable:
    """Return the table of one axis of ONNX's Resize.

    Args:
        op: the attributes.
        axis: the axis in the tensor, for the table.
        size: input size.
        resized: output size.
        scale: the scale.
        roi: start and end of the region, as parts of the axis.
    """
    if not resized:
        return _no_elements(axis)
    mode = op.coordinate_transformation_mode
    position = source_coordinates(mode, size, resized, scale, roi, wide=True)
    outside = None
    if mode is CoordinateMode.TF_CROP_AND_RESIZE:
        outside = (position < 0) | (position > size - 1)
    if op.mode is InterpolateMode.NEAREST:
        index = nearest_index(op.nearest_mode, position, shrinks=scale < 1)
        return AxisTable(axis, np.clip(index, 0, size - 1)[:, None], None, outside)
    kernel: Callable[[Array, float], Array]
    kernel, support = (_cubic, 2) if op.mode is InterpolateMode.CUBIC else (_triangle, 1)
    factor = min(scale, 1.0) if op.antialias else 1.0
    reach = int(np.ceil(support / factor)) + 1
    low = np.floor(position).astype(np.int64)
    index = low[:, None] + np.arange(1 - reach, reach + 1)
    weight = kernel(factor * (position[:, None] - index), op.cube_coeff)
    if op.exclude_outside:
        weight[(index < 0) | (index >= size)] = 0.0
    if op.exclude_outside or op.antialias:
        weight = _normalized(weight)
    return _trimmed(AxisTable(axis, np.clip(index, 0, size - 1), weight, outside))
