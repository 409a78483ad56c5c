"""Tile, which copies where the result lies, of numbers of repetitions that sizes tell too."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import load

TIMES = {
    "a column": ((1, 4), (1, 1)),
    "rows and columns": ((2, 3), (5, 7)),
    "none": ((1, 1), (3, 4)),
    "in between": ((1, 3, 1, 2), (2, 4, 6, 5)),
    "no time": ((0, 2), (3, 3)),
    "nothing": ((2, 3), (0, 3)),
}


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("known", [False, True])
def test_repetitions(core, times, known, rng):
    counts, sizes = TIMES[times]
    nodes = [("Neg", ["x"], ["a"], {}), ("Tile", ["a", "times"], ["y"], {})]
    shape = list(sizes) if known else [f"d{axis}" for axis in range(len(sizes))]
    model = models.build(nodes, {"x": shape}, ["y"], {"times": np.array(counts, np.int64)})
    request = load(core, model).create_infer_request()
    for number in range(1 if known else 5):
        x = rng.standard_normal([n and n + number for n in sizes]).astype(np.float32)
        np.testing.assert_array_equal(request.infer({"x": x})["y"], np.tile(-x, counts))


def test_repetitions_that_sizes_tell(core, rng):
    nodes = [
        ("Shape", ["z"], ["times"], {}),
        ("Relu", ["x"], ["a"], {}),
        ("Tile", ["a", "times"], ["b"], {}),
        ("Neg", ["b"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["a", "b"], "z": ["c", "d"]}, ["y"], {})
    executable = load(core, model)
    request = executable.create_infer_request()
    for _ in range(10):
        rows, columns, *times = (int(n) for n in rng.integers(1, 9, 4))
        x = rng.standard_normal((rows, columns)).astype(np.float32)
        y = request.infer({"x": x, "z": np.zeros(times, np.float32)})["y"]
        np.testing.assert_array_equal(y, -np.tile(np.maximum(x, 0), times))
    if library() is None:  # NumPy computes everything then
        return
    (step,) = (step for step in executable.latest_plan().steps if step.type == "Tile")
    assert step.inputs[0].shape == (1, rows, 1, columns)  # not repeated by `np.tile`
    assert executable.compiled.templates.filled
