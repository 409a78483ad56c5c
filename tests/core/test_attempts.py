"""Attempts of a trace, what they give up, and formulas that are traced again."""

from __future__ import annotations

import random
from enum import IntEnum
from functools import partial
from typing import NamedTuple

import pytest

from polydevice.symbolic_size import decided, is_symbolic, is_within, largest, single_bits, smallest
from polydevice.symbolic_trace import chosen, gains, tracing


def plain(size):
    """Ways that an attempt may take, by what is asked of a size."""
    if size > 40:
        return size * 3
    return size + 7


def test_what_is_decided_in_an_attempt_is_a_choice_and_no_guard():
    with tracing() as trace:
        size = trace.input(10)
        made, choice = trace.attempt(lambda: plain(size))
        free, always = trace.attempt(lambda: size * 2)
    formulas = trace.formulas([made, free])
    assert choice is not None
    assert always is None
    for number in (1, 40):
        assert formulas([number]) == ([number + 7, number * 2], [])
    found = formulas([41])  # the other way was not made: it says so
    assert found is not None
    assert found[0][1] == 82
    assert found[1] == [choice]


def test_what_is_for_a_number_alone_is_given_up_and_guards_nothing():
    with tracing() as trace:
        size = trace.input(10)
        made, choice = trace.attempt(lambda: [0] * (size + 1) if size < 20 else None)
        later = size + 1  # computed in the attempt, and used outside of it
    formulas = trace.formulas([later])
    assert made is None
    assert choice is None
    for number in (3, 10, 99):
        assert formulas([number]) == ([number + 1], [])


def test_attempts_do_not_rely_on_what_another_one_has_noted():
    with tracing() as trace:
        size = trace.input(10)
        _, first = trace.attempt(lambda: plain(size))
        _, second = trace.attempt(lambda: (size > 40, plain(size) * 2)[1])
        assert is_symbolic(plain(size))  # out of an attempt it is a guard
    formulas = trace.formulas([size])
    assert first == second  # they ask the same
    assert formulas([12]) == ([12], [])
    assert formulas([50]) is None


def test_limits_are_taken_to_hold_in_an_attempt_alone():
    with tracing() as trace:
        size = trace.input(100)
        made, choice = trace.attempt(lambda: size * 2 if is_within(size * 5, 60) else None)
        assert is_symbolic(made)
        assert not is_within(size * 5, 60)
    formulas = trace.formulas([made])
    assert formulas([100]) == ([200], [choice])
    assert formulas([12]) is None  # a guard, out of the attempt
    assert is_within(60, 60)
    assert not is_within(61, 60)


