"""What linear quantisation is made of: pointwise operations, which become one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.math import Round
from polydevice.ops.quantize_linear import (
    DequantizeLinear,
    LinearQuantization,
    QuantizeLinear,
)
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

_WIDE = ElementType.f32
_FLOATS = (
    *(ElementType.f8e4m3, ElementType.f8e4m3fnuz, ElementType.f8e5m2, ElementType.f8e5m2fnuz),
    ElementType.f4e2m1,
)
_NARROW = (
    *(ElementType.u2, ElementType.i2, ElementType.u4, ElementType.i4),
    *(ElementType.u8, ElementType.i8, ElementType.u16, ElementType.i16),
)


def _fits(op: LinearQuantization, inputs: Sequence[Value]) -> bool:
    """Whether parameters can be broadcast: blocks must be whole, or known now."""
    x, *parameters = inputs
    if not op.block_size or x.shape[op.axis] % op.block_size == 0:
        return True
    return all(value.constant is not None for value in parameters)


def _in_blocks(build: Builder, op: LinearQuantization, x: Value) -> Value:
    """Show x with an axis per block, where blocks are whole; x itself without blocks."""
    if not op.block_size or x.shape[op.axis] % op.block_size:
        return x
    axis = op.axis % x.rank
    blocks = x.shape[axis] // op.block_size
    return reshape(build, x, [*x.shape[:axis], blocks, op.block_size, *x.shape[axis + 1 :]])


def _parameter(build: Builder, op: LinearQuantization, x: Value, parameter: Value) -> Value:
    """Return a scale or zero point in f32, in a shape that broadcasts to x."""
    if op.block_size:
        axis = op.axis % x.rank
        if x.shape[axis] % op.block_size == 0:
            shape = [*parameter.shape[: axis + 1], 1, *parameter.shape[axis + 1 :]]
            return _wide(build, reshape(build, parameter, shape))
        repeated = np.repeat(np.asarray(parameter.constant), op.block_size, axis)
        cut = repeated[(slice(None),) * axis + (slice(x.shape[axis]),)]
        return _exact(build, cut)
    if parameter.constant is not None:
        parameter = _exact(build, np.asarray(parameter.constant))
    if parameter.elements == 1:
        return _wide(build, reshape(build, parameter, ()))
    shape = [1] * x.rank
    shape[op.axis] = parameter.elements
    return _wide(build, reshape(build, parameter, shape))


def _exact(build: Builder, parameter: Array) -> Value:
    """Return a constant that is stored in f32, whatever the network's values are stored in."""
    value = build.constant(parameter.astype(np.float32))
    value.storage = _WIDE
    return value


def _wide(build: Builder, x: Value) -> Value:
    return x if x.element_type is _WIDE else build.one(Convert(destination_type=_WIDE), x)


@decomposes(
    QuantizeLinear,
    when=lambda op, x: (
        _fits(op, x)
        and op.result_type(x[2].element_type if len(x) > 2 else None) in (*_NARROW, *_FLOATS)
    ),
)
def _quantize(build: Builder, op: QuantizeLinear, inputs: Sequence[Value]) -> list[Value]:
    x, scale, *zero = inputs
    kind = op.result_type(zero[0].element_type if zero else None)
    y = build.one(Divide(), _wide(build, _in_blocks(build, op, x)), _parameter(build, op, x, scale))
    if kind not in _FLOATS:
        y = build.one(Round(), y)
    if zero:
        y = build.one(Add(), y, _parameter(build, op, x, zero[0]))
    if kind in _FLOATS:
        y = build.one(Convert(destination_type=kind, saturate=op.saturate), y)
        return [reshape(build, y, x.shape)]
    limits = ml_dtypes.iinfo(kind.dtype)  # type: ignore[no-untyped-call]  # has no types
    y = build.one(Clamp(min=float(limits.min), max=float(limits.max)), y)
    return [reshape(build, build.one(Convert(destination_type=kind), y), x.shape)]


@decomposes(
    DequantizeLinear,
    when=lambda op, x: _fits(op, x) and x[0].element_type in (*_NARROW, *_FLOATS, ElementType.i32),
)
def _dequantize(build: Builder, op: DequantizeLinear, inputs: Sequence[Value]) -> list[Value]:
    x, scale, *zero = inputs
    given = op.destination_type
    kind = scale.element_type if given is ElementType.dynamic else given
    y = _wide(build, _in_blocks(build, op, x))
    if zero:
        y = build.one(Subtract(), y, _parameter(build, op, x, zero[0]))
    y = build.one(Multiply(), y, _parameter(build, op, x, scale))
    if kind is not _WIDE:
        y = build.one(Convert(destination_type=kind), y)
    return [reshape(build, y, x.shape)]
