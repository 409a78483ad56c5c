"""Tiling is broadcasting along axes of size 1 before each axis."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.broadcast import Broadcast, Tile
from polydevice.rewrites.facts import numbers_of, parameters_known, rank_of, shape_of
from polydevice.rewrites.rule import decomposes


@decomposes(Tile, where=parameters_known)
def _tile(build: Emitter, op: Tile, inputs: Sequence[Port]) -> Sequence[Port]:
    x, repeats = inputs
    times = numbers_of(repeats)
    rank = max(rank_of(x), len(times))
    shape = (1,) * (rank - rank_of(x)) + shape_of(x)
    times = [1] * (rank - len(times)) + times
    target = [n for pair in zip(times, shape, strict=True) for n in pair]
    spread = build.reshape(x, [n for size in shape for n in (1, size)])
    repeated = build.emit(Broadcast(), spread, target)
    return [build.reshape(repeated, [n * size for n, size in zip(times, shape, strict=True)])]
