"""PairwiseCoupling, where machine code does not compute it."""

from __future__ import annotations

import numpy as np

from polydevice.bounds import bounded
from polydevice.dtype import Array
from polydevice.ops.coupling import PairwiseCoupling
from polydevice_cpu.implement import implements

NEAR = 0.005
"""How near the iteration comes, divided by the number of classes."""


def most_iterations(classes: int) -> int:
    """Return after how many iterations it ends at the latest."""
    return max(100, classes)


@implements(PairwiseCoupling)
def pairwise_coupling(op: PairwiseCoupling, x: Array) -> Array:
    """Change one probability after the other, of all rows that are not near enough yet."""
    wide = x.astype(np.float32, copy=False)
    y = np.full((len(x), op.classes), 1 / op.classes, np.float32)
    matrices = _matrices(wide, op.classes)
    left = np.arange(len(x))
    for _ in bounded(range(most_iterations(op.classes))):
        q, p = matrices[left], y[left]
        slope = (q * p[:, np.newaxis]).sum(2)
        total = (slope * p).sum(1)
        is_far = (np.abs(slope - total[:, np.newaxis]) >= NEAR / op.classes).any(1)
        left, q, p, slope, total = (each[is_far] for each in (left, q, p, slope, total))
        if not left.size:
            break
        for k in range(op.classes):
            change = (total - slope[:, k]) / q[:, k, k]
            p[:, k] += change
            whole = 1 + change
            total = (total + change * (change * q[:, k, k] + 2 * slope[:, k])) / whole / whole
            slope = (slope + change[:, np.newaxis] * q[:, k]) / whole[:, np.newaxis]
            p /= whole[:, np.newaxis]
        y[left] = p
    return y.astype(x.dtype, copy=False)


def _matrices(x: Array, classes: int) -> Array:
    """Return [rows, classes, classes]: of which p' Q p is to be least."""
    q = np.zeros((len(x), classes, classes), np.float32)
    for pair, (i, j) in enumerate(zip(*np.triu_indices(classes, 1), strict=True)):
        first, second = x[:, pair], 1 - x[:, pair]
        q[:, i, j] = q[:, j, i] = -second * first
        q[:, i, i] += second * second
        q[:, j, j] += first * first
    return q
