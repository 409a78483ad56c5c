"""Convolutions of every kind, compared with OpenVINO."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from polydevice.errors import InferenceError, NetworkError
from polydevice.ops.convolution import (
    Convolution,
    ConvolutionBackpropData,
    GroupConvolution,
    GroupConvolutionBackpropData,
)
from polydevice.ops.window import PadType
from polydevice.testing.op_case import OpCase, network_of
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case, wide_case

RANDOM = np.random.default_rng(19)
SAME_UPPER, SAME_LOWER, VALID = PadType.SAME_UPPER, PadType.SAME_LOWER, PadType.VALID


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def attributes(rank, strides=1, begin=0, end=0, dilations=1, auto_pad=PadType.EXPLICIT):
    def each(v):
        return v if isinstance(v, tuple) else (v,) * rank

    return {"strides": each(strides), "pads_begin": each(begin), "pads_end": each(end),
            "dilations": each(dilations), "auto_pad": auto_pad}  # fmt: skip


@pytest.mark.parametrize(
    ("x", "w", "settings"),
    [
        ((1, 3, 8, 9), (4, 3, 3, 3), {}),
        ((2, 3, 8, 9), (4, 3, 3, 3), {"begin": 1, "end": 1}),
        ((2, 3, 8, 9), (5, 3, 1, 1), {}),
        ((2, 3, 8, 9), (5, 3, 1, 1), {"strides": 2}),
        ((1, 2, 11, 7), (3, 2, 3, 2), {"strides": (2, 3), "begin": (0, 2), "end": (3, 1)}),
        ((1, 2, 11, 12), (3, 2, 3, 3), {"dilations": (2, 3), "begin": 2, "end": 1}),
        ((1, 2, 10, 11), (3, 2, 4, 3), {"strides": 2, "auto_pad": SAME_UPPER}),
        ((1, 2, 10, 11), (3, 2, 4, 3), {"strides": 2, "auto_pad": SAME_LOWER}),
        ((1, 2, 10, 11), (3, 2, 4, 2), {"dilations": 2, "auto_pad": SAME_UPPER}),
        ((1, 2, 10, 11), (3, 2, 4, 3), {"strides": 2, "begin": 1, "auto_pad": VALID}),
        ((1, 17, 5, 5), (19, 17, 5, 5), {"begin": 2, "end": 2}),
        ((2, 3, 20), (4, 3, 5), {"strides": 2, "begin": 2, "end": 1}),
        ((1, 1, 300), (2, 1, 80), {"strides": 16}),
        ((1, 2, 5, 6, 7), (3, 2, 3, 2, 3), {"strides": (1, 2, 1), "begin": 1, "end": 1}),
        ((1, 2, 5, 6, 7), (3, 2, 1, 2, 3), {"auto_pad": SAME_UPPER, "strides": 2}),
    ],
)
def test_convolution(x, w, settings, device):
    op = Convolution(**attributes(len(x) - 2, **settings))
    check(openvino_case(op, floats(*x), floats(*w), constants={1}), device)


@pytest.mark.parametrize(
    ("x", "w", "settings"),
    [
        ((2, 6, 9, 8), (6, 1, 1, 3, 3), {"begin": 1, "end": 1}),
        ((1, 6, 9, 8), (6, 2, 1, 3, 3), {"strides": 2, "auto_pad": SAME_UPPER}),
        ((2, 6, 9, 8), (2, 4, 3, 3, 3), {"begin": 1, "end": 1}),
        ((2, 6, 9, 8), (3, 1, 2, 1, 1), {}),
        ((1, 4, 12), (4, 1, 1, 3), {"dilations": 2}),
        ((1, 4, 5, 6, 7), (2, 3, 2, 3, 3, 3), {"begin": 1, "end": 1}),
        ((1, 4, 20, 20), (4, 1, 1, 9, 9), {"begin": 4, "end": 4}),
    ],
)
def test_group_convolution(x, w, settings, device):
    op = GroupConvolution(**attributes(len(x) - 2, **settings))
    check(openvino_case(op, floats(*x), floats(*w), constants={1}), device)


@pytest.mark.parametrize(
    ("x", "w", "settings", "padding"),
    [
        ((1, 3, 5, 6), (3, 4, 3, 3), {}, 0),
        ((2, 3, 5, 6), (3, 4, 3, 3), {"strides": 2, "begin": 1, "end": 1}, 0),
        ((2, 3, 5, 6), (3, 4, 3, 3), {"strides": 2, "begin": 1, "end": 1}, 1),
        ((1, 3, 5, 6), (3, 4, 2, 2), {"strides": 2}, 0),
        ((1, 3, 5, 6), (3, 2, 3, 4), {"strides": (3, 2), "begin": (2, 0), "end": (0, 1)}, (1, 0)),
        ((1, 3, 5, 6), (3, 2, 3, 3), {"dilations": 2, "begin": 1, "end": 2}, 0),
        ((1, 3, 9), (3, 2, 4), {"strides": 2, "begin": 1, "end": 1}, 0),
        ((1, 2, 3, 4, 5), (2, 3, 3, 3, 2), {"strides": 2, "begin": 1, "end": 0}, 1),
        ((1, 2, 4, 5), (2, 3, 3, 3), {"strides": 2, "auto_pad": VALID, "begin": 1}, 0),
        ((1, 2, 4, 5), (2, 3, 3, 3), {"strides": 2, "auto_pad": SAME_UPPER, "begin": 1}, 0),
    ],
)
def test_transposed_convolution(x, w, settings, padding, device):
    rank = len(x) - 2
    padding = padding if isinstance(padding, tuple) else (padding,) * rank
    op = ConvolutionBackpropData(**attributes(rank, **settings), output_padding=padding)
    check(openvino_case(op, floats(*x), floats(*w), constants={1}), device)


@pytest.mark.parametrize(
    ("settings", "padding", "output"),
    [
        ({"strides": 2, "auto_pad": SAME_UPPER}, 0, (10, 12)),
        ({"strides": 2, "auto_pad": SAME_LOWER}, 0, (10, 12)),
        ({"strides": 2, "auto_pad": SAME_UPPER}, 1, (10, 12)),
        ({"strides": 2, "auto_pad": SAME_UPPER}, 0, (9, 11)),
        ({"strides": 2, "auto_pad": SAME_LOWER}, 0, (9, 11)),
        ({"strides": 2, "begin": 1, "end": 1}, 0, (9, 11)),
        ({"strides": 2, "auto_pad": VALID}, 0, (12, 14)),
    ],
)
def test_transposed_convolution_to_an_output_shape(settings, padding, output, device):
    op = ConvolutionBackpropData(**attributes(2, **settings), output_padding=(padding,) * 2)
    target = np.array(output, np.int64)
    case = openvino_case(op, floats(1, 2, 5, 6), floats(2, 3, 4, 4), target, constants={1, 2})
    check(case, device)


def test_transposed_convolution_to_a_shape_known_at_inference_only(device):
    op = ConvolutionBackpropData(**attributes(2, strides=2, auto_pad=SAME_UPPER))
    inputs = floats(1, 2, 5, 6), floats(2, 3, 4, 4), np.array([10, 12], np.int32)
    check(replace(openvino_case(op, *inputs, constants={1, 2}), constants={1}), device)


@pytest.mark.parametrize(
    ("x", "w", "settings"),
    [
        ((2, 6, 5, 4), (2, 3, 4, 3, 3), {"strides": 2, "begin": 1, "end": 1}),
        ((1, 6, 5, 4), (6, 1, 1, 4, 4), {"strides": 2, "begin": 1, "end": 1}),
        ((1, 4, 9), (2, 2, 3, 4), {"strides": 3}),
        ((1, 4, 3, 4, 3), (4, 1, 2, 2, 2, 2), {"strides": 2}),
    ],
)
def test_grouped_transposed_convolution(x, w, settings, device):
    op = GroupConvolutionBackpropData(**attributes(len(x) - 2, **settings))
    check(openvino_case(op, floats(*x), floats(*w), constants={1}), device)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_round_the_wide_sum(dtype, device):
    op = Convolution(**attributes(2, begin=1, end=1))
    x, w = (floats(*s).astype(dtype) for s in ((2, 5, 7, 7), (4, 5, 3, 3)))
    check(wide_case(op, x, w, tolerance=(1e-2, 3e-2)), device)


def test_integers_are_summed_exactly(device):
    x = RANDOM.integers(-99, 99, (1, 3, 6, 6)).astype(np.int32)
    w = RANDOM.integers(-99, 99, (2, 3, 3, 3)).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), (1, 2))
    expected = np.einsum("chwij,ocij->ohw", windows, w)[None].astype(np.int32)
    check(OpCase(Convolution(**attributes(2)), [x, w], [expected]), device)


def test_many_images_and_rows_exceed_one_buffer(device, monkeypatch):
    monkeypatch.setattr("polydevice_cpu.ops.convolution.COLUMN_BYTES", 5000)
    op = Convolution(**attributes(2, begin=1, end=1))
    check(openvino_case(op, floats(3, 4, 13, 9), floats(6, 4, 3, 3), constants={1}), device)


def test_an_empty_batch(device):
    op = Convolution(**attributes(2))
    case = OpCase(op, [floats(0, 3, 5, 5), floats(4, 3, 3, 3)], [floats(0, 4, 3, 3)])
    check(case, device)


@pytest.mark.parametrize("kind", [Convolution, ConvolutionBackpropData])
def test_padding_that_would_exhaust_memory_is_refused(kind):
    huge = 1 << 30
    op = kind(**attributes(2, strides=huge, begin=huge, end=huge))
    with pytest.raises(InferenceError, match="use a smaller padding"):
        run(op, [floats(1, 3, 5, 5), floats(3, 3, 3, 3)])


@pytest.mark.parametrize(
    ("x", "w", "settings", "message"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, "has 3 channels"),
        ((1, 3, 2, 2), (4, 3, 3, 3), {}, "larger than the input"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"strides": 0}, "strides"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"begin": -1}, "pads_begin"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"dilations": (1, 1, 1)}, "must have 2 items"),
        ((1, 3, 5), (4, 3, 3, 3), {}, "rank"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"end": 1 << 40}, "pads_end"),
    ],
)
def test_what_does_not_fit_is_refused(x, w, settings, message):
    op = Convolution(**attributes(2, **settings))
    with pytest.raises(NetworkError, match=message):
        network_of(OpCase(op, [floats(*x), floats(*w)], []))
