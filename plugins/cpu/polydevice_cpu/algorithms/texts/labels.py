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
        self._first, self._table = 0, np.empty(0, np.int64)
        if keys and all(type(key) is int for key in keys):
            self._first, last = min(keys), max(keys)
            if last - self._first < MOST_SPREAD:
                self._table = np.full(last - self._first + 2, len(keys), np.int64)
                places = np.array(keys, np.int64) - self._first
                self._table[places] = np.arange(len(keys))

    def of(self, x: Array) -> Array:
        """Return the values of elements, of their shape."""
        return np.asarray(self._values.take(self._places(x)).reshape(x.shape))

    def _places(self, x: Array) -> Array:
        last = len(self._table) - 1
        if x.dtype.kind == "i" and last > 0:
            wide = x.reshape(-1).astype(np.int64, copy=False)
            # Differences may be too large for 64 bits, and are then as small as negative ones.
            places = (wide - self._first).view(np.uint64)
            places = np.minimum(places, np.uint64(last)).view(np.int64)
            return np.asarray(self._table.take(places))
        flat = x.reshape(-1)
        items = flat.tolist()
        numbers = map(self._numbers.get, items, repeat(self._other))
        places = np.fromiter(numbers, np.int64, len(items))
        if x.dtype.kind == "f" and self._nan is not None:
            places[np.isnan(flat)] = self._nan
        return places
