"""Convolutions of images on matrix units: words lie where the units' lanes look for them.

The units run on few machines; which lane has what of m16n8k32 is published (PTX ISA, "Matrix
fragments for mma.m16n8k32"), and is done here for a row of sixteen pixels.
"""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, Divide
from polydevice.ops.convert import Convert
from polydevice.ops.math import Round, RoundMode
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.convolution.image_floats_mma import ConvolutionImageFloatsMma
from polydevice_gpu.kernels.gemm.image_bytes_mma import ConvolutionImageBytesMma
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.ops import IntegerConvolution, QuantisedConvolution
from tests.gpu.graphs import Sketch, SparingBuilder, compiled, loaded
from tests.gpu.mma_in_c import in_c
from tests.gpu.test_default_choices import GPU

TARGET = dataclasses.replace(GPU, matrix_unit=True, byte_product="ptx")
LANE = np.arange(32)


def _node(channels, columns, kernel, stride):
    s = Sketch()
    random = np.random.default_rng(columns)
    x = s.input("x", 1, channels, 40, 60, kind=ElementType.u8)
    w = random.integers(-128, 128, (columns, channels, kernel, kernel)).astype(np.int8)
    op = IntegerConvolution(
        strides=(stride, stride), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1), zero=3
    )
    graph = compiled(s.network(y=s.add("y", op, x, s.const("w", w))), **dataclasses.asdict(TARGET))
    (node,) = (node for node in graph.nodes if isinstance(node.op, IntegerConvolution))
    return node, w


@pytest.mark.parametrize(
    ("channels", "columns", "kernel", "stride"), [(3, 64, 7, 2), (1, 40, 3, 1), (4, 24, 5, 3)]
)
def test_lanes_find_their_words(channels, columns, kernel, stride):
    node, w = _node(channels, columns, kernel, stride)
    assert node.choice.kernel.name == "image_bytes_mma"
    (launch,) = ConvolutionImageBytesMma().launches(node, node.choice.kernel.modes[0], TARGET)
    (form,) = (a for a in launch.arguments if isinstance(a, Weights) and "lanes" in a.form)
    factors = form.make(w).astype(int)  # eight columns, step, lane, half of the taps, term
    factors = factors.reshape(-1, -(-(kernel**2) // 8), 32, 2, 4)
    x = np.random.default_rng(1).integers(0, 256, (kernel, 15 * stride + kernel, 4))
    x[..., channels:] = 77  # times weights that are zero
    sums = np.zeros((16, factors.shape[0], 8), int)
    for eight, step in np.ndindex(factors.shape[:2]):
        for pixel in range(16):
            for column in range(8):
                for k in range(8):  # words of four terms; the lower and the upper four of eight
                    tap = min(step * 8 + k, kernel**2 - 1)
                    word = x[tap // kernel, pixel * stride + tap % kernel]
                    lane = column * 4 + k % 4
                    sums[pixel, eight, column] += word @ factors[eight, step, lane, k // 4]
    windows = [x[:, p * stride : p * stride + kernel, :channels] for p in range(16)]
    right = np.stack([np.einsum("yxc,ocyx->o", window, w.astype(int)) for window in windows])
    for first in range(0, columns, 32):  # a lane's four pairs are eight neighbours
        for lane in range(4):
            for place in range(8):
                n = first + lane * 8 + place
                got = sums[:, first // 8 + place // 2, lane * 2 + place % 2]
                if n < columns:
                    np.testing.assert_array_equal(got, right[:, n])


@pytest.mark.parametrize(("kind", "zero"), [(ElementType.u8, 3), (ElementType.i8, -7)])
def test_bytes_are_made_of_floats_where_they_are_read(core, opencl, monkeypatch, kind, zero):
    """The first layer of a quantised network; halves between two numbers included."""
    module = importlib.import_module("polydevice_gpu.compiler.compiler")
    target = dataclasses.replace(target_of(opencl), matrix_unit=True)
    launches = ConvolutionImageFloatsMma.launches
    monkeypatch.setattr(module, "target_of", lambda _: target)
    monkeypatch.setattr(
        ConvolutionImageFloatsMma,
        "launches",
        lambda *given: [in_c(launch, of_bytes=True) for launch in launches(*given)],
    )
    random = np.random.default_rng(zero % 11)
    limits, scale = np.iinfo(kind.dtype), np.float32(0.0371)
    w = random.integers(-128, 128, (24, 3, 5, 3)).astype("i1")
    s = Sketch()
    levels = s.add("levels", Divide(), s.input("x", 2, 3, 17, 23), s.const("scale", scale))
    rounded = s.add("rounded", Round(RoundMode.HALF_TO_EVEN), levels)
    moved = s.add("moved", Add(), rounded, s.const("zero", np.float32(zero)))
    clamped = s.add("clamped", Clamp(limits.min, limits.max), moved)
    q = s.add("q", Convert(destination_type=kind), clamped)
    op = IntegerConvolution(
        strides=(2, 1), pads_begin=(2, 1), pads_end=(2, 1), dilations=(1, 1), zero=zero
    )
    network = s.network(y=s.add("y", op, q, s.const("w", w)))
    executable = loaded(network, opencl, SparingBuilder(opencl), core)
    (node,) = executable.latest_plan().graph.nodes
    assert isinstance(node.op, QuantisedConvolution)
    x = random.uniform(-8, 12, (2, 3, 17, 23)).astype("f4")
    x[:, :, ::2] = (random.integers(-150, 280, x[:, :, ::2].shape) + np.float32(0.5)) * scale
    x[0, 0, 0, :2] = np.inf, -np.inf
    with np.errstate(all="ignore"):
        numbers = np.clip(np.rint(x / scale) + np.float32(zero), limits.min, limits.max) - zero
    padded = np.pad(numbers.astype(int), ((0, 0), (0, 0), (2, 2), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 3), (2, 3))[:, :, ::2]
    right = np.einsum("ncyxij,ocij->noyx", windows, w.astype(int))
    for _ in range(2):
        (found,) = executable.infer({"x": x}).values()
        np.testing.assert_array_equal(found, right)
