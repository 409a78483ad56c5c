"""Parameter, Constant and Result: where values enter and leave a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.op import EVERYWHERE, Op, attribute, operation
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc


@operation("Parameter")
class Parameter(Op):
    """An input of the network.

    Outputs: the value given for an inference, of `element_type` and `shape`
    Source:  OpenVINO opset1 Parameter
    """

    element_type: ElementType = attribute()
    shape: Shape | None = attribute(default=None)
    kind: str = attribute(default="tensor", ir="")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what the attributes say."""
        return [TensorDesc(self.element_type, self.shape, kind=self.kind)]


@operation("Const")
class Constant(Op):
    """A value stored in the model.

    Outputs: `value`
    Source:  OpenVINO opset1 Constant; ONNX initializers and Constant
    """

    value: Array = attribute(ir="")
    element_type: ElementType = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return type, shape and the value itself."""
        return [TensorDesc(self.element_type, Shape(self.value.shape), self.value)]

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same elements of the same type."""
        return (
            isinstance(other, Constant)
            and self.element_type is other.element_type
            and bool(np.array_equal(self.value, other.value))
        )

    def __hash__(self) -> int:
        """Hash by type and shape; equal constants hash alike."""
        return hash((self.element_type, self.value.shape))

    def __repr__(self) -> str:
        """Name type and shape; the data would flood a message."""
        return f"Constant({self.element_type}{Shape(self.value.shape)})"


@operation("Result")
class Result(Op):
    """An output of the network.

    Inputs:  x  any
    Outputs: x
    Source:  OpenVINO opset1 Result

    `output_name` is the network output's name; "" takes the name of the port that is read.
    """

    output_name: str = attribute(default="", ir="")
    strings_at = EVERYWHERE
    containers_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the input."""
        (x,) = inputs
        return [x]
