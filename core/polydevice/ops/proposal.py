"""Proposal and GenerateProposals: regions of interest from anchors, scores and offsets."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.sizes import shared_sizes
from polydevice.shape import Dim, DimLike, Shape, bounds, dim, merge_dim
from polydevice.tensor import TensorDesc


@operation("Proposal", since=(1, 4))
class Proposal(Op):
    """Shift and scale anchors by the predicted offsets; suppress overlapping ones.

    Inputs:  scores       [N, 2 × anchors, H, W]: background, then foreground
             offsets      [N, 4 × anchors, H, W]
             image_shape  [3] or [4]: height, width and scale, or both scales
    Outputs: rois         [N × post_nms_topn, 5]: image, x1, y1, x2, y2; type of scores; an image
                          of -1 ends each list
             scores       [N × post_nms_topn] (opset4 only)
    Raises:  ShapeError when the inputs do not have these shapes
    Source:  OpenVINO opset1 and opset4 Proposal
    """

    base_size: int = attribute()
    pre_nms_topn: int = attribute()
    post_nms_topn: int = attribute()
    nms_thresh: float = attribute()
    feat_stride: int = attribute()
    min_size: int = attribute()
    ratio: tuple[float, ...] = attribute()
    scale: tuple[float, ...] = attribute()
    clip_before_nms: bool = attribute(default=True)
    clip_after_nms: bool = attribute(default=False)
    normalize: bool = attribute(default=False)
    box_size_scale: float = attribute(default=1.0)
    box_coordinate_scale: float = attribute(default=1.0)
    framework: str = attribute(default="")
    with_scores: bool = attribute(default=True, ir="", came_with=4)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the fixed number of rows per image."""
        scores, offsets, image = inputs
        if image.shape is not None and image.shape.is_static and image.shape.elements not in (3, 4):
            raise ShapeError(f"image_shape {image.shape} has not three or four elements")
        batch: DimLike = Dim()
        if not all(number > 0 for number in (*self.ratio, *self.scale)):
            raise ShapeError(f"ratio {self.ratio} and scale {self.scale} must be positive")
        anchors = len(self.ratio) * len(self.scale)
        for desc, depth in ((scores, 2 * anchors), (offsets, 4 * anchors)):
            if desc.shape is None:
                continue
            if len(desc.shape) != 4:
                raise ShapeError(f"{desc.shape} is not [N, {depth}, H, W]")
            try:
                merge_dim(desc.shape[1], depth)
            except ShapeError:
                raise ShapeError(
                    f"{desc.shape} does not have {depth} channels for the {anchors} "
                    "anchors of ratio and scale"
                ) from None
            batch = merge_dim(batch, desc.shape[0])
        rows = batch * self.post_nms_topn
        rois = scores.with_shape([rows, 5])
        return [rois, scores.with_shape([rows])] if self.with_scores else [rois]


@operation("GenerateProposals", since=9)
class GenerateProposals(Op):
    """Shift and scale given anchors by the predicted offsets; suppress overlapping ones.

    Inputs:  image_info  [N, 3 or 4]: height, width and scale, or both scales
             anchors     [H, W, anchors, 4]: x1, y1, x2, y2
             offsets     [N, anchors × 4, H, W]
             scores      [N, anchors, H, W]
    Outputs: rois        [number, 4]; type of image_info
             scores      [number]
             counts      [N], `roi_num_type`: regions of each image
    Raises:  ShapeError when the inputs do not have these shapes
    Source:  OpenVINO opset9 GenerateProposals
    """

    min_size: float = attribute()
    nms_threshold: float = attribute()
    pre_nms_count: int = attribute()
    post_nms_count: int = attribute()
    normalized: bool = attribute(default=True)
    nms_eta: float = attribute(default=1.0)
    roi_num_type: ElementType = attribute(default=ElementType.i64)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return at most post_nms_count rows per image."""
        info, anchors, offsets, scores = inputs
        found = shared_sizes(
            {
                "image_info": (info, ("N", Dim(3, 4))),
                "scores": (scores, "NAHW"),
                "anchors": (anchors, ("H", "W", "A", 4)),
            }
        )
        batch = found["N"]
        shared_sizes({"offsets": (offsets, ("N", found["A"] * 4, "H", "W"))}, found)
        rows = dim(0, bounds(batch * self.post_nms_count)[1])
        return [
            info.with_shape([rows, 4]),
            scores.with_shape([rows]),
            TensorDesc(self.roi_num_type, Shape([batch])),
        ]
