"""GroupNormalization is planned as rows with scale and shift, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu.loading import load
from tests.cpu.models import answer, build

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_groups_of_any_size(core, axes):
    rng = np.random.default_rng(axes)
    weights = {name: rng.standard_normal(12).astype(np.float32) for name in "sb"}
    nodes = [
        ("GroupNormalization", ["x", "s", "b"], ["a"], {"num_groups": 4, "epsilon": 1e-3}),
        ("Relu", ["a"], ["y"], {}),
    ]
    model = build(nodes, {"x": ["n", 12, *"hwd"[:axes]]}, ["y"], weights, 21)
    network = load(core, model)
    request = network.create_infer_request()
    for _ in range(6):
        shape = (int(rng.integers(1, 4)), 12, *(int(n) for n in rng.integers(1, 15, axes)))
        x = {"x": (3 * rng.standard_normal(shape) + 1).astype(np.float32)}
        (found,) = request.infer(x).values()
        np.testing.assert_allclose(found, answer(model, x)[0], rtol=1e-4, atol=1e-4)
        assert all(step.implementation != "numpy" for step in network.latest_plan().steps)
    nothing = {"x": np.zeros((0, 12, *[3] * axes), np.float32)}
    assert request.infer(nothing)["y"].shape == nothing["x"].shape
