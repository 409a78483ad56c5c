"""Convolutions for which oneDNN's code with AMX tiles is wrong, or writes beyond its memory."""

from __future__ import annotations

from dataclasses import replace

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

TILES = [
    ((20, 33), [8, 7], [3, 3], [1, 2], [2, 2], [3, 1, 4, 3]),
    ((32, 48), [14, 16], [5, 1], [1, 1], [2, 1], [7, 0, 8, 0]),
    ((33, 8), [16, 12], [3, 1], [1, 1], [3, 1], [5, 0, 6, 0]),
    ((16, 100), [5, 15], [5, 3], [1, 1], [3, 1], [9, 1, 7, 2]),
    ((64, 20), [14, 6], [5, 2], [1, 1], [3, 3], [5, 0, 10, 1]),
    ((16, 16), [6, 12], [3, 3], [1, 1], [3, 3], [1, 4, 4, 1]),
    ((20, 16), [3, 8], [5, 3], [1, 4], [1, 1], [2, 1, 4, 2]),
    ((16, 48), [32, 33], [3, 1], [1, 1], [1, 1], [1, 0, 1, 0]),
    ((24, 8), [1, 4, 4], [1, 3, 5], [4, 2, 1], [1, 1, 1], [0, 1, 2, 0, 0, 2]),
    ((12, 24), [4, 3, 6], [3, 7, 7], [3, 1, 2], [1, 1, 1], [1, 5, 1, 1, 5, 2]),
]
"""Channels, sizes, windows, steps, gaps and borders with which oneDNN 3.2 was wrong."""

POINTS = [
    ((64, 24), [6, 6], [1, 1], [1, 1], [1, 1], [0, 0, 0, 0]),
    ((96, 16), [27], [1], [1], [1], [0, 0]),
    ((96, 3), [3, 3, 4], [1, 1, 1], [1, 1, 1], [1, 1, 1], [0, 0, 0, 0, 0, 0]),
]

BLOCKS = [
    ((20, 8), [9, 12], [1, 3], [2, 3], [1, 1], [0, 1, 0, 1]),
    ((96, 40), [14, 9], [1, 3], [2, 1], [1, 3], [0, 3, 0, 3]),
    ((16, 48), [21, 17], [3, 3], [4, 1], [1, 1], [1, 1, 1, 1]),
    ((48, 12), [8, 10, 10], [1, 3, 2], [3, 1, 1], [1, 1, 3], [0, 1, 1, 0, 1, 2]),
    ((20, 40), [1, 7], [2, 1], [1, 1], [3, 3], [1, 0, 2, 0]),
    ((16, 96), [1, 5, 2], [3, 1, 1], [3, 1, 2], [2, 1, 1], [1, 0, 0, 3, 0, 0]),
    ((96, 48), [3, 20], [1, 2], [2, 2], [1, 1], [0, 0, 0, 0]),
    ((96, 24), [9, 16], [3, 2], [1, 2], [1, 1], [1, 0, 0, 0]),
]

FORMS = [(form, "jit:avx512_core_amx", 7) for form in TILES]
FORMS += [(form, "jit_1x1:avx512_core_amx", zero) for form in POINTS for zero in (0, 7)]
FORMS += [(form, "brgconv:avx512_core_amx", 0) for form in BLOCKS]


