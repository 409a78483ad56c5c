"""Split and VariadicSplit: one tensor cut along an axis."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import ShapeError
from polydevice.interval import Interval, IntLike, limits, sized
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, DimLike, bounds, dim, normalize_axis
from polydevice.tensor import TensorDesc


@operation("Split")
class Split(Op):
    """Cut a tensor into `num_splits` equal parts.

    Inputs:  x     any shape and type
             axis  scalar integer, may be negative
    Outputs: y0 … y(num_splits - 1)  type of x
    Raises:  ShapeError when the size at the axis is not a multiple of num_splits
    Source:  OpenVINO opset1 Split
    """

    numbers_at = (1,)

    num_splits: int = attribute()
    shape_arithmetic = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of one part, num_splits times."""
        x, axis = inputs
        _check_parts(self.num_splits)
        if x.shape is None or axis.static_ints is None:
            part = x.with_shape(None if x.shape is None else [None] * len(x.shape))
            return [part] * self.num_splits
        at = normalize_axis(axis.static_ints[0], len(x.shape))
        size = x.shape[at]
        if isinstance(size, int) and size % self.num_splits:
            raise ShapeError(
                f"size {size} at axis {at} of {x.shape} cannot be split into "
                f"{self.num_splits} equal parts"
            )
        low, high = bounds(size)
        count = self.num_splits
        length = dim(-(-low // count), None if high is None else high // count)
        return [x.with_shape([*x.shape[:at], length, *x.shape[at + 1 :]])] * count


MAX_PARTS = 1 << 16
"""More parts than any network needs; each is an output with a name and a buffer."""


def _check_parts(count: int) -> None:
    if not 1 <= count <= MAX_PARTS:
        raise ShapeError(f"{count} parts are not possible; use 1 to {MAX_PARTS}")


@operation("VariadicSplit")
class VariadicSplit(Op):
    """Cut a tensor into parts of given lengths, one of which may be -1: what the others leave.

    Inputs:  x        any shape and type
             axis     scalar integer, may be negative
             lengths  [number of parts], integer
    Outputs: y0 …     one for each length; type of x
    Raises:  ShapeError when the lengths do not add up to the size at the axis
    Source:  OpenVINO opset1 VariadicSplit
    """

    numbers_at = (1,)
    integers_at = (1, 2)
    shape_arithmetic = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of every part."""
        x, axis, lengths = inputs
        if lengths.shape is None or not lengths.shape.is_static:
            raise ShapeError("the number of split lengths must be known when the network is read")
        count = lengths.shape.elements
        _check_parts(count)
        if x.shape is None or axis.static_ints is None:
            part = x.with_shape(None if x.shape is None else [None] * len(x.shape))
            return [part] * count
        at = normalize_axis(axis.static_ints[0], len(x.shape))
        wanted = lengths.ints
        sizes: Sequence[DimLike] = [Dim()] * count
        if wanted is not None:
            sizes = split_lengths(x.shape[at], wanted)
        return [x.with_shape([*x.shape[:at], size, *x.shape[at + 1 :]]) for size in sizes]


def split_lengths(size: DimLike, wanted: Sequence[IntLike]) -> list[DimLike]:
    """Resolve -1 in split lengths for a total of `size`; raises ShapeError when they do not fit."""
    free = [i for i, length in enumerate(wanted) if length == -1]
    if not free and any(limits(length)[0] < 0 for length in wanted if not isinstance(length, int)):
        # One of those that are not known may be the -1.
        return [Dim() if isinstance(length, Interval) else length for length in wanted]
    rest = [sized(length) for length in wanted if length != -1]
    if len(free) > 1 or any(isinstance(length, int) and length < 0 for length in rest):
        raise ShapeError(f"split lengths {list(wanted)} must not be negative, but for one -1")
    used: DimLike = 0
    for length in rest:
        used = used + length
    if isinstance(size, int) and isinstance(used, int) and (used > size if free else used != size):
        raise ShapeError(f"split lengths {list(wanted)} do not add up to the size {size}")
    left = size - used
    return [left if length == -1 else sized(length) for length in wanted]
