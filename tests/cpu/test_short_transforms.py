"""Fourier transforms of few points are products, others NumPy's: as defined, in f64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.loading import load, steps
from tests.cpu.models import build

F = np.float32


def transformed(x, points, sign):
    """What the last axis is transformed to, by definition."""
    numbers = np.arange(points)
    return x @ np.exp(sign * 2j * np.pi * np.outer(numbers, numbers) / points)


@pytest.mark.parametrize(("rows", "points"), [(1, 1), (3, 16), (2, 100), (7, 700), (60, 128)])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_transforms(core, rows, points, parts, inverse, axis):
    shape = [rows, points, parts] if axis else [points, rows, parts]
    nodes = [("DFT", ["x"], ["y"], {"axis": axis, "inverse": inverse})]
    x = np.random.default_rng(points).normal(size=shape).astype(F)
    executable = load(core, build(nodes, {"x": shape}, ["y"], {}))
    got = executable.infer({"x": x})["y"]
    whole = x.astype(float) @ [1, 1j][:parts]
    want = transformed(whole if axis else whole.T, points, 1 if inverse else -1)
    want = want / points if inverse else want
    want = want if axis else want.T
    found = got.astype(float) @ [1, 1j]
    np.testing.assert_allclose(found, want, atol=1e-6 * max(np.abs(want).max(), 1))
    is_product = rows * points * points * 4 <= 1 << 19 and points * points * 4 <= 1 << 17
    assert any("DFT" in step for step in steps(executable)) == (not is_product)


@pytest.mark.parametrize("one_sided", [0, 1])
@pytest.mark.parametrize(("length", "size"), [(256, 64), (20_000, 400)])
def test_frames(core, one_sided, length, size):
    hop, window = size // 3, np.hanning(size).astype(F)
    nodes = [("STFT", ["x", "hop", "w"], ["y"], {"onesided": one_sided})]
    model = build(nodes, {"x": [2, length, 1]}, ["y"], {"hop": np.array(hop), "w": window})
    x = np.random.default_rng(size).normal(size=(2, length, 1)).astype(F)
    got = load(core, model).infer({"x": x})["y"].astype(float) @ [1, 1j]
    frames = np.lib.stride_tricks.sliding_window_view(x[..., 0], size, 1)[:, ::hop]
    want = transformed(frames.astype(float) * window, size, -1)
    want = want[..., : size // 2 + 1] if one_sided else want
    np.testing.assert_allclose(got, want, atol=1e-6 * np.abs(want).max())
