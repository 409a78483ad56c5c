"""Convolutions of bytes for which oneDNN's code with AMX tiles writes beyond its memory."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn import defects
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.primitives import convolution
from polydevice_cpu.plan.step import PrimitiveStep
from tests.cpu.loading import load
from tests.cpu.quantised_graphs import Graph, reference, spread

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

GAPS = [
    ((20, 33), [8, 7], [3, 3], [1, 2], [2, 2], [3, 1, 4, 3]),
    ((32, 48), [14, 16], [5, 1], [1, 1], [2, 1], [7, 0, 8, 0]),
    ((33, 8), [16, 12], [3, 1], [1, 1], [3, 1], [5, 0, 6, 0]),
    ((16, 100), [5, 15], [5, 3], [1, 1], [3, 1], [9, 1, 7, 2]),
    ((64, 20), [14, 6], [5, 2], [1, 1], [3, 3], [5, 0, 10, 1]),
    ((16, 16), [6, 12], [3, 3], [1, 1], [3, 3], [1, 4, 4, 1]),
]
"""Channels, sizes, windows, steps, gaps and borders with which oneDNN 3.2 wrote beyond memory."""

ROWS_LEFT_OUT = [
    ((20, 8), [9, 12], [1, 3], [2, 3], [1, 1], [0, 1, 0, 1]),
    ((96, 40), [14, 9], [1, 3], [2, 1], [1, 3], [0, 3, 0, 3]),
    ((16, 48), [21, 17], [3, 3], [4, 1], [1, 1], [1, 1, 1, 1]),
]
"""The same with rows between windows, for which it keeps too little room."""

FORMS = [(form, "jit:avx512_core_amx") for form in GAPS]
FORMS += [(form, "brgconv:avx512_core_amx") for form in ROWS_LEFT_OUT]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("form", "wrong"), FORMS, ids=str)
def test_code_that_writes_beyond_memory_does_not_run(core, form, wrong, dtype, is_open):
    """On processors without AMX other code runs anyhow, and its answers are compared."""
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
        assert not [s for s in found if s.implementation.startswith(wrong)]


@pytest.mark.parametrize(
    ("weights", "steps", "are"),
    [
        ((48, 16, 3, 3), (4, 1), True),
        ((48, 16, 3, 3), (3, 4), False),  # columns may be left out
        ((8, 20, 1, 3), (2, 3), True),
        ((6, 1, 1, 1, 3, 1), (2, 3, 1), True),
        ((6, 1, 1, 1, 3, 1), (1, 3, 5), False),
        ((6, 4, 3), (7,), False),  # of one axis there are columns alone
    ],
)
def test_rows_are_left_out_where_steps_are_longer_than_windows(weights, steps, are):
    assert defects.leaves_out_rows(weights, steps) == are


@pytest.mark.parametrize("kind", [DataType.U8, DataType.F32])
@pytest.mark.parametrize("steps", [(2, 1), (1, 1)])
def test_the_next_code_is_taken(monkeypatch, kind, steps):
    """As if what this processor takes first were what writes beyond memory."""
    weights = Descriptor.any((32, 16, 1, 3), DataType.S8 if kind is DataType.U8 else kind)
    src, high = Descriptor.channels_last((1, 16, 9, 12), kind), 9 if steps == (1, 1) else 5
    dst = Descriptor.channels_last((1, 32, high, 10))

    def code():
        sizes = steps, (1, 1), (0, 0), (0, 0)
        made = convolution(src, weights, None, dst, *sizes, Attributes())
        return made.implementation

    first = code()
    monkeypatch.setattr(defects, "TILES_OF_BLOCKS", first)
    is_passed_over = kind is DataType.U8 and steps == (2, 1)
    assert (code() != first) == is_passed_over
