"""Intervals of numbers too wide for any element type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polydevice.interval import Interval

WIDE = 10**400


@pytest.mark.parametrize(
    ("compute", "wanted"),
    [
        (lambda: Interval(2, WIDE) * 1.5, Interval(3.0, None)),
        (lambda: Interval(2, WIDE) + 1.5, Interval(3.5, None)),
        (lambda: Interval(2, WIDE) + Interval(0.5, None), Interval(2.5, None)),
        (lambda: Interval(2, WIDE) * Interval(np.float32(2), None), Interval(4.0, None)),
        (lambda: Interval(3, WIDE) / 3, Interval(1.0, None)),
        (lambda: Interval(2, 2**40) * Interval(3, 2**40), Interval(6, None)),
        (lambda: Interval(-WIDE, 2) - 0.5, Interval(None, 1.5)),
    ],
)
def test_bounds_past_every_element_type_are_none(compute: Callable[[], Any], wanted: Any) -> None:
    assert compute() == wanted


def test_products_of_many_unknown_sizes_stay_numbers() -> None:
    item: Any = Interval(1, 2**62)
    for _ in range(50):
        item = item * Interval(1, 2**62)
    assert item * np.float32(2) == Interval(2.0, None)
