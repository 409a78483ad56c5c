"""Taps: where a filter reads on each axis, and what each element counts; used for sampling.

Each corner of the filter is gathered at indices that pointwise operations compute, and added with
its weight.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.comparison import GreaterEqual, Less
from polydevice.ops.gather import Gather
from polydevice.ops.logical import LogicalAnd
from polydevice.ops.op import Op
from polydevice.ops.select import Select
from polydevice.rewrites.facts import shape_of
from polydevice.symbolic_size import array_of, is_symbolic

Taps = list[tuple[Port, Port]]
"""Position and weight of each element that an axis contributes."""


def number(build: Emitter, size: int) -> float | Port:
    """Return a size as a number of f32 that operations read; where it is symbolic, as a port."""
    if not is_symbolic(size):
        return float(size)
    return build.convert(build.value(array_of([size], np.int64)), ElementType.f32)


def within(build: Emitter, x: Port, low: float, high: int) -> Port:
    """Whether low <= x < high."""
    above = build.emit(GreaterEqual(), x, float(low))
    return build.emit(LogicalAnd(), above, build.emit(Less(), x, number(build, high)))


def chosen(build: Emitter, condition: Port, x: Port, otherwise: float) -> Port:
    """Return x where the condition holds, else a number."""
    return build.emit(Select(), condition, x, build.like(otherwise, x))


def polynomial(build: Emitter, x: Port, coefficients: Sequence[float]) -> Port:
    """Sum c[i] * x^i."""
    total = build.like(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = build.emit(Add(), build.emit(Multiply(), x, total), float(coefficient))
    return total


def sum_of_taps(build: Emitter, data: Port, axes: Sequence[Taps], sizes: Sequence[int]) -> Port:
    """Add up [B, C, size] at all combinations of the axes' taps [B, P]: [B, C, P]."""
    total: Port | None = None
    for taps in itertools.product(*axes):
        position, weight = taps[0]
        for (at, part), size in zip(taps[1:], sizes[1:], strict=True):
            position = build.emit(Add(), build.emit(Multiply(), position, number(build, size)), at)
            weight = build.emit(Multiply(), weight, part)
        batch, count = shape_of(weight)
        index = build.convert(position, ElementType.i32)
        read = build.emit(Gather(batch_dims=1, negative_indices=False), data, index, 2)
        term = build.emit(Multiply(), read, build.reshape(weight, (batch, 1, count)))
        total = term if total is None else build.emit(Add(), total, term)
    assert total is not None
    return total


def is_plain(op: Op, inputs: Sequence[Port]) -> bool:
    """Whether the data are of floating point, and few enough for f32 to count them (2^24)."""
    del op
    x = inputs[0]
    return x.element_type.is_float and 0 < math.prod(shape_of(x)[2:]) < 1 << 24
