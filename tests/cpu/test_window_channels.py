"""Convolutions of many channels by machine code, which reads the weights that oneDNN packs."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.processor.machine_code import cache_bytes
from polydevice_cpu.algorithms.by_machine.windows.covers import Cover, Windows
from polydevice_cpu.onednn import constants
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling.by_machine import suitable_windows, weights
from tests.cpu import models
from tests.cpu.loading import image, load
from tests.cpu.machine_code import compared, with_avx512, with_vectors
from tests.cpu.test_window_sums import Case

pytestmark = with_vectors


def many(seed):
    """A convolution of 97 to 640 channels of pictures of up to 24 x 24."""
    case, random = Case(seed, [], is_depthwise=False), np.random.default_rng(seed)
    window = [(3, 3), (3, 3), (5, 5), (1, 3), (3, 2), (7, 7)][seed % 6]
    steps = [(1, 1), (2, 2), (1, 2)][seed % 3]
    reach = [(size - 1) // 2 for size in window]
    channels, results = int(random.choice([97, 128, 200, 320, 512, 640])), (16, 24, 64, 80, 96)
    high, wide = (int(n) for n in random.integers(1, 25, 2))
    case.pads = [(each, each) for each in reach]
    case.result = 1, results[seed % 5], high, wide
    sizes = [
        max((n - 1) * step + size - 2 * pad, 1)
        for n, step, size, pad in zip((high, wide), steps, window, reach, strict=True)
    ]
    case.source = 1, channels, *sizes
    case.windows = Windows(window, steps, (0, 0), tuple(reach), is_depthwise=False)
    case.x, case.weights = (
        case.numbers(1, *sizes, channels),
        case.numbers(*window, channels, case.result[1]),
    )
    case.bias = case.numbers(case.result[1])
    case.held = np.full((1, high, wide, case.result[1]), np.nan, np.float32)
    return case


@with_avx512
def test_many_channels_are_added_in_onednns_order():
    compared_, left = 0, 0
    for seed in range(60):
        case = many(seed)
        got = case.got() if case.is_whole else None
        if got is None:
            continue
        code, wanted = case.by_onednn()
        behind = tuple(each for _, each in case.pads)
        most = suitable_windows.most_in_lines(case.windows, case.result[1], case.result[3])
        sizes = case.source[1], case.result[3], most
        if code != constants.BY_LINES:
            continue
        if suitable_windows.is_in_order(case.windows, behind, *sizes):
            compared_ += 1
            assert got.tobytes() == wanted.tobytes(), (case.source, case.result, case.windows)
        else:
            left += 1
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())
    assert compared_ > 15  # with the smallest caches that such processors have
    assert left > 2


def convolutions(channels, results):
    """Two layers with windows of 3 x 3, the second one of every other position."""
    stored = {
        "w": image(1, channels, 3, 3, 3) / 3, "b": image(2, channels),
        "v": image(3, results, channels, 3, 3) / channels, "c": image(4, results),
    }  # fmt: skip
    nodes = [
        ("Conv", ["x", "w", "b"], ["h"], {"pads": [1] * 4}),
        ("Relu", ["h"], ["r"], {}),
        ("Conv", ["r", "v", "c"], ["s"], {"pads": [1] * 4, "strides": [2, 2]}),
        ("Relu", ["s"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", 3, "h", "w_"]}, ["y"], stored)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "results"), [(128, 200), (200, 64), (97, 33)])
def test_weights_are_read_as_onednn_packs_them(core, monkeypatch, channels, results, threads):
    monkeypatch.setattr(settling, "RUNS", 3)
    model = convolutions(channels, results)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    sizes = [(20, 31), (33, 18), (15, 22), (9, 40), (12, 27), (24, 24), (7, 7), (8, 13)]
    feeds = [image(number, 1 + number % 2, 3, *each) for number, each in enumerate(sizes)]
    assert compared(executable, model, feeds, stays=1) >= 3  # which has few channels


def test_rows_of_weights_that_lie_otherwise():
    plain = image(1, 30, 100)
    rows = np.zeros((7, 30, 16), np.float32)
    for part in range(7):
        piece = plain[:, 16 * part : 16 * part + 16]
        rows[part, :, : piece.shape[1]] = piece
    found = weights.in_rows(rows.view(np.uint8).reshape(-1), plain)
    np.testing.assert_array_equal(found, rows)
    rows[3, 4, 5] += 1
    assert weights.in_rows(rows.view(np.uint8).reshape(-1), plain) is None
    assert weights.in_rows(None, plain) is None


def test_what_covers_the_channels_of_rows():
    cover = Cover(200, 4, is_own=False, row=64)
    assert [part.channels for part in cover.parts()] == [64, 64, 64, 8]
    assert Cover(200, 4, is_own=False).parts() == [Cover(200, 4, is_own=False)]


def test_what_a_cache_holds(monkeypatch):
    """As the C library tells it, or else what is said."""
    assert 8 << 10 <= cache_bytes(1, default=32 << 10) <= 1 << 20
    monkeypatch.setattr("os.sysconf", lambda _: 0)
    assert cache_bytes(2, default=77) == 77

    def refuse(_):
        raise ValueError

    monkeypatch.setattr("os.sysconf", refuse)
    assert cache_bytes(2, default=78) == 78
