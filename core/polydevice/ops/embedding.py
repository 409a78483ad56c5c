"""EmbeddingBag and segment operations: rows of a table reduced group by group."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.op import EVERYWHERE, Op, attribute, operation
from polydevice.ops.sizes import Layout, shared_sizes
from polydevice.shape import Dim, DimLike, Shape, bounds, dim, merge_dim
from polydevice.tensor import TensorDesc


class BagReduction(Enum):
    """How the rows of a bag become one."""

    SUM = "sum"
    MEAN = "mean"


def _rows(table: TensorDesc, count: DimLike) -> TensorDesc:
    """Describe `count` rows of the table."""
    if table.shape is None:
        return table.with_shape(None)
    if not table.shape:
        raise ShapeError("the table is a scalar")
    return table.with_shape([count, *table.shape[1:]])


def _size(desc: TensorDesc) -> DimLike:
    """Return the size of a list; raises ShapeError when the input is none."""
    if desc.shape is None:
        return Dim()
    if len(desc.shape) != 1:
        raise ShapeError(f"{desc.shape} must have one axis")
    return desc.shape[0]


def _named(
    inputs: Sequence[TensorDesc], **layouts: tuple[int, Layout]
) -> dict[str, tuple[TensorDesc, Layout]]:
    """Return name → input and layout, of place and layout, without those that are not given."""
    return {
        name: (inputs[place], layout)
        for name, (place, layout) in layouts.items()
        if place < len(inputs)
    }


@operation("EmbeddingBagOffsetsSum", since=3)
class EmbeddingBagOffsetsSum(Op):
    """Sum rows of a table in bags that start at the offsets.

    Inputs:  table          [rows, …], numeric
             indices        [n], integer
             offsets        [bags], integer: where in indices each bag starts
             default_index  optional scalar: the row for an empty bag; zeros without it or if -1
             weights        optional [n], type of table
    Outputs: y              [bags, …]; type of table
    Raises:  ShapeError when the table is a scalar
    Source:  OpenVINO opset3 EmbeddingBagOffsetsSum
    """

    numbers_at = (3,)
    integers_at = (1, 2, 3)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one row per bag."""
        self.check_count(inputs, 3, 5)
        shared_sizes(_named(inputs, indices=(1, "n"), weights=(4, "n")))
        return [_rows(inputs[0], _size(inputs[2]))]


@operation("EmbeddingBagOffsets", since=15)
class EmbeddingBagOffsets(EmbeddingBagOffsetsSum):
    """Reduce rows of a table in bags that start at the offsets.

    Inputs:  table          [rows, …], numeric
             indices        [n], integer
             offsets        [bags], integer: where in indices each bag starts
             default_index  optional scalar: the row for an empty bag; zeros without it or if -1
             weights        optional [n], type of table; for a sum only
    Outputs: y              [bags, …]; type of table
    Raises:  ShapeError when the table is a scalar
    Source:  OpenVINO opset15 EmbeddingBagOffsets
    """

    reduction: BagReduction = attribute(default=BagReduction.SUM)


@operation("EmbeddingBagPackedSum", since=3)
class EmbeddingBagPackedSum(Op):
    """Sum rows of a table in bags of equal size.

    Inputs:  table    [rows, …], numeric
             indices  [bags, per bag], integer
             weights  optional [bags, per bag], type of table
    Outputs: y        [bags, …]; type of table
    Raises:  ShapeError when the table is a scalar
    Source:  OpenVINO opset3 EmbeddingBagPackedSum
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one row per bag."""
        self.check_count(inputs, 2, 3)
        bags = shared_sizes(_named(inputs, indices=(1, "bn"), weights=(2, "bn")))["b"]
        return [_rows(inputs[0], bags)]


@operation("EmbeddingBagPacked", since=15)
class EmbeddingBagPacked(EmbeddingBagPackedSum):
    """Reduce rows of a table in bags of equal size.

    Inputs:  table    [rows, …], numeric
             indices  [bags, per bag], integer
             weights  optional [bags, per bag], type of table; for a sum only
    Outputs: y        [bags, …]; type of table
    Raises:  ShapeError when the table is a scalar
    Source:  OpenVINO opset15 EmbeddingBagPacked
    """

    reduction: BagReduction = attribute(default=BagReduction.SUM)


@operation("EmbeddingSegmentsSum", since=3)
class EmbeddingSegmentsSum(Op):
    """Sum rows of a table in segments.

    Inputs:  table          [rows, …], numeric
             indices        [n], integer
             segments       [n], integer: the segment of each index
             count          scalar: number of segments
             default_index  optional scalar: the row for an empty one; zeros without it or if -1
             weights        optional [n], type of table
    Outputs: y              [count, …]; type of table
    Raises:  ShapeError when the table is a scalar
    Source:  OpenVINO opset3 EmbeddingSegmentsSum
    """

    numbers_at = (3, 4)
    sized_by_values = True

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one row per segment."""
        self.check_count(inputs, 4, 6)
        shared_sizes(_named(inputs, indices=(1, "n"), segments=(2, "n"), weights=(5, "n")))
        count = inputs[3].sizes
        return [_rows(inputs[0], Dim() if count is None else count[0])]


class EmptySegment(Enum):
    """What SegmentMax returns for a segment without elements."""

    ZERO = "zero"
    LOWEST = "lowest"


@operation("SegmentMax", since=16)
class SegmentMax(Op):
    """The maximum of the rows of each segment.

    Inputs:  x         [n, …], numeric
             segments  [n], integer, ascending
             count     optional scalar: number of segments; the last one + 1 when left out
    Outputs: y         [count, …]; type of x
    Raises:  ShapeError when x is a scalar
    Source:  OpenVINO opset16 SegmentMax
    """

    numbers_at = (2,)
    sized_by_values = True

    fill_mode: EmptySegment = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one row per segment, as far as their number is known."""
        self.check_count(inputs, 2, 3)
        if inputs[0].shape:
            merge_dim(inputs[0].shape[0], _size(inputs[1]))
        count: DimLike = Dim()
        if len(inputs) > 2:
            given = inputs[2].sizes
            count = count if given is None else given[0]
        elif inputs[1].static_ints is not None and inputs[1].element_type.is_integer:
            count = max(inputs[1].static_ints, default=-1) + 1
        return [_rows(inputs[0], count)]


@operation("SparseFillEmptyRows", since=16)
class SparseFillEmptyRows(Op):
    """Give every row of a sparse matrix that has no element one, with a default value.

    Inputs:  values   [n], any type
             shape    [2], integer: rows and columns
             indices  [n, 2], integer, ascending by row
             default  scalar, type of values
    Outputs: indices  [m, 2]; type of indices
             values   [m]; type of values
             empty    [rows], boolean: which rows had none
    Raises:  ShapeError when the shapes do not fit
    Source:  OpenVINO opset16 SparseFillEmptyRows
    """

    numbers_at = (3,)
    sized_by_values = True
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return between the given elements and one more per row."""
        values, shape, indices, _ = inputs
        shared_sizes(_named(inputs, values=(0, "n"), shape=(1, (2,)), indices=(2, ("n", 2))))
        sizes = shape.sizes
        rows: DimLike = Dim() if sizes is None else sizes[0]
        low, high = bounds(_size(values))
        extra = bounds(rows)[1]
        count = dim(low, None if high is None or extra is None else high + extra)
        return [
            indices.with_shape([count, 2]),
            values.with_shape([count]),
            TensorDesc(ElementType.boolean, Shape([rows])),
        ]
