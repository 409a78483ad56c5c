"""ONNX's linear quantisation: QuantizeLinear and DequantizeLinear.

They are operations of their own, and not sums and products of others, because the rounding of
x / scale decides the result and a device can fuse them into integer kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import DimLike, Shape, merge, normalize_axis
from polydevice.tensor import TensorDesc

QUANTIZED_TYPES = (
    *(ElementType.u2, ElementType.i2, ElementType.u4, ElementType.i4, ElementType.u8),
    *(ElementType.i8, ElementType.u16, ElementType.i16, ElementType.i32),
    *(ElementType.f8e4m3, ElementType.f8e4m3fnuz, ElementType.f8e5m2, ElementType.f8e5m2fnuz),
    ElementType.f4e2m1,
)


@dataclass(frozen=True)
class LinearQuantization(Op):
    """What both directions share: one scale and zero point per tensor, per axis or per block.

    A scale of one element serves the whole tensor; one of rank 1 has an element per index of
    `axis`; with `block_size` the scale has the rank of x, and each of its elements serves that
    many consecutive ones along `axis`.
    """

    axis: int = attribute(default=1, ir="")
    block_size: int = attribute(default=0, ir="")
    destination_type: ElementType = attribute(default=ElementType.dynamic, ir="")

    def _check_alike(self, scale: TensorDesc, zero_point: TensorDesc) -> None:
        try:
            merge(scale.shape, zero_point.shape)
        except ShapeError:
            raise ShapeError(
                f"{self.type}: the zero point has the shape {zero_point.shape}; the scale's is "
                f"{scale.shape}"
            ) from None

    def check(self, x: TensorDesc, scale: TensorDesc, *zero_points: TensorDesc) -> None:
        """Raise ShapeError when the scale does not fit x, or a zero point the scale."""
        for zero_point in zero_points:
            if zero_point.rank and zero_point.shape != (1,):
                self._check_alike(scale, zero_point)
        if x.shape is None or scale.shape is None or scale.rank == 0:
            return
        if scale.shape == (1,) and not self.block_size:
            return
        axis = normalize_axis(self.axis, len(x.shape))
        if self.block_size < 0:
            raise ShapeError(f"{self.type}: block_size {self.block_size} is negative")
        if self.block_size:
            wanted = Shape(
                (size + (self.block_size - 1)) // self.block_size if i == axis else size
                for i, size in enumerate(x.shape)
            )
        else:
            wanted = Shape([x.shape[axis]])
        if len(scale.shape) != len(wanted) or not all(
            _agree(a, b) for a, b in zip(scale.shape, wanted, strict=True)
        ):
            raise ShapeError(
                f"{self.type}: a scale of shape {scale.shape} does not fit {x.shape} along axis "
                f"{axis}; it must be {wanted}"
            )


def _agree(a: DimLike, b: DimLike) -> bool:
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


@operation("QuantizeLinear", domain="onnx")
class QuantizeLinear(LinearQuantization):
    """round(x / scale) + zero point, in the range of a narrow type; halves go to even.

    Inputs:  x           any shape, floating point or i32
             scale       see LinearQuantization
             zero_point  optional, shape of scale, the result's type
    Outputs: y           shape of x, `destination_type` or else the type of zero_point (u8)
    Raises:  ShapeError when the scale does not fit; ElementTypeError for another type
    Source:  ONNX QuantizeLinear-25
    """

    saturate: bool = attribute(default=True, ir="")

    def result_type(self, zero_point: ElementType | None) -> ElementType:
        """Return the type of y."""
        if zero_point is not None:
            return zero_point
        given = self.destination_type
        return ElementType.u8 if given is ElementType.dynamic else given

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x in the narrow type."""
        x = inputs[0]
        self.check(*inputs[:3])
        kind = self.result_type(inputs[2].element_type if len(inputs) > 2 else None)
        if kind not in QUANTIZED_TYPES:
            raise ElementTypeError(
                f"QuantizeLinear cannot make {kind}; legal: {', '.join(map(str, QUANTIZED_TYPES))}"
            )
        return [x.with_type(kind)]


@operation("DequantizeLinear", domain="onnx")
class DequantizeLinear(LinearQuantization):
    """(x - zero point) * scale.

    Inputs:  x           any shape, a quantised type
             scale       see LinearQuantization
             zero_point  optional, shape of scale, type of x
    Outputs: y           shape of x, `destination_type` or else the type of scale
    Raises:  ShapeError when the scale does not fit; ElementTypeError for another type
    Source:  ONNX DequantizeLinear-25
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x in the type of the scale."""
        x, scale = inputs[:2]
        self.check(*inputs[:3])
        if x.element_type not in QUANTIZED_TYPES:
            raise ElementTypeError(f"DequantizeLinear cannot read {x.element_type}")
        given = self.destination_type
        return [x.with_type(scale.element_type if given is ElementType.dynamic else given)]
