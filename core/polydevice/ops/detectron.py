"""The ExperimentalDetectron operations: parts of two-stage detectors."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.roi import check_sampling_ratio
from polydevice.ops.sizes import shared_sizes
from polydevice.shape import Dim, DimLike, Shape
from polydevice.tensor import TensorDesc


def _regions(rois: TensorDesc) -> DimLike:
    """Return the number of regions; raises ShapeError when they are not [R, 4]."""
    if rois.shape is None:
        return Dim()
    if len(rois.shape) != 2 or (isinstance(rois.shape[1], int) and rois.shape[1] != 4):
        raise ShapeError(f"regions {rois.shape} are not [R, 4]")
    return rois.shape[0]


@operation("ExperimentalDetectronDetectionOutput", since=6)
class ExperimentalDetectronDetectionOutput(Op):
    """Refine regions of interest by the predicted offsets of each class and keep the best.

    Inputs:  rois        [R, 4]: x1, y1, x2, y2
             offsets     [R, classes × 4]
             scores      [R, classes]
             image_info  [1, 3]: height, width, scale
    Outputs: boxes       [max_detections_per_image, 4]; type of rois; zeros behind the last
             classes     [max_detections_per_image], i32
             scores      [max_detections_per_image]
    Raises:  ShapeError when deltas_weights has not four numbers
    Source:  OpenVINO opset6 ExperimentalDetectronDetectionOutput
    """

    score_threshold: float = attribute()
    nms_threshold: float = attribute()
    max_delta_log_wh: float = attribute()
    num_classes: int = attribute()
    post_nms_count: int = attribute()
    max_detections_per_image: int = attribute()
    deltas_weights: tuple[float, ...] = attribute()
    class_agnostic_box_regression: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the fixed number of rows."""
        self.check_count(inputs, 4)
        rois, offsets, scores, _ = inputs
        numbers = {"rois": 4, "offsets": 4 * self.num_classes, "scores": self.num_classes}
        shared_sizes(
            {
                name: (desc, ("R", numbers[name]))
                for name, desc in zip(numbers, (rois, offsets, scores), strict=True)
            }
        )
        if len(self.deltas_weights) != 4:
            raise ShapeError(f"deltas_weights {self.deltas_weights} has not four numbers")
        rows = self.max_detections_per_image
        if rows < 1:
            raise ShapeError(f"max_detections_per_image {rows} is not positive")
        return [
            rois.with_shape([rows, 4]),
            TensorDesc(ElementType.i32, Shape([rows])),
            rois.with_shape([rows]),
        ]


