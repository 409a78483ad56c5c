"""Templates: when they are made, which one is taken, and when no more are tried."""

from __future__ import annotations

import pytest

from polydevice.errors import InferCancelledError, NetworkError
from polydevice.runtime.templates import FAILURES, MOST, Templates, UntraceableError
from polydevice.shape import Dim, Shape

OPEN = [Shape([Dim(), 3])]


class Even:
    """A plan of a network that is planned alike for sizes with the same rest by a number."""

    def __init__(self, by: int, shapes, trace) -> None:
        ((size, _),) = shapes
        self.rest = int(size % by)
        self.by = by
        self._formulas = trace.formulas([size * 10])

    def plan(self, sizes):
        found = self._formulas(sizes) if sizes[0] % self.by == self.rest else None
        return None if found is None else ("filled", *found[0])


def templates(by=2, patience=0, shapes=OPEN):
    made = []

    def trace(symbolic, notes):
        template = Even(by, symbolic, notes)
        made.append(template.rest)
        return template

    return Templates(shapes, trace, patience), made


def made_with_numbers(shapes):
    return ("made", shapes[0][0])


def test_plans_are_made_with_numbers_first():
    found, traced = templates(by=1, patience=2)
    plans = [found.plan(((size, 3),), made_with_numbers) for size in (1, 2)]
    assert plans == [("made", 1), ("made", 2)]
    assert not traced


def test_a_template_whose_guard_does_not_hold_is_not_taken():
    traced = []

    class Odd(Even):
        def __init__(self, shapes, trace) -> None:
            ((size, _),) = shapes
            self.is_small = bool(size < 10)
            traced.append(self.is_small)
            self._formulas = trace.formulas([size + 1])

        def plan(self, sizes):
            found = self._formulas(sizes)
            return None if found is None else (self.is_small, *found[0])

    found = Templates(OPEN, Odd)
    plans = [found.plan(((size, 3),), made_with_numbers) for size in (5, 7, 20, 6, 30)]
    assert plans == [(True, 6), (True, 8), (False, 21), (True, 7), (False, 31)]
    assert traced == [True, False]
    assert found.filled == 3


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        ([Shape([2, 3])], ((2, 3),)),
        ([None], ((2, 3),)),
        (OPEN, (None,)),
        (OPEN, ((2, 4),)),
        (OPEN, ((2, 3, 1),)),
    ],
)
def test_where_no_size_varies_plans_are_made(declared, given):
    found, traced = templates(by=1, shapes=declared)
    assert found.plan(given, lambda shapes: shapes) == given
    assert not traced


def test_what_cannot_be_traced_is_not_tried_again():
    tried = []

    def trace(shapes, _):
        tried.append(shapes)
        raise UntraceableError("a loop")

    found = Templates(OPEN, trace)
    for size in range(1, 4):
        assert found.plan(((size, 3),), made_with_numbers) == ("made", size)
    assert len(tried) == 1


def test_what_fails_with_formulas_is_tried_again_a_few_times():
    tried = []

    def trace(shapes, _):
        tried.append(shapes)
        raise TypeError("no formula")

    found = Templates(OPEN, trace)
    for size in range(1, 9):
        assert found.plan(((size, 3),), made_with_numbers) == ("made", size)
    assert len(tried) == FAILURES


def test_shapes_that_a_network_refuses_stop_nothing():
    found, traced = templates(by=1)

    def refuse(*_):
        raise NetworkError("an axis is too short")

    refusing = Templates(OPEN, refuse)
    for size in range(1, 2 * FAILURES + 2):
        assert refusing.plan(((size, 3),), made_with_numbers) == ("made", size)
    assert found.plan(((1, 3),), made_with_numbers) == ("filled", 10)
    assert traced == [0]


def test_who_is_cancelled_hears_of_it():
    def trace(*_):
        raise InferCancelledError("cancelled")

    with pytest.raises(InferCancelledError):
        Templates(OPEN, trace).plan(((1, 3),), made_with_numbers)


def test_networks_that_are_planned_differently_for_every_size_get_few_templates():
    found, traced = templates(by=1000)
    for size in range(1, 3 * MOST):
        found.plan(((size, 3),), made_with_numbers)
    assert len(traced) == MOST


def test_after_clearing_everything_is_made_with_numbers():
    found, _ = templates(by=1)
    found.plan(((1, 3),), made_with_numbers)
    found.clear()
    assert found.plan(((2, 3),), made_with_numbers) == ("made", 2)
