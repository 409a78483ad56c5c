"""Convolutions, transposed convolutions and Col2Im."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polydevice.dtype import Array
from polydevice.ops import convolution
from polydevice.ops.op import Op
from polydevice.ops.patches import Col2Im
from polydevice.ops.window import PadType
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data, ints
from tests.ops.openvino_oracle import openvino_case


def _random(data: Data, rank: int, groups: int) -> tuple[Array, Array, dict[str, object]]:
    """Return an image [N, G·C, …], weights [G, O, C, …] and attributes that fit one another."""
    draw = data.random.integers
    kernel, strides = draw(1, 4, rank), draw(1, 4 if rank < 3 else 3, rank)
    dilations, begin, end = draw(1, 3, rank), draw(0, 3, rank), draw(0, 3, rank)
    sizes = dilations * (kernel - 1) + draw(1, 8, rank) + np.maximum(begin, end)
    inputs, outputs = (int(n) for n in draw(1, 14, 2))
    settings: dict[str, object] = {
        name: tuple(map(int, values))
        for name, values in (
            ("strides", strides), ("dilations", dilations), ("pads_begin", begin),
            ("pads_end", end),
        )
    }  # fmt: skip
    x = data(int(draw(1, 3)), groups * inputs, *map(int, sizes))
    return x, data(groups, outputs, inputs, *map(int, kernel)), settings


def convolutions(data: Data) -> Iterator[OpCase]:
    def conv(x: Array, w: Array, *, computed: bool = False, **settings: object) -> OpCase:
        rank = x.ndim - 2
        defaults = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads_begin": (0,) * rank}
        attributes = {**defaults, "pads_end": (0,) * rank, **settings}
        grouped = w.ndim == x.ndim + 1
        kind = convolution.GroupConvolution if grouped else convolution.Convolution
        return openvino_case(kind(**attributes), x, w, constants=set() if computed else {1})

    yield conv(data(2, 3, 9, 11), data(5, 3, 3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    # Few windows: a simulator takes a second for ten thousand products.
    yield conv(data(1, 3, 12, 15), data(5, 3, 7, 7), strides=(2, 2), pads_begin=(3, 3),
               pads_end=(3, 2))  # fmt: skip
    yield conv(data(1, 19, 8, 7), data(33, 19, 1, 1))
    yield conv(data(1, 16, 13, 10), data(24, 16, 3, 5), strides=(2, 3), dilations=(2, 1),
               pads_begin=(2, 1), pads_end=(1, 3))  # fmt: skip
    yield conv(data(3, 4, 5, 5), data(7, 4, 5, 5), auto_pad=PadType.SAME_UPPER)
    yield conv(data(2, 9, 17), data(12, 9, 4), strides=(2,), pads_begin=(1,), pads_end=(2,))
    yield conv(data(1, 3, 4, 5, 6), data(6, 3, 2, 3, 3), pads_begin=(0, 1, 1), pads_end=(1, 1, 0))
    yield conv(data(2, 12, 9, 7), data(12, 1, 1, 3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    yield conv(data(1, 32, 15, 15), data(32, 1, 1, 5, 5), strides=(2, 2), pads_begin=(2, 2),
               pads_end=(2, 2))  # fmt: skip
    yield conv(data(1, 12, 6, 9), data(3, 8, 4, 3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    yield conv(data(1, 10, 6, 5), data(5, 3, 2, 2, 2))
    yield conv(data(2, 9, 7), data(3, 16, 3, 2), strides=(2,))
    yield conv(data(1, 12, 5, 7), data(1, 9, 12, 3, 1))
    # So many terms that every kernel can split them, with groups and without.
    yield conv(data(1, 456, 3, 5), data(10, 456, 3, 3), pads_begin=(1, 1), pads_end=(0, 0))
    yield conv(data(1, 456, 4, 3), data(1, 6, 456, 3, 3), pads_begin=(0, 1), pads_end=(1, 0))
    # Weights that are computed: of one group, of several, and of one channel in each.
    yield conv(data(2, 11, 7, 9), data(21, 11, 3, 3), computed=True, pads_begin=(1, 2),
               pads_end=(1, 0), strides=(2, 1))  # fmt: skip
    yield conv(data(1, 9, 5, 3, 4), data(18, 9, 2, 1, 2), computed=True, dilations=(1, 1, 2))
    yield conv(data(1, 6, 17), data(2, 16, 3, 4), computed=True, pads_begin=(2,), pads_end=(1,))
    yield conv(data(1, 6, 5, 8), data(3, 5, 2, 2, 2), computed=True)
    yield conv(data(2, 8, 5, 8), data(8, 1, 1, 3, 3), computed=True, pads_begin=(1, 1))
    for groups in (1, 1, int(data.random.integers(2, 5))):
        rank = int(data.random.integers(1, 4))
        x, w, settings = _random(data, rank, groups)
        yield conv(x, w if groups > 1 else w[0], **settings)
    # Depthwise, with more taps in a row than are held at once, and with some that are apart.
    yield conv(data(1, 8, 4, 23), data(8, 1, 1, 2, 9), pads_begin=(0, 4), pads_end=(1, 3))
    yield conv(data(1, 16, 7, 19), data(16, 1, 1, 3, 3), dilations=(1, 2), pads_begin=(1, 3),
               pads_end=(0, 1))  # fmt: skip


def deconvolutions(data: Data) -> Iterator[OpCase]:
    def deconv(x: Array, w: Array, **settings: object) -> OpCase:
        rank = x.ndim - 2
        defaults = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads_begin": (0,) * rank}
        attributes = {**defaults, "pads_end": (0,) * rank, **settings}
        grouped = w.ndim == x.ndim + 1
        kind = (
            convolution.GroupConvolutionBackpropData
            if grouped
            else convolution.ConvolutionBackpropData
        )
        return openvino_case(kind(**attributes), x, w, constants={1})

    yield deconv(data(2, 5, 6, 7), data(5, 4, 3, 3), strides=(2, 2), pads_begin=(1, 1),
                 pads_end=(1, 1), output_padding=(1, 1))  # fmt: skip
    yield deconv(data(1, 3, 5), data(3, 2, 4), strides=(3,))
    yield deconv(data(1, 4, 5, 5), data(2, 2, 3, 2, 2), strides=(2, 2))
    yield deconv(data(1, 19, 5, 9), data(19, 21, 4, 4), strides=(2, 2), pads_begin=(1, 1),
                 pads_end=(1, 1))  # fmt: skip
    yield deconv(data(1, 9, 5, 6), data(9, 8, 3, 2), strides=(2, 3), dilations=(2, 3),
                 pads_begin=(3, 0), pads_end=(0, 2))  # fmt: skip
    yield deconv(data(1, 6, 2, 3, 4), data(2, 3, 5, 2, 3, 3), strides=(1, 2, 2),
                 pads_begin=(0, 1, 2), auto_pad=PadType.EXPLICIT)  # fmt: skip
    yield deconv(data(2, 12, 5, 7), data(12, 1, 1, 5, 4), strides=(3, 2), pads_begin=(2, 1),
                 pads_end=(0, 1))  # fmt: skip
    yield deconv(data(1, 5, 7, 6), data(5, 3, 1, 1), strides=(3, 2), output_padding=(2, 1))
    yield deconv(data(1, 6, 5, 4), data(2, 3, 16, 3, 2), strides=(2, 1))
    for groups in (1, 1, int(data.random.integers(2, 5))):
        rank = int(data.random.integers(1, 4))
        x, w, settings = _random(data, rank, groups)
        w = np.ascontiguousarray(w.swapaxes(1, 2))
        yield deconv(x, w if groups > 1 else w[0], **settings)


def col2im(data: Data) -> Iterator[OpCase]:
    plain = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
    for size, window, batch, settings in (
        ((5, 7), (2, 3), (2,), {}),
        ((7, 6), (3, 2), (), {"strides": (2, 2), "pads_begin": (1, 0), "pads_end": (1, 2)}),
        ((8, 9), (2, 3), (3,), {"dilations": (2, 3)}),
    ):
        op = Col2Im(**{**plain, **settings})
        places = int(np.prod(op.places(size, window)))
        x = data(*batch, 3 * int(np.prod(window)), places)
        yield openvino_case(op, x, ints(*size), ints(*window), constants={1, 2})


CASES: dict[type[Op], Cases] = {
    convolution.Convolution: convolutions,
    convolution.GroupConvolution: convolutions,
    convolution.ConvolutionBackpropData: deconvolutions,
    convolution.GroupConvolutionBackpropData: deconvolutions,
    Col2Im: col2im,
}
