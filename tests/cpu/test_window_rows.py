"""Convolutions along one axis by machine code, also transposed ones, whatever follows them."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.windows import kinds, transposed
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.sums import Constants, Functions, code_of_all
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling.by_machine import suitable_windows as by_machine
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load
from tests.cpu.machine_code import by_machine_code, compared, with_avx512
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512

LENGTHS = [40, 33, 57, 91, 64, 120]

FOLLOWED = {
    "nothing": [("Identity", ["a"], ["y"], {})],
    "relu": [("Relu", ["a"], ["y"], {})],
    "leaky": [("LeakyRelu", ["a"], ["y"], {"alpha": 0.2})],
    "elu": [("Elu", ["a"], ["y"], {"alpha": 1.5})],
    "gelu": [("Gelu", ["a"], ["y"], {})],
    "logistic": [("Sigmoid", ["a"], ["y"], {})],
}


def along(geometry, followed, channels=12, results=20, taps=5):
    """A convolution of pictures of one axis, and what follows it."""
    weights = {"w": image(1, results, channels, taps) / channels, "bias": image(2, results)}
    nodes = [("Conv", ["x", "w", "bias"], ["a"], geometry), *followed]
    return models.build(nodes, {"x": ["n", channels, "w"]}, ["y"], weights, opset=20)


def across(geometry, followed, channels=12, results=20, taps=8):
    """The same of a transposed convolution."""
    weights = {"w": image(1, channels, results, taps) / channels, "bias": image(2, results)}
    nodes = [("ConvTranspose", ["x", "w", "bias"], ["a"], geometry), *followed]
    return models.build(nodes, {"x": ["n", channels, "w"]}, ["y"], weights, opset=20)


def check(core, model, channels=12, **config):
    """That new lengths are computed by machine code and stay so; return how often they were."""
    executable = load(core, model, CPU_THREADS_NUM=1, **config)
    feeds = [image(number, 1 + number % 2, channels, n) for number, n in enumerate(LENGTHS)]
    return compared(executable, model, feeds, stays=True)


GEOMETRIES = {
    "plain": {},
    "same": {"pads": [2, 2]},
    "gaps": {"pads": [12, 12], "dilations": [6]},
    "causal": {"pads": [8, 0], "dilations": [2]},
    "steps": {"pads": [1, 2], "strides": [3]},
}


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_windows_of_one_axis(core, monkeypatch, geometry):
    monkeypatch.setattr(settling, "RUNS", 2)
    assert check(core, along(GEOMETRIES[geometry], FOLLOWED["leaky"])) >= 3


@pytest.mark.parametrize("followed", FOLLOWED)
def test_what_follows(core, monkeypatch, followed):
    monkeypatch.setattr(settling, "RUNS", 2)
    assert check(core, along({"pads": [2, 2]}, FOLLOWED[followed])) >= 3


TRANSPOSED = {
    "halves": {"strides": [4], "pads": [2, 2]},
    "odd": {"strides": [3], "pads": [1, 2]},
    "none left out": {"strides": [5]},
    "more behind": {"strides": [2], "pads": [3, 3], "output_padding": [1]},
}


@pytest.mark.parametrize("geometry", TRANSPOSED)
def test_transposed_windows(core, monkeypatch, geometry):
    monkeypatch.setattr(settling, "RUNS", 2)
    assert check(core, across(TRANSPOSED[geometry], FOLLOWED["elu"])) >= 3


def test_positions_with_nothing_to_read_are_onednns(core):
    """Windows of 2 elements that are 3 apart leave every third position to the bias."""
    model = across({"strides": [3]}, FOLLOWED["relu"], taps=2)
    assert check(core, model) == 0


def test_weights_that_no_cache_holds_are_onednns(core, monkeypatch):
    monkeypatch.setattr(by_machine, "MOST_WEIGHTS_BYTES", 4 * 12 * 20 * 5 - 1)
    assert check(core, along({"pads": [2, 2]}, FOLLOWED["relu"])) == 0


def residual():
    """Two convolutions whose results are added, one of them to what is used elsewhere, too."""
    weights = {"first": image(1, 16, 16, 3) / 16, "second": image(2, 16, 16, 3) / 16}
    nodes = [
        ("Conv", ["x", "first"], ["a"], {"pads": [1, 1]}),
        ("LeakyRelu", ["a"], ["b"], {"alpha": 0.1}),
        ("Conv", ["b", "second"], ["c"], {"pads": [2, 2], "dilations": [2]}),
        ("Add", ["c", "x"], ["d"], {}),
        ("Conv", ["d", "first"], ["e"], {"pads": [1, 1]}),
        ("Add", ["e", "d"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", 16, "w"]}, ["y"], weights)


def test_what_is_added_may_lie_elsewhere(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 2)
    assert check(core, residual(), channels=16) >= 3


def test_onednn_is_asked_for_no_convolution(core, monkeypatch):
    executable = load(core, residual(), CPU_THREADS_NUM=1)
    for number, length in enumerate(LENGTHS[:4]):
        executable.infer({"x": image(number, 1, 16, length)})
    asked = asked_from_now(monkeypatch)
    executable.infer({"x": image(9, 1, 16, 77)})
    assert len(by_machine_code(executable)) == 3
    assert not [name for name in asked if "convolution" in name]


@pytest.mark.parametrize("side", SIDES)
def test_nothing_beside_is_read_or_written(side):
    """Of phases of a transposed convolution, and of what is added."""
    random = np.random.default_rng(3)
    for step, taps, pad, width in [(4, 8, 2, 9), (3, 7, 1, 6), (2, 2, 0, 5), (5, 11, 4, 3)]:
        source, results = (2, 5, width), 19
        wide = (width - 1) * step + taps - 2 * pad
        numbers = {
            "x": (2, width, 5),
            "w": (taps, 5, results),
            "bias": (results,),
            "other": (2, wide, results),
            "y": (2, wide, results),
        }
        placed = {}
        for name, shape in numbers.items():
            made = random.normal(size=shape).astype(np.float32)
            memory = guarded(side, made.nbytes)[: made.nbytes].view(np.float32)
            placed[name] = memory.reshape(shape)
            placed[name][...] = made
        others = Constants(None, placed["bias"], None, [(0.0, 0.0)])
        made_of = transposed.phases(placed["w"], step, pad, others, np.ascontiguousarray)
        made = Functions([Function.ADD], terms=Terms.ALL_CHANNELS, has_bias=True)
        code = code_of_all(transposed.calls_of_phases(made, made_of, source, (2, results, wide)))
        x, y, other = placed["x"], placed["y"], placed["other"]
        assert code.bound([address_of(each) for each in (x, other, y)])() == 0
        wanted = np.zeros((2, wide + 2 * pad, results))
        for place, tap in np.ndindex(width, taps):
            wanted[:, place * step + tap] += x[:, place].astype(float) @ placed["w"][tap]
        wanted = wanted[:, pad : pad + wide] + placed["bias"] + other
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)


def test_places_whose_windows_read_alike_are_one_kind():
    """Those of windows with gaps, as many as lie between two elements."""
    found = kinds.kinds_of(20, 20, 3, 1, 3, 4)
    made = [found.numbers[at : at + 4] for at in range(0, len(found.numbers), 4)]
    assert sorted(made) == [(0, 4, 1, 3), (4, 12, 0, 3), (16, 4, 0, 2)]
    assert found.elements == 4 * 2 + 12 * 3 + 4 * 2


def test_kinds_of_places_are_what_each_window_reads(rng):
    """Of axes of any size, also of fewer positions than a window has elements."""
    is_refused = set()
    for _ in range(4000):
        taps, step, left_out, pad = rng.integers((1, 1, 0, 0), (6, 5, 4, 6)).tolist()
        size, behind = rng.integers((1, 0), (40, 6)).tolist()
        reach = (taps - 1) * (left_out + 1) + 1
        count = (size + pad + behind - reach) // step + 1
        if count < 1:
            continue
        wanted = {}
        for place in range(count):
            read = [
                tap for tap in range(taps) if 0 <= place * step - pad + tap * (left_out + 1) < size
            ]
            wanted[place] = (read[0], read[-1] + 1) if read else None
        found = kinds.kinds_of(count, size, taps, step, left_out, pad)
        is_refused.add(found is None)
        assert (found is None) == (None in wanted.values())
        if found is None:
            continue
        made = {}
        for at in range(0, len(found.numbers), 4):
            first, places, begin, end = found.numbers[at : at + 4]
            made |= dict.fromkeys(range(first, first + places), (begin, end))
        assert made == wanted
        assert found.size == len(found.numbers) // 4
        assert found.elements == sum(end - begin for begin, end in wanted.values())
    assert is_refused == {False, True}
