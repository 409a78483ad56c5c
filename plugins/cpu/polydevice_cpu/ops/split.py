"""Split and VariadicSplit."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.split import Split, VariadicSplit, split_lengths
from polydevice.shape import normalize_axis
from polydevice_cpu.implement import implements


@implements(Split)
def split(op: Split, x: Array, axis: Array) -> tuple[Array, ...]:
    """Return views of equal length."""
    at = normalize_axis(int(axis.item(0)), x.ndim)
    length, rest = divmod(x.shape[at], op.num_splits)
    if rest:
        raise InferenceError(
            f"Split: size {x.shape[at]} at axis {at} is not a multiple of {op.num_splits}"
        )
    return _cut(x, at, [length] * op.num_splits)


@implements(VariadicSplit)
def variadic_split(_op: VariadicSplit, x: Array, axis: Array, lengths: Array) -> tuple[Array, ...]:
    """Return views of the given lengths."""
    at = normalize_axis(int(axis.item(0)), x.ndim)
    wanted: list[int] = lengths.reshape(-1).astype(np.int64, copy=False).tolist()
    if min(wanted, default=0) < 0 or sum(wanted) != x.shape[at]:
        wanted = [int(size) for size in split_lengths(x.shape[at], wanted)]
    return _cut(x, at, wanted)


def _cut(x: Array, axis: int, lengths: list[int]) -> tuple[Array, ...]:
    parts, start, before = [], 0, (slice(None),) * axis
    for length in lengths:
        place = (*before, slice(start, start + length))
        parts.append(x[place])
        start += length
    return tuple(parts)
