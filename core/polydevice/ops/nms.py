"""NonMaxSuppression and its relatives: the best boxes, without those that overlap better ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from typing_extensions import Self

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.sizes import shared_sizes
from polydevice.shape import Dim, DimLike, Shape, bounds, dim, merge_dim
from polydevice.tensor import TensorDesc


class BoxEncoding(Enum):
    """What the four numbers of a box are."""

    CORNER = "corner"
    """y1, x1, y2, x2 of any two opposite corners."""
    CENTER = "center"
    """x and y of the centre, width, height."""


def box_counts(
    boxes: TensorDesc, scores: TensorDesc, size: int = 4
) -> tuple[DimLike, DimLike, DimLike]:
    """Return batches, classes and boxes of [batches, boxes, size] and [batches, classes, boxes].

    Raises:
        ShapeError: when the shapes do not fit together.
    """
    batches: DimLike = Dim()
    classes: DimLike = Dim()
    number: DimLike = Dim()
    if scores.shape is not None:
        if len(scores.shape) != 3:
            raise ShapeError(f"scores {scores.shape} are not [batches, classes, boxes]")
        batches, classes, number = scores.shape
    if boxes.shape is not None:
        if len(boxes.shape) != 3:
            raise ShapeError(f"boxes {boxes.shape} are not [batches, boxes, {size}]")
        try:
            merge_dim(boxes.shape[2], size)
            batches = merge_dim(batches, boxes.shape[0])
            number = merge_dim(number, boxes.shape[1])
        except ShapeError:
            raise ShapeError(
                f"boxes {boxes.shape} are not [batches, boxes, {size}] for scores {scores.shape}"
            ) from None
    return batches, classes, number


def _per_class(inputs: Sequence[TensorDesc], number: DimLike) -> int | None:
    """Return the most boxes that one class can yield; None is unbounded."""
    most = bounds(number)[1]
    if len(inputs) < 3:
        return 0
    limit = inputs[2].static_ints
    if limit is None:
        return most
    wanted = max(limit[0], 0)
    return wanted if most is None else min(wanted, most)


class NonMaxSuppressionOp(Op):
    """What all versions share."""

    numbers_at = (2, 3, 4, 5)

    box_encoding: BoxEncoding
    sort_result_descending: bool
    output_type: ElementType


@operation("NonMaxSuppression", since=(1, 3, 4))
class NonMaxSuppressionPadded(NonMaxSuppressionOp):
    """The versions of opset1 to opset4: one output of fixed size, filled with -1.

    Inputs:  boxes            [batches, boxes, 4], floating point
             scores           [batches, classes, boxes], type of boxes
             max_boxes        optional scalar: per batch and class (0)
             iou_threshold    optional scalar: boxes that overlap a better one by more go (0)
             score_threshold  optional scalar: only better boxes count (0)
    Outputs: indices          [most, 3]: batch, class, box; `output_type` (opset1: i64)
    Raises:  ShapeError when the shapes do not fit together
    Source:  OpenVINO opset1, opset3 and opset4 NonMaxSuppression
    """

    box_encoding: BoxEncoding = attribute(default=BoxEncoding.CORNER)
    sort_result_descending: bool = attribute(default=True)
    output_type: ElementType = attribute(default=ElementType.i64)
    per_batch: bool = attribute(default=True, ir="", came_with=4)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the fixed number of rows."""
        self.check_count(inputs, 2, 5)
        batches, classes, number = box_counts(inputs[0], inputs[1])
        limited = len(inputs) > 2 and inputs[2].static_ints is None
        return [
            TensorDesc(
                self.output_type,
                Shape(
                    [Dim() if limited else self.rows(batches, classes, number, _limit(inputs)), 3]
                ),
            )
        ]

    def rows(self, batches: DimLike, classes: DimLike, number: DimLike, limit: int) -> DimLike:
        """Return the number of rows for `limit` boxes per batch and class."""
        if self.per_batch:
            return batches * classes * _least(number, limit)
        (low, high), (least, most) = bounds(classes * limit), bounds(number)
        highs = [h for h in (high, most) if h is not None]
        return dim(min(low, least), min(highs) if highs else None)


def _limit(inputs: Sequence[TensorDesc]) -> int:
    values = inputs[2].static_ints if len(inputs) > 2 else None
    return max(values[0], 0) if values else 0


