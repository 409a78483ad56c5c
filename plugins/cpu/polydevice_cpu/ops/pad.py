"""Pad."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.pad import Pad, PadMode
from polydevice_cpu.implement import implements


@implements(Pad)
def pad(op: Pad, x: Array, begin: Array, end: Array, value: Array | None = None) -> Array:
    """Copy into a filled array (constant), or add to both ends of each axis (other modes)."""
    before: list[int] = begin.reshape(-1).astype(np.int64, copy=False).tolist()
    after: list[int] = end.reshape(-1).astype(np.int64, copy=False).tolist()
    is_plain = op.pad_mode is PadMode.CONSTANT and min([0, *before, *after]) == 0
    if is_plain and _is_alike(x, value):
        return _framed(x, before, after, value)
    for size, first, last in zip(x.shape, before, after, strict=True):
        op.check(size, first, last)
    if op.pad_mode is not PadMode.CONSTANT:
        for axis, (first, last) in enumerate(zip(before, after, strict=True)):
            if first or last:
                x = _extended(op.pad_mode, x, axis, first, last)
        return x
    fill: Any
    if x.dtype.hasobject:  # texts; the 0 that others are padded with is no text
        given = "" if value is None else value.reshape(-1)[0]
        fill = given if isinstance(given, str) else ""
    else:
        fill = x.dtype.type(0) if value is None else value.reshape(-1)[0].astype(x.dtype)
    y = np.full([b + n + a for n, b, a in zip(x.shape, before, after, strict=True)], fill, x.dtype)
    source = tuple(
        slice(max(-b, 0), max(n - max(-a, 0), 0))
        for n, b, a in zip(x.shape, before, after, strict=True)
    )
    part = x[source]
    target = tuple(slice(max(b, 0), max(b, 0) + n) for n, b in zip(part.shape, before, strict=True))
    y[target] = part
    return y


def _is_alike(x: Array, value: Array | None) -> bool:
    """Whether a value may be put beside the elements as it is."""
    if value is None:
        return not x.dtype.hasobject
    return value.size == 1 and value.dtype == x.dtype and not x.dtype.hasobject


def _framed(x: Array, before: list[int], after: list[int], value: Array | None) -> Array:
    """Pad, and cut nothing: a third of the time."""
    y = np.zeros([b + n + a for b, n, a in zip(before, x.shape, after, strict=True)], x.dtype)
    if value is not None:
        y[...] = value.reshape(())
    y[tuple([slice(b, b + n) for b, n in zip(before, x.shape, strict=True)])] = x
    return y


def _extended(mode: PadMode, x: Array, axis: int, before: int, after: int) -> Array:
    """Pad one axis; one end may cut what the other adds."""
    size = x.shape[axis]
    return np.take(x, source_index(mode, size, np.arange(-before, size + after)), axis)


def source_index(mode: PadMode, size: int, position: Array) -> Array:
    """Return the index in an axis of `size` that each position repeats; not for constants."""
    if mode is PadMode.EDGE or size == 1:
        return np.clip(position, 0, size - 1)
    if mode is PadMode.WRAP:
        return np.mod(position, size)
    if mode is PadMode.REFLECT:
        folded = np.mod(position, 2 * (size - 1))
        return np.asarray(np.minimum(folded, 2 * (size - 1) - folded))
    folded = np.mod(position, 2 * size)
    return np.asarray(np.minimum(folded, 2 * size - 1 - folded))
