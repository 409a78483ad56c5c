"""ScatterNDUpdate that replaces a block of neighbours puts together what stays and what is new.

Models write `x[:, 1:] += y` so, with the place of every element in a constant. Where a batch is
open the places are computed, of one line for each axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.comparison import Equal
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.generate import RangeOp
from polydevice.ops.pointwise import AutoBroadcast
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.scatter import Reduction, ScatterNDUpdate
from polydevice.ops.select import Select
from polydevice.rewrites.facts import array_of, is_known, numbers_of, rank_of, shape_of, size_of
from polydevice.rewrites.rule import decomposes
from polydevice.shape import normalize_axis

LEAST_PLACES = 32
"""Fewer elements or rows are put as fast one by one as by layers of their own."""


def _corner(x: Port, indices: Port) -> tuple[list[int], list[int]]:
    """Return the first place that is named, and how far it is to the last one, both included."""
    places = array_of(indices)
    ends = places.reshape(-1, places.shape[-1])[[0, -1]].tolist()
    sizes = shape_of(x)[: places.shape[-1]]
    first, last = ([n + s * (n < 0) for n, s in zip(end, sizes, strict=True)] for end in ends)
    return first, [b - a + 1 for a, b in zip(first, last, strict=True)]


def _are_in_order(x: Port, indices: Port) -> bool:
    """Whether each place of the block between first and last one is named, in their order."""
    places = array_of(indices)
    first, extents = _corner(x, indices)
    coordinates = places.reshape(-1, places.shape[-1]).T
    if min(extents) < 1 or math.prod(extents) != coordinates.shape[1]:
        return False
    for axis, (named, start, extent) in enumerate(zip(coordinates, first, extents, strict=True)):
        size = shape_of(x)[axis]
        if start < 0 or start + extent > size:
            return False
        line = np.arange(start, start + extent).reshape(-1, *[1] * (len(extents) - axis - 1))
        grid = named.reshape(extents)
        if not ((grid == line) | (grid == line - size)).all():
            return False
    return True


def _puts_block(op: ScatterNDUpdate, inputs: Sequence[Port]) -> bool:
    """Whether known places are a block that something of x is left beside along one axis at most.

    More would take layers within layers.
    """
    x, indices = inputs[:2]
    if op.reduction is not Reduction.NONE or not is_known(indices):
        return False
    places = array_of(indices)
    if not places.size or not shape_of(x) or not _are_in_order(x, indices):
        return False
    _, extents = _corner(x, indices)
    cut = sum(extent < size for extent, size in zip(extents, shape_of(x)))
    return not cut or (cut == 1 and math.prod(extents) >= LEAST_PLACES)


Line = tuple[int, int]
"""Where neighbours along an axis begin, and behind which they end."""


def _computed_lines(x: Port, indices: Port) -> list[Line | None] | None:
    """Return which neighbours along each axis computed places name, None for all of them.

    None where they do not name each place of a block, in their order.
    """
    if not isinstance(indices.node.op, Concat) or indices.desc.rank is None:
        return None
    parts = indices.node.inputs
    if normalize_axis(indices.node.op.axis, indices.desc.rank) != len(parts):
        return None
    lines: list[Line | None] = []
    coordinates, targets = [], []
    for part in parts:
        if not isinstance(part.node.op, Unsqueeze) or part.desc.rank != len(parts) + 1:
            return None
        numbers, axes = part.node.inputs
        if numbers_of(axes) not in ([-1], [len(parts)]) or not isinstance(
            numbers.node.op, Broadcast
        ):
            return None
        coordinates.append(numbers.node.inputs[0])
        targets.append(numbers.node.inputs[1])
    for axis, coordinate in enumerate(coordinates):
        if not _lies_along(coordinate, axis - len(parts)):
            return None
        line = _known_line(x, coordinate, axis)
        if line is None and not _is_whole_line(x, coordinate, axis):
            return None
        lines.append(None if line == (0, _size(x, axis)) else line)
    is_as_large = all(_is_shape_of_sum(target, coordinates) for target in set(targets))
    return lines if is_as_large else None


def _lies_along(coordinate: Port, axis: int) -> bool:
    """Whether numbers have no other axis than one, counted from the last one."""
    if coordinate.shape is None or coordinate.desc.rank is None or len(coordinate.shape) < -axis:
        return False
    return all(
        size == 1 for at, size in enumerate(coordinate.shape, -len(coordinate.shape)) if at != axis
    )


def _known_line(x: Port, coordinate: Port, axis: int) -> Line | None:
    """Return the neighbours that known numbers are; None where they are not, or lie outside."""
    if not is_known(coordinate):
        return None
    numbers = numbers_of(coordinate)
    size = _size(x, axis)
    if not numbers or size is None or numbers[0] < 0 or numbers[-1] >= size:
        return None
    line = numbers[0], numbers[-1] + 1
    return line if numbers == list(range(*line)) else None


def _size(x: Port, axis: int) -> int | None:
    size = None if x.shape is None else x.shape[axis]
    return size if isinstance(size, int) else None


_SHOWING = Convert, Reshape, Squeeze, Unsqueeze


def _shown(port: Port) -> Port:
    """Return what a value is in another shape or type of integers."""
    while isinstance(port.node.op, _SHOWING) and port.element_type in (
        ElementType.i32,
        ElementType.i64,
    ):
        port = port.node.inputs[0]
    return port


def _is_whole_line(x: Port, coordinate: Port, axis: int) -> bool:
    """Whether numbers are 0, 1… up to the size of x along an axis."""
    made = _shown(coordinate).node
    if not isinstance(made.op, RangeOp) or not all(map(is_known, made.inputs[::2])):
        return False
    start, stop, step = made.inputs
    found = _shown(stop).node
    if numbers_of(start) != [0] or numbers_of(step) != [1] or not isinstance(found.op, Gather):
        return False
    sizes, place = found.inputs[0].node, found.inputs[1]
    if not isinstance(sizes.op, ShapeOf) or not is_known(place):
        return False
    return sizes.inputs[0] is x and numbers_of(place) in ([axis], [axis - rank_of(x)])


def _is_shape_of_sum(target: Port, coordinates: Sequence[Port]) -> bool:
    """Whether a shape is that of the sum of all coordinates, as exporters write their grid."""
    node = target.node
    if isinstance(node.op, Select):  # sizes of -1, which there are not, would be 1
        condition, _, sizes = (port.node for port in node.inputs)
        if not isinstance(condition.op, Equal) or sizes.output not in condition.inputs:
            return False
        others = [port for port in condition.inputs if port is not sizes.output]
        if not others or not is_known(others[0]) or max(numbers_of(others[0]), default=0) >= 0:
            return False
        node = sizes
    return isinstance(node.op, ShapeOf) and _terms(node.inputs[0]) == set(coordinates)


def _terms(port: Port) -> set[Port]:
    """Return what a sum is of."""
    terms: set[Port] = set()
    known, left = {port}, [port]
    while left:
        port = left.pop()
        op = port.node.op
        if isinstance(op, Add) and op.auto_broadcast is AutoBroadcast.NUMPY:
            left += {*port.node.inputs} - known
            known.update(port.node.inputs)
        else:
            terms.add(port)
    return terms


def _puts_grid(op: ScatterNDUpdate, inputs: Sequence[Port]) -> bool:
    """Whether computed places are a block that x has something beside along one axis at most."""
    x, indices = inputs[:2]
    if op.reduction is not Reduction.NONE or is_known(indices):
        return False
    lines = _computed_lines(x, indices)
    return lines is not None and sum(line is not None for line in lines) <= 1


def _puts(op: ScatterNDUpdate, inputs: Sequence[Port]) -> bool:
    return _puts_block(op, inputs) or _puts_grid(op, inputs)


@decomposes(ScatterNDUpdate, where=_puts)
def _scatter_block(build: Emitter, op: ScatterNDUpdate, inputs: Sequence[Port]) -> list[Port]:
    """Concatenate the updates with what stays before and behind them."""
    x, indices, updates = inputs
    if not is_known(indices):
        lines = _computed_lines(x, indices)
        assert lines is not None
        cut = next(((axis, *line) for axis, line in enumerate(lines) if line is not None), None)
        return [updates if cut is None else _beside(build, x, updates, *cut)]
    first, extents = _corner(x, indices)
    return [
        put_in(build, x, build.reshape(updates, extents + list(shape_of(x)[len(extents) :])), first)
    ]


def put_in(build: Emitter, x: Port, block: Port, first: Sequence[int]) -> Port:
    """Return x with a block in the place of what stands there.

    Args:
        build: makes the layers.
        x: the value.
        block: of its rank, and as wide along all axes behind those of `first`.
        first: where it begins along the first axes.
    """
    for axis, start in reversed(list(enumerate(first))):
        size, stop = shape_of(x)[axis], start + shape_of(block)[axis]
        if stop - start == size:
            continue
        around = x
        for outer, begin in enumerate(first[:axis]):
            end = begin + shape_of(block)[outer]
            if end - begin < shape_of(x)[outer]:
                around = build.cut(around, outer, begin, end)
        block = _beside(build, around, block, axis, start, stop)
    return block


def _beside(build: Emitter, around: Port, block: Port, axis: int, start: int, stop: int) -> Port:
    """Return a block between what stands before and behind it along an axis."""
    size = size_of(around, axis)
    before = [build.cut(around, axis, 0, start)] if start else []
    behind = [build.cut(around, axis, stop, size)] if stop < size else []
    return build.emit(Concat(axis=axis), *before, block, *behind)
