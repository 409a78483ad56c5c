"""Convolutions of single bits, and with sampling points that are inputs."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import NetworkError
from polydevice.ops.convolution_special import BinaryConvolution, DeformableConvolution
from polydevice.ops.window import PadType
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(59)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("pad_value", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("strides", [1, 2])
def test_binary_convolution_by_hand(pad_value, strides, device):
    x, w = floats(2, 5, 7, 8), RANDOM.integers(0, 2, (4, 5, 3, 3)).astype(np.uint8)
    signs = np.pad(np.where(x > 0, 1.0, -1.0), ((0, 0), (0, 0), (1, 1), (1, 1)),
                   constant_values=pad_value)  # fmt: skip
    windows = np.lib.stride_tricks.sliding_window_view(signs, (3, 3), (2, 3))
    windows = windows[:, :, ::strides, ::strides]
    # Every eight bits are read backwards, and 5 * 3 * 3 * 4 elements are not a multiple of eight.
    stored = np.pad(w.reshape(-1), (0, -w.size % 8)).reshape(-1, 8)
    bits = stored[:, ::-1].reshape(-1)[: w.size].reshape(w.shape)
    expected = np.einsum("nchwij,ocij->nohw", windows, 2.0 * bits - 1).astype(np.float32)
    op = BinaryConvolution(
        strides=(strides,) * 2, pads_begin=(1, 1), pads_end=(1, 1), pad_value=pad_value
    )
    types = {1: ElementType.u1}
    check(OpCase(op, [x, w], [expected], constants={1}, element_types=types), device)


@pytest.mark.parametrize("pad_value", [-1.0, 0.0, 1.0])
def test_binary_convolution_against_openvino(pad_value, device):
    x = np.where(floats(1, 16, 9, 8) > 0, 1, -1).astype(np.float32)
    w = RANDOM.integers(0, 2, (8, 16, 3, 3)).astype(np.uint8)
    op = BinaryConvolution(
        strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1), dilations=(1, 1), pad_value=pad_value
    )
    check(openvino_case(op, x, w, constants={1}, element_types={1: ElementType.u1}), device)


def deformable(x, w, spatial, *, groups=1, amount=2.0, mask=False, **settings):
    taps = w[2] * w[3] * groups
    shape = (x[0], taps, *spatial)
    offsets = RANDOM.uniform(-amount, amount, (x[0], 2 * taps, *spatial)).astype(np.float32)
    inputs = [floats(*x), offsets, floats(*w)]
    inputs += [RANDOM.random(shape).astype(np.float32)] if mask else []
    ones = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
    return DeformableConvolution(**(ones | settings), deformable_group=groups), inputs


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(
    ("x", "w", "spatial", "settings"),
    [
        ((1, 4, 8, 9), (6, 4, 3, 3), (6, 7), {}),
        ((2, 4, 8, 9), (6, 4, 3, 3), (4, 5), {"strides": (2, 2), "pads_begin": (1, 1),
                                             "pads_end": (1, 1)}),
        ((1, 4, 8, 9), (6, 2, 3, 3), (6, 7), {"group": 2}),
        ((1, 4, 8, 9), (6, 4, 3, 2), (6, 8), {"groups": 2}),
        ((1, 4, 8, 9), (6, 4, 3, 3), (4, 5), {"dilations": (2, 2)}),
        ((1, 4, 8, 9), (6, 4, 3, 3), (8, 9), {"auto_pad": PadType.SAME_UPPER}),
    ],
)  # fmt: skip
def test_deformable_convolution(soft, mask, x, w, spatial, settings, device):
    op, inputs = deformable(x, w, spatial, mask=mask, bilinear_interpolation_pad=soft, **settings)
    check(openvino_case(op, *inputs), device)


def test_deformable_convolution_of_opset1(device):
    op, inputs = deformable((1, 4, 8, 9), (6, 4, 3, 3), (6, 7), amount=20.0)
    check(openvino_case(op, *inputs, opset=1), device)


def test_many_rows_exceed_one_buffer(device, monkeypatch):
    monkeypatch.setattr("polydevice_cpu.ops.convolution_special.COLUMN_BYTES", 20_000)
    monkeypatch.setattr(
        "polydevice_cpu.passes.convolution.deformable_convolution.MOST_BYTES", 20_000
    )
    op, inputs = deformable((2, 4, 8, 9), (6, 4, 3, 3), (6, 7), mask=True)
    check(openvino_case(op, *inputs), device)


def test_what_does_not_fit_is_refused():
    op, inputs = deformable((1, 4, 8, 9), (6, 4, 3, 3), (5, 7))
    with pytest.raises(NetworkError, match="offsets"):
        network_of(OpCase(op, inputs, []))
    op, inputs = deformable((1, 4, 8, 9), (6, 4, 3, 3), (6, 7), group=3)
    with pytest.raises(NetworkError, match="does not divide"):
        network_of(OpCase(op, inputs, []))
