"""Samples between the elements of pictures by machine code, and GridSample of it."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.resampling import sampling
from polydevice_cpu.lowering import grid_sample as lowered_grid_sample
from polydevice_cpu.ops import grid_sample
from tests.cpu.loading import load
from tests.cpu.machine_code import with_avx2
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

F = np.float32


def between(planes, across, down):
    """Each sample by itself, as a sum of four weighted elements."""
    n, channels, height, width = planes.shape
    y = np.zeros((n, channels, across.shape[1]))
    for image, point in np.ndindex(n, across.shape[1]):
        x0, y0 = across[image, point].astype(float), down[image, point].astype(float)
        if not (-1 < x0 < width and -1 < y0 < height):
            continue
        for row in (int(np.floor(y0)), int(np.floor(y0)) + 1):
            for column in (int(np.floor(x0)), int(np.floor(x0)) + 1):
                if 0 <= row < height and 0 <= column < width:
                    weight = (1 - abs(y0 - row)) * (1 - abs(x0 - column))
                    y[image, :, point] += weight * planes[image, :, row, column]
    return y


@with_avx2
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("points", [1, 7, 8, 9, 23, 64])
def test_samples(side, points):
    rng = np.random.default_rng(points)
    for _ in range(6):
        n, channels, height, width = (int(k) for k in rng.integers(1, (4, 6, 9, 9)))
        given = guarded(side, 4 * n * channels * height * width).view(F)
        planes = given.reshape(n, channels, height, width)
        planes[...] = rng.normal(size=planes.shape)
        places = guarded(side, 8 * n * points).view(F).reshape(2, n, points)
        places[0] = rng.uniform(-2, width + 1, (n, points))
        places[1] = rng.uniform(-2, height + 1, (n, points))
        odd = rng.random(places.shape) < 0.3
        places[odd] = rng.choice([-1, 0, width - 1, height, -0.5, np.nan, np.inf, -1e30], odd.sum())
        got = sampling.sample(planes, places[0], places[1])
        want = between(planes, places[0], places[1])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@with_avx2
def test_views():
    rng = np.random.default_rng(0)
    planes = rng.normal(size=(5, 7, 2, 3)).astype(F).transpose(2, 3, 1, 0)
    places = rng.uniform(-1, 7, (20, 2, 2)).astype(F)
    got = sampling.sample(planes, places[:, :, 0].T, places[:, :, 1].T)
    want = between(planes, places[:, :, 0].T, places[:, :, 1].T)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@with_avx2
def test_no_points_and_no_planes():
    assert (
        sampling.sample(np.ones((2, 0, 3, 3), F), np.ones((2, 9), F), np.ones((2, 9), F)).size == 0
    )
    nothing = np.zeros((0, 9), F)
    assert sampling.sample(np.ones((0, 2, 3, 3), F), nothing, nothing).shape == (0, 2, 9)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("has_code", [True, False])
def test_grids_without_avx512(core, monkeypatch, padding, align, has_code):
    """With the code for other processors, and without any."""
    monkeypatch.setattr(lowered_grid_sample, "has_avx512", lambda: False)
    if not has_code:
        monkeypatch.setattr(grid_sample, "sample_pairs", lambda *_: None)
    rng = np.random.default_rng(align)
    kinds = {"mode": "bilinear", "padding_mode": padding, "align_corners": align}
    inputs = {"x": ["n", "c", "h", "w"], "grid": ["n", "p", "q", 2]}
    model = build([("GridSample", ["x", "grid"], ["y"], kinds)], inputs, ["y"], {})
    executable = load(core, model)
    for shape, places in (((2, 3, 5, 7), (4, 6)), ((3, 11, 9, 4), (1, 3)), ((5, 1, 1, 8), (7, 7))):
        feed = {
            "x": rng.normal(size=shape).astype(F),
            "grid": rng.uniform(-1.4, 1.4, (shape[0], *places, 2)).astype(F),
        }
        (want,) = answer(model, feed)
        np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-4, atol=1e-5)
