"""ROIPooling, PSROIPooling, DeformablePSROIPooling, ROIAlign, ROIAlignRotated: regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from typing_extensions import Self

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.sizes import shared_sizes
from polydevice.shape import Dim, DimLike, merge_dim
from polydevice.tensor import TensorDesc


def _regions(rois: TensorDesc, columns: int) -> DimLike:
    """Return the number of regions; raises ShapeError when they have not `columns` numbers."""
    if rois.shape is None:
        return Dim()
    if len(rois.shape) != 2 or (isinstance(rois.shape[1], int) and rois.shape[1] != columns):
        raise ShapeError(f"regions {rois.shape} are not [R, {columns}]")
    return rois.shape[0]


def _channels(x: TensorDesc) -> DimLike:
    if x.shape is None:
        return Dim()
    if len(x.shape) != 4:
        raise ShapeError(f"{x.shape} is not [N, C, H, W]")
    if 0 in x.shape[2:]:
        raise ShapeError(f"{x.shape} has no pixels that regions could be of")
    return x.shape[1]


MAX_SAMPLING_RATIO = 256
"""Samples per bin and axis; models use 2 to 4, and memory grows with the square."""


def check_sampling_ratio(ratio: int) -> None:
    """Raise ShapeError unless it is a number of samples that can be taken."""
    if not 0 <= ratio <= MAX_SAMPLING_RATIO:
        raise ShapeError(f"sampling_ratio {ratio} is not between 0 and {MAX_SAMPLING_RATIO}")


@operation("ROIPooling", since=(1, 2), onnx="MaxRoiPool")
class ROIPooling(Op):
    """The maximum of each bin of a region, or bilinear samples of it.

    Inputs:  x     [N, C, H, W], floating point
             rois  [R, 5]: image, x1, y1, x2, y2; for method bilinear as parts of the image
    Outputs: y     [R, C, pooled_h, pooled_w]; type of x
    Raises:  ShapeError when the inputs do not have these shapes
    Source:  OpenVINO opset1 ROIPooling; ONNX MaxRoiPool-1
    """

    sized_by_values = True

    pooled_h: int = attribute()
    pooled_w: int = attribute()
    spatial_scale: float = attribute()
    method: str = attribute(default="max")

    @classmethod
    def from_ir(cls, attributes: Mapping[str, str], opset: int) -> Self:
        """Make it; some writers give the two sizes as one list, ``output_size``."""
        if "output_size" in attributes and "pooled_h" not in attributes:
            height, width = attributes["output_size"].split(",")
            attributes = {**attributes, "pooled_h": height, "pooled_w": width}
        return super().from_ir(attributes, opset)

    @classmethod
    def from_onnx(cls, attributes: Mapping[str, Any], opset: int) -> Self:
        """Make it; ONNX knows the maximum only."""
        height, width = attributes["pooled_shape"]
        scale = float(attributes.get("spatial_scale", 1.0))
        return cls(pooled_h=int(height), pooled_w=int(width), spatial_scale=scale)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one rectangle per region."""
        x, rois = inputs
        if self.method not in ("max", "bilinear"):
            raise ShapeError(f"method {self.method!r} is not max or bilinear")
        if self.pooled_h < 1 or self.pooled_w < 1:
            raise ShapeError(f"pooled size {self.pooled_h} × {self.pooled_w} is not positive")
        return [x.with_shape([_regions(rois, 5), _channels(x), self.pooled_h, self.pooled_w])]


@operation("PSROIPooling")
class PSROIPooling(Op):
    """Position-sensitive pooling: each bin of a region reads channels of its own.

    Inputs:  x     [N, C, H, W], floating point; C is output_dim × group_size² (average) or
                   output_dim × spatial_bins_x × spatial_bins_y (bilinear)
             rois  [R, 5]: image, x1, y1, x2, y2
    Outputs: y     [R, output_dim, group_size, group_size]; type of x
    Raises:  ShapeError when the channels do not fit
    Source:  OpenVINO opset1 PSROIPooling; https://arxiv.org/abs/1703.06211
    """

    sized_by_values = True

    output_dim: int = attribute()
    spatial_scale: float = attribute()
    group_size: int = attribute(default=1)
    spatial_bins_x: int = attribute(default=1)
    spatial_bins_y: int = attribute(default=1)
    mode: str = attribute(default="average")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one square per region."""
        x, rois = inputs
        if self.mode not in ("average", "bilinear"):
            raise ShapeError(f"mode {self.mode!r} is not average or bilinear")
        bins = self.group_size**2
        if self.mode == "bilinear":
            bins = self.spatial_bins_x * self.spatial_bins_y
        channels = _channels(x)
        try:
            merge_dim(channels, self.output_dim * bins)
        except ShapeError:
            raise ShapeError(
                f"{x.shape} does not have output_dim × bins = {self.output_dim * bins} channels"
            ) from None
        size = self.group_size
        return [x.with_shape([_regions(rois, 5), self.output_dim, size, size])]


@operation("DeformablePSROIPooling")
class DeformablePSROIPooling(Op):
    """Position-sensitive pooling whose bins are moved by predicted offsets.

    Inputs:  x        [N, output_dim × group_size², H, W], floating point
             rois     [R, 5]: image, x1, y1, x2, y2
             offsets  optional [R, 2 × k, part_size, part_size]
    Outputs: y        [R, output_dim, group_size, group_size]; type of x
    Raises:  ShapeError when the inputs do not have these shapes
    Source:  OpenVINO opset1 DeformablePSROIPooling; https://arxiv.org/abs/1703.06211
    """

    sized_by_values = True

    output_dim: int = attribute()
    spatial_scale: float = attribute()
    group_size: int = attribute(default=1)
    mode: str = attribute(default="bilinear_deformable")
    spatial_bins_x: int = attribute(default=1)
    spatial_bins_y: int = attribute(default=1)
    trans_std: float = attribute(default=1.0)
    part_size: int = attribute(default=1)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one square per region."""
        self.check_count(inputs, 2, 3)
        x, rois = inputs[:2]
        if self.mode != "bilinear_deformable":
            raise ShapeError(f"mode {self.mode!r} is not bilinear_deformable")
        size = self.group_size
        channels = _channels(x)
        try:
            merge_dim(channels, self.output_dim * size**2)
        except ShapeError:
            raise ShapeError(
                f"{x.shape} does not have output_dim × group_size² = "
                f"{self.output_dim * size**2} channels"
            ) from None
        return [x.with_shape([_regions(rois, 5), self.output_dim, size, size])]


