"""The ExperimentalDetectron operations."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.detectron import (
    ExperimentalDetectronDetectionOutput,
    ExperimentalDetectronGenerateProposalsSingleImage,
    ExperimentalDetectronPriorGridGenerator,
    ExperimentalDetectronROIFeatureExtractor,
    ExperimentalDetectronTopKROIs,
)
from polydevice_cpu.algorithms.boxes import by_score
from polydevice_cpu.algorithms.by_machine.regions.kernel import Bins
from polydevice_cpu.algorithms.by_machine.regions.pooled import Pooling
from polydevice_cpu.algorithms.roi_align import aligned, finite_regions
from polydevice_cpu.algorithms.suppression import suppress
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.proposal import anchor_boxes, shifted


@implements(ExperimentalDetectronDetectionOutput)
def detection_output(
    op: ExperimentalDetectronDetectionOutput, rois: Array, offsets: Array, scores: Array, _: Array
) -> tuple[Array, ...]:
    """Refine and suppress class by class, then keep the best of the image."""
    boxes, number = rois.astype(np.float32), len(rois)
    weights = np.array(op.deltas_weights, np.float32)
    moved = offsets.astype(np.float32).reshape(number, op.num_classes, 4) / weights
    refined = shifted(boxes[:, None], moved, 1.0, op.max_delta_log_wh)
    refined[..., 2:] -= 1
    refined = np.maximum(refined, 0)
    valid = np.all(boxes[:, 2:] > boxes[:, :2], axis=1)
    best = np.where(valid[:, None], scores.astype(np.float32), 0)
    classes: list[Array] = [np.zeros(0, np.int64)]
    index: list[Array] = [np.zeros(0, np.int64)]
    for label in range(1, op.num_classes):
        candidates = np.flatnonzero(best[:, label] > op.score_threshold)
        order = candidates[by_score(best[candidates, label])]
        limit = None if op.post_nms_count < 0 else op.post_nms_count
        kept = order[suppress(refined[order, label], op.nms_threshold, limit, offset=1.0)]
        classes.append(np.full(len(kept), label))
        index.append(kept)
    of_class, of_roi = np.concatenate(classes), np.concatenate(index)
    rows = op.max_detections_per_image
    if len(of_class) > rows:
        order = np.lexsort((of_roi, -best[of_roi, of_class]))[:rows]
        of_class, of_roi = of_class[order], of_roi[order]
    y = np.zeros((rows, 4), np.float32)
    labels, values = np.zeros(rows, np.int32), np.zeros(rows, np.float32)
    y[: len(of_roi)] = refined[of_roi, of_class]
    labels[: len(of_roi)] = of_class
    values[: len(of_roi)] = best[of_roi, of_class]
    return y.astype(rois.dtype), labels, values.astype(rois.dtype)


@implements(ExperimentalDetectronGenerateProposalsSingleImage)
def generate_proposals(
    op: ExperimentalDetectronGenerateProposalsSingleImage,
    image_info: Array,
    anchors: Array,
    offsets: Array,
    scores: Array,
) -> tuple[Array, Array]:
    """Shift the anchors and keep the best."""
    height, width = (float(v) for v in image_info.reshape(-1)[:2])
    boxes, values = anchor_boxes(anchors, offsets, scores, (height, width), 1.0)
    large = (boxes[:, 2:] - boxes[:, :2] + 1 >= op.min_size).all(axis=1)
    values = np.where(large, values, 0)
    order = by_score(values, min(op.pre_nms_count, len(values)))
    kept = order[suppress(boxes[order], op.nms_threshold, op.post_nms_count)]
    rois = np.zeros((op.post_nms_count, 4), image_info.dtype)
    best = np.zeros(op.post_nms_count, image_info.dtype)
    rois[: len(kept)] = boxes[kept]
    best[: len(kept)] = values[kept]
    return rois, best


@implements(ExperimentalDetectronPriorGridGenerator)
def prior_grid(
    op: ExperimentalDetectronPriorGridGenerator, priors: Array, features: Array, image: Array
) -> Array:
    """Add the centre of every cell to the priors."""
    height, width = op.h or features.shape[2], op.w or features.shape[3]
    step_x = op.stride_x or image.shape[3] / max(width, 1)
    step_y = op.stride_y or image.shape[2] / max(height, 1)
    x = (np.arange(width, dtype=np.float32) + 0.5) * np.float32(step_x)
    y = (np.arange(height, dtype=np.float32) + 0.5) * np.float32(step_y)
    across, down = np.meshgrid(x, y)
    centre = np.stack([across, down, across, down], -1)[:, :, None]
    result = (priors.astype(np.float32) + centre).astype(priors.dtype)
    return np.asarray(result.reshape(-1, 4) if op.flatten else result)


@implements(ExperimentalDetectronROIFeatureExtractor)
def roi_features(
    op: ExperimentalDetectronROIFeatureExtractor, rois: Array, *levels: Array
) -> tuple[Array, Array]:
    """Choose a level by the region's size (224 × 224 belongs to the third) and align on it."""
    boxes = rois.astype(np.float32)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.log2(np.sqrt(area) / 224 + 1e-6)
    level = np.clip(np.floor(np.nan_to_num(size) + 2), 0, len(levels) - 1)
    channels = levels[0].shape[1]
    y = np.zeros((len(rois), channels, op.output_size, op.output_size), np.float32)
    shift = 0.5 if op.aligned else 0.0
    pooled = (op.output_size, op.output_size)
    pooling = Pooling(Bins.SUMS, pooled, 1.0, op.sampling_ratio, behind=shift, least=1.0)
    for at, scale in enumerate(op.pyramid_scales):
        of_level = np.flatnonzero((level == at) & (area > 0))  # without area: belongs to none
        box = finite_regions(op.type, boxes[of_level], 1) / scale
        images = np.zeros(len(of_level), np.int64)
        y[of_level] = aligned(op.type, pooling, levels[at], box, images)
    return y.astype(rois.dtype), rois


@implements(ExperimentalDetectronTopKROIs)
def top_rois(op: ExperimentalDetectronTopKROIs, rois: Array, probabilities: Array) -> Array:
    """Sort and take the first."""
    order = by_score(probabilities.reshape(-1), op.max_rois)
    y = np.zeros((op.max_rois, 4), rois.dtype)
    y[: len(order)] = rois[order]
    return y
