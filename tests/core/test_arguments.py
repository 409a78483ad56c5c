"""Numbers that users give: those of NumPy and others count, truth values do not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from polydevice.arguments import integer, milliseconds
from polydevice.errors import RequestError


@pytest.mark.parametrize(
    "value", [250, 250.0, np.float32(250), np.float16(250), np.int64(250), Fraction(250)]
)
def test_times(value):
    assert milliseconds(value, RequestError) == 0.25


@pytest.mark.parametrize("value", [None, -1, -1.0, np.int8(-1), np.float32(-1)])
def test_times_without_end(value):
    assert milliseconds(value, RequestError) is None


@pytest.mark.parametrize(
    "value",
    [-0.5, -2, math.nan, math.inf, np.float32("nan"), 1e16, 1j, "5", True, np.True_, np.ones(1)],
)
def test_no_times(value):
    with pytest.raises(RequestError, match="ms is not possible"):
        milliseconds(value, RequestError)


@pytest.mark.parametrize("value", [3, np.uint8(3), np.int64(3), np.array(3)])
def test_integers(value):
    made = integer(value, "n", RequestError)
    assert made == 3
    assert type(made) is int


@pytest.mark.parametrize("value", [True, False, np.True_, 3.0, np.float32(3), "3", None, [3]])
def test_no_integers(value):
    with pytest.raises(RequestError, match="n="):
        integer(value, "n", RequestError)
