"""IntegerProduct: a convolution or matrix product of 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import InternalError
from polydevice.node import Port
from polydevice.ops.op import Op, attribute, operation
from polydevice.tensor import TensorDesc


def check_same(made: Port, before: Port) -> None:
    """Check that what takes the place of a port has its shape and type.

    Raises:
        InternalError: a rewrite made a value of another form, whose numbers would be wrong.
    """
    is_known = made.desc.is_static and before.desc.is_static
    if made.element_type is not before.element_type or (is_known and made.shape != before.shape):
        raise InternalError(
            f"{before.name}: {before.desc} became {made.desc} when it was put on integers; load "
            "the network with LP_TRANSFORMS_MODE=NO, and report it with the model"
        )


@operation("IntegerProduct", domain="polydevice")
class IntegerProduct(Op):
    """product(x - zero, w) * (scale * factor), the product summed in 32-bit integers.

    Padding is 0 after the zero point was subtracted.

    Attributes:
        product: Convolution, GroupConvolution, ConvolutionBackpropData,
            GroupConvolutionBackpropData or MatMul.

    Inputs:  x      as `product` takes it, u8 or i8
             w      as `product` takes it, i8; i16 where a device wishes so (`Wishes.wide`)
             scale  f32, one number or one per output channel; broadcasts to y
             zero   i32, one number
             factor f32, one number
             ...    what else `product` reads
    Outputs: y      f32, shape of the product
    Source:  ONNX QLinearConv-10 and QLinearMatMul-21 before their results are quantised
    """

    product: Op = attribute(ir="")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the product's shape in f32."""
        x, w, _scale, _zero, _factor, *rest = inputs
        wide = [desc.with_type(ElementType.f32) for desc in (x, w)]
        return [desc.without_value() for desc in self.product.infer([*wide, *rest])]
