"""difference(): literals worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.comparison import difference


def test_part_of_the_largest_element() -> None:
    found = difference(np.float32([1, 2.5, -4]), np.float32([1, 2, -4]), bound=0.1)
    assert (found.absolute, found.relative) == (0.5, 0.125)
    assert (found.beyond, found.index) == (1, (1,))
    assert found.text == "1 of 3 elements, most at [1]"
    assert not difference(np.float32([1, 2.5, -4]), np.float32([1, 2, -4]), bound=0.125).is_beyond


def test_the_reference_is_zero() -> None:
    assert not difference(np.zeros(3), np.zeros(3), bound=0).is_beyond
    found = difference(np.float64([0, 1e-30]), np.zeros(2), bound=0.5)
    assert found.is_beyond
    assert found.relative == np.inf


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number(value: float) -> None:
    one, other = np.float32([value, 1]), np.float32([2, 1])
    assert not difference(one, one, bound=0).is_beyond
    found = difference(one, other, bound=0.9)
    assert (found.beyond, found.index) == (1, (0,))
    assert found.ours is not None
    assert found.ours.nan + found.ours.infinite == 1
    assert found.relative == np.inf  # more than any rounding
    assert found.as_dict()["relative"] is None  # JSON has no infinity
    assert ("nan" if np.isnan(value) else "infinite") in found.text
    assert difference(other, one, bound=0.9).beyond == 1


def test_infinities_of_other_sign_differ() -> None:
    assert difference(np.float32([np.inf]), np.float32([-np.inf]), bound=1).beyond == 1


def test_saturated_elements_are_counted() -> None:
    found = difference(np.float32([65504, -7e4, 1]), np.float32([65504, -7e4, 1]), bound=0)
    assert found.ours is not None
    assert (found.ours.saturated, found.ours.largest) == (2, 7e4)


def test_integers_are_equal_or_differ_and_quantised_ones_may_be_a_step_apart() -> None:
    one, other = np.int8([100, -3]), np.int8([100, -4])
    assert difference(one, other, bound=0.5).beyond == 1
    assert not difference(one, other, bound=0.5, step=1).is_beyond
    for power in (40, 53, 62):  # f64 has not all of them
        large = np.int64([2**power, 1]), np.int64([2**power + 1, 1])
        assert difference(*large, bound=0.5).beyond == 1


def test_texts_and_truth_values() -> None:
    assert difference(np.array(["a", "b"], object), np.array(["a", "c"], object), 0.1).beyond == 1
    found = difference(np.array([True, False, True, True]), np.ones(4, bool), bound=0.1)
    assert (found.relative, found.beyond, found.index) == (0.25, 1, (1,))


def test_shapes() -> None:
    found = difference(np.zeros((2, 3)), np.zeros((3, 2)), bound=1)
    assert found.is_beyond
    assert found.text == "shape [2, 3] where the reference has [3, 2]"
    assert not difference(np.zeros((0, 3)), np.zeros((0, 3)), bound=0).is_beyond


def test_complex_numbers() -> None:
    found = difference(np.complex64([1 + 1j]), np.complex64([1 - 1j]), bound=0.1)
    assert found.absolute == 2
    assert found.relative == pytest.approx(2**0.5)
