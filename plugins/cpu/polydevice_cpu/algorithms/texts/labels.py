"""Labels: a value for each key, looked up for many elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from polydevice.dtype import Array

MOST_SPREAD = 1 << 16
"""How far apart whole keys may be that are looked up in an array, without Python."""


LEAST = -(1 << 63)
"""Of the whole numbers that NumPy has."""


class Labels:
    """A table of keys and values; NaN is a key like any other."""

    def __init__(
        self, keys: Sequence[Any], values: Sequence[Any], default: Any, dtype: np.dtype[Any]
    ) -> None:
        """Make the table; of equal keys the last counts.

        Args:
            keys: texts, or numbers.
            values: one for each.
            default: the value of everything else.
            dtype: of values.

        Raises:
            ValueError: a value is not of this type.
            OverflowError: the same.
        """
        listed = [*values, default]
        if dtype.hasobject:
            self._values = np.empty(len(listed), object)
            self._values[:] = list(map(str, listed))
        else:
            self._values = np.array(listed, dtype)
        self._numbers = dict(zip(keys, range(len(keys)), strict=True))
        self._other = len(keys)
        odd = [n for n, key in enumerate(keys) if isinstance(key, float) and math.isnan(key)]
        self._nan = odd[-1] if odd else None
        self._before, self._spread = 0, self._values[:0]
        """The value of each whole number from that before the first key to that behind the last."""
        if keys and all(type(key) is int for key in keys):
            self._before, last = min(keys) - 1, max(keys)
            if last - self._before <= MOST_SPREAD and self._before >= LEAST:
                table = np.full(last - self._before + 2, len(keys), np.int64)
                table[np.array(keys, np.int64) - self._before] = np.arange(len(keys))
                self._spread = self._values.take(table)

    def of(self, x: Array) -> Array:
        """Return the values of elements, of their shape."""
        if x.dtype.kind == "i" and len(self._spread):
            if not x.ndim:
                return self.of(x.reshape(1)).reshape(())
            # Differences may be too large for 64 bits, and lie far beyond the other end then.
            places = x.astype(np.int64, copy=False) - self._before
            return np.asarray(self._spread.take(places, mode="clip"))
        return np.asarray(self._values.take(self._places(x)).reshape(x.shape))

    def _places(self, x: Array) -> Array:
        flat = x.reshape(-1)
        items = flat.tolist()
        numbers = map(self._numbers.get, items, repeat(self._other))
        places = np.fromiter(numbers, np.int64, len(items))
        if x.dtype.kind == "f" and self._nan is not None:
            places[np.isnan(flat)] = self._nan
        return places
