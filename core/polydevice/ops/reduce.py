"""Reductions: sums, products, means, extremes, norms and logic over some axes."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, DimLike, Shape, normalize_axis
from polydevice.tensor import TensorDesc


@dataclass(frozen=True)
class Reduction(Op):
    """What the reductions share.

    No axes at all (an empty list) leaves the data as it is, apart from the function itself.

    Raises: ShapeError if an axis is outside the rank; ElementTypeError if axes are not integers
    """

    integers_at = (1,)

    keep_dims: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Drop the reduced axes, or make them 1."""
        x, axes = inputs
        if not axes.element_type.is_integer and axes.element_type is not ElementType.dynamic:
            raise ElementTypeError(f"{self.type}: axes are {axes.element_type}, not integers")
        return [TensorDesc(x.element_type, self._shape(x.shape, axes))]

    def _shape(self, shape: Shape | None, axes: TensorDesc) -> Shape | None:
        if shape is None:
            return None
        numbers = axes.static_ints
        if numbers is None:
            if not self.keep_dims:
                return None
            # Every axis may become 1, or stay.
            return Shape(Dim(min(_low(n), 1), _high(n)) for n in shape)
        reduced = {normalize_axis(axis, len(shape)) for axis in numbers}
        return Shape(
            1 if i in reduced else n
            for i, n in enumerate(shape)
            if self.keep_dims or i not in reduced
        )


def _low(size: DimLike) -> int:
    return size if isinstance(size, int) else size.min


def _high(size: DimLike) -> int | None:
    return max(size, 1) if isinstance(size, int) else size.max and max(size.max, 1)


@operation("ReduceSum")
class ReduceSum(Reduction):
    """The sum; 0 over no elements.

    Inputs:  x     any shape, numeric
             axes  integers, 0-D or 1-D
    Outputs: y     x without the axes (size 1 with keep_dims), type of x
    Source:  OpenVINO opset1 ReduceSum
    """


@operation("ReduceMean")
class ReduceMean(Reduction):
    """The arithmetic mean; for integers truncated.

    Inputs:  x     any shape, numeric
             axes  integers, 0-D or 1-D
    Outputs: y     x without the axes (size 1 with keep_dims), type of x
    Source:  OpenVINO opset1 ReduceMean
    """


@operation("ReduceProd")
class ReduceProd(Reduction):
    """The product; 1 over no elements.

    Inputs:  x     any shape, numeric
             axes  integers, 0-D or 1-D
    Outputs: y     x without the axes (size 1 with keep_dims), type of x
    Source:  OpenVINO opset1 ReduceProd
    """

    shape_arithmetic = True


@operation("ReduceMax")
class ReduceMax(Reduction):
    """The largest element; the type's lowest value over no elements.

    Inputs:  x     any shape, numeric
             axes  integers, 0-D or 1-D
    Outputs: y     x without the axes (size 1 with keep_dims), type of x
    Source:  OpenVINO opset1 ReduceMax
    """


@operation("ReduceMin")
class ReduceMin(Reduction):
    """The smallest element; the type's largest value over no elements.

    Inputs:  x     any shape, numeric
             axes  integers, 0-D or 1-D
    Outputs: y     x without the axes (size 1 with keep_dims), type of x
    Source:  OpenVINO opset1 ReduceMin
    """


@operation("ReduceLogicalAnd")
class ReduceLogicalAnd(Reduction):
    """Whether all are true.

    Inputs:  x     any shape, boolean
             axes  integers, 0-D or 1-D
    Outputs: y     x without the axes (size 1 with keep_dims), boolean
    Source:  OpenVINO opset1 ReduceLogicalAnd
    """


@operation("ReduceLogicalOr")
class ReduceLogicalOr(Reduction):
    """Whether any is true.

    Inputs:  x     any shape, boolean
             axes  integers, 0-D or 1-D
    Outputs: y     x without the axes (size 1 with keep_dims), boolean
    Source:  OpenVINO opset1 ReduceLogicalOr
    """


@operation("ReduceL1", since=4)
class ReduceL1(Reduction):
    """The sum of absolute values.

    Inputs:  x     any shape, numeric
             axes  integers, 0-D or 1-D
    Outputs: y     x without the axes (size 1 with keep_dims), type of x
    Source:  OpenVINO opset4 ReduceL1
    """


@operation("ReduceL2", since=4)
class ReduceL2(Reduction):
    """The square root of the sum of squares.

    Inputs:  x     any shape, numeric
             axes  integers, 0-D or 1-D
    Outputs: y     x without the axes (size 1 with keep_dims), type of x
    Source:  OpenVINO opset4 ReduceL2
    """
