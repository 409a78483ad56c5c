"""Machine code that multiplies bytes: convolutions, products and channels of their own."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.windows import sums
from polydevice_cpu.algorithms.by_machine.windows.covers import Numbers, Windows
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.integers import TOGETHER, Held, Integers
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.onednn.engine import address_of
from tests.guard_pages import SIDES, guarded

pytestmark = pytest.mark.skipif(
    not has_avx512("avx512_vnni"), reason="no AVX-512 with VNNI, or oneDNN is told not to use it"
)

DTYPES = {Held.FLOATS: np.float32, Held.UNSIGNED: np.uint8, Held.SIGNED: np.int8}
RANGES = {Held.UNSIGNED: (0.0, 255.0), Held.SIGNED: (-128.0, 127.0)}
(FLIP,) = struct.unpack("<f", struct.pack("<I", 0x80808080))


class Case(NamedTuple):
    """Sizes of windows, drawn from a seed."""

    pictures: int
    channels: int
    results: int
    sizes: tuple[int, int]
    window: tuple[int, int]
    steps: tuple[int, int]
    gaps: tuple[int, int]
    pad: int
    source: Held
    result: Held
    has_zero: bool
    has_factor: bool
    is_own: bool

    @classmethod
    def drawn(cls, rng, *, is_own):
        """Return sizes; of channels that are no multiple of four windows have one element."""
        odd = [1, 3, 8, 17, 40, 130, 144] if is_own else [4, 5, 7, 8, 13, 16, 20, 32, 48, 64]
        channels = int(rng.choice(odd))
        is_one = not is_own and channels % TOGETHER > 0
        window = (1, 1) if is_one else tuple(int(n) for n in rng.integers(1, 5, 2))
        gaps = int(rng.integers(0, 3)), int(rng.integers(0, 3)) if is_own else 0
        reach = [(taps - 1) * (gap + 1) + 1 for taps, gap in zip(window, gaps, strict=True)]
        return cls(
            int(rng.integers(1, 3)),
            channels,
            channels if is_own else int(rng.integers(1, 70)),
            (reach[0] + int(rng.integers(0, 10)), reach[1] + int(rng.integers(0, 26))),
            window,
            tuple(int(n) for n in rng.integers(1, 3, 2)),
            gaps,
            int(rng.integers(0, min(window))),
            rng.choice([Held.UNSIGNED, Held.SIGNED]),
            rng.choice(list(Held)),
            *(bool(n) for n in rng.integers(0, 2, 2)),
            is_own,
        )

    @property
    def extents(self):
        """How far windows reach along each axis."""
        pairs = zip(self.window, self.gaps, strict=True)
        return [(taps - 1) * (gap + 1) + 1 for taps, gap in pairs]

    @property
    def positions(self):
        """Sizes of the result."""
        each = zip(self.sizes, self.extents, self.steps, strict=True)
        return [(size + 2 * self.pad - reach) // step + 1 for size, reach, step in each]


def exact(case, x, weights, zero):
    """The sums, in 64 bits: [N, H, W, O] of [N, H, W, C] and [rows, columns, C, O] or [.., C]."""
    high, wide = case.positions
    pads = [(0, 0), (case.pad, case.pad), (case.pad, case.pad), (0, 0)]
    padded = np.pad(x.astype(np.int64) - zero, pads)
    found = np.zeros((case.pictures, high, wide, case.results), np.int64)
    for row, column in np.ndindex(*case.window):
        starts = row * (case.gaps[0] + 1), column * (case.gaps[1] + 1)
        cuts = [
            slice(start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(starts, (high, wide), case.steps, strict=True)
        ]
        seen, own = padded[:, cuts[0], cuts[1]], weights[row, column].astype(np.int64)
        found += seen * own if case.is_own else seen @ own
    return found


def packed(case, weights):
    """Weights as code reads them."""
    if case.is_own:
        return np.ascontiguousarray(weights, np.int32) & 0xFFFF
    whole = case.channels // TOGETHER * TOGETHER
    made = np.zeros((*case.window, -(-case.channels // TOGETHER), TOGETHER, case.results), np.int8)
    fours = weights[:, :, :whole].reshape(*case.window, -1, TOGETHER, case.results)
    made[:, :, : fours.shape[2]] = fours
    rest = case.channels - whole
    if rest:
        made[:, :, -1, TOGETHER - rest :] = weights[:, :, whole:]
    return np.ascontiguousarray(made.swapaxes(-1, -2))


def stored(values, held):
    """Floats as they are stored."""
    if held is Held.FLOATS:
        return values
    return np.clip(np.rint(values), *RANGES[held]).astype(DTYPES[held])


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("seed", range(120))
def test_windows_of_bytes_are_exact(seed, is_own, side):
    rng = np.random.default_rng(seed)
    case = Case.drawn(rng, is_own=is_own)
    lowest = -128 if case.source is Held.SIGNED else 0
    sizes = case.pictures, *case.sizes, case.channels
    x = rng.integers(lowest, lowest + 256, sizes).astype(DTYPES[case.source])
    inner = (case.channels,) if is_own else (case.channels, case.results)
    weights = rng.integers(-128, 128, (*case.window, *inner)).astype(np.int8)
    zero = np.array([rng.integers(lowest, lowest + 256)], np.int32)
    factor = rng.uniform(0.5, 2, 1).astype(np.float32)
    scales = rng.uniform(1e-3, 1e-2, case.results).astype(np.float32)
    bias = rng.normal(size=case.results).astype(np.float32)
    rest = 0 if is_own else case.channels % TOGETHER
    given = Integers(case.source, case.result, case.has_zero, case.has_factor, rest)
    range_ = RANGES.get(case.result)
    terms = Terms.OWN_CHANNEL if is_own else Terms.ALL_CHANNELS
    chain = [Function.CLIP] if range_ else []
    made = sums.Functions(chain, terms=terms, has_bias=True, integers=given)
    shares = [range_] if range_ else []
    constants = sums.Constants(packed(case, weights), bias, None, shares, (1.0, FLIP), scales)
    windows = Windows(case.window, case.steps, case.gaps, (case.pad, case.pad), is_own)
    shape = case.pictures, case.results, *case.positions
    numbers = Numbers.of(given, is_own=is_own)
    told = sums.arguments((sizes[0], sizes[3], *sizes[1:3]), shape, windows, numbers)
    assert told is not None
    code = sums.code_of(made, told, constants)
    source = guarded(side, x.nbytes).view(x.dtype)
    source[...] = x.reshape(-1)
    wanted = exact(case, x, weights, int(zero[0]) if case.has_zero else 0).astype(np.float32)
    wanted = wanted * (scales * factor if case.has_factor else scales) + bias
    got = guarded(side, wanted.size * case.result.size_bytes).view(DTYPES[case.result])
    call = code.bound([address_of(each) for each in (source, source, zero, factor, got)])
    for _ in range(2):
        assert call() == 0
        np.testing.assert_array_equal(got.reshape(wanted.shape), stored(wanted, case.result))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("positions", [1, 3, 4, 9, 10, 23])
@pytest.mark.parametrize("results", [1, 16, 33, 70])
def test_a_number_for_each_position_and_each_channel_is_added(side, positions, results):
    """Where the last positions overlap those before, too."""
    rng, channels = np.random.default_rng(positions + results), 24
    x = guarded(side, positions * channels)
    x[...] = rng.integers(0, 256, x.size)
    weights = rng.integers(-128, 128, (channels, results)).astype(np.int8)
    moved = guarded(side, 4 * positions).view(np.float32)
    moved[...] = rng.normal(size=positions)
    shifts = rng.normal(size=results).astype(np.float32)
    given = Integers(Held.UNSIGNED, Held.FLOATS)
    chain = [Function.MOVE, Function.SHIFT, Function.RELU]
    made = sums.Functions(chain, terms=Terms.ALL_CHANNELS, has_bias=False, integers=given)
    fours = np.ascontiguousarray(weights.reshape(-1, TOGETHER, results).swapaxes(1, 2))
    scales = np.full(results, 0.25, np.float32)
    constants = sums.Constants(fours, None, shifts, [(0.0, 0.0)] * 3, (1.0, FLIP), scales)
    told = sums.of_positions(
        channels, results, slice(0, results), results, positions, Numbers.of(given)
    )
    sums_of = x.reshape(positions, channels).astype(np.int64) @ weights.astype(np.int64)
    wanted = sums_of.astype(np.float32) * np.float32(0.25) + moved[:, None] + shifts
    for parts in (1, 3):
        calls = [call for part in told.parts(parts) for call in sums.told_of(made, part, constants)]
        got = guarded(side, 4 * positions * results).view(np.float32).reshape(positions, results)
        addresses = [address_of(each) for each in (x, moved, x, x, got)]
        assert Code.of(calls, constants).bound(addresses)() == 0
        np.testing.assert_array_equal(got, np.maximum(wanted, 0))


@pytest.mark.parametrize("other", list(Held))
@pytest.mark.parametrize("result", list(Held))
@pytest.mark.parametrize("results", [7, 16, 70])
@pytest.mark.parametrize("function", [Function.ADD, Function.SUBTRACT])
def test_what_is_added_may_be_of_another_type(function, result, other, results):
    """Also where parts of the result begin in between."""
    rng, channels, sizes = np.random.default_rng(results), 8, (2, 5, 9)
    x = rng.integers(0, 256, (*sizes, channels)).astype(np.uint8)
    weights = rng.integers(-128, 128, (1, 1, channels, results)).astype(np.int8)
    lowest = -100 if other is not Held.UNSIGNED else 0
    added = rng.integers(lowest, 100, (*sizes, results)).astype(DTYPES[other])
    given = Integers(Held.UNSIGNED, result, other=other)
    chain, shares = [function], [(0.0, 0.0)]
    if result in RANGES:
        chain, shares = [*chain, Function.CLIP], [*shares, RANGES[result]]
    made = sums.Functions(chain, terms=Terms.ALL_CHANNELS, has_bias=False, integers=given)
    fours = weights.reshape(-1, TOGETHER, results).swapaxes(1, 2)
    scales = np.full(results, 0.01, np.float32)
    constants = sums.Constants(np.ascontiguousarray(fours), None, None, shares, (1.0, FLIP), scales)
    windows = Windows((1, 1), (1, 1), (0, 0), (0, 0), is_depthwise=False)
    shapes = (2, channels, 5, 9), (2, results, 5, 9)
    told = sums.arguments(*shapes, windows, Numbers.of(given))
    exact_sums = x.astype(np.int64) @ weights[0, 0].astype(np.int64)
    wanted = exact_sums.astype(np.float32) * np.float32(0.01)
    wanted += added.astype(np.float32) * (1 if function is Function.ADD else -1)
    for parts in (1, 4):
        calls = [call for part in told.parts(parts) for call in sums.told_of(made, part, constants)]
        got = np.empty(wanted.shape, DTYPES[result])
        addresses = [address_of(each) for each in (x, added, x, x, got)]
        assert Code.of(calls, constants).bound(addresses)() == 0
        np.testing.assert_array_equal(got, stored(wanted, result))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("held", [Held.UNSIGNED, Held.SIGNED])
@pytest.mark.parametrize("seed", range(20))
def test_largest_bytes_of_windows(seed, held, side):
    rng = np.random.default_rng(seed)
    case = Case.drawn(rng, is_own=True)._replace(source=held, result=held)
    lowest = -128 if held is Held.SIGNED else 0
    sizes = case.pictures, *case.sizes, case.channels
    x = rng.integers(lowest, lowest + 256, sizes).astype(DTYPES[held])
    given = Integers(held, held)
    made = sums.Functions([], terms=Terms.LARGEST, has_bias=False, integers=given)
    windows = Windows(case.window, case.steps, case.gaps, (case.pad, case.pad), True)
    shape = case.pictures, case.channels, *case.positions
    numbers = Numbers.of(given, is_own=True)
    told = sums.arguments((sizes[0], sizes[3], *sizes[1:3]), shape, windows, numbers)
    if told is None:  # a window has nothing to read
        return
    code = sums.code_of(made, told, sums.Constants(None, None, None, [], (-0.0, -0.0)))
    source, got = (guarded(side, size).view(x.dtype) for size in (x.nbytes, int(np.prod(shape))))
    source[...] = x.reshape(-1)
    pads = [(0, 0), (case.pad, case.pad), (case.pad, case.pad), (0, 0)]
    padded = np.pad(x.astype(np.int64), pads, constant_values=lowest)
    high, wide = case.positions
    wanted = np.full((case.pictures, high, wide, case.channels), lowest)
    for row, column in np.ndindex(*case.window):
        starts = row * (case.gaps[0] + 1), column * (case.gaps[1] + 1)
        rows, columns = (
            slice(start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(starts, (high, wide), case.steps, strict=True)
        )
        wanted = np.maximum(wanted, padded[:, rows, columns])
    call = code.bound([address_of(each) for each in (source, source, source, source, got)])
    assert call() == 0
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
