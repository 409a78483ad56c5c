"""RegionYolo and ReorgYolo: layers of YOLO detectors."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import merge_dim, normalize_axis, product
from polydevice.tensor import TensorDesc


@operation("RegionYolo")
class RegionYolo(Op):
    """Turn the raw output of a YOLO detector into positions and probabilities.

    Sigmoid on x, y and objectness of each region; on the classes SoftMax (`do_softmax`, YOLOv2,
    which also flattens axes) or sigmoid (YOLOv3, with the regions in `mask`).

    Inputs:  x  [N, regions × (coords + 1 + classes), H, W], floating point
    Outputs: y  type of x; shape of x, with the axes from `axis` to `end_axis` as one if
                do_softmax
    Raises:  ShapeError when the channels do not fit
    Source:  OpenVINO opset1 RegionYolo; https://arxiv.org/abs/1612.08242
    """

    floats_at = (0,)

    coords: int = attribute()
    classes: int = attribute()
    num: int = attribute()
    axis: int = attribute(default=1)
    end_axis: int = attribute(default=3)
    do_softmax: bool = attribute(default=True)
    mask: tuple[int, ...] = attribute(default=())
    anchors: tuple[float, ...] = attribute(default=())

    @property
    def regions(self) -> int:
        """Number of regions per cell."""
        return self.num if self.do_softmax else len(self.mask)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's shape, flattened if do_softmax."""
        (x,) = inputs
        if x.shape is None:
            return [x.with_shape(None)]
        channels = self.regions * (self.coords + 1 + self.classes)
        if len(x.shape) != 4:
            raise ShapeError(f"{x.shape} is not [N, C, H, W]")
        try:
            merge_dim(x.shape[1], channels)
        except ShapeError:
            raise ShapeError(
                f"{x.shape} does not have regions × (coords + 1 + classes) = {channels} channels"
            ) from None
        if not self.do_softmax:
            return [x.with_shape([x.shape[0], channels, *x.shape[2:]])]
        first, last = normalize_axis(self.axis, 4), normalize_axis(self.end_axis, 4, "end_axis")
        if first > last:
            raise ShapeError(f"axis {self.axis} lies behind end_axis {self.end_axis}")
        flat = product(x.shape[first : last + 1])
        return [x.with_shape([*x.shape[:first], flat, *x.shape[last + 1 :]])]


@operation("ReorgYolo", since=(1, 2))
class ReorgYolo(Op):
    """Darknet's reorganisation of blocks into channels (not the same order as SpaceToDepth).

    Inputs:  x  [N, C, H, W], any type; C is a multiple of stride², H and W of stride
    Outputs: y  [N, C × stride², H / stride, W / stride]; type of x
    Raises:  ShapeError when the sizes are no such multiples
    Source:  OpenVINO opset2 ReorgYolo; https://arxiv.org/abs/1612.08242
    """

    stride: int = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Multiply the channels, divide the spatial sizes."""
        (x,) = inputs
        if x.shape is None:
            return [x.with_shape([None] * 4)]
        if len(x.shape) != 4 or self.stride < 1:
            raise ShapeError(f"{x.shape} is not [N, C, H, W], or stride {self.stride} not positive")
        batch, channels, height, width = x.shape
        for size, by in ((channels, self.stride**2), (height, self.stride), (width, self.stride)):
            if isinstance(size, int) and size % by:
                raise ShapeError(f"size {size} of {x.shape} is not a multiple of {by}")
        return [
            x.with_shape(
                [batch, channels * self.stride**2, height // self.stride, width // self.stride]
            )
        ]
