"""Transpose: the same elements with axes in another order."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, operation
from polydevice.tensor import TensorDesc


@operation("Transpose")
class Transpose(Op):
    """Reorder the axes: y's axis i is x's axis order[i]; an empty order reverses them.

    Inputs:  x      any shape and type
             order  [rank of x] or [0], integer
    Outputs: y      type of x
    Raises:  ShapeError when order is not a permutation of x's axes
    Source:  OpenVINO opset1 Transpose; ONNX Transpose-21
    """

    shape_arithmetic = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's sizes in the new order."""
        x, order = inputs
        axes = order.static_ints
        if axes is None:
            return [x.with_shape(None if x.shape is None else [None] * len(x.shape))]
        if x.shape is None:
            return [x.with_shape([None] * len(axes) if axes else None)]
        return [x.with_shape([x.shape[axis] for axis in permutation(axes, len(x.shape))])]


def permutation(order: Sequence[int], rank: int) -> list[int]:
    """Return `order` as a permutation of ``range(rank)``; raises ShapeError if it is none."""
    axes = list(order) or list(reversed(range(rank)))
    if sorted(axes) != list(range(rank)):
        raise ShapeError(f"order {list(order)} is not a permutation of the axes 0 to {rank - 1}")
    return axes
