"""Split and VariadicSplit."""

from __future__ import annotations

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.split import Split, VariadicSplit, split_lengths
from polydevice.shape import normalize_axis
from polydevice_cpu.implement import implements


@implements(Split)
def split(op: Split, x: Array, axis: Array) -> tuple[Array, ...]:
    """Return views of equal length."""
    at = normalize_axis(int(axis.reshape(-1)[0]), x.ndim)
    length, rest = divmod(x.shape[at], op.num_splits)
    if rest:
        raise InferenceError(
            f"Split: size {x.shape[at]} at axis {at} is not a multiple of {op.num_splits}"
        )
    return _cut(x, at, [length] * op.num_splits)


@implements(VariadicSplit)
def variadic_split(_op: VariadicSplit, x: Array, axis: Array, lengths: Array) -> tuple[Array, ...]:
    """Return views of the given lengths."""
    at = normalize_axis(int(axis.reshape(-1)[0]), x.ndim)
    sizes = split_lengths(x.shape[at], [int(length) for length in lengths.reshape(-1)])
    return _cut(x, at, [int(size) for size in sizes])


def _cut(x: Array, axis: int, lengths: list[int]) -> tuple[Array, ...]:
    parts, start = [], 0
    for length in lengths:
        parts.append(x[(slice(None),) * axis + (slice(start, start + length),)])
        start += length
    return tuple(parts)