@operation("ExperimentalDetectronGenerateProposalsSingleImage", since=6)
class ExperimentalDetectronGenerateProposalsSingleImage(Op):
    """Shift and scale given anchors by the predicted offsets; suppress overlapping ones.

    Inputs:  image_info  [3]: height, width, scale
             anchors     [H × W × anchors, 4]: x1, y1, x2, y2
             offsets     [anchors × 4, H, W]
             scores      [anchors, H, W]
    Outputs: rois        [post_nms_count, 4]; type of image_info; zeros behind the last
             scores      [post_nms_count]
    Source:  OpenVINO opset6 ExperimentalDetectronGenerateProposalsSingleImage
    """

    min_size: float = attribute()
    nms_threshold: float = attribute()
    post_nms_count: int = attribute()
    pre_nms_count: int = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the fixed number of rows."""
        info = inputs[0]
        anchors, offsets, scores = inputs[1:]
        found = shared_sizes({"image_info": (info, (3,)), "scores": (scores, "AHW")})
        per_cell, height, width = (found[letter] for letter in "AHW")
        shared_sizes(
            {
                "anchors": (anchors, (per_cell * height * width, 4)),
                "offsets": (offsets, (per_cell * 4, "H", "W")),
            },
            found,
        )
        if self.post_nms_count < 0 or self.pre_nms_count < 0:
            raise ShapeError(
                f"post_nms_count {self.post_nms_count} and pre_nms_count {self.pre_nms_count} "
                "must not be negative"
            )
        return [info.with_shape([self.post_nms_count, 4]), info.with_shape([self.post_nms_count])]


@operation("ExperimentalDetectronPriorGridGenerator", since=6)
class ExperimentalDetectronPriorGridGenerator(Op):
    """Put the prior boxes at the centre of each cell of a grid over the image.

    Inputs:  priors       [P, 4]: x1, y1, x2, y2 around 0
             feature_map  [1, C, H, W]: gives the grid, unless `h` and `w` do
             image        [1, C, H, W]: gives the step, unless `stride_x` and `stride_y` do
    Outputs: y            [H × W × P, 4], or [H, W, P, 4] without `flatten`; type of priors
    Source:  OpenVINO opset6 ExperimentalDetectronPriorGridGenerator
    """

    sized_by_values = True

    flatten: bool = attribute(default=True)
    h: int = attribute(default=0)
    w: int = attribute(default=0)
    stride_x: float = attribute(default=0.0)
    stride_y: float = attribute(default=0.0)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the grid's size times the number of priors."""
        self.check_count(inputs, 3)
        priors, features = inputs[:2]
        number = _regions(priors)
        for desc in inputs[1:]:
            if desc.rank not in (None, 4):
                raise ShapeError(f"{desc.shape} is not [1, C, H, W]")
        height: DimLike = Dim() if features.shape is None else features.shape[2]
        width: DimLike = Dim() if features.shape is None else features.shape[3]
        height, width = self.h or height, self.w or width
        if self.flatten:
            return [priors.with_shape([height * width * number, 4])]
        return [priors.with_shape([height, width, number, 4])]


@operation("ExperimentalDetectronROIFeatureExtractor", since=6)
class ExperimentalDetectronROIFeatureExtractor(Op):
    """ROIAlign on the level of a feature pyramid that fits the size of each region.

    Inputs:  rois      [R, 4]: x1, y1, x2, y2
             features  one [1, C, H, W] for each of the `pyramid_scales`
    Outputs: y         [R, C, output_size, output_size]; type of rois
             rois      as given
    Raises:  ShapeError when the number of levels is not that of the scales
    Source:  OpenVINO opset6 ExperimentalDetectronROIFeatureExtractor
    """

    sized_by_values = True

    output_size: int = attribute()
    sampling_ratio: int = attribute()
    pyramid_scales: tuple[int, ...] = attribute()
    aligned: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one square of features per region."""
        rois, *levels = inputs
        if not levels or len(levels) != len(self.pyramid_scales):
            raise ShapeError(
                f"{len(levels)} feature maps are given for the {self.pyramid_scales} "
                "of pyramid_scales"
            )
        number = _regions(rois)
        check_sampling_ratio(self.sampling_ratio)
        layouts = {f"feature map {k}": (d, (1, "C", Dim(), Dim())) for k, d in enumerate(levels)}
        channels = shared_sizes(layouts)["C"]
        size = self.output_size
        return [rois.with_shape([number, channels, size, size]), rois.with_shape([number, 4])]


@operation("ExperimentalDetectronTopKROIs", since=6)
class ExperimentalDetectronTopKROIs(Op):
    """The regions of interest with the highest probabilities.

    Inputs:  rois           [R, 4]
             probabilities  [R]
    Outputs: y              [max_rois, 4]; type of rois; zeros when there are fewer
    Source:  OpenVINO opset6 ExperimentalDetectronTopKROIs
    """

    takes_booleans = False

    max_rois: int = attribute(default=0)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the fixed number of rows."""
        self.check_count(inputs, 2)
        shared_sizes({"rois": (inputs[0], ("R", 4)), "probabilities": (inputs[1], ("R",))})
        if self.max_rois < 0:
            raise ShapeError(f"max_rois {self.max_rois} is negative")
        return [inputs[0].with_shape([self.max_rois, 4])]
