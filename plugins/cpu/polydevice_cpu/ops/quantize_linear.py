"""QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.quantize_linear import (
    DequantizeLinear,
    LinearQuantization,
    QuantizeLinear,
)
from polydevice_cpu.algorithms.precision import narrow
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.convert import convert_to, saturated


def aligned(op: LinearQuantization, parameter: Array, x: Array) -> Array:
    """Reshape or repeat a scale or zero point so that it broadcasts to x."""
    if op.block_size:
        axis = op.axis % x.ndim
        repeated = np.repeat(parameter, op.block_size, axis)
        return repeated[(slice(None),) * axis + (slice(x.shape[axis]),)]
    if parameter.size == 1:
        return parameter.reshape(())
    shape = [1] * x.ndim
    shape[op.axis] = -1
    return parameter.reshape(shape)


@implements(QuantizeLinear)
def quantize_linear(
    op: QuantizeLinear, x: Array, scale: Array, zero_point: Array | None = None
) -> Array:
    """Divide in f32 (f64 for f64), round, shift, limit."""
    kind = op.result_type(None if zero_point is None else ElementType.of(zero_point.dtype))
    wide = np.dtype(np.float64 if scale.dtype == np.float64 else np.float32)
    y = x.astype(wide, copy=False) / aligned(op, scale, x).astype(wide, copy=False)
    if kind.is_float:
        if zero_point is not None:
            y = y + aligned(op, zero_point, x).astype(wide)
        return saturated(y, kind) if op.saturate else y.astype(np.float32).astype(kind.dtype)
    y = np.asarray(y)  # NumPy makes a number of its own kind of an array without axes
    np.rint(y, out=y)
    if zero_point is not None:
        y += aligned(op, zero_point, x).astype(wide)
    info = ml_dtypes.iinfo(kind.dtype)  # type: ignore[no-untyped-call]  # has no types
    np.clip(y, float(info.min), float(info.max), out=y)
    return convert_to(y, kind)


@implements(DequantizeLinear)
def dequantize_linear(
    op: DequantizeLinear, x: Array, scale: Array, zero_point: Array | None = None
) -> Array:
    """Compute in f32, i32 differences included: they are exact where quantised types are."""
    given = op.destination_type
    kind = ElementType.of(scale.dtype) if given is ElementType.dynamic else given
    wide = np.dtype(np.float64 if x.dtype == np.int32 else np.float32)
    y = x.astype(wide)
    if _has_whole_blocks(op, scale, x):  # without repeating scales, as large as what they scale
        axis = op.axis % x.ndim + 1
        blocks = y.reshape((*scale.shape[:axis], op.block_size, *scale.shape[axis:]))
        if zero_point is not None:
            blocks -= np.expand_dims(zero_point, axis).astype(wide)
        blocks *= np.expand_dims(scale, axis).astype(np.float32)
        return narrow(blocks.reshape(x.shape), kind.dtype)
    if zero_point is not None:
        y -= aligned(op, zero_point, x).astype(wide)
    factor = aligned(op, scale, x).astype(np.float32)
    return narrow(y * factor, kind.dtype)


def _has_whole_blocks(op: DequantizeLinear, scale: Array, x: Array) -> bool:
    """Whether every scale is that of a block, none of which is shorter."""
    if not op.block_size or scale.ndim != x.ndim:
        return False
    sizes = list(scale.shape)
    sizes[op.axis] *= op.block_size
    return tuple(sizes) == x.shape
