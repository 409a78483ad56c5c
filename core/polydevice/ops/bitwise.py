"""Operations on the bits of integers; all are pointwise."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError
from polydevice.ops.op import Op, operation
from polydevice.ops.pointwise import BinaryPointwise, UnaryPointwise
from polydevice.tensor import TensorDesc


class BinaryBitwise(BinaryPointwise):
    """An operation on the bits of two integers, or on two booleans."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape and the inputs' type."""
        outputs = super().infer(inputs)
        _check_type(self, outputs[0].element_type, booleans=True)
        return outputs


class BitwiseShift(BinaryPointwise):
    """A shift of the bits of an integer."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape and the inputs' type."""
        outputs = super().infer(inputs)
        _check_type(self, outputs[0].element_type, booleans=False)
        return outputs


def _check_type(op: Op, element_type: ElementType, *, booleans: bool) -> None:
    legal = element_type.is_integer or element_type is ElementType.dynamic
    if not legal and not (booleans and element_type is ElementType.boolean):
        raise ElementTypeError(
            f"{op.type} needs integers{' or booleans' if booleans else ''}, not {element_type}"
        )


@operation("BitwiseAnd", since=13)
class BitwiseAnd(BinaryBitwise):
    """A & b.

    Inputs:  a, b  broadcastable, same integer type or boolean
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset13 BitwiseAnd; ONNX BitwiseAnd-18
    """


@operation("BitwiseOr", since=13)
class BitwiseOr(BinaryBitwise):
    """A | b.

    Inputs:  a, b  broadcastable, same integer type or boolean
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset13 BitwiseOr; ONNX BitwiseOr-18
    """


@operation("BitwiseXor", since=13)
class BitwiseXor(BinaryBitwise):
    """A ^ b.

    Inputs:  a, b  broadcastable, same integer type or boolean
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset13 BitwiseXor; ONNX BitwiseXor-18
    """


@operation("BitwiseNot", since=13, onnx="BitwiseNot")
class BitwiseNot(UnaryPointwise):
    """Every bit inverted; a boolean negated.

    Inputs:  x  any shape, integer or boolean
    Outputs: y  shape and type of x
    Source:  OpenVINO opset13 BitwiseNot; ONNX BitwiseNot-18
    """

    takes_booleans = True

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        _check_type(self, inputs[0].element_type, booleans=True)
        return super().infer(inputs)


@operation("BitwiseLeftShift", since=15)
class BitwiseLeftShift(BitwiseShift):
    """A * 2^b, wrapping around; 0 when b is negative or at least the type's width.

    Inputs:  a, b  broadcastable, same integer type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset15 BitwiseLeftShift; ONNX BitShift-11 LEFT
    """


@operation("BitwiseRightShift", since=15)
class BitwiseRightShift(BitwiseShift):
    """A / 2^b, rounded down; 0, or -1 for a negative a, when b is negative or at least the width.

    Inputs:  a, b  broadcastable, same integer type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset15 BitwiseRightShift; ONNX BitShift-11 RIGHT
    """