class RoiMode(Enum):
    """How the samples of a bin become one number."""

    AVG = "avg"
    MAX = "max"


class AlignedMode(Enum):
    """How ROIAlign maps coordinates of the image to those of the feature map."""

    ASYMMETRIC = "asymmetric"
    HALF_PIXEL_FOR_NN = "half_pixel_for_nn"
    HALF_PIXEL = "half_pixel"


@operation("ROIAlign", since=(3, 9), onnx="RoiAlign")
class ROIAlign(Op):
    """Average, or maximum of 0 and them, of bilinear samples in each bin of a region.

    `sampling_ratio` is the number of samples per bin and axis; 0 takes one per element. ONNX's
    maximum (`onnx_maximum`) is that of the four weighted elements around each sample, without 0.

    Inputs:  x        [N, C, H, W], floating point
             rois     [R, 4]: x1, y1, x2, y2
             batches  [R], integer: the image of each region
    Outputs: y        [R, C, pooled_h, pooled_w]; type of x
    Raises:  ShapeError when the inputs do not have these shapes
    Source:  OpenVINO opset3 and opset9 ROIAlign; ONNX RoiAlign-16
    """

    sized_by_values = True

    pooled_h: int = attribute()
    pooled_w: int = attribute()
    sampling_ratio: int = attribute()
    spatial_scale: float = attribute()
    mode: RoiMode = attribute()
    aligned_mode: AlignedMode = attribute(default=AlignedMode.ASYMMETRIC)
    onnx_maximum: bool = attribute(default=False, ir="")

    @classmethod
    def from_onnx(cls, attributes: Mapping[str, Any], opset: int) -> Self:
        """Make it; before opset 16 coordinates were not shifted by half a pixel."""
        mode = attributes.get("coordinate_transformation_mode", "half_pixel")
        names = {
            "half_pixel": AlignedMode.HALF_PIXEL_FOR_NN,
            "output_half_pixel": AlignedMode.ASYMMETRIC,
        }
        if mode not in names:
            raise ShapeError(f"coordinate_transformation_mode {mode!r} is not {' or '.join(names)}")
        return cls(
            pooled_h=int(attributes.get("output_height", 1)),
            pooled_w=int(attributes.get("output_width", 1)),
            sampling_ratio=int(attributes.get("sampling_ratio", 0)),
            spatial_scale=float(attributes.get("spatial_scale", 1.0)),
            mode=RoiMode(attributes.get("mode", "avg")),
            onnx_maximum=True,
            aligned_mode=names[mode if opset >= 16 else "output_half_pixel"],
        )

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one rectangle per region."""
        return [_aligned(self, inputs, 4)]


@operation("ROIAlignRotated", since=15)
class ROIAlignRotated(Op):
    """Average of bilinear samples in each bin of a rotated region.

    Inputs:  x        [N, C, H, W], floating point
             rois     [R, 5]: centre x, centre y, width, height, angle in radians
             batches  [R], integer: the image of each region
    Outputs: y        [R, C, pooled_h, pooled_w]; type of x
    Raises:  ShapeError when the inputs do not have these shapes
    Source:  OpenVINO opset15 ROIAlignRotated
    """

    sized_by_values = True

    pooled_h: int = attribute()
    pooled_w: int = attribute()
    sampling_ratio: int = attribute()
    spatial_scale: float = attribute()
    clockwise_mode: bool = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one rectangle per region."""
        return [_aligned(self, inputs, 5)]


def _aligned(
    op: ROIAlign | ROIAlignRotated, inputs: Sequence[TensorDesc], numbers: int
) -> TensorDesc:
    """Describe one rectangle per region, each given by so many numbers."""
    x, rois, batches = inputs
    check_sampling_ratio(op.sampling_ratio)
    if op.pooled_h < 1 or op.pooled_w < 1:
        raise ShapeError(f"{op.pooled_h} × {op.pooled_w} must be positive")
    number = _regions(rois, numbers)
    number = shared_sizes({"batch_indices": (batches, "R")}, {"R": number})["R"]
    return x.with_shape([number, _channels(x), op.pooled_h, op.pooled_w])
