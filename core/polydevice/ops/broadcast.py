"""Broadcast and Tile: repeated elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from typing_extensions import Self

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import DimLike, Shape, broadcast, count_of
from polydevice.tensor import TensorDesc


class BroadcastMode(Enum):
    """How the input's axes meet those of the target."""

    NUMPY = "numpy"
    """Axes are aligned from the last; sizes of 1 are repeated."""
    EXPLICIT = "explicit"
    """A third input gives the target axis of each input axis."""
    BIDIRECTIONAL = "bidirectional"
    """As numpy, and sizes of 1 in the target take the input's size."""
    PDPD = "pdpd"
    """The input's axes start at a given target axis."""


AS_NUMPY = (BroadcastMode.NUMPY, BroadcastMode.BIDIRECTIONAL)
"""Modes that put axes beside each other from the last one on."""


@operation("Broadcast", since=(1, 3))
class Broadcast(Op):
    """Repeat elements until the input has the target shape.

    Inputs:  x       any shape and type
             target  1-D integer: the shape
             axes    [rank of x], integer, for mode explicit only
    Outputs: y       type of x
    Raises:  ShapeError when x does not broadcast to the target
    Source:  OpenVINO opset1 and opset3 Broadcast; ONNX Expand-13 is mode bidirectional
    """

    integers_at = (1, 2)
    sized_by_values = True

    mode: BroadcastMode = attribute(default=BroadcastMode.NUMPY)
    axis: int = attribute(default=0, ir="")
    shape_arithmetic = True
    strings_at = (0,)

    @classmethod
    def from_ir(cls, attributes: Mapping[str, str], opset: int) -> Self:
        """Make it; IR v7 conversions write pdpd's axis as attribute ``axis``."""
        made = super().from_ir(attributes, opset)
        return made.replace(axis=int(attributes["axis"])) if "axis" in attributes else made

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the target; unknown where it is."""
        self.check_count(inputs, 2, 3)
        x, target = inputs[:2]
        wanted = target.sizes
        if wanted is None:
            rank = count_of(target.shape)
            both = self.mode is BroadcastMode.BIDIRECTIONAL
            if rank is None or (both and x.shape is None):
                return [x.with_shape(None)]
            if both and x.shape is not None:
                rank = max(rank, len(x.shape))
            elif x.shape is not None and len(x.shape) > rank:
                raise ShapeError(f"{x.shape} does not broadcast to {rank} axes")
            return [x.with_shape([None] * rank)]
        if self.mode is BroadcastMode.BIDIRECTIONAL:
            return [x.with_shape(broadcast(x.shape, Shape(wanted)))]
        if x.shape is not None:
            axes = inputs[2].static_ints if len(inputs) > 2 else None
            if self.mode is not BroadcastMode.EXPLICIT or axes is not None:
                self.aligned(x.shape, wanted, axes)
        return [x.with_shape(wanted)]

    def aligned(
        self, shape: Sequence[DimLike], target: Sequence[DimLike], axes: Sequence[int] | None
    ) -> list[DimLike]:
        """Return x's shape with ones inserted so that its axes stand at their target axes.

        Raises:
            ShapeError: when x does not broadcast to the target.
        """
        rank, message = len(target), f"{Shape(shape)} does not broadcast to {Shape(target)}"
        if self.mode is BroadcastMode.EXPLICIT:
            if axes is None or len(axes) != len(shape) or any(not 0 <= a < rank for a in axes):
                raise ShapeError(
                    f"axes {axes} do not place each axis of {Shape(shape)} in {Shape(target)}"
                )
            places = list(axes)
            if sorted(places) != places:
                raise ShapeError(f"axes {places} are not in ascending order")
        else:
            start = self.axis if self.mode is BroadcastMode.PDPD and self.axis >= 0 else None
            first = rank - len(shape) if start is None else start
            if first < 0 or first + len(shape) > rank:
                raise ShapeError(message)
            places = list(range(first, first + len(shape)))
        result: list[DimLike] = [1] * rank
        for size, place in zip(shape, places, strict=True):
            goal = target[place]
            are_known = isinstance(size, int) and isinstance(goal, int)
            if are_known and size is not goal and size not in (1, goal):
                raise ShapeError(message)
            result[place] = size
        return result


@operation("Tile", onnx="Tile")
class Tile(Op):
    """Repeat the whole tensor along each axis.

    Inputs:  x        any shape and type
             repeats  1-D integer; the shorter of it and x's shape gets ones in front
    Outputs: y        type of x; sizes are x's times the repeats
    Source:  OpenVINO opset1 Tile; ONNX Tile-13
    """

    shape_arithmetic = True
    sized_by_values = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the product of sizes and repeats."""
        x, repeats = inputs
        times = repeats.sizes
        count = count_of(repeats.shape)
        if x.shape is None or count is None:
            return [x.with_shape(None)]
        rank = max(len(x.shape), count)
        if times is None:
            return [x.with_shape([None] * rank)]
        if any(isinstance(n, int) and n < 0 for n in times):
            raise ShapeError(f"repeats {times} has a negative number")
        sizes: list[DimLike] = [*[1] * (rank - len(x.shape)), *x.shape]
        factors: list[DimLike] = [*[1] * (rank - count), *times]
        return [x.with_shape([a * b for a, b in zip(sizes, factors, strict=True)])]
