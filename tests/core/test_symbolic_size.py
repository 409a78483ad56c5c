"""Sizes with formulas: what was made with them is what other sizes would have made, or nothing."""

from __future__ import annotations

import itertools
import math
import operator
import random

import numpy as np
import pytest

from polydevice.errors import InternalError
from polydevice.ops.slice import resolved, sliced_size
from polydevice.ops.window import cached_window
from polydevice.shape import (
    Shape,
    all_happen_to_be_equal,
    all_stay_equal,
    are_same,
    broadcast,
    broadcast_dim,
    happen_to_be_equal,
    is_one,
    places_in_order,
    stay_equal,
)
from polydevice.symbolic_size import (
    UntraceableError,
    array_of,
    is_formula,
    is_symbolic,
    mentions_sizes,
    unlike,
    whole,
    written,
)
from polydevice.symbolic_trace import Otherwise, chosen, settled, tracing

OPERATORS = {
    "*": operator.mul,
    "-": operator.sub,
    "//": operator.floordiv,
    "%": operator.mod,
    "neg": lambda a, _: -a,
}


def convolution(height, width):
    """Sizes of a window's result, by a path that depends on them."""
    rows, columns = (height + 2 - 3) // 2 + 1, -(-width // 4)
    if rows * columns % 16 == 0:
        return [rows, columns, 16, 0.0]
    return [max(rows, columns), min(rows, 7), rows.bit_length(), rows / columns]


