"""Transpose."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.transpose import Transpose, permutation
from polydevice_cpu.implement import implements


@implements(Transpose)
def transpose(_op: Transpose, x: Array, order: Array) -> Array:
    """Return a view with the axes reordered."""
    return np.transpose(x, permutation([int(axis) for axis in order.reshape(-1)], x.ndim))
