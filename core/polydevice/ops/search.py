"""NonZero, Unique, Bucketize and SearchSorted: where values are."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, Shape, bounds, dim, merge, normalize_axis, product
from polydevice.tensor import TensorDesc


@operation("NonZero", since=3)
class NonZero(Op):
    """Coordinates of the elements that are not 0, in order.

    Inputs:  x  any shape and type
    Outputs: y  [rank of x, number of non-zero elements], `output_type`
    Source:  OpenVINO opset3 NonZero; ONNX NonZero-13
    """

    output_type: ElementType = attribute(default=ElementType.i64)
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the rank, and at most the number of elements."""
        (x,) = inputs
        if x.shape is None:
            return [TensorDesc(self.output_type, Shape([None, None]))]
        most = bounds(product(x.shape))[1]
        return [TensorDesc(self.output_type, Shape([len(x.shape), Dim(0, most)]))]


@operation("Unique", since=10)
class Unique(Op):
    """The distinct elements, or the distinct slices along an axis.

    In ascending order if `sorted`, else in the order of their first occurrence.

    Inputs:  x        any shape and type
             axis     optional scalar integer; without it x is taken as one row
    Outputs: values   [number] or x's shape with the number at the axis; type of x
             indices  [number] first position of each; `index_element_type`
             inverse  [size] the value that stands at each position of x; `index_element_type`
             counts   [number] how often each comes; `count_element_type`
    Source:  OpenVINO opset10 Unique; ONNX Unique-11
    """

    numbers_at = (1,)

    sorted: bool = attribute(default=True)
    index_element_type: ElementType = attribute(default=ElementType.i64)
    count_element_type: ElementType = attribute(default=ElementType.i64)
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return at most the size of what is compared."""
        self.check_count(inputs, 1, 2)
        x = inputs[0]
        axis = None if len(inputs) < 2 else inputs[1].static_ints
        size = Dim() if x.shape is None else product(x.shape)
        values = x.with_shape([self._number(size)])
        if len(inputs) > 1:
            if x.shape is None or axis is None:
                size = Dim()
                values = x.with_shape(None if x.shape is None else [None] * len(x.shape))
            else:
                at = normalize_axis(axis[0], len(x.shape))
                size = x.shape[at]
                values = x.with_shape([*x.shape[:at], self._number(size), *x.shape[at + 1 :]])
        number = self._number(size)
        return [
            values,
            TensorDesc(self.index_element_type, Shape([number])),
            TensorDesc(self.index_element_type, Shape([size])),
            TensorDesc(self.count_element_type, Shape([number])),
        ]

    @staticmethod
    def _number(size: int | Dim) -> int | Dim:
        low, high = bounds(size)
        return dim(min(low, 1), high)


@operation("Bucketize", since=3)
class Bucketize(Op):
    """The bucket that each element falls into.

    Bucket i holds (b[i - 1], b[i]] if `with_right_bound`, else [b[i - 1], b[i]).

    Inputs:  x        any shape, numeric
             buckets  1-D ascending: the boundaries b
    Outputs: y        shape of x, `output_type`
    Source:  OpenVINO opset3 Bucketize
    """

    output_type: ElementType = attribute(default=ElementType.i64)
    with_right_bound: bool = attribute(default=True)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x."""
        x, buckets = inputs
        if buckets.rank not in (None, 1):
            raise ShapeError(f"buckets {buckets.shape} must have one axis")
        return [TensorDesc(self.output_type, x.shape)]


@operation("SearchSorted", since=15)
class SearchSorted(Op):
    """Where each value would have to be inserted to keep the order.

    Inputs:  sorted  [n], or [… , n] with the leading axes of values; ascending along the last
             values  […, m]; type of sorted
    Outputs: y       shape of values, `output_type`; before equal elements, or behind them if
                     `right_mode`
    Raises:  ShapeError when the leading axes differ
    Source:  OpenVINO opset15 SearchSorted
    """

    right_mode: bool = attribute(default=False)
    output_type: ElementType = attribute(default=ElementType.i64)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of values."""
        table, values = inputs
        shape = values.shape
        if table.shape is not None and len(table.shape) != 1:
            known = Shape([*table.shape[:-1], None])
            try:
                shape = merge(known, values.shape)
            except ShapeError:
                raise ShapeError(
                    f"the leading axes of {table.shape} and {values.shape} differ"
                ) from None
        return [TensorDesc(self.output_type, shape)]
