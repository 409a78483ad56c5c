"""ScatterNDUpdate that replaces a block of neighbours puts together what stays and what is new.

Models write `x[:, 1:] += y` so, with the place of every element in a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.concat import Concat
from polydevice.ops.scatter import Reduction, ScatterNDUpdate
from polydevice.rewrites.facts import array_of, is_known, shape_of
from polydevice.rewrites.rule import decomposes

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


@decomposes(ScatterNDUpdate, where=_puts_block)
def _scatter_block(build: Emitter, op: ScatterNDUpdate, inputs: Sequence[Port]) -> list[Port]:
    """Concatenate the updates with what stays before and behind them."""
    x, indices, updates = inputs
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
        before = [build.cut(around, axis, 0, start)] if start else []
        behind = [build.cut(around, axis, stop, size)] if stop < size else []
        block = build.emit(Concat(axis=axis), *before, block, *behind)
    return block
