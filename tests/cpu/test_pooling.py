"""Pooling of planar tensors: by code for channels last where oneDNN has plain loops for planes."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan.step import PrimitiveStep
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

WINDOWS = {
    "3x3": {"kernel_shape": [3, 3], "pads": [1] * 4},
    "2x2, side by side": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "a row, rounded up": {"kernel_shape": [5], "strides": [3], "ceil_mode": 1},
    "a volume": {"kernel_shape": [2, 3, 1], "pads": [0, 1, 0, 1, 1, 0]},
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("known", [False, True])
def test_planes_are_not_pooled_by_plain_loops(core, kind, window, known):
    attributes = WINDOWS[window]
    axes = len(attributes["kernel_shape"])
    names = ["d", "h", "w"][-axes:]
    sizes = [9, 17, 14][-axes:]
    shape = [2, 3, *sizes] if known else ["n", 3, *names]
    nodes = [(kind, ["x"], ["a"], attributes), ("Relu", ["a"], ["y"], {})]
    model = models.build(nodes, {"x": shape}, ["y"], {})
    executable = load(core, model)
    request = executable.create_infer_request()
    for number in range(2 if known else 4):
        x = image(number, 2, 3, *(n + (0 if known else number) for n in sizes)) - np.float32(0.5)
        (want,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(request.infer({"x": x})["y"], want, rtol=1e-5, atol=1e-6)
    steps = [s for s in executable.latest_plan().steps if isinstance(s, PrimitiveStep)]
    pools = [step for step in steps if step.primitive.kind == "pooling"]
    assert pools
    assert not any(step.primitive.implementation.startswith("simple") for step in pools)
