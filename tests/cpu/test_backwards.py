"""Slices from back to front, of one axis and of several; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer, build

FAR = 1 << 60
SLICES = {
    "first": ([-1], [-FAR], [0], [-1]),
    "last": ([-1], [-FAR], [2], [-1]),
    "every second": ([FAR], [0], [1], [-2]),
    "both ways": ([1, -2, 0], [FAR, -FAR, FAR], [0, 1, 2], [1, -3, 2]),
    "all": ([-1, -1, -1], [-FAR] * 3, [0, 1, 2], [-1, -1, -2]),
    "nothing": ([0], [2], [1], [-1]),
}


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("kind", [np.float32, np.int64])
@pytest.mark.parametrize("known", [True, False])
def test_networks(core, name, kind, known):
    start, stop, axes, step = (np.array(each) for each in SLICES[name])
    nodes = [
        ("Slice", ["x", "start", "stop", "axes", "step"], ["a"], {}),
        ("Neg", ["a"], ["y"], {}),
    ]
    weights = {"start": start, "stop": stop, "axes": axes, "step": step}
    shapes = [(5, 7, 3), (4, 40, 19), (1, 2, 1), (3, 6, 50)]
    rng = np.random.default_rng(1)
    for shape in shapes:
        sizes = list(shape) if known else ["n", "m", "k"]
        model = build(nodes, {"x": sizes}, ["y"], weights, element_type=kind)
        executable = load(core, model)
        for each in [shape] if known else shapes:
            x = rng.integers(-99, 99, each).astype(kind)
            (want,) = answer(model, {"x": x})
            np.testing.assert_array_equal(executable.infer({"x": x})["y"], want)


@with_avx512
def test_code_takes_them(core):
    weights = {"start": np.array([-1]), "stop": np.array([-FAR]), "step": np.array([-1])}
    weights["axes"] = np.array([0])
    nodes = [("Slice", ["x", "start", "stop", "axes", "step"], ["y"], {})]
    executable = load(core, build(nodes, {"x": [9, 4]}, ["y"], weights))
    executable.infer({"x": np.ones((9, 4), np.float32)})
    assert "Slice" in by_machine_code(executable)
