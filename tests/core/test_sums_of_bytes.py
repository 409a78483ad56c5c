"""Which sums of products of bytes fit into 32 bits, against every window counted out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Node
from polydevice.ops.convolution import (
    Convolution,
    ConvolutionBackpropData,
    GroupConvolution,
    GroupConvolutionBackpropData,
)
from polydevice.ops.io import Parameter
from polydevice.rewrites.integers.products import fits
from polydevice.shape import Shape

MOST = ((1 << 31) - 1) // (255 * 128)
"""Products of a u8 and an i8 whose sum fits, whatever they are."""


def _node(op, weights):
    channels = op.channels(weights)[0]
    rank = len(weights) - (3 if op.grouped else 2)
    shapes = Shape([1, channels, *[40] * rank]), Shape(weights)
    x, w = (Node(name, Parameter(ElementType.f32, shape)) for name, shape in zip("xw", shapes))
    return Emitter("y").emit(op, x.output, w.output).node


def _meeting(kernel, stride, dilation):
    """How many taps of a transposed window meet in an element along one axis, at most."""
    met = np.zeros(40 * stride + kernel * dilation, int)
    for start, tap in itertools.product(range(40), range(kernel)):
        met[start * stride + tap * dilation] += 1
    return int(met.max())


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
def test_transposed_windows(rank, grouped, rng):
    kind = GroupConvolutionBackpropData if grouped else ConvolutionBackpropData
    for _ in range(20):
        kernel, stride, dilation = (rng.integers(1, 8, rank).tolist() for _ in range(3))
        terms = np.prod([*map(_meeting, kernel, stride, dilation)])
        op = kind(strides=tuple(stride), dilations=tuple(dilation))
        channels = int(MOST // terms)
        for count in (channels, channels + 1):
            shape = (*((2,) if grouped else ()), count, 700, *kernel)
            weights = np.broadcast_to(np.int8(0), shape)
            assert fits(_node(op, shape), weights) == (count * terms <= MOST)


@pytest.mark.parametrize("count", [MOST // 9, MOST // 9 + 1])
def test_windows(count):
    for op, shape in (
        (Convolution(), (700, count, 3, 3)),
        (GroupConvolution(), (2, 700, count, 3, 3)),
    ):
        weights = np.broadcast_to(np.int8(0), shape)
        assert fits(_node(op, shape), weights) == (count * 9 <= MOST)
