"""Reading between pixels of pictures whose sizes are not known: one template for all of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu import models
from tests.cpu.loading import image


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_one_template_serves_all_sizes(core, mode, padding):
    """Sizes are numbers that kernels are told; the middle of pixels, and their corners."""
    corners = int((mode == "bilinear") != (padding == "border"))
    ways = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    nodes = [("GridSample", ["x", "grid"], ["read"], ways), ("Tanh", ["read"], ["y"], {})]
    given = {"x": ["batch", 3, "height", "width"], "grid": ["batch", "rows", "columns", 2]}
    model = models.build(nodes, given, ["y"], {})
    executable = core.load_network(core.read_network(model), "GPU")
    compiler, prepared = executable._compiler, executable._prepared
    sizes = [(1, 7, 9, 5, 6), (2, 11, 8, 4, 3), (1, 6, 13, 9, 2), (3, 5, 6, 1, 7)]
    for number, (batch, height, width, rows, columns) in enumerate(sizes):
        grid = np.random.default_rng(number).uniform(-1.3, 1.3, (batch, rows, columns, 2))
        x = image(number, batch, 3, height, width)
        inputs = {"x": x, "grid": grid.astype(np.float32)}
        if compiler.builds_ahead:
            shapes = tuple(x.shape for x in inputs.values())
            compiler.learn(prepared, shapes, executable._weights, executable.memory)
        (theirs,) = models.answer(model, inputs)
        np.testing.assert_allclose(executable.infer(inputs)["y"], theirs, rtol=1e-4, atol=2e-5)
    assert prepared.templates.filled > 0
