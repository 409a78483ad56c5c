"""CumProd: running products. Running sums are in `signal`."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import normalize_axis
from polydevice.tensor import TensorDesc


@operation("CumProd", domain="onnx")
class CumProd(Op):
    """Products of all elements up to each one along an axis.

    With `exclusive` without the element itself, with `reverse` from the end.

    Inputs:  x     rank of 1 or more, numeric
             axis  one integer
    Outputs: y     shape and type of x
    Raises:  ShapeError if the axis is outside x's rank
    Source:  ONNX CumProd-26
    """

    numbers_at = (1,)

    exclusive: bool = attribute(default=False, ir="")
    reverse: bool = attribute(default=False, ir="")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, axis = inputs
        if x.rank is not None and axis.static_ints is not None:
            normalize_axis(axis.static_ints[0], x.rank)
        return [x.without_value()]
