"""DetectionOutput: the last layer of SSD detectors."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, DimLike, merge_dim
from polydevice.tensor import TensorDesc

CODE_TYPES = ("caffe.PriorBoxParameter.CORNER", "caffe.PriorBoxParameter.CENTER_SIZE")


@operation("DetectionOutput", since=(1, 8))
class DetectionOutput(Op):
    """Decode the boxes of an SSD detector, suppress overlapping ones and keep the best.

    `num_classes` is an attribute before opset8 and follows from the shapes since.

    Inputs:  locations    [N, priors × 4 × (1 or classes)], floating point
             confidences  [N, priors × classes]
             priors       [1 or N, 1 or 2, priors × (4 or 5)]: boxes, and variances unless these
                          are encoded in the target
             arm_confidences, arm_locations  optional: the first stage of a two-stage detector
    Outputs: y            [1, 1, rows, 7]: image, class, score, x1, y1, x2, y2; an image of -1
                          ends the list
    Raises:  ShapeError when the inputs do not have these shapes
    Source:  OpenVINO opset1 and opset8 DetectionOutput
    """

    nms_threshold: float = attribute()
    num_classes: int | None = attribute(default=None)
    background_label_id: int = attribute(default=0)
    top_k: int = attribute(default=-1)
    variance_encoded_in_target: bool = attribute(default=False)
    keep_top_k: tuple[int, ...] = attribute(default=(-1,))
    code_type: str = attribute(default=CODE_TYPES[0])
    share_location: bool = attribute(default=True)
    confidence_threshold: float = attribute(default=0.0)
    clip_after_nms: bool = attribute(default=False)
    clip_before_nms: bool = attribute(default=False)
    decrease_label_id: bool = attribute(default=False)
    normalized: bool = attribute(default=False)
    input_height: int = attribute(default=1)
    input_width: int = attribute(default=1)
    objectness_score: float = attribute(default=0.0)

    @property
    def prior_size(self) -> int:
        """Numbers of one prior: unnormalised ones start with the image's index."""
        return 4 if self.normalized else 5

    def classes(self, scores: DimLike, priors: DimLike) -> DimLike:
        """Return the number of classes; `scores` is the second size of the confidences."""
        if self.num_classes is not None:
            return self.num_classes
        if not isinstance(priors, int) or priors == 0:
            return Dim()
        return scores // priors

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [1, 1, rows, 7], where rows is the most that can remain."""
        if len(inputs) not in (3, 5):
            raise ShapeError(f"{len(inputs)} inputs are given; it takes 3 or 5")
        if self.code_type not in CODE_TYPES:
            raise ShapeError(f"code_type {self.code_type!r} is not {' or '.join(CODE_TYPES)}")
        if not self.keep_top_k:
            raise ShapeError("keep_top_k is empty")
        location, confidence, priors = (desc.shape for desc in inputs[:3])
        images: DimLike = Dim()
        scores: DimLike = Dim()
        if location is not None:
            images = location[0]
        if confidence is not None:
            if len(confidence) != 2:
                raise ShapeError(f"class predictions {confidence} are not [N, priors × classes]")
            images, scores = merge_dim(images, confidence[0]), confidence[1]
        number: DimLike = Dim()
        if priors is not None:
            if len(priors) != 3:
                raise ShapeError(f"priors {priors} are not [1 or N, 1 or 2, priors × 4 or 5]")
            number = priors[2] // self.prior_size
            if 0 in priors[:2]:
                raise ShapeError(f"priors {priors} hold no boxes")
        return [inputs[0].with_shape([1, 1, self.rows(images, number, scores), 7])]

    def rows(self, images: DimLike, priors: DimLike, scores: DimLike) -> DimLike:
        """Return the number of rows of the output."""
        if self.keep_top_k[0] > 0:
            return images * self.keep_top_k[0]
        per_class = self.top_k if self.top_k > 0 else priors
        return images * per_class * self.classes(scores, priors)
