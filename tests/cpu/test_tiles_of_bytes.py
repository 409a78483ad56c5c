"""Machine code that multiplies bytes in AMX tiles, beside guard pages."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.amx import layer
from polydevice_cpu.algorithms.by_machine.amx.kernel import Form
from polydevice_cpu.algorithms.by_machine.amx.rooms import ROOM_BYTES, rooms
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.integers import Held, Integers
from polydevice_cpu.algorithms.by_machine.windows.sums import Constants
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.machine_code import drawn_windows, with_tiles_of_bytes
from tests.guard_pages import SIDES, guarded

pytestmark = with_tiles_of_bytes

DTYPES = {Held.FLOATS: np.float32, Held.UNSIGNED: np.uint8, Held.SIGNED: np.int8}
RANGES = {Held.UNSIGNED: (0.0, 255.0), Held.SIGNED: (-128.0, 127.0)}


def exact(x, weights, zero, windows, counts):
    """The sums, in 64 bits: [N, H, W, O] of [N, H, W, C] and [rows, columns, C, O]."""
    reach = [
        max((size - 1) * (gap + 1) + 1 + (count - 1) * step, pad + length)
        for size, gap, count, step, pad, length in zip(
            *(windows.sizes, windows.gaps, counts, windows.steps, windows.pads, x.shape[1:3]),
            strict=True,
        )
    ]
    padded = np.zeros((len(x), *reach, x.shape[-1]), np.int64)
    (above, before), (height, width) = windows.pads, x.shape[1:3]
    padded[:, above : above + height, before : before + width] = x.astype(np.int64) - zero
    found = np.zeros((len(x), *counts, weights.shape[-1]), np.int64)
    for row, column in np.ndindex(*windows.sizes):
        starts = row * (windows.gaps[0] + 1), column * (windows.gaps[1] + 1)
        cuts = [
            slice(start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(starts, counts, windows.steps, strict=True)
        ]
        found += padded[:, cuts[0], cuts[1]] @ weights[row, column].astype(np.int64)
    return found


def compared(rng, sizes, results, windows, counts, *, threads=1, side="after"):
    """Compute one layer and compare it with exact sums; return whether there is code for it."""
    pictures, height, width, channels = sizes
    held, result = rng.choice([Held.UNSIGNED, Held.SIGNED]), rng.choice(list(Held))
    lowest = -128 if held is Held.SIGNED else 0
    x = rng.integers(lowest, lowest + 256, sizes).astype(DTYPES[held])
    weights = rng.integers(-128, 128, (*windows.sizes, channels, results)).astype(np.int8)
    has_zero, has_factor, has_bias = (bool(n) for n in rng.integers(0, 2, 3))
    zero = np.array([rng.integers(lowest, lowest + 256)], np.int32)
    factor = rng.uniform(0.5, 2, 1).astype(np.float32)
    scales = rng.uniform(1e-4, 1e-3, results).astype(np.float32)
    bias = rng.normal(size=results).astype(np.float32) if has_bias else None
    slopes = rng.normal(size=results).astype(np.float32)
    given = Integers(held, result, has_zero, has_factor)
    range_ = RANGES.get(result)
    is_added = bool(rng.integers(0, 2))
    function = Function.ADD if is_added else Function.SUBTRACT
    chain = (Function.SHIFT, function, *([Function.CLIP] if range_ else []))
    shares = [(0.0, 0.0), (0.0, 0.0), *([range_] if range_ else [])]
    constants = Constants(None, bias, slopes, shares, (1.0, 0.0), scales)
    packed = layer.packed(weights, windows.gaps[1], weights)
    matrices = layer.Matrices(packed, constants, Form(False, False, has_bias, given, chain))
    if windows == Windows((1, 1), (1, 1), (0, 0), (0, 0), False):
        code = layer.code_at_positions(matrices, pictures * height * width, threads)
    else:
        shape = pictures, results, *counts
        source = pictures, channels, height, width
        code = layer.code_of_pictures(matrices, source, shape, windows, threads)
    if code is None:
        return False
    added = rng.normal(size=(pictures, *counts, results)).astype(np.float32)
    source, other = (guarded(side, each.nbytes).view(each.dtype) for each in (x, added))
    source[...], other[...] = x.reshape(-1), added.reshape(-1)
    sums = exact(x, weights, int(zero[0]) if has_zero else 0, windows, counts).astype(np.float32)
    wanted = sums * (scales * factor if has_factor else scales)
    wanted = (wanted if bias is None else wanted + bias) + slopes
    wanted = wanted + added if is_added else wanted - added
    if range_:
        wanted = np.clip(np.rint(wanted), *range_)
    got = guarded(side, wanted.size * result.size_bytes).view(DTYPES[result])
    call = code.bound([address_of(each) for each in (source, other, zero, factor, got)])
    for _ in range(2):
        assert call() == 0
        np.testing.assert_array_equal(got.reshape(wanted.shape), wanted.astype(got.dtype))
    assert not rooms().locks.any()
    return True


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(150))
def test_windows_of_bytes_in_tiles_are_exact(seed, side):
    rng = np.random.default_rng(seed)
    windows, sizes, counts = drawn_windows(rng)
    channels, results = (
        int(rng.choice([1, 3, 4, 7, 16, 30, 64, 65, 90, 160])),
        int(rng.integers(1, 100)),
    )
    shape = int(rng.integers(1, 4)), *sizes, channels
    threads = int(rng.integers(1, 3))
    assert compared(rng, shape, results, windows, counts, threads=threads, side=side)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("positions", [1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 65, 200])
@pytest.mark.parametrize(("channels", "results"), [(4, 1), (64, 16), (68, 17), (65, 48), (130, 70)])
def test_rows_of_bytes_in_tiles_are_exact(positions, channels, results, side):
    rng = np.random.default_rng(positions)
    one = Windows((1, 1), (1, 1), (0, 0), (0, 0), False)
    assert compared(rng, (1, 1, positions, channels), results, one, (1, positions), side=side)


def test_more_positions_than_a_cache_holds_and_several_threads():
    rng = np.random.default_rng(5)
    one = Windows((1, 1), (1, 1), (0, 0), (0, 0), False)
    for threads in (1, 2):
        shape = 3, 50, 61, 512
        assert compared(rng, shape, 40, one, (50, 61), threads=threads)


def test_more_rows_than_a_room_holds_and_several_threads():
    rng = np.random.default_rng(6)
    windows = Windows((3, 3), (1, 1), (0, 0), (1, 1), False)
    for threads in (1, 2):
        shape = 2, 90, 120, 100
        assert compared(rng, shape, 40, windows, (90, 120), threads=threads)


def test_few_bytes_that_make_no_whole_number_of_fours_are_refused():
    rng = np.random.default_rng(7)
    one = Windows((1, 1), (1, 1), (0, 0), (0, 0), False)
    assert not compared(rng, (1, 1, 40, 30), 20, one, (1, 40))


def test_rows_that_are_too_long_for_a_room_are_refused():
    rng = np.random.default_rng(8)
    windows = Windows((3, 3), (1, 1), (0, 0), (1, 1), False)
    wide = ROOM_BYTES // 4 // 64
    assert not compared(rng, (1, 2, wide, 64), 8, windows, (2, wide))
