"""Reductions and sums of what lies channels last, in that order, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
@pytest.mark.parametrize("axes", [[2], [3], [1], [2, 3], [1, 2]], ids=str)
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceProd"])
def test_behind_a_convolution(core, kind, axes, known):
    function = "Add" if len(kind) % 2 == len(axes) % 2 else "Sub"
    weights = {
        "k": np.random.default_rng(1).uniform(-0.3, 0.3, (16, 3, 3, 3)).astype(np.float32),
        "a": np.array(axes),
    }
    by_input = kind == "ReduceSum"
    nodes = [
        ("Conv", ["x", "k"], ["c"], {"pads": [1, 1, 1, 1]}),
        (kind, ["c", "a"] if by_input else ["c"], ["r"], {} if by_input else {"axes": axes}),
        (function, ["r", "c"] if function == "Sub" else ["c", "r"], ["d"], {}),
        ("Sigmoid", ["d"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [2, 3, 6, 20] if known else [2, 3, "h", "w"]}, ["y"], weights)
    executable = load(core, model)
    request = executable.create_infer_request()
    for number in range(1 if known else 3):
        given = {"x": image(number, 2, 3, 6 + number, 20 + 3 * number)}
        (want,) = models.answer(model, given)
        np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-4, atol=1e-5)
    if known and axes == [2] and kind in ("ReduceMean", "ReduceSum"):
        steps = executable.latest_plan().steps
        assert "numpy" not in {step.implementation for step in steps if step.type == kind}
        moved = [step.values[0].shape for step in steps[1:-1] if step.type == "Reorder"]
        assert (2, 16, 6, 20) not in moved