def _least(size: DimLike, limit: int) -> DimLike:
    low, high = bounds(size)
    return dim(min(low, limit), limit if high is None else min(high, limit))


@operation("NonMaxSuppression", since=(5, 9))
class NonMaxSuppression(NonMaxSuppressionOp):
    """Keep the boxes of each class that do not overlap better ones.

    With a positive soft_nms_sigma overlapping boxes lose score instead, by
    exp(-0.5 × iou² / sigma).

    Inputs:  boxes            [batches, boxes, 4], floating point
             scores           [batches, classes, boxes], type of boxes
             max_boxes        optional scalar: per batch and class (0)
             iou_threshold    optional scalar: boxes that overlap a better one by more go (0)
             score_threshold  optional scalar: only better boxes count (0)
             soft_nms_sigma   optional scalar (0)
    Outputs: indices          [number, 3]: batch, class, box; `output_type`
             scores           [number, 3]: batch, class, score; type of scores
             number           [1], `output_type`
    Raises:  ShapeError when the shapes do not fit together
    Source:  OpenVINO opset5 and opset9 NonMaxSuppression; ONNX NonMaxSuppression-11
    """

    box_encoding: BoxEncoding = attribute(default=BoxEncoding.CORNER)
    sort_result_descending: bool = attribute(default=True)
    output_type: ElementType = attribute(default=ElementType.i64)

    @classmethod
    def from_onnx(cls, attributes: Mapping[str, Any], opset: int) -> Self:
        """Make it; ONNX has the first output only, by batch and class."""
        center = bool(attributes.get("center_point_box", 0))
        encoding = BoxEncoding.CENTER if center else BoxEncoding.CORNER
        return cls(box_encoding=encoding, sort_result_descending=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return at most all boxes of all classes."""
        self.check_count(inputs, 2, 6)
        batches, classes, number = box_counts(inputs[0], inputs[1])
        per_class = _per_class(inputs, number)
        most = None if per_class is None else bounds(batches * classes * per_class)[1]
        rows = Shape([dim(0, most), 3])
        return [
            TensorDesc(self.output_type, rows),
            TensorDesc(inputs[1].element_type, rows),
            TensorDesc(self.output_type, Shape([1])),
        ]


@operation("NMSRotated", since=13)
class NMSRotated(Op):
    """NonMaxSuppression for rotated boxes: centre x, centre y, width, height, angle in radians.

    Inputs:  boxes            [batches, boxes, 5], floating point
             scores           [batches, classes, boxes], type of boxes
             max_boxes        scalar: per batch and class
             iou_threshold    scalar: boxes that overlap a better one by more go
             score_threshold  scalar: only better boxes count
    Outputs: indices          [number, 3]: batch, class, box; `output_type`
             scores           [number, 3]: batch, class, score; type of scores
             number           [1], `output_type`
    Raises:  ShapeError when the shapes do not fit together
    Source:  OpenVINO opset13 NMSRotated
    """

    numbers_at = (2, 3, 4)

    sort_result_descending: bool = attribute(default=True)
    output_type: ElementType = attribute(default=ElementType.i64, ir="output_type")
    clockwise: bool = attribute(default=True)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return at most all boxes of all classes."""
        self.check_count(inputs, 5)
        batches, classes, number = box_counts(inputs[0], inputs[1], 5)
        per_class = _per_class(inputs, number)
        most = None if per_class is None else bounds(batches * classes * per_class)[1]
        rows = Shape([dim(0, most), 3])
        return [
            TensorDesc(self.output_type, rows),
            TensorDesc(inputs[1].element_type, rows),
            TensorDesc(self.output_type, Shape([1])),
        ]


class SortResult(Enum):
    """In which order MatrixNms and MulticlassNms return boxes."""

    CLASSID = "classid"
    SCORE = "score"
    NONE = "none"


class DecayFunction(Enum):
    """How MatrixNms lowers the scores of overlapping boxes."""

    LINEAR = "linear"
    GAUSSIAN = "gaussian"


def _selected(
    boxes: TensorDesc, rows: DimLike, images: DimLike, kind: ElementType
) -> list[TensorDesc]:
    """Describe [rows, 6] boxes, [rows, 1] indices and [images] counts."""
    most = Shape([dim(0, bounds(rows)[1]), 6])
    return [
        TensorDesc(boxes.element_type, most),
        TensorDesc(kind, Shape([most[0], 1])),
        TensorDesc(kind, Shape([images])),
    ]


def _kept(classes: DimLike, number: DimLike, top: int, keep: int, background: int) -> DimLike:
    """Return how many boxes of one image can remain."""
    per_class = bounds(number)[1]
    if top > -1:
        per_class = top if per_class is None else min(top, per_class)
    known = bounds(classes)[1]
    if known is not None and 0 <= background < known:
        known -= 1
    total = None if known is None or per_class is None else known * per_class
    if keep > -1:
        total = keep if total is None else min(total, keep)
    return dim(0, total)


@operation("MatrixNms", since=8)
class MatrixNms(Op):
    """Lower the score of each box by its overlap with better ones, all at once.

    Inputs:  boxes   [batches, boxes, 4]: x1, y1, x2, y2
             scores  [batches, classes, boxes]
    Outputs: boxes   [number, 6]: class, score, x1, y1, x2, y2; type of boxes
             indices [number, 1] of the boxes, counted over all batches; `output_type`
             counts  [batches], `output_type`
    Raises:  ShapeError when the shapes do not fit together
    Source:  OpenVINO opset8 MatrixNms; https://arxiv.org/abs/2003.10152
    """

    sort_result_type: SortResult = attribute(default=SortResult.NONE)
    sort_result_across_batch: bool = attribute(default=False)
    output_type: ElementType = attribute(default=ElementType.i64)
    score_threshold: float = attribute(default=0.0)
    nms_top_k: int = attribute(default=-1)
    keep_top_k: int = attribute(default=-1)
    background_class: int = attribute(default=-1)
    decay_function: DecayFunction = attribute(default=DecayFunction.LINEAR)
    gaussian_sigma: float = attribute(default=2.0)
    post_threshold: float = attribute(default=0.0)
    normalized: bool = attribute(default=True)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return at most what the limits leave of all boxes."""
        boxes, scores = inputs
        batches, classes, number = box_counts(boxes, scores)
        rows = batches * _kept(
            classes, number, self.nms_top_k, self.keep_top_k, self.background_class
        )
        return _selected(boxes, rows, batches, self.output_type)


@operation("MulticlassNms", since=(8, 9))
class MulticlassNms(Op):
    """Keep the boxes of each class that do not overlap better ones, then the best of the image.

    Inputs:  boxes   [batches, boxes, 4], or with counts [classes, boxes, 4]: x1, y1, x2, y2
             scores  [batches, classes, boxes], or with counts [classes, boxes]
             counts  optional [batches] (opset9): boxes of each image, one after the other
    Outputs: boxes   [number, 6]: class, score, x1, y1, x2, y2; type of boxes
             indices [number, 1] of the boxes, counted over all batches; `output_type`
             counts  [batches], `output_type`
    Raises:  ShapeError when the shapes do not fit together
    Source:  OpenVINO opset8 and opset9 MulticlassNms
    """

    sort_result_type: SortResult = attribute(default=SortResult.NONE)
    sort_result_across_batch: bool = attribute(default=False)
    output_type: ElementType = attribute(default=ElementType.i64)
    iou_threshold: float = attribute(default=0.0)
    score_threshold: float = attribute(default=0.0)
    nms_top_k: int = attribute(default=-1)
    keep_top_k: int = attribute(default=-1)
    background_class: int = attribute(default=-1)
    nms_eta: float = attribute(default=1.0)
    normalized: bool = attribute(default=True)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return at most what the limits leave of all boxes."""
        self.check_count(inputs, 2, 3)
        boxes, scores = inputs[:2]
        if len(inputs) < 3:
            batches, classes, number = box_counts(boxes, scores)
        else:
            found = shared_sizes(
                {
                    "boxes": (boxes, ("classes", "boxes", 4)),
                    "scores": (scores, ("classes", "boxes")),
                    "counts": (inputs[2], ("batches",)),
                }
            )
            batches, classes, number = (found[name] for name in ("batches", "classes", "boxes"))
        rows = batches * _kept(
            classes, number, self.nms_top_k, self.keep_top_k, self.background_class
        )
        return _selected(boxes, rows, batches, self.output_type)
