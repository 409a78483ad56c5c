"""Activation functions of one input; all are pointwise."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.ops.op import Op, operation
from polydevice.tensor import TensorDesc


class Activation(Op):
    """A pointwise function of one input that keeps its shape and type."""

    is_pointwise = True

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of the first input."""
        return [inputs[0].without_value()]


@operation("ReLU", onnx="Relu")
class Relu(Activation):
    """max(x, 0).

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 ReLU; ONNX Relu-14
    """
