"""Pad in whatever plain layout the value has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.pad import Pad, PadMode
from polydevice.symbolic_size import is_symbolic, whole
from polydevice_cpu.algorithms.by_machine import copies
from polydevice_cpu.algorithms.by_machine.code import Told, has_avx512
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.concat import order_like
from polydevice_cpu.lowering.resampling import repeated
from polydevice_cpu.ops.pad import source_index
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Kind, Storage, Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


MOST_RUNS = 24
"""Up to which an axis is copied run by run: each takes some ten cycles, as many as to fetch sixteen
elements one by one."""

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
    if op.pad_mode is not PadMode.CONSTANT and not value.dtype.hasobject:
        output = _by_index(builder, node, value, before, behind)
        if output is not None:
            builder.set(node.outputs[0], output)
            return True
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
    code = "numpy"
    if len(read) == 1 and op.pad_mode is PadMode.CONSTANT and _is_for_code(value):
        start, code = partial(_start_code, (before, behind), number), MACHINE_CODE
    builder.emit(ArrayStep(node.name, node.type, start, read, [result], code, writes=True))
    builder.set(node.outputs[0], result)
    return True


def _by_index(
    builder: PlanBuilder,
    node: Node,
    value: Value,
    before: tuple[int, ...],
    behind: tuple[int, ...],
) -> Value | None:
    """Copy what each position repeats, axis by axis, for borders that are known."""
    mode = node.operation(Pad).pad_mode
    if not has_avx512() or any(map(is_symbolic, (*before, *behind))):
        return None
    borders = enumerate(zip(before, behind, strict=True))
    padded = [
        (axis, first + last, _Border(mode, first, last))
        for axis, (first, last) in borders
        if first or last
    ]
    return repeated(builder, node, value, padded) if padded else None


class _Border(NamedTuple):
    """What each position of an axis with a border repeats.

    Attributes:
        mode: what the border shows.
        first: how far it reaches before the axis.
        last: how far behind it.
    """

    mode: PadMode
    first: int
    last: int

    def elements(self, size: int) -> Array:
        """Return which element of an axis of so many each position repeats."""
        return source_index(self.mode, size, np.arange(-self.first, size + self.last))

    def runs(self, size: int) -> Sequence[tuple[int, int]] | None:
        """Return the same as runs; None of wide borders, or of an axis that they are wider than."""
        first, last = self.first, self.last
        inside = (0, size)
        if self.mode is PadMode.EDGE:
            before, behind = [(0, 1)] * first, [(size - 1, 1)] * last
        elif self.mode is PadMode.WRAP:
            before, behind = [(size - first, first)] * (first > 0), [(0, last)] * (last > 0)
        else:
            own = int(self.mode is PadMode.SYMMETRIC)  # it shows the outermost element again
            before = [(n - own, 1) for n in range(first, 0, -1)]
            behind = [(size - 2 - n + own, 1) for n in range(last)]
        runs = [*before, inside, *behind]
        is_within = self.mode is PadMode.EDGE or size > max(first, last)
        return runs if len(runs) <= MOST_RUNS and is_within else None


def _is_for_code(value: Value) -> bool:
    """Whether machine code copies the inside: of plain numbers, without gaps."""
    return has_avx512() and not value.dtype.hasobject and value.has_no_gaps


def _start_code(pads: _Pads, number: np.generic, context: Context) -> Compute:
    """Return what writes a number around its input, of whatever order of axes."""

    def prepare(values: Sequence[Value]) -> Told | None:
        source, _ = values
        strides = source.strides
        assert strides is not None
        sides = [*zip(source.shape, *pads, strict=True)]
        order = sorted(range(len(sides)), key=lambda axis: -strides[axis])
        return copies.bordered([sides[axis] for axis in order], number)

    return ByMachine(_start(PadMode.CONSTANT, pads, number, context), prepare, may_refuse=False)


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
