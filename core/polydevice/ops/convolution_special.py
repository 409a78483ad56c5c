"""Convolutions of another kind: of single bits, and with sampling points that are inputs."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import ShapeError
from polydevice.ops.convolution import Convolution, ConvolutionLike
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import common_type
from polydevice.ops.window import PadType, Window
from polydevice.shape import DimLike, Shape, merge_dim
from polydevice.tensor import TensorDesc


class BinaryMode(enum.Enum):
    """What is counted."""

    XNOR_POPCOUNT = "xnor-popcount"


@operation("BinaryConvolution")
class BinaryConvolution(ConvolutionLike):
    """Convolution of bits that stand for -1 and 1: equal bits count 1, different ones -1.

    Data are 1 where positive. Padding has the value `pad_value`: -1, 1, or 0, which counts nothing.
    The weights' bits are read in an order of their own, see `binary_weights`.

    Inputs:  x  [N, C, H, W], floating point
             w  [O, C, kernel...], u1
    Outputs: y  [N, O, H, W], type of x
    Raises:  ShapeError if channels or attributes do not fit
    Source:  OpenVINO opset1 BinaryConvolution
    """

    sized_by_values = True

    mode: BinaryMode = attribute(default=BinaryMode.XNOR_POPCOUNT)
    pad_value: float = attribute(default=0.0)

    channels = Convolution.channels
    infer_spatial = Convolution.infer_spatial

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [N, O, H, W]; the weights' type is their own."""
        x, w = inputs
        weights = TensorDesc(x.element_type, w.shape)
        return super().infer([x, weights])


def binary_weights(w: Array) -> Array:
    """Return BinaryConvolution's weights as -1 and 1 (f32).

    OpenVINO reads this operation's bits from the lowest of each byte up, though it reads those of
    every other u1 constant from the highest down, which is how `w` was read from the file.
    """
    stored = np.packbits(w.reshape(-1) != 0)
    bits = np.unpackbits(stored, bitorder="little")[: w.size].reshape(w.shape)
    return np.asarray(np.where(bits, np.float32(1), np.float32(-1)))


@operation("DeformableConvolution", since=(1, 8))
class DeformableConvolution(Op):
    """Convolution that samples its input between the pixels, where offsets say.

    Tap k of the output at p reads x at p * stride + k * dilation - pad + offset[k, p] by bilinear
    interpolation, times mask[k, p]. Points outside x are 0; with `bilinear_interpolation_pad`
    points less than one pixel outside are interpolated with zeros.

    Inputs:  x        [N, C, H, W], floating point
             offsets  [N, deformable_group * KH * KW * 2, H', W'], (y, x) per tap
             w        [O, C / group, KH, KW]
             mask     optional (opset8), [N, deformable_group * KH * KW, H', W']
    Outputs: y        [N, O, H', W'], type of x
    Raises:  ShapeError if sizes or groups do not fit
    Source:  OpenVINO opset8 DeformableConvolution
    """

    sized_by_values = True

    strides: tuple[int, ...] = attribute(default=())
    pads_begin: tuple[int, ...] = attribute(default=())
    pads_end: tuple[int, ...] = attribute(default=())
    dilations: tuple[int, ...] = attribute(default=())
    auto_pad: PadType = attribute(default=PadType.EXPLICIT)
    group: int = attribute(default=1)
    deformable_group: int = attribute(default=1)
    bilinear_interpolation_pad: bool = attribute(default=False)

    def window(self, weights: Sequence[DimLike]) -> Window:
        """Return how the kernel of weights of that shape slides."""
        return Window(
            tuple(weights[2:]),
            self.strides,
            self.dilations,
            self.pads_begin,
            self.pads_end,
            self.auto_pad,
        )

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [N, O, H', W']."""
        x, offsets, w, *mask = inputs
        for other in inputs[1:]:
            common_type(self, x, other)
        if self.group < 1 or self.deformable_group < 1:
            raise ShapeError(
                f"{self.type}: group {self.group} and deformable_group {self.deformable_group} "
                "must be at least 1"
            )
        for desc in inputs:
            if desc.shape is not None and len(desc.shape) != 4:
                raise ShapeError(f"{self.type}: {desc.shape} must be of rank 4")
        if x.shape is None or w.shape is None:
            return [x.with_shape([None] * 4)]
        self._check_channels(x.shape, w.shape)
        window = self.window(w.shape)
        spatial = window.output(x.shape[2:])
        taps: DimLike = window.kernel[0] * window.kernel[1] * self.deformable_group
        for what, desc, per_tap in zip(("offsets", "mask"), (offsets, *mask), (2, 1), strict=False):
            wanted = Shape([x.shape[0], taps * per_tap, *spatial])
            try:
                for a, b in zip(desc.shape or wanted, wanted, strict=True):
                    merge_dim(a, b)
            except ShapeError:
                raise ShapeError(f"{self.type}: {what} {desc.shape} must be {wanted}") from None
        return [x.with_shape([x.shape[0], w.shape[0], *spatial])]

    def _check_channels(self, x: Shape, w: Shape) -> None:
        for size, what in ((x[1], "channels"), (w[0], "filters")):
            if isinstance(size, int) and size % self.group:
                raise ShapeError(f"{self.type}: group {self.group} does not divide {size} {what}")
        if isinstance(x[1], int) and x[1] % self.deformable_group:
            raise ShapeError(
                f"{self.type}: deformable_group {self.deformable_group} does not divide {x[1]} "
                "channels"
            )
        try:
            merge_dim(x[1], w[1] * self.group)
        except ShapeError:
            raise ShapeError(
                f"{self.type}: {x[1]} channels do not fit weights {w} in {self.group} groups"
            ) from None
