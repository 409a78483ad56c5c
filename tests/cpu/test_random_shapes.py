"""Random numbers in networks of unknown sizes: plans are filled in, numbers are drawn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


def _noisy(weights: np.ndarray, shape: list[object], **seed: float) -> bytes:
    """A convolution, noise of its own size, and noise of a size that the input says."""
    nodes = [
        ("Conv", ["x", "w"], ["a"], {"pads": [1, 1]}),
        ("RandomNormalLike", ["a"], ["b"], seed),
        ("Add", ["a", "b"], ["c"], {}),
        ("RandomUniformLike", ["c"], ["d"], seed),
        ("Mul", ["c", "d"], ["y"], {}),
    ]
    return models.build(nodes, {"x": shape}, ["y"], {"w": weights})


def test_seeds_draw_the_same_numbers_whatever_plans_are_made_of(core, rng):
    weights = rng.standard_normal((8, 4, 3)).astype(np.float32)
    executable = load(core, _noisy(weights, ["n", 4, "l"], seed=3.0))
    request = executable.create_infer_request()
    for number in range(7):
        x = rng.standard_normal((1 + number % 3, 4, 10 + number)).astype(np.float32)
        alone = load(core, _noisy(weights, list(x.shape), seed=3.0)).infer({"x": x})["y"]
        for _ in range(2):
            np.testing.assert_allclose(request.infer({"x": x})["y"], alone, 1e-5, 1e-6)
    assert executable.compiled.templates.filled


def test_every_inference_draws_its_own_numbers(core, rng):
    weights = rng.standard_normal((8, 4, 3)).astype(np.float32)
    executable = load(core, _noisy(weights, ["n", 4, "l"]))
    request = executable.create_infer_request()
    for number in range(7):
        x = rng.standard_normal((1, 4, 10 + number)).astype(np.float32)
        drawn = [request.infer({"x": x})["y"].copy() for _ in range(3)]
        assert all((a != b).mean() > 0.9 for a, b in pairwise(drawn))
    assert executable.compiled.templates.filled
