"""TopK: the largest or smallest elements along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, DimLike, bounds, dim, normalize_axis
from polydevice.tensor import TensorDesc


class TopKMode(Enum):
    """Which elements."""

    MAX = "max"
    MIN = "min"


class TopKSort(Enum):
    """In which order they come."""

    VALUE = "value"
    INDEX = "index"
    NONE = "none"
    """Any order; here the order by value."""


@operation("TopK", since=(1, 3, 11))
class TopK(Op):
    """The k largest or smallest elements along an axis and their positions.

    Of equal elements the one with the lower index comes first, whether or not `stable` asks.

    Inputs:  x  any shape, numeric
             k  scalar integer
    Outputs: values   x's shape with k at the axis; type of x
             indices  the same shape, `index_element_type`
    Raises:  ShapeError when k exceeds the size at the axis
    Source:  OpenVINO opset1, opset3 and opset11 TopK; ONNX TopK-11
    """

    numbers_at = (1,)

    axis: int = attribute()
    mode: TopKMode = attribute()
    sort: TopKSort = attribute()
    index_element_type: ElementType = attribute(default=ElementType.i32)
    stable: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's shape with k at the axis, twice."""
        x, k = inputs
        if x.shape is None:
            return [x.with_shape(None), TensorDesc(self.index_element_type)]
        at = normalize_axis(self.axis, len(x.shape))
        count: DimLike = Dim() if k.sizes is None else k.sizes[0]
        if isinstance(count, int) and count < 0:
            raise ShapeError(f"k {count} is negative")
        high = bounds(x.shape[at])[1]
        if isinstance(count, int) and high is not None and count > high:
            raise ShapeError(f"k {count} exceeds the size {high} of axis {at}")
        if isinstance(count, Dim) and high:  # of none, a k has to be read to be refused
            least, most = bounds(count)
            count = dim(min(least, high), high if most is None else min(most, high))
        y = x.with_shape([*x.shape[:at], count, *x.shape[at + 1 :]])
        return [y, y.with_type(self.index_element_type)]
