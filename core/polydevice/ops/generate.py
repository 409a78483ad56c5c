"""Range, OneHot and Eye: values from a few numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import numpy as np

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.interval import Interval
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, DimLike, Shape, count_of, normalize_axis
from polydevice.symbolic_size import is_symbolic
from polydevice.tensor import TensorDesc


class RangeOp(Op):
    """Numbers from start to before stop."""

    shape_arithmetic = True
    sized_by_values = True

    def length(self, inputs: Sequence[TensorDesc]) -> DimLike:
        """Return how many numbers there are, as far as it is known."""
        start, stop, step = inputs
        items = [v.reshape(-1)[0] for v in (desc.value for desc in inputs) if v is not None]
        if len(items) == len(inputs) and not any(isinstance(x, Interval) for x in items):
            return range_length(*(x.item() if isinstance(x, np.generic) else x for x in items))
        first, last, by = (None if d.ints is None else d.ints[0] for d in (start, stop, step))
        if first is not None and last is not None and by == 1:
            length = last - first
            return length.size if isinstance(length, Interval) else max(length, 0)
        return Dim()


def range_length(start: float, stop: float, step: float) -> int:
    """Return the number of elements of a range; raises ShapeError for a step of 0 or no number."""
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and step:
        return max(-((start - stop) // step), 0)  # len(range()) stops at 2^63; and for formulas
    limits = (start, stop, step)
    if not all(is_symbolic(v) or math.isfinite(float(v)) for v in limits) or step == 0:
        raise ShapeError(f"a range from {start} to {stop} by {step} is not possible")
    if any(map(is_symbolic, limits)):
        return max(math.ceil((stop - start) / step), 0)
    if all(float(v).is_integer() for v in limits):
        return range_length(int(start), int(stop), int(step))
    return max(math.ceil((float(stop) - float(start)) / float(step)), 0)


@operation("Range")
class Range1(RangeOp):
    """Numbers from start to before stop (the version of opset1 to opset3).

    Inputs:  start, stop, step  scalars of one type
    Outputs: y                  1-D, their type
    Raises:  ShapeError for a step of 0
    Source:  OpenVINO opset1 Range
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the length where it is known."""
        return [TensorDesc(inputs[0].element_type, Shape([self.length(inputs)]))]


@operation("Range", since=4)
class Range(RangeOp):
    """Numbers from start to before stop.

    Inputs:  start, stop, step  numeric scalars; for an integer output cut to integers first
    Outputs: y                  1-D, `output_type`
    Raises:  ShapeError for a step of 0
    Source:  OpenVINO opset4 Range; ONNX Range-11
    """

    output_type: ElementType = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the length where it is known."""
        if self.output_type.is_integer and any(d.element_type.is_float for d in inputs):
            inputs = [_cut(desc) if desc.element_type.is_float else desc for desc in inputs]
        return [TensorDesc(self.output_type, Shape([self.length(inputs)]))]


def _cut(desc: TensorDesc) -> TensorDesc:
    """A number without what is behind the point, as far as it is known."""
    known = desc.constant
    cut = None if known is None else np.trunc(known.astype(np.float64))
    return TensorDesc(desc.element_type, desc.shape, cut)


class NegativeIndices(Enum):
    """What OneHot does with negative indices."""

    IGNORE = "ignore_negative"
    """They match no position."""
    NORMALIZE = "normalize"
    """They count from the end."""


@operation("OneHot", since=(1, 16))
class OneHot(Op):
    """`on_value` at the position that an index gives, `off_value` elsewhere, along a new axis.

    Inputs:  indices    any shape, integer; one outside [0, depth) matches no position
             depth      scalar integer
             on_value   scalar, any type
             off_value  scalar, type of on_value
    Outputs: y          shape of indices with depth inserted at `axis`; type of on_value
    Raises:  ShapeError when depth is negative, or a number is missing
    Source:  OpenVINO opset1 and opset16 OneHot
    """

    numbers_at = (1, 2, 3)
    sized_by_values = True

    axis: int = attribute(default=-1)
    negative_indices_mode: NegativeIndices = attribute(default=NegativeIndices.IGNORE)
    strings_at = (2, 3)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of indices with the depth inserted."""
        self.check_count(inputs, 4)
        indices, depth, on = inputs[:3]
        for name, desc in zip(("depth", "on_value", "off_value"), inputs[1:], strict=True):
            if desc.shape is not None and 0 in desc.shape:
                raise ShapeError(f"{name} has the shape {desc.shape}; it is one number")
        if indices.shape is None:
            return [on.with_shape(None)]
        at = normalize_axis(self.axis, len(indices.shape) + 1)
        size: DimLike = Dim() if depth.sizes is None else depth.sizes[0]
        if isinstance(size, int) and size < 0:
            raise ShapeError(f"depth {size} is negative")
        return [on.with_shape([*indices.shape[:at], size, *indices.shape[at:]])]


@operation("Eye", since=9)
class Eye(Op):
    """Ones on a diagonal, zeros elsewhere.

    Inputs:  rows, columns  scalar integers
             diagonal       scalar integer: 0 the main one, positive above it
             batch_shape    optional 1-D integer: leading axes
    Outputs: y              [*batch_shape, rows, columns], `output_type`
    Raises:  ShapeError for negative sizes
    Source:  OpenVINO opset9 Eye
    """

    numbers_at = (0, 1, 2)
    sized_by_values = True

    output_type: ElementType = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the sizes where they are known."""
        self.check_count(inputs, 3, 4)
        sizes: list[DimLike] = []
        for desc in inputs[:2]:
            size = Dim() if desc.sizes is None else desc.sizes[0]
            if isinstance(size, int) and size < 0:
                raise ShapeError(f"size {size} is negative")
            sizes.append(size)
        batch: Sequence[DimLike] = []
        if len(inputs) > 3:
            given = inputs[3].sizes
            if given is None:
                count = count_of(inputs[3].shape)
                if count is None:
                    return [TensorDesc(self.output_type)]
                given = [Dim()] * count
            batch = given
        return [TensorDesc(self.output_type, Shape([*batch, *sizes]))]