def layout(height, width):
    """Pitches in the order of another's, and what uses sizes as numbers."""
    pitches = sorted([(height * width, 0), (width, 1), (7, 2)], reverse=True)
    table = np.arange(width // 32 + 1) * 3  # serves one size only
    return [math.prod((2, height, width)), *(p for p, _ in pitches), int(table[-1]), abs(3 - width)]


def rounded(height, width):
    """Numbers of NumPy, and all other kinds of arithmetic."""
    small = np.float32(height) * np.float32(1.7)
    return [
        (-2) ** (width % 5), math.ceil(height / 8), math.floor(width / -3), height << 2, width >> 1,
        np.int64(5) + height, np.float64(0.1) * width, int(small), height & 12, divmod(width, 9)[0],
        int(np.float32(1.7) * height), np.int32(300) // height, bool(np.int64(60) < width),
        bool(np.uint8(9) == height), np.true_divide(width, 4), {40: 1, 41: 2}.get(height, 0),
        len(range(0, width, 24)), bool(width - 90), ~height,
    ]  # fmt: skip


@pytest.mark.parametrize("function", [convolution, layout, rounded])
def test_formulas_give_what_other_sizes_give(function):
    rng = random.Random(7)
    filled = 0
    for _ in range(30):
        with tracing() as trace:
            own = [rng.randrange(33, 130) for _ in range(2)]
            formulas = trace.formulas(function(*map(trace.input, own)))
        assert formulas(own) == (function(*own), [])
        for _ in range(40):
            other = [
                own[0] if rng.random() < 0.5 else rng.randrange(33, 130),
                rng.randrange(1, 130),
            ]
            found = formulas(other)
            if found is not None:
                filled += 1
                assert found == (function(*other), [])
                both = found[0], function(*other)
                kinds = [[np.asarray(x).dtype.kind for x in each] for each in both]
                assert kinds[0] == kinds[1]
    assert filled >= 3


def test_tuples_that_are_alike_are_made_once():
    with tracing() as trace:
        size, other = trace.input(3), trace.input(4)
        shape = (size, 8, other)
        formulas = trace.formulas([(shape, 2), (size, 8, other), (other, 8, size), (5, 6)])
    found, _ = formulas([30, 40])
    assert found == [((30, 8, 40), 2), (30, 8, 40), (40, 8, 30), (5, 6)]
    assert found[0][0] is found[1]


def test_what_serves_1_as_well_guards_nothing():
    with tracing() as trace:
        size, other = trace.input(1), trace.input(1)
        assert not is_one(size)
        assert is_one(1)
        assert are_same((size, 3), (size, 3))
        assert not are_same((size, 3), (1, 3))
        assert not are_same((size,), (size, 3))
        assert broadcast(Shape([size, 3]), Shape([1, 3])) == (size, 3)
        formulas = trace.formulas([size << other])
    assert formulas([5, 2]) == ([20], [])
    with tracing() as trace:
        assert are_same((trace.input(4),), (trace.input(4),))
        formulas = trace.formulas([])
    assert formulas([5, 5]) == ([], [])
    assert formulas([5, 6]) is None


def test_numbers_that_happen_to_be_equal_are_noted_and_others_are_not():
    with tracing() as trace:
        size, other = trace.input(5), trace.input(3)
        assert not happen_to_be_equal(size, other)
        assert not all_happen_to_be_equal([size, size], [size, other])
        assert happen_to_be_equal(size - other, 2)
        assert broadcast_dim(size, other + 2) is size
        formulas = trace.formulas([size])
    assert formulas([5, 3]) == ([5], [])
    assert formulas([4, 2]) == ([4], [])
    assert formulas([1, -1]) == ([1], [])  # one that is 1 is broadcast to another that is
    assert formulas([4, 4]) is None


def test_numbers_that_are_equal_by_chance_count_as_others():
    with tracing() as trace:
        batch, size, other = trace.input(1), trace.input(5), trace.input(3)
        assert not stay_equal(size * batch, size)
        assert not stay_equal(size - other, 2)
        assert not all_stay_equal([size, other], [size, 3])
        assert not are_same([size, other + 2], [size, size])
        assert stay_equal(size * 4 // 2, size + size)
        assert all_stay_equal([size, other + 1], [size, other * 2 - other + 1])
        formulas = trace.formulas([size])
    assert formulas([1, 5, 3]) == formulas([2, 5, 4]) == ([5], [])
    with tracing() as trace:
        size = trace.input(5)
        assert size == 5  # of which alone the rest is said
        assert stay_equal(size, 5)


def test_what_cannot_be_computed_elsewhere_is_equal_where_it_is():
    with tracing() as trace:
        size, same = trace.input(7), trace.input(7)
        assert stay_equal(size, same)
        assert (60 // (19 - size), 60 // (19 - same)) == (5, 5)  # 60 // 0 there
        assert stay_equal(120 // (19 - size), 10)


LIMITS = [None, -100, -8, -7, -3, -1, 0, 1, 5, 7, 8, 100]


@pytest.mark.parametrize("step", [-1, -2, -5, 1, 3])
@pytest.mark.parametrize("size", [1, 7, 8])
def test_slices_of_sizes_either_way(size, step):
    """What Python takes, for these sizes and for others that the formulas serve."""
    others = 0
    for start, stop in itertools.product(LIMITS, LIMITS):
        taken = slice(start, stop, step)
        with tracing() as trace:
            axis = trace.input(size)
            found, count = resolved(taken, axis), sliced_size(axis, taken)
            formulas = trace.formulas([count, found.start, found.stop])
        for other in range(1, 12):
            filled = formulas([other])
            assert filled or other != size
            if filled:
                (number, first, last), _ = filled
                start_ = 0 if step < 0 and start is not None and start < -other else start
                wanted = list(range(other))[slice(start_, stop, step)]
                assert list(range(other))[slice(first, last, found.step)] == wanted
                assert number == len(wanted)
                others += other != size
    assert others > 200


def test_nothing_is_noted_of_a_number_that_is_unlike_others():
    with tracing() as trace:
        size = trace.input(5)
        pitch = unlike(size * 3, 0, 1)
        assert (pitch == 1, pitch != 0, pitch in (0, 1), bool(pitch)) == (False, True, False, True)
        assert unlike(trace.input(1), 0, 1) == 1  # which is noted
        assert unlike(7, 7) == 7
        assert pitch + 0 == 15
        formulas = trace.formulas([pitch, size])
    assert formulas([5, 1]) == ([15, 5], [])
    assert formulas([5, 2]) is None
    with tracing() as trace:
        pitch = unlike(trace.input(5), 0, 1)
        assert pitch not in (0, 1)
        assert pitch != 2
        formulas = trace.formulas([pitch])
    assert formulas([1]) == ([1], [])
    assert formulas([2]) is None  # any other comparison is noted


def test_sizes_in_order_serve_sizes_that_become_equal():
    with tracing() as trace:
        sizes = [trace.input(7), trace.input(2), trace.input(2), 4]
        assert places_in_order(sizes) == [1, 2, 3, 0]
        formulas = trace.formulas([])
    assert formulas([4, 4, 4]) == ([], [])
    assert formulas([9, 1, 3]) == ([], [])
    assert formulas([9, 3, 1]) is None
    assert formulas([3, 2, 2]) is None


def test_shifts_in_choices_that_are_others_stop_nothing():
    with tracing() as trace:
        size = trace.input(40)
        with trace.choice() as number:
            tile = 1 << max(size.bit_length() - 2, 0)
        formulas = trace.formulas([size + tile])
    assert formulas([40]) == ([56], [])
    assert formulas([1])[1] == number


@pytest.mark.parametrize(
    "function",
    [
        lambda size: np.clip([1, 20], 0, size - 1),
        lambda size: np.arange(3) * size,
        lambda size: size * np.arange(3),
        lambda size: np.maximum(size, 3),
        lambda size: np.add.reduce([size, size]) and np.sqrt(size),
    ],
)
def test_what_numpy_makes_of_sizes_has_no_formula(function):
    with tracing() as trace, pytest.raises(UntraceableError, match="NumPy's .* is not for sizes"):
        function(trace.input(12))


def test_texts_name_sizes_until_they_decide_something():
    with tracing() as trace:
        size = trace.input(12)
        text = f"rows of {size * 2:>9} and {size}"
        assert mentions_sizes(text)
        assert [written(text, {s.name: n for s, n in zip(trace.named_in(text), (8, 4), strict=True)}
                        .__getitem__)] == ["rows of 8 and 4"]  # fmt: skip
        assert settled(text) == "rows of 24 and 12"
        formulas = trace.formulas([size + 1])
    assert str(size) == "12"
    assert formulas([12]) == ([13], [])
    assert formulas([13]) is None


def test_shapes_and_arrays_keep_formulas():
    with tracing() as trace:
        size = trace.input(5)
        shape = Shape([2, size, np.int64(3)])
        assert shape.is_static
        assert isinstance(size, int)
        array = array_of([size, 3], np.int64)
        assert is_formula(array)
        assert not is_formula(np.array(["a", 3], object))
        assert is_symbolic(whole(array[0]))
        assert array_of([4, 3], np.int64).dtype == np.int64
        formulas = trace.formulas([shape.elements])
    assert formulas([7]) == ([42], [])
    assert size + 1 == 6  # a plain number from now on
    assert type(size + 1) is int
    with tracing() as trace:
        zero = trace.formulas([10 // trace.input(5)])
    assert zero([0]) is None


def test_choices_that_may_be_others_are_told():
    def cost(way, size):
        return max(5.0, size * 0.25) if way else 3 + size / 8

    def best(size):
        return min((0, 1), key=lambda way: cost(way, size))

    with tracing() as trace:
        size = trace.input(12)
        with trace.choice() as first:
            chosen = best(size * 2)
        with trace.choice() as again:
            assert best(size * 2) == chosen
        with trace.choice() as other:
            best(size * 3)
        with trace.choice() as none:
            assert best(7) == 0
        formulas = trace.formulas([size * 2])
    assert first == again != other
    assert none == []
    assert formulas([12]) == ([24], [])
    for number in range(1, 90):
        result, others = formulas([number])
        assert result == [number * 2]
        assert best(number * 2) == chosen or others[0] == first[0]


def test_what_is_chosen_among_right_ways_guards_nothing():
    with tracing() as trace:
        size = trace.input(5)
        assert chosen(lambda: size < 7)
        assert chosen(lambda: max((size, "five"), (4, "four"))[1]) == "five"
        formulas = trace.formulas([size + 1])
    assert formulas([6]) == ([7], [])
    assert formulas([9]) == ([10], [0])
    assert formulas([3]) == ([4], [1])
    assert chosen(lambda: 3) == 3  # where nothing is noted


def test_what_a_function_answers_is_asked_again_for_other_sizes():
    with tracing() as trace:
        size = trace.input(6)
        rest = trace.outcome(lambda n, by: n % by, (size, 4))
        formulas = trace.formulas([(size * 2, (1, size)), rest])
    assert rest == 2
    assert formulas([10]) == ([(20, (1, 10)), 2], [])
    assert formulas([11]) is None


def test_a_size_equals_itself_whatever_it_is():
    with tracing() as trace:
        size = trace.input(6)
        assert size == size
        assert size <= size
        assert not size < size
        assert not trace.steps


def test_sizes_of_two_traces_are_not_mixed():
    with tracing() as earlier:
        kept = earlier.input(3)
    with tracing() as trace:
        size = trace.input(3)
        for compute in (lambda: size + kept, lambda: kept + size, lambda: kept < size):
            with pytest.raises(InternalError, match="kept longer"):
                compute()
    assert size + kept == 6  # both are plain numbers by now


def test_windows_of_symbolic_kernels_are_not_kept():
    found = []
    for given in (3, 3, 5):
        with tracing() as trace:
            size = trace.input(given)
            window = cached_window((size, 2), (1, 2), (2, 1), (0, 0), (0, 0))
            formulas = trace.formulas([extent * size for extent in window.extent])
        found.append(formulas([7]))
    assert found == [([91, 14], [])] * 3
    assert cached_window((3, 2), (1, 2)) is cached_window((3, 2), (1, 2))


def test_sums_with_numbers_are_summed_up():
    with tracing() as trace:
        size = trace.input(7)
        same = (size + 1 + 1 - 3) // 1 + 1
        assert same is size
        assert 1 * (2 + size - 2) is size
        half = (size + 1 + 1 - 3) // 2 + 1
        assert (half + 3) * 1 - 3 is half
        assert not half + 2 < 3
        assert half - 1 >= 1
        assert size + 3 == 10 - 0 * half
        before = list(trace.steps)
        assert type(size + 5 - (size + 1)) is int
        assert size + 5 - (size + 1) == 4
        assert size + 1 < size + 2
        assert size + 1 != size - 1
        assert all(" = s0 + " in step for step in trace.steps[len(before) :])  # no guard
        formulas = trace.formulas([same, half, half + 2, 5 - size, size + True])
    assert formulas([7]) == ([7, 4, 6, -2, 8], [])
    assert formulas([9]) is None  # size + 3 == 10
    with tracing() as trace:
        third = trace.input(9) / 3 + 1  # no whole number
        formulas = trace.formulas([third, third - 1])
    assert formulas([10]) == ([10 / 3 + 1, 10 / 3 + 1 - 1], [])


@pytest.mark.parametrize("seed", range(20))
def test_sums_and_comparisons_of_shifted_sizes(seed):
    """Formulas of random sums give for other sizes what the same arithmetic gives."""
    chosen = random.Random(seed)
    steps = [(chosen.choice("+-r*/"), chosen.randint(-2, 3)) for _ in range(12)]
    limits = [(chosen.choice(("<", "<=", ">", ">=", "==")), chosen.randint(-5, 9)) for _ in steps]

    def made(size):
        numbers, holds = [], []
        for (how, by), (symbol, limit) in zip(steps, limits, strict=True):
            if how == "/":
                size = size // max(by, 1)
            else:
                size = {"+": size + by, "-": size - by, "r": by - size, "*": size * by}[how]
            numbers.append(size)
            holds.append(_COMPARED[symbol](size, limit))
        return numbers, holds

    with tracing() as trace:
        numbers, _ = made(trace.input(5))
        formulas = trace.formulas(numbers)
    expected = made(5)
    assert formulas([5]) == (expected[0], [])
    for other in range(-3, 12):
        wanted = made(other)
        found = formulas([other])
        assert found == (None if wanted[1] != expected[1] else (wanted[0], []))


_COMPARED = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
}  # fmt: skip


def test_products_in_any_order_are_one_size():
    with tracing() as trace:
        n, m = trace.input(3), trace.input(5)
        made = (n * 4) * m * 32, n * (m * 128), -(-(m * n * 128) // 64) * 64, 0 - (0 - n * m) * 128
        assert all(is_symbolic(size) and size.name == made[0].name for size in made)
        assert [made[0] == size for size in made] == [True] * 4
        assert (made[0] % 64, made[0] // 128 == n * m, n * 0) == (0, True, 0)
        assert made[0] != 0 and made[0] > 0  # as both are: one guard each
        quotient, rest = made[0] // 100, made[0] % 100
    formulas = trace.formulas([made[0], quotient, rest])
    assert formulas([3, 5]) == ([1920, 19, 20], [])
    assert formulas([7, 2]) == ([1792, 17, 92], [])
    assert formulas([0, 5]) is None and formulas([-7, -2]) is None


@pytest.mark.parametrize("seed", range(20))
def test_products_and_quotients_are_what_numbers_give(seed):
    draw = random.Random(seed)

    def compute(*sizes):
        found = list(sizes)
        for a, b, symbol in chosen_ways:
            other = b if symbol in ("//", "%") else found[b % len(found)]
            found.append(OPERATORS[symbol](found[a % len(found)], other))
        return found

    chosen_ways = [
        (draw.randrange(99), draw.choice((2, 3, 4, 16, -4)), draw.choice(list(OPERATORS)))
        for _ in range(30)
    ]
    given = [draw.randint(-9, 9) for _ in range(3)]
    with tracing() as trace:
        made = compute(*map(trace.input, given))
    formulas = trace.formulas(made)
    for sizes in (given, *([draw.randint(-50, 50) for _ in range(3)] for _ in range(20))):
        assert formulas(sizes) == (compute(*sizes), [])


def test_what_a_choice_seldom_wants_is_computed_where_it_may_be_another_one():
    with tracing() as trace:
        n, m = trace.input(3), trace.input(5)
        with trace.choice() as large:
            assert n < 8
        with trace.choice() as odd:
            assert m % 2 == 1
        wanted = (n, (n * m, 7), (m + n) // 2)
        first, second = Otherwise(large[0], wanted), Otherwise(odd[0], (n, m))
        third = Otherwise(large[0], m - n)
    formulas = trace.formulas([n, first, (n, m), second, third])
    assert formulas([3, 5]) == ([3, None, (3, 5), None, None], [])
    assert formulas([9, 5]) == ([9, (9, (45, 7), 7), (9, 5), None, -4], large)
    assert formulas([4, 6]) == ([4, None, (4, 6), (4, 6), None], odd)
    assert formulas([9, 6]) == ([9, (9, (54, 7), 7), (9, 6), (9, 6), -3], [*large, *odd])
