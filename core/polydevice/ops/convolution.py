"""Convolutions of 1 to 3 spatial axes, plain and grouped, and their transposed forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polydevice.dataclass import dataclass
from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import common_type
from polydevice.ops.window import PadType, Window, cached_window
from polydevice.shape import Dim, DimLike, Shape, bounds, dim, merge_dim
from polydevice.tensor import TensorDesc


@dataclass(frozen=True)
class ConvolutionLike(Op):
    """What the four convolutions share: attributes, the kernel's window, the channels.

    `grouped` tells whether the weights start with a group axis.
    """

    sized_by_values = True

    grouped: ClassVar[bool] = False

    strides: tuple[int, ...] = attribute(default=())
    pads_begin: tuple[int, ...] = attribute(default=())
    pads_end: tuple[int, ...] = attribute(default=())
    dilations: tuple[int, ...] = attribute(default=())
    auto_pad: PadType = attribute(default=PadType.EXPLICIT)

    def window(self, weights: Sequence[DimLike]) -> Window:
        """Return how the kernel of weights of that shape slides."""
        kernel = tuple(weights[3 if self.grouped else 2 :])
        pads = self.pads_begin, self.pads_end
        return cached_window(kernel, self.strides, self.dilations, *pads, self.auto_pad)

    def channels(self, weights: Sequence[DimLike]) -> tuple[DimLike, DimLike]:
        """Return the number of input and output channels of weights of that shape."""
        raise NotImplementedError(f"{type(self).__name__} does not define channels()")

    def infer_spatial(
        self, sizes: Sequence[DimLike], window: Window, inputs: Sequence[TensorDesc]
    ) -> list[DimLike]:
        """Return the spatial sizes of the output."""
        raise NotImplementedError(f"{type(self).__name__} does not define infer_spatial()")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [N, C_out, spatial...]; unknown weights leave only the rank."""
        data, weights = inputs[:2]
        element_type = common_type(self, data, weights)
        extra = 3 if self.grouped else 2
        if weights.shape is not None and data.shape is None:
            unknown = Shape([None] * (len(weights.shape) - extra + 2))
            data = TensorDesc(element_type, unknown)
        if data.shape is None:
            return [TensorDesc(element_type)]
        shape = data.shape
        if weights.shape is None:
            weights = TensorDesc(element_type, Shape([Dim(1)] * (len(shape) - 2 + extra)))
        assert weights.shape is not None
        if not 3 <= len(shape) <= 5 or len(weights.shape) != len(shape) - 2 + extra:
            raise ShapeError(
                f"{self.type} takes data of rank 3 to 5 and weights of rank {extra} more than its "
                f"spatial axes, not {shape} and {weights.shape}"
            )
        channels_in, channels_out = self.channels(weights.shape)
        try:
            merge_dim(shape[1], channels_in)
        except ShapeError:
            raise ShapeError(
                f"{self.type}: data {shape} has {shape[1]} channels but the weights "
                f"{weights.shape} need {channels_in}"
            ) from None
        spatial = self.infer_spatial(shape[2:], self.window(weights.shape), inputs)
        return [TensorDesc(element_type, Shape([shape[0], channels_out, *spatial]))]


@operation("Convolution")
class Convolution(ConvolutionLike):
    """Cross-correlation: y[n,o,p] = sum over c, k of x[n,c,p*stride+k*dilation-pad] * w[o,c,k].

    Inputs:  x  [N, C, spatial...], 1 to 3 spatial axes, numeric
             w  [O, C, kernel...], same type
    Outputs: y  [N, O, spatial...], type of x
    Raises:  ShapeError if channels or attributes do not fit, or the kernel exceeds the input
    Source:  OpenVINO opset1 Convolution; ONNX Conv-11 without bias and groups
    """

    def channels(self, weights: Sequence[DimLike]) -> tuple[DimLike, DimLike]:
        """Weights are [O, C, ...]."""
        return weights[1], weights[0]

    def infer_spatial(
        self,
        sizes: Sequence[DimLike],
        window: Window,
        inputs: Sequence[TensorDesc],
    ) -> list[DimLike]:
        """Return where the window stops."""
        return window.output(sizes)


@operation("GroupConvolution")
class GroupConvolution(Convolution):
    """Convolution in G groups; each output channel sees the C/G input channels of its group.

    Inputs:  x  [N, C, spatial...], 1 to 3 spatial axes, numeric
             w  [G, O/G, C/G, kernel...], same type
    Outputs: y  [N, O, spatial...], type of x
    Raises:  ShapeError if channels or attributes do not fit, or the kernel exceeds the input
    Source:  OpenVINO opset1 GroupConvolution
    """

    grouped = True

    def channels(self, weights: Sequence[DimLike]) -> tuple[DimLike, DimLike]:
        """Weights are [G, O/G, C/G, ...]."""
        return weights[0] * weights[2], weights[0] * weights[1]


