"""NV12toRGB, NV12toBGR, I420toRGB and I420toBGR: video frames to images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, operation
from polydevice.ops.sizes import shared_sizes
from polydevice.shape import Dim, DimLike, bounds, dim, merge_dim
from polydevice.tensor import TensorDesc


class FromYuv(Op):
    """Conversion of YUV 4:2:0 (BT.601, 16 to 235) with one value of U and V per 2 × 2 pixels."""

    planes: ClassVar[int] = 2
    """Number of inputs when each plane is one."""
    bgr: ClassVar[bool] = False
    """Whether blue comes first."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [N, H, W, 3]."""
        if len(inputs) not in (1, self.planes):
            raise ShapeError(f"{len(inputs)} planes are given; it takes 1 or {self.planes}")
        y = inputs[0]
        if y.shape is None:
            return [y.with_shape([None, None, None, 3])]
        for plane in inputs:
            if plane.rank not in (None, 4):
                raise ShapeError(f"{plane.shape} is not [N, H, W, C]")
        batch, height, width, channels = y.shape
        merge_dim(channels, 1)
        if len(inputs) == 1:
            height = _two_thirds(height)
        if any(isinstance(n, int) and n % 2 for n in (height, width)):
            raise ShapeError(f"an image of {height} × {width} pixels has an odd size")
        halves = [n // 2 if isinstance(n, int) else Dim() for n in (height, width)]
        layout = (batch, *halves, 2 if self.planes == 2 else 1)
        shared_sizes({f"plane {k}": (desc, layout) for k, desc in enumerate(inputs) if k})
        return [y.with_shape([batch, height, width, 3])]


def _two_thirds(size: DimLike) -> DimLike:
    """Return the image's height from that of all planes one above the other."""
    if isinstance(size, int) and size % 3:
        raise ShapeError(f"{size} rows are not 3/2 of an image's height")
    low, high = bounds(size)
    return dim(-(-low * 2 // 3), None if high is None else high * 2 // 3)


@operation("NV12toRGB", since=8)
class NV12toRGB(FromYuv):
    """Convert NV12 to RGB.

    Inputs:  y   [N, H, W, 1], u8 or floating point; alone, [N, H × 3/2, W, 1] with both planes
             uv  optional [N, H/2, W/2, 2]
    Outputs: rgb [N, H, W, 3], 0 to 255; type of y
    Raises:  ShapeError for an odd size
    Source:  OpenVINO opset8 NV12toRGB
    """


@operation("NV12toBGR", since=8)
class NV12toBGR(FromYuv):
    """Convert NV12 to BGR.

    Inputs:  y   [N, H, W, 1], u8 or floating point; alone, [N, H × 3/2, W, 1] with both planes
             uv  optional [N, H/2, W/2, 2]
    Outputs: bgr [N, H, W, 3], 0 to 255; type of y
    Raises:  ShapeError for an odd size
    Source:  OpenVINO opset8 NV12toBGR
    """

    bgr = True


@operation("I420toRGB", since=8)
class I420toRGB(FromYuv):
    """Convert I420 to RGB.

    Inputs:  y     [N, H, W, 1], u8 or floating point; alone, [N, H × 3/2, W, 1] with all planes
             u, v  optional [N, H/2, W/2, 1]
    Outputs: rgb   [N, H, W, 3], 0 to 255; type of y
    Raises:  ShapeError for an odd size
    Source:  OpenVINO opset8 I420toRGB
    """

    planes = 3


@operation("I420toBGR", since=8)
class I420toBGR(FromYuv):
    """Convert I420 to BGR.

    Inputs:  y     [N, H, W, 1], u8 or floating point; alone, [N, H × 3/2, W, 1] with all planes
             u, v  optional [N, H/2, W/2, 1]
    Outputs: bgr   [N, H, W, 3], 0 to 255; type of y
    Raises:  ShapeError for an odd size
    Source:  OpenVINO opset8 I420toBGR
    """

    planes = 3
    bgr = True
