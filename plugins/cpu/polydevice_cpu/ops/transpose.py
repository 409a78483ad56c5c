"""Transpose."""

from __future__ import annotations

from polydevice.dtype import Array
from polydevice.ops.transpose import Transpose, permutation
from polydevice_cpu.implement import implements


@implements(Transpose)
def transpose(_op: Transpose, x: Array, order: Array) -> Array:
    """Return a view with the axes reordered."""
    axes = [int(axis) for axis in order.reshape(-1).tolist()]  # a float may be given
    turned: Array = x.transpose(permutation(axes, x.ndim) if axes else None)
    return turned
