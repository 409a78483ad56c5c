"""Memory of outputs goes from one shape to the next, but never from under somebody who has it."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import DeviceMemoryError
from polydevice.memory_budget import MemoryBudget
from polydevice.runtime.spare_memory import LEAST_BYTES, MARGIN, MOST_BYTES, WASTE, SpareMemory
from tests.cpu.models import build

F, U8 = np.dtype(np.float32), np.dtype(np.uint8)
LARGE = 1 << 20


def spare(limit=0):
    budget = MemoryBudget(0, "this test")
    if limit:
        budget.limit_bytes = limit
    return SpareMemory(budget), budget


def whole(size):
    """What is allocated for so much."""
    return size + size // MARGIN


def place(array):
    return array.__array_interface__["data"][0]


def test_what_nobody_has_serves_again():
    memory, budget = spare()
    array = memory.array((256, 1024), F, "it")
    assert array.shape == (256, 1024) and array.dtype == F and array.flags.writeable
    assert array.flags.c_contiguous and budget.used_bytes == whole(LARGE)
    array[...] = 1
    at = place(array)
    del array
    again = memory.array((LARGE // 2,), U8, "it")
    assert place(again) == at and budget.used_bytes == whole(LARGE)
    del again
    again = memory.array((whole(LARGE),), U8, "it")
    assert place(again) == at
    assert place(memory.array((LARGE,), U8, "it")) != at


@pytest.mark.parametrize("view", [
    lambda x: x[3:, ::2], lambda x: x.T, lambda x: x.view(np.int32), memoryview,
    lambda x: np.ndarray((4,), F, x), lambda x: np.frombuffer(x, F), np.from_dlpack,
    lambda x: x.reshape(-1)[:1],
], ids=range(8))  # fmt: skip
def test_what_somebody_has_a_part_of_does_not(view):
    memory, _ = spare()
    array = memory.array((256, 1024), F, "it")
    array[...] = 7
    part, at = view(array), place(array)
    del array
    other = memory.array((256, 1024), F, "it")
    other[...] = 0
    assert place(other) != at
    assert (np.asarray(part).view(F) == 7).all()
    del part, other
    assert at in {place(each) for each in [memory.array((LARGE,), U8, "it") for _ in range(2)]}


def test_the_smallest_that_suits_is_taken_and_the_largest_that_does_not_goes():
    memory, budget = spare()
    arrays = [memory.array((size * LARGE,), U8, "it") for size in (1, 4, 2)]
    one, _, two = map(place, arrays)
    arrays.clear()
    held = memory.array((whole(LARGE) + 1,), U8, "it")
    assert place(held) == two
    assert place(memory.array((LARGE - 1,), U8, "it")) == one
    assert budget.used_bytes == 7 * whole(LARGE)
    larger = memory.array((5 * LARGE,), U8, "it")
    assert larger.nbytes == 5 * LARGE
    assert budget.used_bytes == 8 * whole(LARGE)  # 1, 2 and 5


def test_neither_small_arrays_nor_much_more_memory_than_needed():
    memory, budget = spare()
    small = memory.array((LEAST_BYTES - 1,), U8, "it")
    assert small.flags.owndata
    large = memory.array((LEAST_BYTES * WASTE,), U8, "it")
    at = place(large)
    del large
    assert place(memory.array((LEAST_BYTES,), U8, "it")) != at
    del small
    huge = memory.array((MOST_BYTES + 1,), U8, "it")
    assert huge.flags.owndata
    del huge
    kept = [memory.array((MOST_BYTES // 2,), U8, "it") for _ in range(3)]
    kept.clear()
    assert budget.used_bytes <= MOST_BYTES


def test_what_is_spare_gives_way_to_what_needs_memory():
    memory, budget = spare(5 * LARGE)
    first, second = (memory.array((2 * LARGE,), U8, "it") for _ in range(2))
    del first, second
    array = memory.array((4 * LARGE,), U8, "it")
    assert budget.used_bytes == whole(4 * LARGE)
    with pytest.raises(DeviceMemoryError, match="another needs"):
        memory.array((2 * LARGE,), U8, "another")
    del array
    assert budget.used_bytes == whole(4 * LARGE)
    memory.close()
    assert not budget.used_bytes


def test_nothing_is_kept_where_memory_is_limited():
    budget = MemoryBudget(10 * LARGE, "this test")
    memory = SpareMemory(budget)
    memory.array((LARGE,), U8, "it")
    assert not budget.used_bytes


def test_nothing_stays_behind_it():
    memory, budget = spare()
    array = memory.array((LARGE,), U8, "it")
    gone = weakref.ref(memory)
    del memory
    assert gone() is None
    array[...] = 3
    assert budget.used_bytes == whole(LARGE)
    del array
    assert not budget.used_bytes


def test_arrays_that_other_threads_let_go_of():
    memory, budget = spare()
    wrong, threads = [], []

    def hold(array, number):
        if (array != number).any():
            wrong.append(number)

    for number in range(200):
        array = memory.array((LEAST_BYTES * (1 + number % 5),), U8, "it")
        array[...] = number
        thread = threading.Thread(target=hold, args=(array, number))
        threads.append(thread)
        thread.start()
        del array
        if number % 3 == 0:
            thread.join()
    for thread in threads:
        thread.join()
    assert not wrong
    assert budget.used_bytes <= MOST_BYTES


@pytest.mark.parametrize("kind", ["Exp", "Det"])
def test_answers_that_are_kept_stay_and_others_make_room(kind):
    """Of NumPy's steps and of others, of more than stays with the plan of its shapes."""
    model = build([(kind, ["x"], ["y"], {})], {"x": ["n", 2, 2]}, ["y"], {})
    rng, items = np.random.default_rng(1), 70_000 if kind == "Exp" else 280_000
    with Core() as core:
        request = core.load_network(core.read_network(model), "CPU").create_infer_request()

        def infer(count):
            x = rng.normal(size=(count, 2, 2)).astype(np.float32)
            want = np.exp(x) if kind == "Exp" else np.linalg.det(x)
            return want, request.infer([x])["y"]

        kept = [infer(items + number) for number in range(6)]
        places = set()
        for number in range(6):
            want, got = infer(items + 10_000 + number)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
            places.add(place(got))
            del got
        for want, got in kept:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert len(places) <= 3
