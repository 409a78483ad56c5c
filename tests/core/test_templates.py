"""Templates: when they are made, which one is taken, and when no more are tried."""

from __future__ import annotations

import threading

import pytest

from polydevice.errors import InferCancelledError, InferTimeoutError, InternalError, NetworkError
from polydevice.runtime.templates import FAILURES, IN_VAIN, MOST, Fit, Templates
from polydevice.shape import Dim, Shape
from polydevice.symbolic_size import UntraceableError, number_of

OPEN = [Shape([Dim(), 3])]


class Even:
    """A plan of a network that is planned alike for sizes with the same rest by a number."""

    def __init__(self, by: int, shapes, trace) -> None:
        ((size, _),) = shapes
        self.rest = int(size % by)
        self.by = by
        self._formulas = trace.formulas([size * 10])

    def fit(self, sizes):
        found = self._formulas(sizes) if sum(sizes) % self.by == self.rest else None
        return None if found is None else Fit(lambda: ("filled", *found[0]))


def tracing_by(by):
    traced = []

    def trace(symbolic, notes):
        template = Even(by, symbolic, notes)
        traced.append(template.rest)
        return template

    return trace, traced


def made_with_numbers(shapes):
    return ("made", shapes[0][0])


def plans(templates, trace, sizes):
    return [templates.plan(((size, 3),), made_with_numbers, trace) for size in sizes]


def test_plans_are_made_with_numbers_first():
    trace, traced = tracing_by(1)
    templates = Templates(OPEN, patience=2)
    assert plans(templates, trace, (1, 2)) == [("made", 1), ("made", 2)]
    assert not traced
    assert plans(templates, trace, (3, 4)) == [("filled", 30), ("filled", 40)]


def test_a_template_whose_guard_does_not_hold_is_not_taken():
    traced = []

    class Odd(Even):
        def __init__(self, shapes, trace) -> None:
            ((size, _),) = shapes
            self.is_small = bool(size < 10)
            traced.append(self.is_small)
            self._formulas = trace.formulas([size + 1])

        def fit(self, sizes):
            found = self._formulas(sizes)
            return None if found is None else Fit(lambda: (self.is_small, *found[0]))

    templates = Templates(OPEN)
    found = plans(templates, Odd, (5, 7, 20, 6, 30))
    assert found == [(True, 6), (True, 8), (False, 21), (True, 7), (False, 31)]
    assert traced == [True, False]
    assert templates.filled == 3


class Doubtful:
    """A plan whose choices might be others the further a size is from that it was made for."""

    def __init__(self, shapes, _) -> None:
        ((size, _),) = shapes
        self.made_for = size.value

    def fit(self, sizes):
        doubts = abs(sizes[0] - self.made_for)
        return Fit(lambda: None if doubts > 50 else self.made_for, doubts)


def test_the_template_with_fewest_doubts_is_taken():
    templates = Templates(OPEN, at_once=0)
    for size in (10, 100, 20):
        assert templates.learn(((size, 3),), Doubtful)
    assert plans(templates, Doubtful, (10, 11, 99, 40, 500)) == [10, 10, 100, 20, ("made", 500)]
    assert templates.filled == 4


def test_templates_are_made_while_a_caller_waits_and_behind():
    trace, traced = tracing_by(1000)
    templates = Templates(OPEN, at_once=1)
    shapes = ((2, 3),)
    assert plans(templates, trace, (1, 2)) == [("filled", 10), ("made", 2)]
    assert templates.may_learn(shapes)
    learned = templates.learn(shapes, trace)
    assert learned.rest == 2
    assert plans(templates, trace, (2, 1002, 3)) == [("filled", 20), ("filled", 10020), ("made", 3)]
    templates.drop(learned)
    templates.drop(learned)
    assert plans(templates, trace, (2, 1)) == [("made", 2), ("filled", 10)]
    assert traced == [1, 2]


def test_sizes_of_1_are_planned_as_others_where_these_serve_them():
    trace, traced = tracing_by(1)
    likely = Templates([Shape([Dim(), Dim(max=1), 3])], is_one_alike=True)

    def noted(symbolic, notes):
        traced.append(tuple(map(number_of, symbolic[0])))
        return trace([symbolic[0][1:]], notes)

    for size, found in ((1, ("filled", 10)), (7, ("filled", 10))):
        assert likely.plan(((size, 1, 3),), made_with_numbers, noted) == found
    assert traced == [(2, 1, 3), 0]


def test_sizes_of_1_that_mean_something_are_planned_as_they_are():
    trace, traced = tracing_by(1000)
    templates = Templates(OPEN, is_one_alike=True)
    assert plans(templates, trace, (1, 1001, 1)) == [
        ("filled", 10),
        ("filled", 10010),
        ("filled", 10),
    ]
    assert traced == [2, 1]
    trace, traced = tracing_by(1000)
    assert plans(templates, trace, (2, 1)) == [("filled", 20), ("filled", 10)]
    assert traced == [2]


def test_what_has_to_wait_is_tried_again():
    trace, _ = tracing_by(1)
    templates = Templates(OPEN)
    assert plans(templates, lambda *_: None, (1,)) == [("made", 1)]
    assert templates.learn(((1, 3),), lambda *_: None) is None
    assert plans(templates, trace, (1,)) == [("filled", 10)]


def test_a_template_that_is_learned_while_the_network_closes_is_not_kept():
    trace, _ = tracing_by(1)
    templates = Templates(OPEN)

    def late(*given):
        templates.clear()
        return trace(*given)

    assert templates.learn(((1, 3),), late) is None
    assert not templates.may_learn(((1, 3),))
    assert templates.learn(((1, 3),), trace) is None
    assert plans(templates, trace, (1,)) == [("made", 1)]


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
    trace, traced = tracing_by(1)
    templates = Templates(declared)
    assert templates.plan(given, lambda shapes: shapes, trace) == given
    assert not templates.may_learn(given)
    assert templates.learn(given, trace) is None
    assert not traced


