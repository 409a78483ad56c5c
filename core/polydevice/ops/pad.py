"""Pad: a tensor with a border."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from polydevice.errors import ShapeError
from polydevice.interval import Interval, IntLike, interval, sized
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import DimLike, bounds, count_of, dim
from polydevice.tensor import TensorDesc


class PadMode(Enum):
    """What the border holds."""

    CONSTANT = "constant"
    """The pad value, 0 without one."""
    EDGE = "edge"
    """The nearest element."""
    REFLECT = "reflect"
    """The elements mirrored about the outermost one."""
    SYMMETRIC = "symmetric"
    """The elements mirrored about the edge, the outermost one included."""
    WRAP = "wrap"
    """The elements from the other end, as if the tensor repeated (ONNX only)."""


@operation("Pad", since=(1, 12))
class Pad(Op):
    """Add a border before and after each axis; negative pads (opset12) cut instead.

    Inputs:  x                     any shape and type
             pads_begin, pads_end  [rank of x], integer
             value                 optional scalar of x's type, for mode constant
    Outputs: y                     type of x; size i is pads_begin[i] + x's size i + pads_end[i]
    Raises:  ShapeError when the pads do not fit x's rank, or a mirrored border is wider than x
    Source:  OpenVINO opset1 and opset12 Pad; ONNX Pad-23
    """

    numbers_at = (3,)
    per_axis_at = (1, 2)
    sized_by_values = True

    pad_mode: PadMode = attribute(default=PadMode.CONSTANT)
    strings_at = (0, 3)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the sizes with their pads."""
        self.check_count(inputs, 3, 4)
        x, begin, end = inputs[:3]
        if x.shape is None:
            count = count_of(begin.shape)
            return [x.with_shape(None if count is None else [None] * count)]
        rank = len(x.shape)
        before, after = begin.ints, end.ints
        if before is None or after is None:
            return [x.with_shape([None] * rank)]
        if not len(before) == len(after) == rank:
            raise ShapeError(
                f"{len(before)} pads before and {len(after)} after do not fit the "
                f"{rank} axes of {x.shape}"
            )
        return [
            x.with_shape(
                [self._padded(size, before[i], after[i]) for i, size in enumerate(x.shape)]
            )
        ]

    def _padded(self, size: DimLike, before: IntLike, after: IntLike) -> DimLike:
        if isinstance(before, Interval) or isinstance(after, Interval):
            return sized(interval(size) + before + after)
        if isinstance(size, int):
            self.check(size, before, after)
        low, high = bounds(size)
        return dim(low + before + after, None if high is None else high + before + after)

    def check(self, size: int, before: int, after: int) -> None:
        """Raise ShapeError when an axis of `size` cannot get these pads."""
        if size + before + after < 0:
            raise ShapeError(f"pads {before} and {after} cut more than the size {size}")
        widest = {PadMode.REFLECT: size - 1, PadMode.SYMMETRIC: size}.get(self.pad_mode)
        if widest is not None and max(before, after) > max(widest, 0):
            raise ShapeError(
                f"pads {before} and {after} of mode {self.pad_mode.value} must not "
                f"exceed {widest} at an axis of size {size}"
            )
        if size == 0 and self.pad_mode is not PadMode.CONSTANT and max(before, after) > 0:
            raise ShapeError(f"mode {self.pad_mode.value} cannot pad an axis of size 0")
