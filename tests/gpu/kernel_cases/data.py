"""What the cases of a kernel are made of: random elements of one type, from a seed of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array
from polydevice.testing.op_case import OpCase


@dataclass(frozen=True)
class Data:
    """Makes the arrays of a case; `data(2, 3)` is a 2 by 3 array of numbers around 0."""

    random: np.random.Generator
    dtype: str = "f4"

    def __call__(self, *shape: int) -> Array:
        """Return normally distributed numbers."""
        return np.asarray(self.random.standard_normal(shape).astype(self.dtype))


Cases = Callable[[Data], Iterator[OpCase]]


def ints(*values: int) -> Array:
    """Return an i64 list."""
    return np.array(values, np.int64)
