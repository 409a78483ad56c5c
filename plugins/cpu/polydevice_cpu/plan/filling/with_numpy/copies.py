"""Moving data by NumPy: copies to another order of axes, joined parts, and repeated pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import is_symbolic, is_within, number_of
from polydevice_cpu.onednn.descriptor import channels_last_strides, same_steps
from polydevice_cpu.plan.step import Compute
from polydevice_cpu.plan.value import Value

MOST_NS = 80_000.0
"""How long NumPy may take: oneDNN's code takes half of it or more, and 0.25 to 0.3 ms to choose,
make and bind. A plan runs eight times so. Here and below: where several threads would share it,
each takes a part of the time."""

MOST_ALONG_NS = 500_000.0
"""The same where a short axis comes innermost, some elements of the outermost at a time: 3 channels
of 192x1344 take 285 us then and 415 at once, oneDNN 300, and 0.4 ms to choose, make and bind."""

AT_ONCE_BYTES = 1 << 19
"""So much is written before it is gone over again."""

ROW = 8
"""So many elements next to each other NumPy copies at once."""

_FAST_NS, _SLOW_NS = 0.35, 2.4
"""What it takes for an element of a long row, and for one of a row that is shorter than `ROW`."""

MOST_REPEATED = 30_000
"""How many pixels NumPy may write by repeating others: so many take 20 us longer than by oneDNN's
code, and that 0.12 to 0.2 ms to choose and bind."""

MOST_IN_ROWS = 1 << 19
"""The same in bytes, where elements of a row do: of f32 so many take 30 us longer than by oneDNN's
code (16 to 50; 0.3 to 0.5 ns for each), of bytes a quarter of its time."""

MOST_JOINED = 80_000
"""How many runs of memory between others NumPy may copy: 34,000 of 24 channels take 312 us some
positions at a time, and 505 part by part. oneDNN takes as long, and 0.15 ms to choose and bind."""


def copying(source: Value, target: Value, threads: int = 1) -> Compute | None:
    """Return what copies elements as they are; None where that takes long."""
    shape, places, steps = target.shape, target.strides, source.strides
    assert places is not None
    assert steps is not None
    along = next((d for d, n in enumerate(shape) if places[d] == 1 and n > 1), 0)
    if shape[along] >= ROW or math.prod(shape) == shape[along]:
        each_ns, compute = _FAST_NS, _copy
    elif any(step == 1 and n >= ROW for n, step in zip(shape, steps, strict=True)):
        if not is_within(math.prod(shape) * _FAST_NS * threads, MOST_ALONG_NS):
            return None
        axes = [d for d in range(len(shape)) if d != along]
        return _by_parts(partial(_copy_along, along), axes, target)
    else:
        each_ns, compute = _SLOW_NS, _copy
    return compute if is_within(math.prod(shape) * each_ns * threads, MOST_NS) else None


def _by_parts(compute: Compute, axes: Sequence[int], target: Value) -> Compute:
    """The same for some elements of the outermost axis at a time, where all of them are much."""
    assert target.strides is not None
    size = target.elements * target.dtype.itemsize
    if not is_symbolic(size) and size <= AT_ONCE_BYTES:  # a formula serves any
        return compute
    order = sorted(axes, key=target.strides.__getitem__, reverse=True)
    return partial(_compute_parts, compute, tuple(order))


def _compute_parts(compute: Compute, axes: Sequence[int], *arrays: Array) -> tuple[()]:
    """Compute parts of the first axis that has several elements."""
    target = arrays[-1]
    axis = next((axis for axis in axes if target.shape[axis] > 1), axes[0])
    parts, size = -(-target.nbytes // AT_ONCE_BYTES), target.shape[axis]
    if parts < 2:
        compute(*arrays)
        return ()
    count = -(-size // parts)
    before = (slice(None),) * axis
    for start in range(0, size, count):
        part = (*before, slice(start, start + count))
        compute(*[array[part] for array in arrays])
    return ()


def _copy(source: Array, target: Array) -> tuple[()]:
    np.copyto(target, source)
    return ()


def _copy_along(axis: int, source: Array, target: Array) -> tuple[()]:
    """Copy a short axis element by element, or NumPy would have it innermost."""
    for part, place in zip(source.swapaxes(axis, 0), target.swapaxes(axis, 0), strict=True):
        np.copyto(place, part)
    return ()


def joining(axis: int, parts: Sequence[Value], target: Value, threads: int = 1) -> Compute | None:
    """Return what joins parts along an axis; None where that takes long."""
    places = target.strides
    assert places is not None
    axes = [d for d, step in enumerate(places) if step > places[axis]]
    joined = math.prod(target.shape[d] for d in axes) * len(parts) * threads
    if not is_within(joined, MOST_JOINED):
        return None
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + part.shape[axis])
    before = (slice(None),) * axis
    compute = partial(_join, [(*before, slice(*each)) for each in pairwise(ends)])
    return _by_parts(compute, axes, target) if axes else compute


def _join(places: Sequence[tuple[slice, ...]], *arrays: Array) -> tuple[()]:
    target = arrays[-1]
    for part, place in zip(arrays, places, strict=False):
        np.copyto(target[place], part)
    return ()


def repeating(source: Value, target: Value, threads: int = 1) -> Compute | None:
    """Return what repeats pixels whole numbers of times; None for others, or if it takes long.

    oneDNN takes the nearest pixel by the distance of centres, which is the same.
    """
    sides = source, target
    if any(value.strides is None for value in sides):
        return None
    if not all(map(_is_channels_last, sides)):
        return _repeating_in_rows(source, target, threads)
    sizes = list(zip(source.shape[2:], target.shape[2:], strict=True))
    if any(many % few for few, many in sizes) or source.shape[1] < ROW:
        return None
    if not is_within(target.elements * threads, MOST_REPEATED * source.shape[1]):
        return None
    split = (*source.shape[:2], *(n for few, many in sizes for n in (few, many // few)))
    alone = (*source.shape[:2], *(n for few, _ in sizes for n in (few, 1)))
    return partial(_repeat, alone, split)


def _repeat(
    alone: tuple[int, ...], split: tuple[int, ...], source: Array, target: Array
) -> tuple[()]:
    np.copyto(target.reshape(split), source.reshape(alone))  # axes in two are seen, not copied
    return ()


def _repeating_in_rows(source: Value, target: Value, threads: int) -> Compute | None:
    """The same where rows of elements lie next to each other, instead of channels."""
    if any(value.strides is None or value.strides[-1] != 1 for value in (source, target)):
        return None
    few, many = source.shape[2:], target.shape[2:]
    times = [number_of(n) // max(number_of(each), 1) for n, each in zip(many, few, strict=True)]
    if 0 in times:
        return None
    if any(n != each * count for n, each, count in zip(many, few, times, strict=True)):
        return None
    most = MOST_IN_ROWS // target.dtype.itemsize
    return partial(_repeat_in_rows, times) if is_within(target.elements * threads, most) else None


def _repeat_in_rows(times: Sequence[int], source: Array, target: Array) -> tuple[()]:
    """Repeat elements of some rows, and these rows then."""
    places: list[slice] = [slice(None)] * target.ndim
    first = target.ndim - len(times)
    places[first:] = [slice(None, None, count) for count in times]
    for axis in reversed(range(first, target.ndim)):
        count = times[axis - first]
        is_last = axis == target.ndim - 1
        made = source if is_last else target[tuple(places)]
        for number in range(0 if is_last else 1, count):
            places[axis] = slice(number, None, count)
            np.copyto(target[tuple(places)], made)
        places[axis] = slice(None)
    return ()


def _is_channels_last(value: Value) -> bool:
    assert value.strides is not None
    return same_steps(value.shape, value.strides, channels_last_strides(value.shape))
