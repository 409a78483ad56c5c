"""GridSample: an image read at positions that a second input gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from typing_extensions import Self

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import merge_dim
from polydevice.tensor import TensorDesc


class GridMode(Enum):
    """The filter."""

    BILINEAR = "bilinear"
    NEAREST = "nearest"
    BICUBIC = "bicubic"


class GridPadding(Enum):
    """What lies outside the image."""

    ZEROS = "zeros"
    BORDER = "border"
    """The nearest element."""
    REFLECTION = "reflection"
    """The image mirrored at its edge (at the outermost elements if align_corners)."""


@operation("GridSample", since=9, onnx="GridSample")
class GridSample(Op):
    """Sample x at the positions in grid, which run from -1 to 1 over each axis.

    Inputs:  x     [N, C, D1 … Dk], numeric; k = 2 in OpenVINO's set
             grid  [N, O1 … Ok, k], floating point; the last axis of x comes first
    Outputs: y     [N, C, O1 … Ok]; type of x
    Raises:  ShapeError when the shapes do not fit
    Source:  OpenVINO opset9 GridSample; ONNX GridSample-22
    """

    align_corners: bool = attribute(default=False, onnx="align_corners")
    mode: GridMode = attribute(default=GridMode.BILINEAR)
    padding_mode: GridPadding = attribute(default=GridPadding.ZEROS, onnx="padding_mode")

    @classmethod
    def from_onnx(cls, attributes: Mapping[str, Any], opset: int) -> Self:
        """Make it; since opset 20 the modes are called linear and cubic."""
        mode = attributes.get("mode", "linear")
        names = {"linear": GridMode.BILINEAR, "cubic": GridMode.BICUBIC}
        made = super().from_onnx(attributes, opset)
        return made.replace(mode=names.get(mode) or GridMode(mode))

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's batch and channels with the grid's sizes."""
        x, grid = inputs
        if x.shape is None or grid.shape is None:
            known = x.shape or grid.shape
            return [x.with_shape(None if known is None else [None] * len(known))]
        rank = len(x.shape)
        if rank < 3 or len(grid.shape) != rank:
            raise ShapeError(f"x {x.shape} and grid {grid.shape} need the same rank, 3 or more")
        try:
            batch = merge_dim(x.shape[0], grid.shape[0])
            merge_dim(grid.shape[-1], rank - 2)
        except ShapeError:
            raise ShapeError(
                f"grid {grid.shape} does not give {rank - 2} coordinates for the batch of {x.shape}"
            ) from None
        return [x.with_shape([batch, x.shape[1], *grid.shape[1:-1]])]
