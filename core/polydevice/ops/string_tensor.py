"""StringTensorUnpack and StringTensorPack: strings as bytes with begins and ends."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError
from polydevice.ops.op import EVERYWHERE, Op, operation
from polydevice.shape import Dim, Shape, merge
from polydevice.tensor import TensorDesc


@operation("StringTensorUnpack", since=15)
class StringTensorUnpack(Op):
    """Lay the UTF-8 bytes of all strings out one after the other.

    Inputs:  x       any shape, strings
    Outputs: begins  shape of x, i32: where each string starts in symbols
             ends    shape of x, i32: where it ends
             symbols [bytes], u8
    Raises:  ElementTypeError for anything but strings
    Source:  OpenVINO opset15 StringTensorUnpack
    """

    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x twice, and an unknown number of bytes."""
        (x,) = inputs
        if x.element_type is not ElementType.string:
            raise ElementTypeError(f"{self.type} takes strings, not {x.element_type}")
        places = TensorDesc(ElementType.i32, x.shape)
        return [places, places, TensorDesc(ElementType.u8, Shape([Dim()]))]


@operation("StringTensorPack", since=15)
class StringTensorPack(Op):
    """Cut strings out of UTF-8 bytes; the inverse of StringTensorUnpack.

    Inputs:  begins   any shape, i32 or i64
             ends     shape of begins
             symbols  [bytes], u8
    Outputs: y        shape of begins, strings
    Raises:  ShapeError when begins and ends differ in shape
    Source:  OpenVINO opset15 StringTensorPack
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the common shape of begins and ends."""
        begins, ends, symbols = inputs
        if symbols.element_type is not ElementType.u8:
            raise ElementTypeError(
                f"{self.type} takes bytes of type u8, not {symbols.element_type}"
            )
        return [TensorDesc(ElementType.string, merge(begins.shape, ends.shape))]
