"""SoftMax and LogSoftmax."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import normalize_axis
from polydevice.tensor import TensorDesc


@operation("SoftMax", since=(1, 8))
class SoftMax(Op):
    """Normalised exponential along one axis.

    y = exp(x - max(x)) / sum(exp(x - max(x))), max and sum taken over ``axis``.

    Inputs:  x  any rank n >= 1, floating point
    Outputs: y  shape and type of x
    Raises:  ShapeError if ``axis`` is outside [-n, n)
    Source:  OpenVINO opset8 SoftMax; ONNX Softmax-13
    """

    axis: int = attribute(default=1, onnx="axis")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        (x,) = inputs
        if x.rank is not None:
            normalize_axis(self.axis, x.rank)
        return [x.without_value()]


@operation("LogSoftmax", since=5)
class LogSoftmax(SoftMax):
    """Logarithm of SoftMax, computed without overflow.

    Inputs:  x  any rank n >= 1, floating point
    Outputs: y  shape and type of x
    Raises:  ShapeError if ``axis`` is outside [-n, n)
    Source:  OpenVINO opset5 LogSoftmax; ONNX LogSoftmax-13
    """
