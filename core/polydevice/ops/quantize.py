"""Quantisation simulated in floating point: FakeQuantize and FakeConvert."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import AutoBroadcast, broadcast_shape, common_type
from polydevice.shape import Shape, broadcast
from polydevice.tensor import TensorDesc


@operation("FakeQuantize")
class FakeQuantize(Op):
    """Round x to one of `levels` values between the output limits.

    y = output_low where x <= min(input_low, input_high), output_high where x > max of them, else
    round((x - input_low) / (input_high - input_low) * (levels - 1)) / (levels - 1)
    * (output_high - output_low) + output_low, halves rounded to even.

    Inputs:  x            any shape, floating point
             input_low    broadcastable to x, same type
             input_high   likewise
             output_low   likewise
             output_high  likewise
    Outputs: y            broadcast shape, type of x
    Raises:  ShapeError if `levels` is below 2 or the limits do not fit
    Source:  OpenVINO opset1 FakeQuantize
    """

    levels: int = attribute()
    auto_broadcast: AutoBroadcast = attribute(default=AutoBroadcast.NUMPY)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape and the type of x."""
        x = inputs[0]
        if self.levels < 2:
            raise ShapeError(f"FakeQuantize: levels is {self.levels}; it must be at least 2")
        if len(inputs) != 5:
            raise ShapeError(f"FakeQuantize takes 5 inputs, not {len(inputs)}")
        shape: Shape | None = x.shape
        for limit in inputs[1:]:
            common_type(self, x, limit)
            shape = broadcast_shape(shape, limit.shape, self.auto_broadcast)
        return [TensorDesc(x.element_type, shape)]


@operation("FakeConvert", since=13)
class FakeConvert(Op):
    """Round x to a float8 type: (convert(x * scale - shift) + shift) / scale, saturating.

    Inputs:  x      any shape, floating point
             scale  broadcastable to x, same type
             shift  optional, broadcastable to x, same type; 0 when left out
    Outputs: y      broadcast shape, type of x
    Raises:  ElementTypeError if `destination_type` is neither f8e4m3 nor f8e5m2
    Source:  OpenVINO opset13 FakeConvert
    """

    destination_type: ElementType = attribute(default=ElementType.f8e4m3)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape and the type of x."""
        if self.destination_type not in (ElementType.f8e4m3, ElementType.f8e5m2):
            raise ElementTypeError(
                f"FakeConvert: destination_type {self.destination_type} must be f8e4m3 or f8e5m2"
            )
        shape = inputs[0].shape
        for other in inputs[1:]:
            common_type(self, inputs[0], other)
            shape = broadcast(shape, other.shape)
        return [TensorDesc(inputs[0].element_type, shape)]
