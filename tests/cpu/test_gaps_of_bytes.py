"""Convolutions of bytes for which oneDNN's code with AMX tiles writes beyond its memory."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan.step import PrimitiveStep
from tests.cpu.loading import load
from tests.cpu.quantised_graphs import Graph, reference, spread

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

FORMS = [
    ((20, 33), [8, 7], [3, 3], [1, 2], [2, 2], [3, 1, 4, 3]),
    ((32, 48), [14, 16], [5, 1], [1, 1], [2, 1], [7, 0, 8, 0]),
    ((33, 8), [16, 12], [3, 1], [1, 1], [3, 1], [5, 0, 6, 0]),
    ((16, 100), [5, 15], [5, 3], [1, 1], [3, 1], [9, 1, 7, 2]),
    ((64, 20), [14, 6], [5, 2], [1, 1], [3, 3], [5, 0, 10, 1]),
    ((16, 16), [6, 12], [3, 3], [1, 1], [3, 3], [1, 4, 4, 1]),
    ((20, 8), [9, 12], [1, 3], [2, 3], [1, 1], [0, 1, 0, 1]),
    ((96, 40), [14, 9], [1, 3], [2, 1], [1, 3], [0, 3, 0, 3]),
    ((16, 48), [21, 17], [3, 3], [4, 1], [1, 1], [1, 1, 1, 1]),
]
"""Channels, sizes, windows, steps, gaps and borders: of the first ones oneDNN 3.2 wrote beyond
memory, where it had gaps, and of the last ones leaves rows out between windows."""


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_borders_of_windows_with_gaps(core, form, dtype, is_open):
    """Code that would write elsewhere is none of those that run."""
    (channels, results), sizes, window, steps, gaps, pads = form
    g = Graph(np.random.default_rng(results))
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04, 7))
    w = g.weights((results, channels, *window), 0)
    how = {"kernel_shape": window, "strides": steps, "dilations": gaps, "pads": pads}
    y = g.emit("Conv", x, w, **how)
    shape = ["n", channels, "h", "v"] if is_open else [2, channels, *sizes]
    model = g.model(shape, dtype, {y: None})
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for more in (0, 1, 3) if is_open else (0, 0):
        feed = {"x": spread(g.rng, (2, channels, *(size + more for size in sizes)), dtype)}
        (wanted,) = reference(model, feed)
        (got,) = request.infer(feed).values()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3 * np.abs(wanted).max())
        found = [s for s in executable.latest_plan().steps if isinstance(s, PrimitiveStep)]
        wrong = "jit:avx512_core_amx" if max(gaps) > 1 else "brgconv:avx512_core_amx"
        assert wrong not in {step.implementation for step in found}
