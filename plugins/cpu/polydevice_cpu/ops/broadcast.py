"""Broadcast and Tile."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.broadcast import Broadcast, BroadcastMode, Tile
from polydevice.shape import Shape
from polydevice_cpu.implement import implements

_FROM_THE_BACK = (BroadcastMode.NUMPY, BroadcastMode.BIDIRECTIONAL)

SMALL_ELEMENTS = 1 << 12
"""Up to so many elements are repeated in memory, which takes less than to make a view does."""


@implements(Broadcast)
def broadcast(op: Broadcast, x: Array, target: Array, axes: Array | None = None) -> Array:
    """Return a read-only view that repeats x, or an array of its own where that is small."""
    sizes: list[int] = target.reshape(-1).tolist()
    whole = sizes
    if op.mode is BroadcastMode.BIDIRECTIONAL and (1 in sizes or x.ndim > len(sizes)):
        whole = _stretched(sizes, x.shape)
    is_small = 0 <= math.prod(whole) <= SMALL_ELEMENTS
    if is_small and x.ndim <= len(whole) and op.mode in _FROM_THE_BACK:
        try:
            y = np.empty(whole, x.dtype)
            y[...] = x
        except ValueError:  # the target has a size below 0, or does not fit
            pass
        else:
            return y
    if any(size < 0 for size in sizes):
        raise InferenceError(f"Broadcast: a shape of {sizes} is not possible")
    if op.mode is BroadcastMode.BIDIRECTIONAL:
        try:
            return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(sizes)))
        except ValueError:
            raise InferenceError(f"Broadcast: {x.shape} and {sizes} do not broadcast") from None
    places = None if axes is None else [int(axis) for axis in axes.reshape(-1)]
    aligned = op.aligned(x.shape, sizes, places)
    return np.broadcast_to(x.reshape(Shape(aligned).static), sizes)


def _stretched(sizes: list[int], shape: tuple[int, ...]) -> list[int]:
    """Return sizes with those of a shape in the place of 1, and in front."""
    rank = max(len(sizes), len(shape))
    target, given = ([1] * (rank - len(each)) + [*each] for each in (sizes, shape))
    return [own if size == 1 else size for size, own in zip(target, given, strict=True)]


@implements(Tile)
def tile(_op: Tile, x: Array, repeats: Array) -> Array:
    """Repeat the array."""
    if repeats.dtype.kind not in "iu" and not np.isfinite(repeats.astype(np.float64)).all():
        # PyTorch writes f32 where it has none
        raise InferenceError(f"Tile: {repeats.reshape(-1)[:8]} are no numbers of repetitions")
    times = [int(n) for n in repeats.reshape(-1).tolist()]
    if 0 in times or not x.size:  # np.tile() would make all repetitions before the 0
        rank = max(x.ndim, len(times))
        sizes = [*[1] * (rank - x.ndim), *x.shape]
        factors = [*[1] * (rank - len(times)), *times]
        return np.empty([n * t for n, t in zip(sizes, factors, strict=True)], x.dtype)
    if len(times) == x.ndim and x.size * math.prod(times) <= SMALL_ELEMENTS:  # a third of the time
        pairs = list(zip(times, x.shape, strict=True))
        y = np.empty([size for pair in pairs for size in pair], x.dtype)
        y[...] = x.reshape([size for _, n in pairs for size in (1, n)])
        return y.reshape([t * n for t, n in pairs])
    return np.tile(x, times)
