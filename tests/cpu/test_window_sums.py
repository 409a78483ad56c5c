"""Convolutions by machine code that is the same for all sizes."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.windows import covers, sums
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.following import Function, is_unlike_onednn
from polydevice_cpu.algorithms.by_machine.windows.sums import (
    Constants,
    Functions,
    arguments,
    code_of,
)
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Eltwise, Prelu, Sum
from polydevice_cpu.onednn.constants import OF_BLOCKS, Algorithm, Arg, kind_of_code
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import MemoryObject, address_of
from polydevice_cpu.onednn.primitive import built, run_once
from polydevice_cpu.onednn.primitives import convolution, pooling
from polydevice_cpu.plan.building.weights import pack
from polydevice_cpu.plan.filling.by_machine import suitable_windows as by_machine
from tests.cpu.loading import image
from tests.cpu.machine_code import with_avx512, with_vectors
from tests.guard_pages import SIDES, guarded

pytestmark = with_vectors

CHAINS = {
    "nothing": [],
    "relu": [(Function.RELU, 0.0, 0.0)],
    "clip": [(Function.LINEAR, 2.0, 0.0), (Function.CLIP, -3.0, 20.0)],
    "round": [
        (Function.LINEAR, 7.0, 0.0),
        (Function.ROUND, 0.0, 0.0),
        (Function.LINEAR, 1 / 7, 0.0),
    ],
    "prelu": [(Function.PRELU, 0.0, 0.0)],
    "hardswish": [(Function.HARDSWISH, 1 / 6, 0.5), (Function.LINEAR, 1.25, -0.25)],
    "hardsigmoid": [(Function.HARDSIGMOID, 0.2, 0.5), (Function.LINEAR, 3.0, -1.0)],
    "logistic": [(Function.LINEAR, 4.0, 1.5), (Function.LOGISTIC, 0.0, 0.0)],
    "swish": [(Function.SWISH, 1.75, 0.0), (Function.LINEAR, 0.5, 1.0)],
    "sum": [(Function.SWISH, 1.0, 0.0), (Function.SUM, 0.0, 0.0), (Function.RELU, 0.0, 0.0)],
    "linear first": [(Function.LINEAR, -2.0, 3.0), (Function.HARDSWISH, 0.25, 0.75)],
}
ALGORITHMS = {
    Function.RELU: Algorithm.RELU,
    Function.CLIP: Algorithm.CLIP,
    Function.LINEAR: Algorithm.LINEAR,
    Function.ROUND: Algorithm.ROUND,
    Function.HARDSIGMOID: Algorithm.HARD_SIGMOID,
    Function.HARDSWISH: Algorithm.HARD_SWISH,
    Function.LOGISTIC: Algorithm.LOGISTIC,
    Function.SWISH: Algorithm.SWISH,
}


def run(functions, told, constants, source, result):
    """Compute an array from another."""
    assert (
        code_of(functions, told, constants).bound(
            [address_of(x) for x in (source, source, result)]
        )()
        == 0
    )


class Case:
    """A convolution of random numbers and sizes."""

    def __init__(self, seed, chain, *, is_depthwise, largest=40):
        random = self.random = np.random.default_rng(seed)
        self.chain, self.is_depthwise, self.has_bias = chain, is_depthwise, bool(seed % 3)
        window, steps = random.integers(1, 6, 2).tolist(), random.integers(1, 4, 2).tolist()
        gaps = int(random.integers(0, 2)), int(random.integers(0, 2)) if is_depthwise else 0
        channels, results = (int(n) for n in random.integers(1, largest, 2))
        results = channels if is_depthwise else results
        reach = [(k - 1) * (gap + 1) + 1 for k, gap in zip(window, gaps, strict=True)]
        high, wide = (int(n) for n in random.integers(1, 25, 2))
        self.pads = [tuple(map(int, random.integers(0, each, 2))) for each in reach]
        self.result = int(random.integers(1, 3)), results, high, wide
        sizes = (
            max(1, (n - 1) * step + width - sum(pads))
            for n, step, width, pads in zip((high, wide), steps, reach, self.pads, strict=True)
        )
        self.source = self.result[0], channels, *sizes
        self.windows = Windows(
            *(tuple(map(int, each)) for each in (window, steps, gaps)),
            tuple(before for before, _ in self.pads),
            is_depthwise,
        )
        each = 1 if is_depthwise else channels
        self.x = self.numbers(self.source[0], *self.source[2:], channels)
        self.weights = self.numbers(*window, each, results)
        self.bias, self.slopes = self.numbers(results), self.numbers(results)
        held = self.numbers(self.result[0], high, wide, results)
        sums = any(link[0] is Function.SUM for link in chain)
        self.held = held if sums else np.full_like(held, np.nan)

    def numbers(self, *shape):
        return self.random.normal(size=shape).astype(np.float32)

    @property
    def is_whole(self):
        """Whether sizes come out even, as `Windows` and pads behind say."""
        sums = zip(
            *(self.source[2:], self.pads, self.windows.sizes, self.windows.gaps),
            *(self.windows.steps, self.result[2:]),
            strict=True,
        )
        return all(
            (n + sum(pads) - (k - 1) * (gap + 1) - 1) // step + 1 == m
            for n, pads, k, gap, step, m in sums
        )

    def added(self):
        """The sums in twice the precision."""
        pad, gaps = [(0, 0), *self.pads, (0, 0)], self.windows.gaps
        x, w = np.pad(self.x.astype(float), pad), self.weights.astype(float)
        pictures, _, high, wide = self.result
        y = np.zeros((pictures, high, wide, self.result[1]))
        for i, j in np.ndindex(*self.windows.sizes):
            rows, columns = (
                slice(k * (gap + 1), k * (gap + 1) + (n - 1) * step + 1, step)
                for k, gap, n, step in zip((i, j), gaps, (high, wide), self.windows.steps)
            )
            part = x[:, rows, columns]
            y += part * w[i, j, 0] if self.is_depthwise else part @ w[i, j]
        return y

    def wanted(self):
        """The result in twice the precision."""
        y = self.added()
        y += self.bias if self.has_bias else 0
        for function, alpha, beta in self.chain:
            if function is Function.LINEAR:
                y = alpha * y + beta
            elif function is Function.HARDSWISH:
                y = y * np.clip(alpha * y + beta, 0, 1)
            elif function is Function.HARDSIGMOID:
                y = np.clip(alpha * y + beta, 0, 1)
            elif function is Function.LOGISTIC:
                y = 1 / (1 + np.exp(-y))
            elif function is Function.SUM:
                y = y + self.held
            elif function is Function.SWISH:
                y = y / (1 + np.exp(-alpha * y))
            elif function is Function.CLIP:
                y = np.clip(y, alpha, beta)
            elif function is Function.ROUND:
                y = np.round(y)
            else:
                y = np.where(y < 0, y * (self.slopes if function is Function.PRELU else 0), y)
        return y

    def got(self, place=lambda size: np.full(size, 0xFF, np.uint8)):
        """What machine code computes, in memory from `place`."""

        def placed(array):
            made = place(array.nbytes)[: array.nbytes].view(np.float32).reshape(array.shape)
            made[...] = array
            return made

        told = arguments(self.source, self.result, self.windows)
        if told is None:
            return None
        bias = placed(self.bias) if self.has_bias else None
        shares = [link[1:] for link in self.chain]
        constants = Constants(placed(self.packed()), bias, placed(self.slopes), shares)
        made = sums.Functions(
            [link[0] for link in self.chain],
            terms=Terms.OWN_CHANNEL if self.is_depthwise else Terms.ALL_CHANNELS,
            has_bias=self.has_bias,
            bundle=told.cover.bundle,
        )
        y = placed(self.held)
        run(made, told, constants, placed(self.x), y)
        return y

    def packed(self):
        """Weights as machine code reads them."""
        return self.weights

    def logical(self):
        """Weights as oneDNN is told of them."""
        logical = self.weights.transpose(3, 2, 0, 1)
        return logical[:, None] if self.is_depthwise else logical

    def by_onednn(self):
        """The same by oneDNN, and what its code is called; None where it lays weights elsewise."""
        src, dst = (Descriptor.channels_last(each) for each in (self.source, self.result))
        logical = self.logical()
        layout, row = Descriptor.any(logical.shape), Descriptor.dense(self.bias.shape)
        others = {Function.PRELU: Prelu(2), Function.SUM: Sum()}
        chain = [
            others[function] if function in others else Eltwise(ALGORITHMS[function], *shares)
            for function, *shares in self.chain
        ]
        before, behind = zip(*self.pads, strict=True)
        gaps = [gap + 1 for gap in self.windows.gaps]
        with openmp.threads(1):
            made = built(
                convolution(
                    *(src, layout, row if self.has_bias else None, dst),
                    *(self.windows.steps, gaps, before, behind, Attributes(chain)),
                )
            )
        packed, x, y = pack(logical, made.weights), self.x.copy(), self.held.copy()
        given = {
            Arg.SRC: MemoryObject(src, address_of(x)),
            Arg.WEIGHTS: MemoryObject(made.weights, address_of(packed)),
            Arg.DST: MemoryObject(dst, address_of(y)),
        }
        if self.has_bias:
            given[Arg.BIAS] = MemoryObject(row, address_of(self.bias))
        for number, (function, *_) in enumerate(self.chain):
            if function is Function.PRELU:
                index = Arg.ATTR_POST_OP * (number + 1) | Arg.WEIGHTS
                given[index] = MemoryObject(row, address_of(self.slopes))
        run_once(made, given)
        return kind_of_code(made), y


@pytest.mark.parametrize("is_depthwise", [False, True])
# A sum near a half is rounded either way, so that rounding is compared with oneDNN's below.
@pytest.mark.parametrize("chain", [name for name in CHAINS if name != "round"])
def test_sums_are_those_of_numpy(chain, is_depthwise):
    computed = 0
    for seed in range(40):
        case = Case(seed, CHAINS[chain], is_depthwise=is_depthwise)
        got = case.got()
        if got is not None and case.is_whole:
            computed += 1
            wanted = case.wanted()
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert computed > 25


@pytest.mark.parametrize("is_depthwise", [False, True])
@pytest.mark.parametrize("chain", CHAINS)
def test_answers_are_those_of_onednn_to_the_bit(chain, is_depthwise):
    compared = 0
    for seed in range(40, 80):
        case = Case(seed, CHAINS[chain], is_depthwise=is_depthwise, largest=70)
        if seed % 4 == 0:
            odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e30, 1e-40], np.float32)
            np.put(case.x, case.random.integers(0, case.x.size, odd.size), odd)
        got = case.got()
        if got is not None and case.is_whole:
            code, wanted = case.by_onednn()
            behind = tuple(each for _, each in case.pads)
            sizes = case.source[1], case.result[3]
            is_in_order = by_machine.is_in_order(case.windows, behind, *sizes)
            if code in by_machine.MOST_US and is_in_order:
                compared += 1
                bits = [np.where(np.isnan(each), 0, each).tobytes() for each in (got, wanted)]
                np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
                if any(is_unlike_onednn(function) for function, *_ in case.chain):
                    assert_close(case, got, wanted)
                else:
                    assert bits[0] == bits[1], (case.source, case.result, case.windows)
    assert compared > 8


def assert_close(case, got, wanted):
    """That functions of the same sums differ by a few roundings, and what is added to them not.

    Each is within 5e-7 of itself, and at most as large as what is added and the result together.
    """
    held = np.nan_to_num(case.held, nan=0.0)
    with np.errstate(invalid="ignore"):
        most = 1e-6 * (np.abs(wanted) + np.abs(held)) + 1e-37
        alike = (got == wanted) | np.isnan(wanted) | (np.abs(got - wanted) <= most)
    assert alike.all(), (got[~alike], wanted[~alike])


def test_fewer_positions_than_windows_reach_over_an_end():
    """oneDNN adds elements in another order there, which is left to it."""
    in_order = 0
    for wide, reach in np.ndindex(5, 5):
        case = Case(reach, [], is_depthwise=False)
        width, sizes = wide + 9 - 2 * reach, (3, 9)
        if width < 1:
            continue
        case.pads, case.result = [(1, 1), (reach, reach)], (1, 33, 4, wide + 1)
        case.source = 1, 20, 4, width
        case.windows = Windows(sizes, (1, 1), (0, 0), (1, reach), is_depthwise=False)
        case.x, case.weights = case.numbers(1, 4, width, 20), case.numbers(*sizes, 20, 33)
        case.bias, case.held = case.numbers(33), np.full((1, 4, wide + 1, 33), np.nan, np.float32)
        (code, wanted), got = case.by_onednn(), case.got()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)
        if code in by_machine.MOST_US and by_machine.is_in_order(
            case.windows, (1, reach), 20, wide + 1
        ):
            in_order += 1
            assert got.tobytes() == wanted.tobytes(), (wide + 1, reach)
    assert in_order > 8


@with_avx512
@pytest.mark.parametrize("is_depthwise", [False, True])
def test_zeros_have_the_sign_of_onednns(is_depthwise):
    chain = [(Function.RELU, 0.0, 0.0), (Function.PRELU, 0.0, 0.0)]
    compared = 0
    for seed in range(40):
        case = Case(seed, chain, is_depthwise=is_depthwise, largest=70)
        got = case.got()
        if got is not None and case.is_whole:
            code, wanted = case.by_onednn()
            behind, sizes = tuple(n for _, n in case.pads), (case.source[1], case.result[3])
            if code in by_machine.MOST_US and by_machine.is_in_order(case.windows, behind, *sizes):
                compared += 1
                assert got.tobytes() == wanted.tobytes()
    assert compared > 8


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("is_depthwise", [False, True])
def test_nothing_beside_is_read_or_written(side, is_depthwise):
    for seed in range(12):
        case = Case(seed, CHAINS["prelu"], is_depthwise=is_depthwise)
        plain, got = case.got(), case.got(lambda size: guarded(side, size))
        assert plain is not None
        np.testing.assert_array_equal(got, plain)


def test_a_window_with_nothing_to_read_has_no_code():
    windows = Windows((1, 1), (1, 1), (0, 0), (2, 0), is_depthwise=False)
    assert arguments((1, 4, 3, 3), (1, 4, 7, 3), windows) is None


MEANS = [  # source, window, steps
    ((1, 24, 6, 8), (6, 8), (1, 1)),
    ((2, 96, 48, 31), (48, 31), (1, 1)),
    ((1, 40, 3, 32), (3, 2), (3, 2)),
    ((3, 7, 9, 11), (2, 3), (1, 2)),
    ((2, 300, 5, 6), (5, 6), (1, 1)),
    ((1, 16, 1, 65), (1, 5), (1, 5)),
]


@pytest.mark.parametrize(("source", "window", "steps"), MEANS)
def test_means_are_those_of_numpy_and_of_onednn_to_the_bit(source, window, steps):
    x = image(5, source[0], *source[2:], source[1])
    views = np.lib.stride_tricks.sliding_window_view(x, window, (1, 2))
    views = views[:, :: steps[0], :: steps[1]]
    pictures, high, wide, channels = views.shape[:4]
    result = pictures, channels, high, wide
    told = arguments(source, result, Windows(window, steps, (0, 0), (0, 0), is_depthwise=True))
    made = sums.Functions([Function.QUOTIENT], terms=Terms.PLAIN, has_bias=False)
    got = np.full((pictures, high, wide, channels), np.nan, np.float32)
    constants = Constants(None, None, None, [(window[0] * window[1], 0.0)])
    run(made, told, constants, x, got)
    np.testing.assert_allclose(got, views.mean((-1, -2), dtype=float), rtol=1e-4, atol=1e-6)
    src, dst = Descriptor.channels_last(source), Descriptor.channels_last(result)
    none, one = (0, 0), (1, 1)
    average = Algorithm.POOLING_AVG_EXCLUDE_PADDING
    with openmp.threads(1):
        pool = built(pooling(average, src, dst, steps, window, one, none, none, Attributes()))
    wanted = np.empty_like(got)
    run_once(
        pool,
        {
            Arg.SRC: MemoryObject(src, address_of(x)),
            Arg.DST: MemoryObject(dst, address_of(wanted)),
        },
    )
    assert kind_of_code(pool) == OF_BLOCKS
    assert got.tobytes() == wanted.tobytes()


POOLS = [
    ((1, 10, 19, 74), (2, 2), (2, 2), (1, 1), (0, 0), (0, 0)),
    ((2, 64, 23, 17), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    ((1, 33, 14, 29), (3, 2), (1, 3), (2, 3), (0, 1), (1, 2)),
    ((1, 5, 8, 9), (3, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
    ((3, 1, 30, 5), (5, 1), (4, 1), (1, 1), (2, 0), (2, 0)),
]


@pytest.mark.parametrize(("source", "window", "steps", "gaps", "before", "behind"), POOLS)
def test_largest_elements_are_those_of_numpy_and_of_onednn_to_the_bit(
    source, window, steps, gaps, before, behind
):
    """`gaps` are distances here: 1 where elements of a window follow each other."""
    random = np.random.default_rng(sum(source))
    x = random.normal(size=(source[0], *source[2:], source[1])).astype(np.float32)
    for odd in (0.0, -0.0, np.inf, -np.inf, np.nan):
        x[random.random(x.shape) < 0.1] = odd
    pads = [(0, 0), *zip(before, behind, strict=True), (0, 0)]
    reach = [(k - 1) * gap + 1 for k, gap in zip(window, gaps, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, pads, constant_values=np.nan), reach, (1, 2)
    )[:, :: steps[0], :: steps[1], :, :: gaps[0], :: gaps[1]]
    pictures, high, wide, channels = views.shape[:4]
    result = pictures, channels, high, wide
    windows = Windows(window, steps, tuple(n - 1 for n in gaps), before, is_depthwise=True)
    made = sums.Functions([], terms=Terms.LARGEST, has_bias=False)
    least = float(np.finfo(np.float32).min)
    constants = Constants(None, None, None, [], (least, least))
    wanted = np.fmax.reduce(views, (-1, -2), initial=least)
    for side in SIDES:
        given, got = (
            guarded(side, each.nbytes).view(np.float32).reshape(each.shape) for each in (x, wanted)
        )
        given[...] = x
        run(made, arguments(source, result, windows), constants, given, got)
        np.testing.assert_array_equal(got, wanted)
    src, dst = Descriptor.channels_last(source), Descriptor.channels_last(result)
    with openmp.threads(1):
        pool = built(
            pooling(
                *(Algorithm.POOLING_MAX, src, dst, steps, window, gaps, before, behind),
                Attributes(),
            )
        )
    theirs = np.empty_like(got)
    run_once(
        pool,
        {
            Arg.SRC: MemoryObject(src, address_of(x)),
            Arg.DST: MemoryObject(dst, address_of(theirs)),
        },
    )
    if gaps == (1, 1):  # it generates no code for others
        assert kind_of_code(pool) == OF_BLOCKS
        assert got.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("channels", [7, 40, 96])
@pytest.mark.parametrize("is_depthwise", [False, True])
def test_code_for_other_sizes_is_told_what_differs(rng, channels, is_depthwise):
    """What is copied from the code for other sizes is what would be made from the beginning."""
    weights = image(1, 9, 1 if is_depthwise else 5, channels)
    constants = Constants(weights, image(2, channels), None, [(0.0, 0.0)])
    terms = Terms.OWN_CHANNEL if is_depthwise else Terms.ALL_CHANNELS
    made = Functions([Function.RELU], terms=terms, has_bias=True)
    windows = Windows((3, 3), (1, 2), (0, 0), (1, 1), is_depthwise=is_depthwise)
    for number in range(30):
        pictures, high, wide = rng.integers(1, 30, 3).tolist()
        given = channels if is_depthwise else 5
        result = pictures, channels, high, (wide - 1) // 2 + 1
        told = arguments((pictures, given, high, wide), result, windows)
        told = told._replace(at=4 * (number % 3))
        wanted = Code.of(sums.told_of(made, told, constants), constants)
        found = code_of(made, told, constants)
        assert found.numbers == wanted.numbers
        assert found[1:4] == wanted[1:4]
    assert 1 < len(constants.codes) < 30


def test_constants_keep_few_codes(monkeypatch):
    """Those of pools belong to no network, and serve any number of channels."""
    monkeypatch.setattr(sums, "MOST_CODES", 2)
    least = float(np.finfo(np.float32).min)
    constants = sums.Constants(None, None, None, [], (least, least))
    pools = sums.Functions([], terms=Terms.LARGEST, has_bias=False)
    windows = covers.Windows((2, 2), (1, 1), (0, 0), (0, 0), is_depthwise=True)
    for channels in (16, 32, 48, 16, 64, 20, 48):
        for height in (5, 9):
            x = image(channels, 1, height, 7, channels)
            got = np.full((1, height - 1, 6, channels), np.nan, np.float32)
            shapes = [(1, channels, *each.shape[1:3]) for each in (x, got)]
            code = sums.code_of(pools, sums.arguments(*shapes, windows), constants, 1)
            assert code.bound([address_of(each) for each in (x, x, got)])() == 0
            rows = np.maximum(x[:, 1:], x[:, :-1])
            np.testing.assert_array_equal(got, np.maximum(rows[:, :, 1:], rows[:, :, :-1]))
            assert len(constants.codes) <= 2
