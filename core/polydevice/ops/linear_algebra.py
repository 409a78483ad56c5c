"""Det and Inverse: square matrices."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import merge_dim
from polydevice.tensor import TensorDesc


@operation("Det", domain="onnx", onnx="Det")
class Det(Op):
    """Determinant of square matrices.

    Inputs:  x  [..., M, M], floating point
    Outputs: y  [...], type of x
    Raises:  ShapeError when the matrices are not square
    Source:  ONNX Det-22
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Drop the last two axes."""
        (x,) = inputs
        if x.shape is None:
            return [x.with_shape(None)]
        if len(x.shape) < 2:
            raise ShapeError(f"Det needs matrices, not {x.shape}")
        merge_dim(x.shape[-1], x.shape[-2])
        return [x.with_shape(x.shape[:-2])]


@operation("Inverse", since=14)
class Inverse(Op):
    """The inverse of each matrix, transposed if `adjoint`.

    Inputs:  x  [..., M, M], floating point
    Outputs: y  shape and type of x
    Raises:  ShapeError when the matrices are not square
    Source:  OpenVINO opset14 Inverse
    """

    floats_at = (0,)

    adjoint: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        (x,) = inputs
        if x.shape is not None:
            if len(x.shape) < 2:
                raise ShapeError(f"Inverse needs matrices, not {x.shape}")
            merge_dim(x.shape[-1], x.shape[-2])
        return [x.without_value()]
