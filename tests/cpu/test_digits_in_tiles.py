"""Numbers of 16 bits times weights of 8 as digits in AMX tiles: code beside guard pages."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.amx import layer
from polydevice_cpu.algorithms.by_machine.amx.digits import Digits
from polydevice_cpu.algorithms.by_machine.amx.rooms import rooms
from polydevice_cpu.algorithms.by_machine.indexed.levels import Grid
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.machine_code import drawn_windows, with_tiles_of_bytes
from tests.guard_pages import SIDES, guarded

pytestmark = with_tiles_of_bytes

GRIDS = [Grid(3e-3, 0, -32768), Grid(2e-5, 0, 0), Grid(0.7, 65535, 0), Grid(0.02, -777, -32768)]


def layer_of(grid, weights, factors, bias=None, links=()):
    """A layer with weights [results, channels]."""
    packed = layer.packed(weights.T[np.newaxis, np.newaxis], 0, weights)
    return Digits.of(grid, packed, factors, bias, links)


def placed(side, array):
    """A copy of an array, beside a page without access."""
    copy = guarded(side, array.nbytes).view(array.dtype)
    copy[...] = array.reshape(-1)
    return copy


def compared(rng, grid, sizes, *, threads=1, side="after", levels=None):
    """Compute a layer of some positions, channels and results; compare it with sums in 64 bits."""
    positions, channels, results = sizes
    if levels is None:
        levels = rng.integers(grid.least, grid.least + 65536, (positions, channels))
    x = (levels - grid.zero).astype(np.float32) * np.float32(grid.scale)
    weights = rng.integers(-128, 128, (results, channels)).astype(np.int8)
    factors = rng.uniform(1e-4, 1e-2, results).astype(np.float32)
    bias = rng.normal(size=results).astype(np.float32) if rng.random() < 0.5 else None
    added = rng.normal(size=(positions, results)).astype(np.float32)
    links = [(Function.LINEAR, 0.5, 1.0), (Function.ADD, 0.0, 0.0), (Function.RELU, 0.0, 0.0)]
    made = layer_of(grid, weights, factors, bias, links)
    code = made.code(positions, threads)
    if code is None:
        return False
    read = [placed(side, each) for each in (x, added, made.zero)]
    got = placed(side, np.full((positions, results), np.nan, np.float32))
    room = placed(side, np.zeros(made.room(positions), np.uint8))
    call = code.bound([address_of(each) for each in (*read, got, room)])
    exact = (levels - grid.zero) @ weights.T.astype(np.int64)
    scales = factors.astype(np.float64) * np.float32(grid.scale)
    sums = exact * scales + (0 if bias is None else bias)
    wanted = np.maximum(sums * 0.5 + 1 + added, 0)
    for _ in range(2):
        assert call() == 0
        # Some roundings of f32 of what is added up.
        bound = 4e-7 * (np.abs(exact * scales) + np.abs(added) + 3)
        assert (np.abs(got.reshape(wanted.shape) - wanted) <= bound).all()
    return True


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("positions", [1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 65, 200])
@pytest.mark.parametrize(("channels", "results"), [(4, 1), (64, 16), (68, 17), (65, 48), (130, 70)])
def test_digits_of_any_sizes(positions, channels, results, side):
    rng = np.random.default_rng(positions)
    for grid in GRIDS:
        assert compared(rng, grid, (positions, channels, results), side=side)


@pytest.mark.parametrize("threads", [1, 2])
def test_more_positions_than_a_cache_holds(threads):
    rng = np.random.default_rng(2)
    assert compared(rng, GRIDS[0], (5021, 512, 40), threads=threads)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("end", [0, 65535])
def test_sums_beyond_31_bits(grid, end):
    """All numbers at an end of the range, and weights whose products do not cancel."""
    rng = np.random.default_rng(3)
    levels = np.full((20, 3000), grid.least + end)
    weights = rng.integers(100, 128, (18, 3000)).astype(np.int8)
    weights[::2] *= -1
    made = layer_of(grid, weights, np.ones(18, np.float32))
    x = (levels - grid.zero).astype(np.float32) * np.float32(grid.scale)
    code = made.code(20, 1)
    assert code is not None
    got, room = np.empty((20, 18), np.float32), np.empty(made.room(20), np.uint8)
    zero = made.zero
    assert code.bound([address_of(each) for each in (x, x, zero, got, room)])() == 0
    exact = (levels - grid.zero) @ weights.T.astype(np.int64)
    np.testing.assert_allclose(got, exact * np.float64(np.float32(grid.scale)), rtol=3e-7)


def test_what_is_not_rounded_to_the_range_is_kept_within_it():
    """As rounding does: NaN to the least number, infinity to the ends."""
    grid = Grid(0.25, 5, -32768)
    x = np.zeros((3, 4), np.float32)
    x[0, 0], x[1, 1], x[2, 2] = np.nan, np.inf, -np.inf
    made = layer_of(grid, np.eye(4, dtype=np.int8), np.ones(4, np.float32))
    code = made.code(3, 1)
    assert code is not None
    got, room = np.empty((3, 4), np.float32), np.empty(made.room(3), np.uint8)
    zero = made.zero
    assert code.bound([address_of(each) for each in (x, x, zero, got, room)])() == 0
    least, most = 0.25 * (-32768 - 5), 0.25 * (32767 - 5)
    np.testing.assert_array_equal(got, [[least, 0, 0, 0], [0, most, 0, 0], [0, 0, least, 0]])


def exact_windows(levels, weights, windows, counts):
    """Sums in 64 bits of [N, H, W, C], which are 0 outside, and [rows, columns, C, O]."""
    (above, before), (height, width) = windows.pads, levels.shape[1:3]
    reach = [
        (size - 1) * (gap + 1) + 1 + (count - 1) * step
        for size, gap, count, step in zip(
            windows.sizes, windows.gaps, counts, windows.steps, strict=True
        )
    ]
    sizes = max(reach[0], above + height), max(reach[1], before + width)
    padded = np.zeros((len(levels), *sizes, levels.shape[-1]), np.int64)
    padded[:, above : above + height, before : before + width] = levels
    found = np.zeros((len(levels), *counts, weights.shape[-1]), np.int64)
    for place in np.ndindex(*windows.sizes):
        cuts = [
            slice(start := each * (gap + 1), start + (count - 1) * step + 1, step)
            for each, gap, count, step in zip(
                place, windows.gaps, counts, windows.steps, strict=True
            )
        ]
        found += padded[:, cuts[0], cuts[1]] @ weights[place].astype(np.int64)
    return found


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(60))
def test_digits_of_pictures(seed, side):
    rng = np.random.default_rng(seed)
    windows, sizes, counts = drawn_windows(rng)
    channels, results = int(rng.choice([1, 7, 30, 64, 65, 90])), int(rng.integers(1, 70))
    pictures, grid = int(rng.integers(1, 4)), GRIDS[seed % len(GRIDS)]
    compared_pictures(rng, grid, (pictures, *sizes, channels), results, windows, counts, side=side)


def compared_pictures(rng, grid, sizes, results, windows, counts, *, threads=1, side="after"):
    """Compute a layer of pictures and compare it with sums in 64 bits."""
    levels = rng.integers(0, 65536, sizes) - grid.moved
    x = levels.astype(np.float32) * np.float32(grid.scale)
    weights = rng.integers(-128, 128, (*windows.sizes, sizes[-1], results)).astype(np.int8)
    factors = rng.uniform(1e-4, 1e-2, results).astype(np.float32)
    packed = layer.packed(weights, windows.gaps[1], weights)
    made = Digits.of(grid, packed, factors, None, [(Function.ADD, 0.0, 0.0)])
    pictures, height, width, channels = sizes
    shape = pictures, results, *counts
    code = made.code_of_pictures((pictures, channels, height, width), shape, windows, threads)
    assert code is not None
    added = rng.normal(size=(pictures, *counts, results)).astype(np.float32)
    read = [placed(side, each) for each in (x, added, made.zero)]
    got = placed(side, np.full(added.shape, np.nan, np.float32))
    room = placed(side, np.zeros(made.room(pictures * height * width), np.uint8))
    call = code.bound([address_of(each) for each in (*read, got, room)])
    scales = factors.astype(np.float64) * np.float32(grid.scale)
    sums = exact_windows(levels, weights, windows, counts) * scales
    for _ in range(2):
        assert call() == 0
        bound = 4e-7 * (np.abs(sums) + np.abs(added) + 1)
        assert (np.abs(got.reshape(added.shape) - (sums + added)) <= bound).all()
    assert not rooms().locks.any()


@pytest.mark.parametrize("threads", [1, 2])
def test_more_rows_than_a_room_holds(threads):
    rng = np.random.default_rng(6)
    windows = Windows((3, 3), (1, 1), (0, 0), (1, 1), is_depthwise=False)
    sizes = 2, 70, 120, 100
    compared_pictures(rng, GRIDS[3], sizes, 24, windows, (70, 120), threads=threads)


def test_few_channels_that_make_no_whole_number_of_fours_are_refused():
    assert not compared(np.random.default_rng(4), GRIDS[0], (40, 30, 20))
