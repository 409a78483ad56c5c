"""Layouts against NumPy's strides, and the arena against its own definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polydevice.dtype import ElementType
from polydevice.runtime.arena import Life
from polydevice.symbolic_trace import tracing
from polydevice_gpu.graph import Memory, Place
from polydevice_gpu.layout import (
    Layout,
    broadcast,
    channels_last,
    collapse,
    planar,
    reshaped,
    sliced,
    transposed,
)
from polydevice_gpu.passes.placing.plan_memory import place


def look(data: np.ndarray, layout: Layout, shape: tuple[int, ...]) -> np.ndarray:
    """Read elements by the layout's own arithmetic."""
    result = np.empty(shape, data.dtype)
    for index in np.ndindex(*shape):
        at = layout.offset + sum(i * p for i, p in zip(index, layout.pitches, strict=True))
        result[index] = data[at]
    return result


def test_names():
    assert planar((2, 3, 4, 5)).named((2, 3, 4, 5)) == "bfyx"
    assert channels_last((2, 3, 4, 5)).named((2, 3, 4, 5)) == "byxf"
    assert transposed(planar((2, 3)), (1, 0)).named((3, 2)) == "strided"


def test_views_read_what_numpy_reads():
    data = np.arange(120)
    x = data.reshape(2, 3, 4, 5)
    layout = planar(x.shape)
    turned = transposed(layout, (2, 0, 3, 1))
    assert np.array_equal(look(data, turned, (4, 2, 5, 3)), x.transpose(2, 0, 3, 1))
    part = sliced(layout, (1, 2, 3, 4), (-1, -2, -1, -2))
    assert np.array_equal(look(data, part, (2, 2, 4, 3)), x[::-1, ::-2, ::-1, ::-2])
    row = broadcast(planar((3, 1, 1)), (3, 1, 1), (2, 3, 4, 5))
    wanted = np.broadcast_to(np.arange(3).reshape(3, 1, 1), (2, 3, 4, 5))
    assert np.array_equal(look(np.arange(3), row, (2, 3, 4, 5)), wanted)


@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
    cuts=st.lists(st.sampled_from([1, 2, 3]), max_size=3),
)
def test_reshaped_is_right_or_refuses(sizes, order, cuts):
    axes = list(range(len(sizes)))
    order.shuffle(axes)
    data = np.arange(int(np.prod(sizes)))
    layout = transposed(planar(sizes), axes)
    shape = tuple(sizes[a] for a in axes)
    target, rest = [], data.size
    for size in cuts:
        if rest % size == 0:
            target.append(size)
            rest //= size
    target = (*target, rest)
    found = reshaped(layout, shape, target)
    wanted = data.reshape(sizes).transpose(axes).reshape(target)
    if found is not None:
        assert np.array_equal(look(data, found, target), wanted)
    elif axes == sorted(axes):
        raise AssertionError("a planar value can always be reshaped")


@settings(max_examples=150)
@given(
    axes=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=4),
    other=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    joined=st.lists(st.booleans(), min_size=4, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_layouts_of_sizes_that_vary_serve_other_sizes_and_1(axes, other, joined, order):
    """Where all guards hold, what was decided for sizes is right for others."""
    places = list(range(len(axes)))
    order.shuffle(places)
    varies = [place for place, (_, is_open) in enumerate(axes) if is_open]

    def shapes(sizes):
        """A shape, the shape of its transpose, and that with some neighbours joined."""
        shape = tuple(sizes[place] for place in places)
        target = [shape[0]]
        for size, join in zip(shape[1:], joined, strict=False):
            target[-1:] = [target[-1] * size] if join else [target[-1], size]
        return tuple(sizes), shape, tuple(target)

    with tracing() as trace:
        sizes = [trace.input(size) if is_open else size for size, is_open in axes]
        whole, shape, target = shapes(sizes)
        layout = transposed(planar(whole), places)
        found = reshaped(layout, shape, target)
        is_dense = layout.is_dense(shape)
        groups = collapse(list(zip(shape, layout.pitches, strict=True)))
        wide = broadcast(Layout((0, *layout.pitches)), (1, *shape), (3, *shape))
        formulas = trace.formulas(
            [() if found is None else found.pitches, *wide.pitches, *(p for g in groups for p in g)]
        )
    numbers = [size for size, _ in axes]
    for axis, size in zip(varies, other, strict=False):
        numbers[axis] = size
    filled = formulas([numbers[axis] for axis in varies])
    if filled is None:
        return
    whole, shape, target = shapes(numbers)
    (pitches, *rest), _ = filled
    data = np.arange(int(np.prod(whole)))
    wanted = data.reshape(whole).transpose(places)
    if found is not None:
        seen = look(data, Layout(pitches), target)
        assert np.array_equal(seen, wanted.reshape(target))
    if is_dense:
        assert transposed(planar(whole), places).is_dense(shape)
    wide, rest = Layout(tuple(rest[: len(shape) + 1])), rest[len(shape) + 1 :]
    assert np.array_equal(look(data, wide, (3, *shape)), np.broadcast_to(wanted, (3, *shape)))
    blocks = Layout(tuple(rest[1::2]))
    assert np.array_equal(look(data, blocks, tuple(rest[::2])).reshape(-1), wanted.reshape(-1))


@settings(max_examples=60)
@given(
    pieces=st.lists(
        st.tuples(st.integers(1, 500), st.integers(0, 9), st.integers(0, 5)), min_size=1
    )
)
def test_what_lives_at_the_same_time_does_not_overlap(pieces):
    lives = {
        Memory(Place.ARENA, size, ElementType.f32): Life(first, first + length, 4 * size)
        for size, first, length in pieces
    }
    plan = place(lives)
    assert plan.size_bytes <= plan.sum_bytes
    for memory, life in lives.items():
        assert memory.bytes <= plan.blocks[plan.places[memory]]
        for other, their in lives.items():
            together = life.first <= their.last and their.first <= life.last
            if memory is not other and together:
                assert plan.places[memory] != plan.places[other]