def form_of(given, zero, source=DataType.U8):
    """What `defects` makes of one of the forms above."""
    (channels, _), sizes, window, steps, gaps, pads = given
    begin, end = pads[: len(sizes)], pads[len(sizes) :]
    axes = zip(sizes, window, steps, gaps, begin, end, strict=True)
    results = [(n + a + b - (k - 1) * g - 1) // s + 1 for n, k, s, g, a, b in axes]
    lists = (sizes, results, window, steps, gaps, begin, end)
    return defects.Form(source, channels, *map(tuple, lists), has_zero=zero > 0)


@pytest.mark.parametrize(("form", "code", "zero"), FORMS, ids=str)
def test_it_is_known_which_code_is_wrong(form, code, zero):
    assert defects.is_wrong(code, form_of(form, zero))
    for other in ("brgconv_1x1:avx512_core_amx", "jit_int8:avx512_core_vnni"):
        assert not defects.is_wrong(other, form_of(form, zero))


@pytest.mark.parametrize("form", POINTS, ids=str)
@pytest.mark.parametrize("code", ["jit:avx512_core_amx", "brgconv:avx512_core_amx"])
def test_other_code_computes_points(form, code):
    assert not defects.is_wrong(code, form_of(form, 7))


@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize(
    "form",
    [
        ((64, 64), [56, 56], [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
        ((3, 64), [224, 224], [7, 7], [2, 2], [1, 1], [3, 3, 3, 3]),
        ((24, 32), [56, 56], [3, 3], [2, 2], [1, 1], [0, 0, 1, 1]),
        ((48, 96), [100], [5], [2], [1], [2, 2]),
        ((64, 64), [8, 9, 10], [3, 3, 3], [1, 1, 1], [1, 1, 1], [0] * 6),
        ((40, 20), [14, 14], [3, 3], [1, 1], [2, 2], [0] * 4),
    ],
    ids=str,
)
def test_usual_convolutions_are_computed_by_tiles(form, zero):
    for code in ("jit:avx512_core_amx", "brgconv:avx512_core_amx"):
        assert not defects.is_wrong(code, form_of(form, zero))


@pytest.mark.parametrize(("channels", "is_wrong"), [(63, False), (64, True), (96, True)])
def test_points_of_few_channels_are_computed_by_tiles(channels, is_wrong):
    form = form_of(((channels, 24), [6, 6], [1, 1], [1, 1], [1, 1], [0] * 4), 7)
    assert defects.is_wrong("jit_1x1:avx512_core_amx", form) == is_wrong


def test_transposed_convolutions_are_judged_as_what_computes_them():
    code = "brg_conv:avx512_core_amx+brgconv:avx512_core_amx"
    for sizes, result, begin, end, is_wrong in (
        (1, 1, 1, 2, True),  # one number, between two of a window that are three apart
        (4, 4, 1, 2, False),
        (4, 7, 0, 0, False),
        (4, 8, 0, -1, True),  # the last window is behind all numbers
    ):
        form = defects.Form(
            *(DataType.U8, 20, (sizes, 7), (result, 7), (2, 1), (1, 1), (3, 1)),
            *((begin, 0), (end, 0)),
            is_transposed=True,
        )
        assert defects.is_wrong(code, form) == is_wrong
    behind = (6,), (14,), (3,), (2,), (1,), (0,)
    for end, is_wrong in ((-1, True), (0, False)):
        form = defects.Form(DataType.U8, 20, *behind, (end,), is_transposed=True)
        assert defects.is_wrong("jit_deconvolution:avx512_core_amx", form) == is_wrong
    between = (13, 12), (39, 12), (1, 3), (3, 1), (1, 1), (0, 1), (0, 1)
    form = defects.Form(DataType.S8, 20, *between, is_transposed=True)
    assert defects.is_wrong("jit_deconvolution:avx512_core_vnni", form)


def test_a_zero_point_and_two_borders_are_not_for_blocks_of_bytes():
    sizes = (5, 12), (2, 6), (7, 5), (3, 2), (1, 2), (3, 4), (2, 3)
    form = defects.Form(DataType.S8, 40, *sizes, has_zero=True)
    assert defects.is_wrong("brgconv:avx512_core_vnni", form)
    assert not defects.is_wrong("brgconv:avx512_core_vnni", replace(form, has_zero=False))


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("form", "wrong", "zero"), FORMS, ids=str)
def test_wrong_code_does_not_run(core, form, wrong, zero, dtype, is_open):
    """On processors without AMX other code runs anyhow, and its answers are compared."""
    (channels, results), sizes, window, steps, gaps, pads = form
    g = Graph(np.random.default_rng(results))
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04, zero))
    w = g.weights((results, channels, *window), 0)
    how = {"kernel_shape": window, "strides": steps, "dilations": gaps, "pads": pads}
    y = g.emit("Conv", x, w, **how)
    shape = ["n", channels, *"dhw"[-len(sizes) :]] if is_open else [2, channels, *sizes]
    model = g.model(shape, dtype, {y: None})
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for more in (0, 1, 3) if is_open else (0, 0):
        larger = [size + more for size in sizes]
        feed = {"x": spread(g.rng, (2, channels, *larger), dtype)}
        (wanted,) = reference(model, feed)
        (got,) = request.infer(feed).values()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3 * np.abs(wanted).max())
        if defects.is_wrong(wrong, form_of(((channels, results), larger, *form[2:]), zero)):
            found = [s for s in executable.latest_plan().steps if isinstance(s, PrimitiveStep)]
            assert not [s for s in found if s.implementation.startswith(wrong)]


@pytest.mark.parametrize(
    ("window", "steps", "are"),
    [
        ((3, 3), (4, 1), True),
        ((3, 3), (3, 4), False),  # columns may be left out
        ((1, 3), (2, 3), True),
        ((1, 3, 1), (2, 3, 1), True),
        ((1, 3, 1), (1, 3, 5), False),
        ((3,), (7,), False),  # of one axis there are columns alone
    ],
)
def test_rows_are_left_out_where_steps_are_longer_than_windows(window, steps, are):
    axes = len(steps)
    given = (8, 8), [9] * axes, window, steps, [1] * axes, [0] * 2 * axes
    form = form_of(given, 0, DataType.BF16)
    assert form.leaves_out_rows == are
    assert defects.is_wrong("brgconv:avx512_core_bf16", form) == are


@pytest.mark.parametrize("kind", [DataType.U8, DataType.F32])
@pytest.mark.parametrize("steps", [(2, 1), (1, 1)])
def test_the_next_code_is_taken(monkeypatch, kind, steps):
    """As if what this processor takes first were what is wrong."""
    weights = Descriptor.any((32, 16, 1, 3), DataType.S8 if kind is DataType.U8 else kind)
    src, high = Descriptor.channels_last((1, 16, 9, 12), kind), 9 if steps == (1, 1) else 5
    dst = Descriptor.channels_last((1, 32, high, 10))

    def code():
        sizes = steps, (1, 1), (0, 0), (0, 0)
        made = convolution(src, weights, None, dst, *sizes, Attributes())
        return made.implementation

    first = code()
    monkeypatch.setattr(defects, "_SUSPECTS", (first,))
    monkeypatch.setattr(defects, "is_wrong", lambda name, form: form.leaves_out_rows)
    assert (code() != first) == (steps == (2, 1))
