"""Reshape, Squeeze, Unsqueeze and ShapeOf."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze, unsqueezed
from polydevice_cpu.implement import implements


@implements(Reshape)
def reshape(op: Reshape, x: Array, pattern: Array) -> Array:
    """Return a view where the memory order allows it."""
    wanted = pattern.reshape(-1).tolist()
    if x.size and pattern.dtype.kind in "iu" and 0 not in wanted and min(wanted, default=1) >= -1:
        try:  # which NumPy understands: 0.5 instead of 6 us
            return np.asarray(x.reshape(wanted))
        except ValueError:  # says less than what follows
            pass
    return x.reshape(op.target(x.shape, wanted).static)


@implements(Squeeze)
def squeeze(op: Squeeze, x: Array, axes: Array | None = None) -> Array:
    """Return a view without the sizes of 1."""
    chosen: Sequence[int] = () if axes is None else axes.reshape(-1).tolist()
    if len(chosen) == 1 and -x.ndim <= chosen[0] < x.ndim and x.shape[chosen[0]] == 1:
        at = chosen[0]
        return x.reshape(x.shape[:at] + x.shape[at + 1 or x.ndim :])
    removed = op.removed(x.shape, chosen) or set()
    return x.reshape([size for i, size in enumerate(x.shape) if i not in removed])


@implements(Unsqueeze)
def unsqueeze(_op: Unsqueeze, x: Array, axes: Array) -> Array:
    """Return a view with sizes of 1 inserted."""
    places, shape = axes.reshape(-1).tolist(), x.shape
    if len(places) == 1 and -x.ndim <= places[0] <= x.ndim:  # half the time
        at = places[0] % (x.ndim + 1)
        return x.reshape((*shape[:at], 1, *shape[at:]))
    return x.reshape(tuple(unsqueezed(shape, places)))


@implements(ShapeOf)
def shape_of(op: ShapeOf, x: Array) -> Array:
    """Return the array's shape."""
    return np.array(x.shape, op.output_type.dtype)
