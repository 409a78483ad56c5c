"""Select: one of two inputs by a condition; pointwise."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import AutoBroadcast, broadcast_shape, common_type
from polydevice.shape import broadcast
from polydevice.tensor import TensorDesc


@operation("Select", onnx="Where")
class Select(Op):
    """A where the condition is true, else b.

    With auto_broadcast pdpd, condition and b are aligned with a, whose shape is the result's.

    Inputs:  condition  boolean
             a, b       same type; all three broadcastable
    Outputs: y          broadcast shape, type of a and b
    Raises:  ElementTypeError for another type of condition, or when a and b differ in type
    Source:  OpenVINO opset1 Select; ONNX Where-16
    """

    shape_arithmetic = True

    auto_broadcast: AutoBroadcast = attribute(default=AutoBroadcast.NUMPY)
    strings_at = (1, 2)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape and the type of a and b."""
        condition, a, b = inputs
        if condition.element_type not in (ElementType.boolean, ElementType.dynamic):
            raise ElementTypeError(
                f"Select: the condition is {condition.element_type}; it must be boolean"
            )
        element_type = common_type(self, a, b)
        if self.auto_broadcast is AutoBroadcast.NUMPY:
            shape = broadcast(condition.shape, broadcast(a.shape, b.shape))
        else:
            shape = broadcast_shape(a.shape, b.shape, self.auto_broadcast)
            shape = broadcast_shape(shape, condition.shape, self.auto_broadcast)
        return [TensorDesc(element_type, shape)]