def test_sizes_of_0_have_templates_of_their_own_where_they_may():
    made = []

    class Formulas:
        def __init__(self, shapes, trace) -> None:
            ((rows, columns),) = shapes
            made.append((rows, columns))
            self._formulas = trace.formulas([rows * 2, columns + 1])

        def fit(self, sizes):
            found = self._formulas(sizes)
            return None if found is None else Fit(lambda: ("filled", *found[0]))

    templates = Templates([Shape([Dim(), Dim(max=9)])], may_be_empty=True)

    def planned(*shape):
        return templates.plan((shape,), lambda _: "made", Formulas)

    assert planned(4, 2) == ("filled", 8, 3)
    assert planned(0, 5) == ("filled", 0, 6)
    assert planned(0, 7) == ("filled", 0, 8)
    assert planned(3, 0) == ("filled", 6, 1)
    assert planned(0, 0) == "made"  # where nothing is open
    assert planned(5, 6) == ("filled", 10, 7)
    assert planned(0, 10) == "made"  # which it cannot have
    assert [tuple(map(number_of, each)) for each in made] == [(4, 2), (0, 5), (3, 0)]
    learned = templates.learn(((0, 3),), Formulas)
    templates.drop(learned)
    assert planned(0, 4) == ("filled", 0, 5)  # by the first one
    templates.clear()
    assert planned(0, 4) == "made"


def test_what_begins_empty_leaves_the_first_template_of_other_sizes_to_who_waits():
    trace, _ = tracing_by(1000)

    def or_empty(symbolic, notes):
        return trace([(symbolic[0][0] + symbolic[1][0], 3)], notes)

    templates = Templates([Shape([Dim(), 3]), Shape([Dim()])], at_once=1, may_be_empty=True)

    def planned(rows, before):
        given = ((rows, 3), (before,))
        return templates.plan(given, made_with_numbers, or_empty), templates.serves(given)

    assert planned(5, 0) == (("filled", 50), True)
    assert planned(1, 5) == (("filled", 60), True)
    assert planned(1, 6) == (("made", 1), False)
    assert planned(6, 0) == (("made", 6), False)
    assert not templates.serves(((5, 3), None))


def test_sizes_of_0_are_planned_by_numbers():
    trace, traced = tracing_by(1)
    templates = Templates(OPEN)
    assert templates.plan(((0, 3),), lambda _: "made", trace) == "made"
    assert not traced


def test_what_cannot_be_traced_is_not_tried_again():
    tried = []

    def trace(shapes, _):
        tried.append(shapes)
        raise UntraceableError("a loop")

    sizes = range(1, 4)
    assert plans(Templates(OPEN), trace, sizes) == [("made", size) for size in sizes]
    assert len(tried) == 1


@pytest.mark.parametrize("error", [TypeError("no formula"), InternalError("sizes of two traces")])
def test_what_fails_with_formulas_is_told_and_tried_again_a_few_times(error, untraced):
    tried = []

    def trace(shapes, _):
        tried.append(shapes)
        raise error

    sizes = range(1, 9)
    assert plans(Templates(OPEN), trace, sizes) == [("made", size) for size in sizes]
    assert len(tried) == FAILURES
    (told,) = untraced
    assert (
        f"shapes ((1, 3),) with sizes as symbols failed: {type(error).__name__}: {error};" in told
    )
    untraced.clear()


def test_shapes_that_a_network_refuses_stop_nothing():
    trace, _ = tracing_by(1)

    def refuse(*_):
        raise NetworkError("an axis is too short")

    templates, sizes = Templates(OPEN), range(1, 2 * FAILURES + 2)
    assert plans(templates, refuse, sizes) == [("made", size) for size in sizes]
    assert plans(templates, trace, (1,)) == [("filled", 10)]


@pytest.mark.parametrize("error", [InferCancelledError, InferTimeoutError])
def test_who_is_to_give_up_hears_of_it(error):
    def trace(*_):
        raise error("no longer wanted")

    with pytest.raises(error):
        Templates(OPEN).plan(((1, 3),), made_with_numbers, trace)
    with pytest.raises(error):
        Templates(OPEN).learn(((1, 3),), trace)


def test_what_fails_as_the_process_ends_is_no_defect(monkeypatch, caplog):
    """Pools of threads refuse work then, for one."""
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    monkeypatch.setattr(threading, "main_thread", lambda: ended)

    def refused(*_):
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    with pytest.raises(InferCancelledError):
        Templates(OPEN).learn(((1, 3),), refused)
    assert not caplog.records


def test_networks_that_are_planned_differently_for_every_size_get_few_templates():
    trace, traced = tracing_by(1000)
    templates = Templates(OPEN)
    plans(templates, trace, range(1, 3 * MOST))
    assert len(traced) == IN_VAIN
    for size in range(3 * MOST, 6 * MOST):
        templates.learn(((size, 3),), trace)
    assert len(traced) == MOST
    assert not templates.may_learn(((500, 3),))


def test_each_plan_that_is_filled_in_allows_for_another_template():
    trace, traced = tracing_by(1000)
    templates = Templates(OPEN)
    for size in range(1, 3 * MOST):
        plans(templates, trace, (size, size + 1000))
    assert len(traced) == MOST


def test_after_clearing_everything_is_made_with_numbers():
    trace, _ = tracing_by(1)
    templates = Templates(OPEN)
    plans(templates, trace, (1,))
    templates.clear()
    assert plans(templates, trace, (2,)) == [("made", 2)]
