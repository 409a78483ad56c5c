"""Which elements come first, as by NumPy's stable sort: ties, infinities, NaN, extreme integers."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.ranking import extreme, largest, smallest


def _first(x: np.ndarray, count: int, *, descending: bool) -> np.ndarray:
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")[..., :count]
    backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return (x.shape[-1] - 1 - backwards)[..., :count]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint32])
def test_the_first_of_equal_elements_comes_first(dtype):
    rng = np.random.default_rng(7)
    marks = (
        [np.nan, np.inf, -np.inf, -0.0]
        if dtype in (np.float32, np.float64)
        else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    )
    for _ in range(60):
        shape = (*rng.integers(1, 6, rng.integers(0, 3)), rng.integers(1, 90))
        x = rng.integers(0, rng.integers(3, 99), shape).astype(dtype)
        for mark in marks:
            if rng.random() < 0.3:
                x[rng.random(shape) < 0.2] = mark
        count = rng.integers(1, min(shape[-1], 6) + 1)
        np.testing.assert_array_equal(smallest(x, count), _first(x, count, descending=False))
        np.testing.assert_array_equal(largest(x, count), _first(x, count, descending=True))
        for most in (False, True):
            found = extreme(x, x.ndim - 1, largest=most)
            if found is not None:
                np.testing.assert_array_equal(found, _first(x, 1, descending=most))
