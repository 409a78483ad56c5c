"""What linear quantisation is made of: pointwise operations."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, Divide, Maximum, Minimum, Multiply, Subtract
from polydevice.ops.comparison import Equal
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.math import Round
from polydevice.ops.quantize_linear import (
    DequantizeLinear,
    LinearQuantization,
    QuantizeLinear,
)
from polydevice.ops.reduce import ReduceMax, ReduceMin
from polydevice.ops.select import Select
from polydevice.rewrites.facts import array_of, count_of, is_known, rank_of, shape_of
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice.rewrites.rule import decomposes

_WIDE = ElementType.f32
_FLOATS = (
    *(ElementType.f8e4m3, ElementType.f8e4m3fnuz, ElementType.f8e5m2, ElementType.f8e5m2fnuz),
    ElementType.f4e2m1,
)
_NARROW = (
    *(ElementType.u2, ElementType.i2, ElementType.u4, ElementType.i4),
    *(ElementType.u8, ElementType.i8, ElementType.u16, ElementType.i16),
)


def _in_blocks(build: Emitter, op: LinearQuantization, x: Port) -> Port:
    """Show x with an axis per block, where blocks are whole; x itself without blocks."""
    if not op.block_size or shape_of(x)[op.axis] % op.block_size:
        return x
    axis = op.axis % rank_of(x)
    blocks = shape_of(x)[axis] // op.block_size
    return build.reshape(x, [*shape_of(x)[:axis], blocks, op.block_size, *shape_of(x)[axis + 1 :]])


def _parameter(build: Emitter, op: LinearQuantization, x: Port, parameter: Port) -> Port:
    """Return a scale or zero point in f32, in a shape that broadcasts to x."""
    if is_known(parameter):
        parameter = build.value(array_of(parameter).astype(np.float32))
    if op.block_size:
        return _of_blocks(build, op, x, parameter)
    if parameter.desc.rank == 0 or count_of(parameter) == 1:
        return build.convert(build.reshape(parameter, ()), _WIDE)
    shape = [1] * rank_of(x)
    shape[op.axis] = count_of(parameter)
    return build.convert(build.reshape(parameter, shape), _WIDE)


def _of_blocks(build: Emitter, op: LinearQuantization, x: Port, parameter: Port) -> Port:
    """Return one element for each block in f32; for each element where the last is not whole."""
    axis = op.axis % rank_of(x)
    size, block, wide = shape_of(x)[axis], op.block_size, build.convert(parameter, _WIDE)
    if size % block == 0:
        shape = shape_of(parameter)
        return build.reshape(wide, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    if size < block:
        return wide
    if is_known(parameter):
        repeated = np.repeat(array_of(parameter), block, axis)
        return build.value(repeated[(slice(None),) * axis + (slice(size),)])
    return build.emit(Gather(), wide, np.arange(size) // block, np.int64(axis))


def _whole(build: Emitter, op: LinearQuantization, y: Port, x: Port) -> Port:
    """Show y without an axis of its own for each block, as x is."""
    return build.reshape(y, shape_of(x)) if op.block_size else y


@decomposes(
    QuantizeLinear,
    where=lambda op, x: (
        op.result_type(x[2].element_type if len(x) > 2 else None) in (*_NARROW, *_FLOATS)
    ),
)
def _quantize(build: Emitter, op: QuantizeLinear, inputs: Sequence[Port]) -> list[Port]:
    x, scale, *zero = inputs
    kind = op.result_type(zero[0].element_type if zero else None)
    y = build.emit(
        Divide(), build.convert(_in_blocks(build, op, x), _WIDE), _parameter(build, op, x, scale)
    )
    if kind not in _FLOATS:
        y = build.emit(Round(), y)
    if zero:
        y = build.emit(Add(), y, _parameter(build, op, x, zero[0]))
    if kind in _FLOATS:
        y = build.emit(Convert(destination_type=kind, saturate=op.saturate), y)
        return [_whole(build, op, y, x)]
    limits = ml_dtypes.iinfo(kind.dtype)  # type: ignore[no-untyped-call]  # has no types
    y = build.emit(Clamp(min=float(limits.min), max=float(limits.max)), y)
    return [_whole(build, op, build.emit(Convert(destination_type=kind), y), x)]


@decomposes(
    DequantizeLinear,
    where=lambda op, x: x[0].element_type in (*_NARROW, *_FLOATS, ElementType.i32),
)
def _dequantize(build: Emitter, op: DequantizeLinear, inputs: Sequence[Port]) -> list[Port]:
    x = inputs[0]
    wide = build.convert(_in_blocks(build, op, x), _WIDE)
    return [_whole(build, op, dequantised(build, op, wide, inputs), x)]


def dequantised(build: Emitter, op: DequantizeLinear, wide: Port, inputs: Sequence[Port]) -> Port:
    """Return what integers stand for.

    Args:
        build: makes operations.
        op: the operation.
        wide: the integers in f32, with an axis for each block, if there are any.
        inputs: of the operation.
    """
    x, scale, *zero = inputs
    given = op.destination_type
    kind = scale.element_type if given is ElementType.dynamic else given
    if zero:
        wide = build.emit(Subtract(), wide, _parameter(build, op, x, zero[0]))
    return build.convert(build.emit(Multiply(), wide, _parameter(build, op, x, scale)), kind)


@decomposes(DynamicRange)
def _dynamic_range(build: Emitter, _: DynamicRange, inputs: Sequence[Port]) -> list[Port]:
    x = build.convert(inputs[0], ElementType.f32)
    axes = np.arange(rank_of(x))
    high = build.emit(Maximum(), build.emit(ReduceMax(), x, axes), np.float32(0))
    low = build.emit(Minimum(), build.emit(ReduceMin(), x, axes), np.float32(0))
    steps = build.emit(Divide(), build.emit(Subtract(), high, low), np.float32(255))
    none = build.emit(Equal(), steps, np.float32(0))
    scale = build.emit(Select(), none, np.float32(1), steps)
    zero = build.emit(Subtract(), np.float32(0), build.emit(Divide(), low, scale))
    zero = build.emit(Round(), build.emit(Clamp(min=0, max=255), zero))
    return [scale, build.convert(zero, ElementType.u8)]
