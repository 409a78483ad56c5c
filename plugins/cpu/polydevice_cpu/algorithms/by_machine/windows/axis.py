"""Axis: how windows lie along an axis of planes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array


class Axis(NamedTuple):
    """How windows lie along an axis.

    Attributes:
        size: of the planes.
        windows: how many.
        taps: elements of a window.
        step: between two windows.
        gap: between two elements of a window.
        pad: how far the first window reaches over the beginning.
    """

    size: int
    windows: int
    taps: int
    step: int
    gap: int
    pad: int

    def read(self) -> Array | None:
        """Return [windows, 2]: the first element in the plane, and how many; None where none is."""
        start = np.arange(self.windows, dtype=np.int64) * self.step - self.pad
        first = np.maximum(-(start // self.gap), 0)
        behind = np.minimum(-((start - self.size) // self.gap), self.taps)
        if not (first < behind).all():
            return None
        return np.stack([start + first * self.gap, behind - first], 1)

    def windows_of(self) -> tuple[Array, Array]:
        """Return [size, taps]: whether a tap of some window is at each place, and of which one."""
        places = np.arange(self.size, dtype=np.int64)[:, np.newaxis]
        moved = places + self.pad - np.arange(self.taps, dtype=np.int64) * self.gap
        window, rest = np.divmod(moved, self.step)
        return (rest == 0) & (window >= 0) & (window < self.windows), window
