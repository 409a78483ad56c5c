"""Operations that round what they read: products of 16 bits, and bytes that fit a range."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc


@dataclass(frozen=True)
class RoundedConvolution(Convolution):
    """Convolution of whole numbers of steps: the sums of clip(round(x / scale), low, high) * w.

    Sums are exact in i32. Padding adds nothing; halves are rounded to even, NaN becomes `low`.

    Inputs:  x  [N, C, spatial...], 1 to 3 spatial axes, f32
             w  [O, C, kernel...], i8 or i16, constant
    Outputs: y  [N, O, spatial...], f32
    Source:  made from Convolution of what QuantizeLinear and DequantizeLinear make, of 16 bits
    """

    type = "RoundedConvolution"
    domain = "polydevice_gpu"

    scale: float = 1.0
    low: int = -32768
    high: int = 32767
    """65,535 more than `low` at most."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the convolution's shape."""
        x, w = inputs
        return super().infer([x, w.with_type(x.element_type)])


@dataclass(frozen=True)
class RoundedMatMul(MatMul):
    """Matrix product of whole numbers of steps: clip(round(a / scale), low, high) @ b.

    Sums are exact in i32. Halves are rounded to even, NaN becomes `low`.

    Inputs:  a  as MatMul takes it, f32
             b  [K, N], with `transpose_b` [N, K], i8 or i16, constant
    Outputs: y  f32
    Source:  made from MatMul of what QuantizeLinear and DequantizeLinear make, of 16 bits
    """

    type = "RoundedMatMul"
    domain = "polydevice_gpu"

    scale: float = 1.0
    low: int = -32768
    high: int = 32767
    """65,535 more than `low` at most."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the product's shape."""
        a, b = inputs
        return super().infer([a, b.with_type(a.element_type)])


@dataclass(frozen=True)
class DynamicQuantize(Op):
    """Bytes of a tensor by a scale and a zero point that fit its range.

    Inputs:  x      any shape, f32
    Outputs: y      shape of x, u8: clip(round(x / scale) + zero, 0, 255), halves to even; f32
                    where `floats`: that less `zero`
             scale  f32, one number without axes: as `DynamicRange` has it
             zero   u8, likewise
             fill   [fills] u8, each the zero point; only where `fills` is not 0
    Source:  made from DynamicRange and QuantizeLinear
    """

    type = "DynamicQuantize"
    domain = "polydevice_gpu"

    floats: bool = False
    """Whether products of floats read y, which need no bytes."""
    fills: int = 0
    """How many bytes convolutions read where padding is."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the bytes and two numbers."""
        (x,) = inputs
        numbers = [TensorDesc(kind, Shape([])) for kind in (ElementType.f32, ElementType.u8)]
        kind = ElementType.f32 if self.floats else ElementType.u8
        fill = [TensorDesc(ElementType.u8, Shape([self.fills]))] if self.fills else []
        return [x.with_type(kind).without_value(), *numbers, *fill]


ROUNDED_PRODUCTS = (RoundedConvolution, RoundedMatMul)
"""Products of what is rounded to 16 bits."""

MOST_BYTES = 48 << 10
"""Of what a work-item rounds ahead, as many as the cache that is nearest to a core holds."""


def bytes_of_window(kernel: Sequence[int], dilations: Sequence[int], channels: int) -> int:
    """Return what the rounded pixels of one window take, with those between its taps in a row."""
    row = (kernel[-1] - 1) * dilations[-1] + 1 if kernel else 1
    return 4 * math.prod(kernel[:-1]) * row * -(-channels // 2)


@dataclass(frozen=True)
class ShortErf(Op):
    """The error function, at most 2e-6 away: for what is rounded to 8 bits next.

    Inputs:  x  f32
    Outputs: y  f32
    Source:  made of Erf in front of QuantizeLinear
    """

    type = "ShortErf"
    domain = "polydevice_gpu"

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the input's shape."""
        return [inputs[0]]
