"""Pad in whatever plain layout the value has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.pad import Pad, PadMode
from polydevice.symbolic_size import is_symbolic, whole
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.concat import order_like
from polydevice_cpu.ops.pad import source_index
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import ArrayStep, Compute
from polydevice_cpu.plan.value import Kind, Storage, Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


_Pads = tuple[tuple[int, ...], tuple[int, ...]]
"""How far a border reaches before and behind each axis."""


@lowers(Pad)
def lower_pad(builder: PlanBuilder, node: Node) -> bool:
    """Write the border and copy the inside, without leaving a channels-last layout."""
    op = node.operation(Pad)
    source, *others = node.inputs
    constants = [port.desc.constant for port in others]
    if any(c is None for c in constants):
        return False
    begin, end, *fill = (c.reshape(-1) for c in constants if c is not None)
    if min((*begin.tolist(), *end.tolist()), default=0) < 0:
        return False
    value = builder.value(source)
    if value.strides is None or 0 in value.shape:
        return False
    before, behind = (tuple(map(whole, each.tolist())) for each in (begin, end))
    shape = tuple(n + b + e for n, b, e in zip(value.shape, before, behind, strict=True))
    storage = Storage(Kind.ARENA, math.prod(shape) * value.dtype.itemsize)
    result = Value(storage, shape, value.dtype, order_like(value.strides, shape))
    number = fill[0][0].astype(value.dtype) if fill else value.dtype.type(0)
    read = [value]
    if any(map(is_symbolic, (*before, *behind))):
        read += [builder.array_value(port) for port in others[:2]]
        start = partial(_start, op.pad_mode, None, number)
    else:
        start = partial(_start, op.pad_mode, (before, behind), number)
    builder.emit(ArrayStep(node.name, node.type, start, read, [result], writes=True))
    builder.set(node.outputs[0], result)
    return True


def _start(mode: PadMode, pads: _Pads | None, number: np.generic, _: Context) -> Compute:
    """Return what pads; where to is worked out at the first call, since a plan knows its sizes.

    Args:
        mode: what the border shows.
        pads: how far it reaches; None where that is read, too.
        number: in the border, if nothing else is.
    """
    made: list[Compute] = []

    def write(x: Array, *rest: Array) -> Array | Sequence[Array]:
        *read, out = rest
        if not made:
            begin, end = pads or [tuple(each.reshape(-1).tolist()) for each in read]
            limits = zip(out.shape, begin, end, strict=True)
            inside = tuple(slice(before, size - behind) for size, before, behind in limits)
            if mode is PadMode.CONSTANT:
                made.append(_filling(inside, out.shape, number))
            else:
                made.append(_repeating(mode, inside, out.shape))
        return made[0](x, out)

    return write


Box = tuple[slice | Array, ...]


def _filling(inside: tuple[slice, ...], shape: tuple[int, ...], number: object) -> Compute:
    """Write a number to the border."""
    borders = _borders(inside, shape)

    def write(x: Array, out: Array) -> tuple[Array, ...]:
        for border in borders:
            out[border] = number
        out[inside] = x
        return ()

    return write


def _repeating(mode: PadMode, inside: tuple[slice, ...], shape: tuple[int, ...]) -> Compute:
    """Write elements of the inside to the border, axis by axis."""
    copies: list[tuple[Box, Box]] = []
    for axis, part in enumerate(inside):
        # Axes before this one are whole by now, those behind it are as long as the input.
        lead, rest = (slice(None),) * axis, inside[axis + 1 :]
        size = part.stop - part.start
        for first, last in ((0, part.start), (part.stop, shape[axis])):
            if first < last:
                position = np.arange(first, last) - part.start
                source = _run(source_index(mode, size, position) + part.start)
                copies.append(((*lead, slice(first, last), *rest), (*lead, source, *rest)))

    def write(x: Array, out: Array) -> tuple[Array, ...]:
        out[inside] = x
        for target, source in copies:
            out[target] = out[source]
        return ()

    return write


def _run(index: Array) -> slice | Array:
    """Indices as a slice, where they go one up or one down, or stay."""
    first, last = int(index[0]), int(index[-1])
    for step in (1, -1):
        if np.array_equal(index, np.arange(first, last + step, step)):
            stop = last + step
            return slice(first, None if stop < 0 else stop, step)
    return slice(first, first + 1) if (index == first).all() else index


def _borders(inside: tuple[slice, ...], shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Boxes that together are everything but the inside, none twice."""
    boxes = []
    for axis, part in enumerate(inside):
        rest = (slice(None),) * (len(shape) - axis - 1)
        if part.start > 0:
            boxes.append((*inside[:axis], slice(0, part.start), *rest))
        if part.stop < shape[axis]:
            boxes.append((*inside[:axis], slice(part.stop, shape[axis]), *rest))
    return boxes