@operation("ConvolutionBackpropData")
class ConvolutionBackpropData(ConvolutionLike):
    """Transposed convolution: the gradient of Convolution with respect to its input.

    Without the third input the output is stride * (in - 1) + extent - pads + output_padding long.
    With it the output has that size; `auto_pad` same_upper and same_lower then find the padding,
    else it is as given.

    Inputs:  x             [N, C, spatial...], 1 to 3 spatial axes, floating point
             w             [C, O, kernel...], same type
             output_shape  optional, integers, spatial sizes of the output
    Outputs: y             [N, O, spatial...], type of x
    Raises:  ShapeError if channels, attributes or output_shape do not fit
    Source:  OpenVINO opset1 ConvolutionBackpropData
    """

    output_padding: tuple[int, ...] = attribute(default=())

    def channels(self, weights: Sequence[DimLike]) -> tuple[DimLike, DimLike]:
        """Weights are [C, O, ...]."""
        return weights[0], weights[1]

    def added(self, rank: int) -> tuple[int, ...]:
        """Return the output padding, one item per spatial axis."""
        extra = self.output_padding or (0,) * rank
        if len(extra) != rank or min(extra) < 0:
            raise ShapeError(
                f"{self.type}: output_padding {extra} must have {rank} items of at least 0"
            )
        return extra

    def infer_spatial(
        self, sizes: Sequence[DimLike], window: Window, inputs: Sequence[TensorDesc]
    ) -> list[DimLike]:
        """Return output_shape, or the sizes that the attributes lead to."""
        extra = self.added(window.rank)
        if len(inputs) > 2:
            wanted = inputs[2].sizes
            if wanted is None:
                return [Dim()] * window.rank
            if len(wanted) != window.rank or any((bounds(n)[1] or 1) < 0 for n in wanted):
                raise ShapeError(
                    f"{self.type}: output_shape {wanted} must have {window.rank} sizes"
                )
            return wanted
        explicit = self.auto_pad is PadType.EXPLICIT
        pads = [b + e if explicit else 0 for b, e in zip(window.pads_begin, window.pads_end)]
        result: list[DimLike] = []
        for size, stride, extent, more, pad in zip(
            sizes, window.strides, window.extent, extra, pads, strict=True
        ):
            (low, high), (least, most) = bounds(size), bounds(extent)
            longest = None if high is None or most is None else stride * (high - 1) + most
            if longest is not None and longest + more - pad < 0:
                raise ShapeError(f"{self.type}: padding of {pad} exceeds the output of {longest}")
            result.append(
                dim(
                    stride * (low - 1) + least + more - pad,
                    None if longest is None else longest + more - pad,
                )
            )
        return result

    def crops(self, sizes: Sequence[int], window: Window, output: Sequence[int]) -> tuple[int, ...]:
        """Return how many elements of the uncropped output lie before the first one kept."""
        if self.auto_pad is PadType.EXPLICIT:
            return window.pads_begin
        if not self.auto_pad.is_same:
            return (0,) * window.rank
        begin = []
        for size, stride, extent, more, out in zip(
            sizes, window.strides, window.extent, self.added(window.rank), output, strict=True
        ):
            assert isinstance(extent, int)
            total = max(stride * (size - 1) + extent + more - out, 0)
            small = total // 2
            begin.append(total - small if self.auto_pad is PadType.SAME_UPPER else small)
        return tuple(begin)


@operation("GroupConvolutionBackpropData")
class GroupConvolutionBackpropData(ConvolutionBackpropData):
    """Transposed convolution in G groups.

    Inputs:  x             [N, C, spatial...], 1 to 3 spatial axes, floating point
             w             [G, C/G, O/G, kernel...], same type
             output_shape  optional, integers, spatial sizes of the output
    Outputs: y             [N, O, spatial...], type of x
    Raises:  ShapeError if channels, attributes or output_shape do not fit
    Source:  OpenVINO opset1 GroupConvolutionBackpropData
    """

    grouped = True

    def channels(self, weights: Sequence[DimLike]) -> tuple[DimLike, DimLike]:
        """Weights are [G, C/G, O/G, ...]."""
        return weights[0] * weights[1], weights[0] * weights[2]
