"""Convolutions with larger windows in blocks, of shapes that were not there before."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling import blocks as making
from polydevice_cpu.plan.filling.blocks import MOST, REPEATED, cuts
from polydevice_cpu.plan.filling.by_machine import suitable_windows
from polydevice_cpu.plan.filling.by_machine import windows as by_machine
from polydevice_cpu.plan.step import PrimitiveStep
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load, wait_for_settling

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


@pytest.fixture
def always(monkeypatch):
    """Have blocks however much they take besides: networks here are small."""
    monkeypatch.setattr(making, "LITTLE", 1e9)
    monkeypatch.setattr(by_machine, "MOST_US", dict.fromkeys(by_machine.MOST_US, -1.0))
    monkeypatch.setattr(suitable_windows, "MOST_WEIGHTS_BYTES", 0)


def windows(channels: int, window: tuple[int, ...], attributes, *, height: int | str = "h"):
    """A convolution, a function of its result for each channel, and one more convolution."""
    narrow = (channels, channels, *window)
    weights = {name: image(seed, *narrow) - np.float32(0.5) for seed, name in enumerate("ab")}
    weights |= {"bias": image(3, channels), "slope": image(4, channels, *[1] * len(window))}
    half = [k // 2 for k in window]
    nodes = [
        ("Conv", ["x", "a", "bias"], ["c"], attributes),
        ("PRelu", ["c", "slope"], ["d"], {}),
        ("Conv", ["d", "b"], ["y"], {"pads": half * 2}),
    ]
    sizes = ["n", channels, *(["v"] if len(window) == 1 else [height, "v"])]
    return models.build(nodes, {"x": sizes}, ["y"], weights)


def blocks(executable):
    """How many blocks each convolution of the latest plan has."""
    steps = executable.latest_plan().steps
    found = [step for step in steps if isinstance(step, PrimitiveStep)]
    return [len(step.blocks) for step in found if step.primitive.kind == "convolution"]


@pytest.mark.parametrize("products", [1, REPEATED // 4, REPEATED + 1])
def test_blocks_cover_an_axis(products):
    for size in (*range(1, 70), 1023, 1024, 1025):
        end = 0
        for start, length in cuts(size, products):
            assert 0 <= start <= end
            assert (end - start) * products <= REPEATED
            assert length.bit_count() == 1
            end = start + length
        assert end == size


CASES = {
    "pads": (windows(8, (3, 3), {"pads": [1, 1, 1, 1]}), 4),
    "steps": (windows(16, (3, 3), {"strides": [2, 1], "pads": [0, 2, 1, 0]}), 4),
    "gaps": (windows(8, (3, 3), {"dilations": [2, 3], "pads": [2, 0, 1, 0]}), 4),
    "rows": (windows(8, (5,), {"pads": [1, 2]}), 3),
    "height": (windows(8, (3, 3), {"pads": [1] * 4}, height=12), 4),
}
SHAPES = {
    3: [(1, 30), (2, 37), (1, 21), (2, 40), (1, 7)],
    4: [(1, 12, 9), (2, 12, 11), (1, 12, 23), (2, 12, 14), (1, 12, 7)],
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_answers_in_blocks_stay_the_same_to_the_bit(core, monkeypatch, case, threads):
    monkeypatch.setattr(settling, "RUNS", 3)
    model, rank = CASES[case]
    executable = load(core, model, CPU_THREADS_NUM=threads)
    channels = executable.inputs["x"].shape[1]
    request, seen = executable.create_infer_request(), 0
    for number, (n, *sizes) in enumerate(SHAPES[rank]):
        x = image(number, n, int(channels), *sizes)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        if any(blocks(executable)):
            seen += 1
            for _ in range(settling.RUNS):
                np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
            wait_for_settling()
            np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
            assert not any(blocks(executable))
    assert seen >= 2


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("window", "form"),
    [
        ((3, 2), {"pads": [1, 1, 1, 0]}),
        ((3, 3), {"pads": [1, 1, 1, 2]}),
        ((3, 3), {"dilations": [2, 3], "pads": [2, 1, 0, 3]}),
    ],
)
def test_borders_of_more_than_half_a_window_are_computed_at_once(core, monkeypatch, window, form):
    """As oneDNN adds in another order there."""
    monkeypatch.setattr(settling, "RUNS", 3)
    executable = load(core, windows(8, window, form), CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for number, width in enumerate([9, 11, 23, 14]):
        x = image(number, 1, 8, 12, width)
        got = request.infer({"x": x})["y"].copy()
        assert not any(blocks(executable)[:1])
        for _ in range(settling.RUNS):
            request.infer({"x": x})
        wait_for_settling()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
    assert executable.compiled.templates.filled


@pytest.mark.usefixtures("always")
def test_nothing_is_asked_for_blocks_that_were_there(core, monkeypatch):
    executable = load(core, windows(8, (3, 3), {"pads": [1] * 4}, height=12))
    request = executable.create_infer_request()
    for width in (8, 9, 47):  # as 32 and 16, since little is computed twice
        request.infer({"x": image(0, 1, 8, 12, width)})
    asked = asked_from_now(monkeypatch)
    request.infer({"x": image(0, 1, 8, 12, 46)})
    assert all(blocks(executable))
    assert not [name for name in asked if name.startswith("convolution")]


@pytest.mark.usefixtures("always")
def test_too_many_blocks_are_none(core):
    executable = load(core, windows(8, (3, 3), {"pads": [1] * 4}))
    request = executable.create_infer_request()
    for n in (1, 2, 3, MOST + 1):
        request.infer({"x": image(0, n, 8, 6, 5 + n % 3)})
    assert not any(blocks(executable))
    assert executable.compiled.templates.filled


@pytest.mark.usefixtures("always")
def test_the_caller_may_read_and_write_elsewhere(core, monkeypatch):
    """What a block copies from and to is where the caller's arrays are at the time."""
    monkeypatch.setattr(settling, "RUNS", 99)
    model = windows(8, (3, 3), {"pads": [1] * 4})
    executable = load(core, model)
    request = executable.create_infer_request()
    for width in (8, 9, 20):
        request.infer({"x": image(0, 1, 8, 12, width)})
    for number in range(3):
        x = image(number, 1, 8, 12, 20)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert any(blocks(executable))


def test_small_networks_have_none(core):
    executable = load(core, windows(8, (3, 3), {"pads": [1] * 4}))
    request = executable.create_infer_request()
    for width in (8, 9, 20, 21):
        request.infer({"x": image(0, 1, 8, 12, width)})
    assert not any(blocks(executable))
    assert executable.compiled.templates.filled
