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
    before = [int(n) for n in begin.reshape(-1)]
    after = [int(n) for n in end.reshape(-1)]
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