def test_numbers_of_which_few_are_met_decide():
    with tracing() as trace:
        size = trace.input(10)
        made, choice = trace.attempt(lambda: (size // 4, [0] * decided(size % 4)))
    assert made is not None
    formulas = trace.formulas(list(made))
    assert formulas([18]) == ([4, [0, 0]], [])
    assert formulas([19])[1] == [choice]


def test_formulas_of_functions_and_of_what_consists_of_sizes():
    function = print
    with tracing() as trace:
        size = trace.input(5)
        wanted = [
            partial(function, size, (size, 2), None, key=[slice(size, None, 2)]),
            (function, "text", size + 1, 0.5, float("inf"), True),
        ]
    made, doubts = trace.formulas(wanted)([9])
    assert not doubts
    assert made[0].func is function
    assert made[0].args == (9, (9, 2), None)
    assert made[0].keywords == {"key": [slice(9, None, 2)]}
    assert made[1] == (function, "text", 10, 0.5, float("inf"), True)


def test_the_largest_of_sizes_and_their_bits():
    with tracing() as trace:
        first, second = trace.input(5), trace.input(9)
        wanted = [largest([first, second, 7]), largest([first]), single_bits(first)]
        wanted += [smallest([first, second, 7])]
    formulas = trace.formulas(wanted)
    for one, other in ((5, 9), (9, 5), (1, 2)):
        bits = {1: 0x3F800000, 5: 0x40A00000, 9: 0x41100000}[one]
        most, least = max(one, other, 7), min(one, other, 7)
        assert formulas([one, other]) == ([most, one, bits, least], [])
    assert (largest([3, 8]), smallest([3, 8])) == (8, 3)


@pytest.mark.parametrize("size", [4, 20])
def test_what_is_chosen_serves_others_and_what_gains_does_only_where_it_was_not_made(size):
    with tracing() as trace:
        given = trace.input(size)
        choices = [chosen(lambda: given > 10), gains(lambda: given > 9)]
    assert choices == [size > 10] * 2
    formulas = trace.formulas([given])
    assert formulas([size]) == ([size], [])
    values, numbers = formulas([24 - size])
    assert values == [24 - size]
    possible = [trace.asked[number].is_possible(None) for number in numbers]
    assert possible == [True, size < 10]
    assert chosen(lambda: "what is made without sizes") == "what is made without sizes"


@pytest.mark.parametrize("size", [12, 13])
def test_what_is_general_does_without_what_holds_by_chance(size):
    with tracing(is_general=True) as trace:
        given = trace.input(size)
        holds = gains(lambda: given > 5 and given % 4 == 0, by_chance=True)
        always = gains(lambda: 12 % 4 == 0, by_chance=True)
        long = gains(lambda: given > 5)
        double = given * 2
    formulas = trace.formulas([double])
    assert (holds, always, long) == (False, True, True)
    asked = trace.asked
    for other in (6, 7, 8, 12, 13, 40):
        (twice,), choices = formulas([other])
        assert twice == 2 * other
        assert bool(choices) is (other % 4 == 0)  # others are to be made where it holds
        assert all(asked[each].is_possible(None) for each in choices)
    _, choices = formulas([4])  # both would be others; the last one is needed
    assert [asked[each].is_possible(None) for each in choices][-1:] == [False]


def test_a_choice_in_an_attempt_that_is_given_up_is_noted_when_it_is_made_again():
    def choose(trace, size):
        with trace.choice() as number:
            is_large = size > 5
        return is_large, number

    with tracing() as trace:
        size = trace.input(10)
        assert trace.attempt(lambda: (choose(trace, size), size.known()))[0] is None
        is_large, number = choose(trace, size)
    formulas = trace.formulas([size])
    assert is_large
    assert formulas([3]) == ([3], number)


class Pair(NamedTuple):
    first: int
    second: object


class Kind(IntEnum):
    ONE = 1


def test_formulas_keep_enumerations_and_named_tuples():
    with tracing() as trace:
        size = trace.input(5)
    (found,), _ = trace.formulas([Pair(size, (Kind.ONE, size))])([7])
    assert type(found) is Pair
    assert found == Pair(7, (Kind.ONE, 7))
    assert type(found.second[0]) is Kind


def test_what_nothing_reads_is_not_computed():
    with tracing() as trace:
        size = trace.input(6)
        trace.attempt(lambda: (12 // (size - 5), size.known()))
        wanted = size + 1
    assert trace.formulas([wanted])([5]) == ([6], [])  # nobody divides by 0


@pytest.mark.parametrize("seed", range(20))
def test_formulas_traced_again_are_the_same(seed):
    """Of a function with guards, a choice and what only a function tells, for other sizes."""
    rng = random.Random(seed)

    def make(trace, size):
        parity = trace.outcome(lambda n: n % 2, [size])
        with trace.choice():
            more = 3 if size > 30 else 4
        half = -(-size // 2) if size < 60 else size // 3
        return [half * more + parity, (half, size.bit_length()), max(size - 20, 0) << 1]

    with tracing() as trace:
        wanted = make(trace, trace.input(rng.randrange(1, 80)))
    formulas = trace.formulas(wanted)
    numbers = [n for n in range(1, 100) if formulas([n]) is not None]
    with tracing() as other:
        again = formulas.traced(other, [other.input(rng.choice(numbers))])
    twice = other.formulas(again)
    for number in range(1, 100):
        first = formulas([number])
        if twice([number]) is not None:
            assert first is not None
            assert twice([number])[0] == first[0]
    assert sum(twice([number]) is not None for number in numbers) > len(numbers) // 4


def test_largest_and_smallest_ones_are_traced_again_without_guards():
    """Whichever of some sizes it is, as with windows that reach over an end or do not."""

    def make(size):
        over = (-(-size // 2) - 1) * 2 + 3 - size
        return [largest([over - 1, 0]) * 5, smallest([size, 9, size // 2 + 4])]

    with tracing() as trace:
        formulas = trace.formulas(make(trace.input(7)))
    with tracing() as other:
        again = other.formulas(formulas.traced(other, [other.input(6)]))
    for number in range(1, 40):
        assert again([number]) == formulas([number]) == (make(number), [])
