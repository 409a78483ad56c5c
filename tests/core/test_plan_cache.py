"""Plans by shapes: what is kept, what goes first, and from several threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from polydevice.errors import DeviceMemoryError, NetworkError
from polydevice.memory_budget import MemoryBudget
from polydevice.runtime.plan_cache import LEAST_BYTES, Bindings, PlanCache, plans_limit


@dataclass(eq=False)
class Made:
    number: int
    held_bytes: int = LEAST_BYTES


def maker(made: list[int], number: int, size: int = LEAST_BYTES):
    def make() -> Made:
        made.append(number)
        return Made(number, size)

    return make


def test_shapes_that_fit_are_made_once_in_any_order_of_turns() -> None:
    cache, made = PlanCache[Made](30 * LEAST_BYTES), []
    for turn in range(4):
        for number in range(30)[:: 1 if turn % 2 else -1]:
            assert cache.get(((number,),), maker(made, number)).number == number
    assert sorted(made) == list(range(30))
    assert cache.used_bytes == 30 * LEAST_BYTES


def test_what_was_used_longest_ago_goes_first() -> None:
    cache, made = PlanCache[Made](3 * LEAST_BYTES), []
    for number in (0, 1, 2, 0, 3):
        cache.get(((number,),), maker(made, number))
    assert [plan.number for plan in cache.plans()] == [2, 0, 3]
    assert cache.latest() is cache.plans()[-1]
    cache.get(((1,),), maker(made, 1))
    assert made == [0, 1, 2, 3, 1]


def test_a_better_plan_takes_the_place_of_one_that_is_still_kept() -> None:
    cache, made = PlanCache[Made](2 * LEAST_BYTES), []
    plans = [cache.get(((number,),), maker(made, number)) for number in range(3)]
    cache.remake(((0,),), plans[0], maker(made, 10))  # gone: nothing is made
    cache.remake(((1,),), plans[1], maker(made, 11, LEAST_BYTES + 5))
    cache.remake(((1,),), plans[1], maker(made, 12))  # it is another one now
    with pytest.raises(NetworkError, match="no"):
        cache.remake(((2,),), plans[2], failing)
    assert made == [0, 1, 2, 11]
    assert [plan.number for plan in cache.plans()] == [11, 2]
    assert cache.used_bytes == 2 * LEAST_BYTES + 5


def failing() -> Made:
    raise NetworkError("no")


def test_large_plans_push_out_several_and_the_latest_stays_however_large() -> None:
    cache, made = PlanCache[Made](4 * LEAST_BYTES), []
    for number in range(4):
        cache.get(((number,),), maker(made, number))
    cache.get(((8,),), maker(made, 8, 3 * LEAST_BYTES))
    assert [plan.number for plan in cache.plans()] == [3, 8]
    cache.get(((9,),), maker(made, 9, 100 * LEAST_BYTES))
    assert [plan.number for plan in cache.plans()] == [9]
    assert cache.used_bytes == 100 * LEAST_BYTES
    cache.clear()
    assert (cache.latest(), cache.used_bytes) == (None, 0)


def test_small_plans_count_enough_for_their_number_to_be_bounded() -> None:
    cache, made = PlanCache[Made](8 * LEAST_BYTES), []
    for number in range(1000):
        cache.get(((number,),), maker(made, number, 1))
    assert len(cache.plans()) == 8


def test_a_plan_that_cannot_be_made_leaves_the_others() -> None:
    cache, made = PlanCache[Made](9 * LEAST_BYTES), []
    cache.get(((1,),), maker(made, 1))

    def refuse() -> Made:
        raise NetworkError("no")

    with pytest.raises(NetworkError):
        cache.get(((2,),), refuse)
    assert [plan.number for plan in cache.plans()] == [1]


def test_where_memory_is_short_the_others_make_room() -> None:
    cache, made = PlanCache[Made](9 * LEAST_BYTES), []
    for number in range(3):
        cache.get(((number,),), maker(made, number))

    def large() -> Made:
        if cache.plans():
            raise DeviceMemoryError("no room")
        return Made(7)

    assert cache.get(((7,),), large).number == 7
    assert [plan.number for plan in cache.plans()] == [7]

    def too_large() -> Made:
        raise DeviceMemoryError("never")

    with pytest.raises(DeviceMemoryError, match="never"):
        cache.get(((8,),), too_large)


def test_a_known_plan_is_found_while_another_is_made() -> None:
    cache, made = PlanCache[Made](9 * LEAST_BYTES), []
    cache.get(((1,),), maker(made, 1))
    begun, gate, results = threading.Event(), threading.Event(), []

    def slow() -> Made:
        begun.set()
        gate.wait(60)
        return maker(made, 2)()

    threads = [
        threading.Thread(target=lambda: results.append(cache.get(((2,),), slow))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    begun.wait(60)
    assert cache.get(((1,),), maker(made, 1)).number == 1  # would hang
    gate.set()
    for thread in threads:
        thread.join(60)
    assert made == [1, 2]
    assert results[0] is results[1]


def test_requests_bind_no_longer_than_the_network_keeps() -> None:
    cache, made = PlanCache[Made](3 * LEAST_BYTES), []
    bindings = Bindings[Made, Made](cache, 10 * LEAST_BYTES)
    for number in range(6):
        plan = cache.get(((number,),), maker(made, number))
        bound = bindings.get(plan, lambda number=number: Made(number))
        assert bindings.get(plan, lambda: pytest.fail("bound already")) is bound
    assert len(bindings) == 3


def test_what_is_bound_has_a_limit_of_its_own() -> None:
    cache, made = PlanCache[Made](30 * LEAST_BYTES), []
    bindings = Bindings[Made, Made](cache, 1000)
    for number in range(6):
        plan = cache.get(((number,),), maker(made, number))
        bindings.get(plan, lambda number=number: Made(number, 400))
    assert len(bindings) == 2

    def large() -> Made:
        if len(bindings):
            raise DeviceMemoryError("no room")
        return Made(9, 5000)

    assert bindings.get(cache.get(((9,),), maker(made, 9)), large).number == 9
    assert len(bindings) == 1


def test_the_limit_follows_what_the_network_may_use() -> None:
    assert plans_limit(MemoryBudget(160 << 20, "a network")) == 10 << 20
    assert plans_limit(MemoryBudget(1 << 40, "a network")) == 512 << 20
