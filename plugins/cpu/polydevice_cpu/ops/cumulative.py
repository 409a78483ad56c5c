"""CumProd."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.cumulative import CumProd
from polydevice_cpu.algorithms.precision import narrow, widen
from polydevice_cpu.implement import implements


@implements(CumProd)
def cumprod(op: CumProd, x: Array, axis: Array) -> Array:
    """Multiply along the axis, shifted by one for `exclusive`."""
    at = int(axis.reshape(-1)[0]) % x.ndim
    values = x if x.dtype.kind in "iu" else widen(x)
    values = np.flip(values, at) if op.reverse else values
    y = np.cumprod(values, axis=at, dtype=values.dtype)
    if op.exclusive and x.shape[at]:
        ones = np.ones_like(np.take(y, [0], axis=at))
        y = np.concatenate([ones, np.delete(y, -1, axis=at)], axis=at)
    return narrow(np.ascontiguousarray(np.flip(y, at) if op.reverse else y), x.dtype)
