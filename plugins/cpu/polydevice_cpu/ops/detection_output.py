"""DetectionOutput."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.detection_output import DetectionOutput
from polydevice_cpu.algorithms.boxes import by_score
from polydevice_cpu.algorithms.suppression import suppress
from polydevice_cpu.implement import implements

Found = tuple[Array, Array]
"""Classes and priors in one image: those looked at, class by class, each class the best first."""


@implements(DetectionOutput)
def detection_output(
    op: DetectionOutput,
    location: Array,
    confidence: Array,
    priors: Array,
    arm_confidence: Array | None = None,
    arm_location: Array | None = None,
) -> Array:
    """Find, decode, suppress and sort image by image, all classes at once.

    Most priors have no score that reaches the threshold: of 6,912 on a page with a QR code 14 are
    left, and boxes are decoded of those alone, and of no more than `top_k` of a class.
    """
    images, number = len(location), priors.shape[2] // op.prior_size
    rows = op.rows(images, number, confidence.shape[1])
    classes = op.classes(confidence.shape[1], number)
    if not isinstance(rows, int) or not isinstance(classes, int):
        raise InferenceError("DetectionOutput: there are no priors")
    if not len(priors):
        raise InferenceError(f"DetectionOutput: priors {priors.shape} hold no boxes")
    of_location = 1 if op.share_location else classes
    if location.shape[1] != number * of_location * 4 or confidence.shape[1] != number * classes:
        raise InferenceError(
            f"DetectionOutput: locations {location.shape} and confidences {confidence.shape} do "
            f"not fit {number} priors and {classes} classes"
        )
    scores = confidence.astype(np.float32, copy=False).reshape(images, number, classes)
    if arm_confidence is not None:
        weak = arm_confidence.reshape(images, number, 2)[..., 1] < op.objectness_score
        background = np.arange(classes) == op.background_label_id
        scores = np.where(weak[..., None], background.astype(np.float32), scores)
    y = np.zeros((rows, 7), np.float32)
    count = 0
    for image in range(images):
        of_image = scores[image]
        label, prior = _best_class(op, of_image) if op.decrease_label_id else _classes(op, of_image)
        targets = [target[image] for target in (arm_location, location) if target is not None]
        boxes = _decoded(op, priors[image % len(priors)], targets, of_location, (label, prior))
        score = of_image.reshape(-1).take(prior * classes + label)
        kept = suppress(boxes, op.nms_threshold, groups=label)
        kept = _best(op, kept, score.take(kept), prior)[: rows - count]
        part = y[count : count + len(kept)]
        part[:, 0] = image
        part[:, 1] = label.take(kept)
        part[:, 2] = score.take(kept)
        part[:, 3:] = boxes.take(kept, axis=0)
        count += len(kept)
    if op.decrease_label_id:
        y[:count, 1] -= 1
    if op.clip_after_nms:
        np.clip(y[:count, 3:], 0, 1, out=y[:count, 3:])
    if count < rows:
        y[count, 0] = -1
    return y.reshape(1, 1, rows, 7).astype(location.dtype, copy=False)


def _classes(op: DetectionOutput, scores: Array) -> Found:
    """Return what is above the threshold of each class on its own (as Caffe does)."""
    classes = scores.shape[1]
    is_above = scores > op.confidence_threshold
    if 0 <= op.background_label_id < classes:
        is_above[:, op.background_label_id] = False
    place = is_above.reshape(-1).nonzero()[0]
    place = place.take(by_score(scores.reshape(-1).take(place)))
    prior, label = np.divmod(place, classes)
    order = _by_class(label, classes)
    prior, label = prior.take(order), label.take(order)
    if -1 < op.top_k < len(label):
        top = (np.arange(len(label)) - label.searchsorted(label) < op.top_k).nonzero()[0]
        prior, label = prior.take(top), label.take(top)
    return label, prior


def _best_class(op: DetectionOutput, scores: Array) -> Found:
    """Return for each prior the class of its best score, if that reaches it (as MXNet does)."""
    classes = scores.shape[1]
    likely = np.unique(np.flatnonzero(scores.reshape(-1) >= op.confidence_threshold) // classes)
    masked = scores.take(likely, axis=0)
    masked[:, 0] = -1
    if 0 <= op.background_label_id < classes:
        masked[:, op.background_label_id] = -1
    label = masked.argmax(axis=1)
    best = np.take_along_axis(masked, label[:, None], 1)[:, 0]
    candidates = np.flatnonzero((label > 0) & (best >= op.confidence_threshold) & (best > -1))
    top = op.top_k if op.top_k > -1 else None
    order = candidates.take(by_score(best.take(candidates), top))
    order = order.take(_by_class(label.take(order), classes))
    return label.take(order), likely.take(order)


def _by_class(label: Array, classes: int) -> Array:
    """Return the order of classes, within which others stay in theirs."""
    # NumPy counts short numbers instead of comparing them: 1,473 take 7 us.
    kind = np.uint16 if classes <= 1 << 16 else np.int64
    return np.asarray(label.astype(kind).argsort(kind="stable"))


def _best(op: DetectionOutput, kept: Array, score: Array, prior: Array) -> Array:
    """Return those of `kept` that may stay in an image; of equal ones the lower priors do."""
    keep = op.keep_top_k[0]
    if not -1 < keep < len(kept):
        return kept
    if keep:
        least = np.partition(score, -keep)[-keep]
        best = (score >= least).nonzero()[0]
        if len(best) == keep:
            return np.asarray(kept.take(best))
    best = np.lexsort((prior.take(kept), -score))[:keep]
    return np.asarray(kept.take(np.sort(best)))


def _decoded(
    op: DetectionOutput, priors: Array, targets: list[Array], classes: int, found: Found
) -> Array:
    """Return [n, 4]: the boxes x1, y1, x2, y2 of classes and priors of one image."""
    label, prior = found
    number = priors.shape[1] // op.prior_size
    # Coordinates as rows, as what NumPy does to rows of two or four takes several times as long.
    rows = priors[0].reshape(-1, op.prior_size)[:, op.prior_size - 4 :]
    boxes = _columns(rows, prior)
    if not op.normalized:
        size = [op.input_width, op.input_height, op.input_width, op.input_height]
        boxes /= np.array(size, np.float32)[:, None]
    variance = None
    if not op.variance_encoded_in_target:
        if len(priors) < 2:
            raise InferenceError(
                "DetectionOutput: the priors hold no variances, and "
                "variance_encoded_in_target is false"
            )
        variance = _columns(priors[1, : number * 4].reshape(-1, 4), prior)
    place = prior if classes == 1 else prior * classes + label
    for target in targets:
        offset = _columns(target.reshape(-1, 4), place)
        if variance is not None:
            offset *= variance
        boxes = _shifted(op, boxes, offset)
        if op.clip_before_nms:
            boxes = np.clip(boxes, 0, 1)
    return np.ascontiguousarray(boxes.T)


def _columns(rows: Array, index: Array) -> Array:
    """Return [4, n]: the columns of some rows, as f32."""
    return np.ascontiguousarray(rows.take(index, axis=0).T, np.float32)


def _shifted(op: DetectionOutput, boxes: Array, offset: Array) -> Array:
    if op.code_type.endswith("CORNER"):
        return np.asarray(boxes + offset)
    size = boxes[2:] - boxes[:2]
    centre = boxes[2:] + boxes[:2]
    centre /= 2
    centre += offset[:2] * size
    half = np.exp(offset[2:])
    half *= size
    half /= 2
    shifted = np.empty_like(boxes)
    np.subtract(centre, half, out=shifted[:2])
    np.add(centre, half, out=shifted[2:])
    return shifted
