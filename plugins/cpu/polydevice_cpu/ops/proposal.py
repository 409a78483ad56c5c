"""Proposal and GenerateProposals."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.proposal import GenerateProposals, Proposal
from polydevice_cpu.algorithms.boxes import by_score
from polydevice_cpu.algorithms.suppression import suppress
from polydevice_cpu.implement import implements

MAX_LOG_SCALE = float(np.log(1000 / 16))
"""Largest predicted logarithm of a scale, so that exp() stays within bounds (Detectron)."""


@implements(Proposal)
def proposal(op: Proposal, scores: Array, offsets: Array, image_shape: Array) -> tuple[Array, ...]:
    """Shift the anchors of every cell, then keep the best of each image."""
    images, channels, height, width = scores.shape
    anchors = _anchors(op)
    if channels != 2 * len(anchors) or offsets.shape != (images, 4 * len(anchors), height, width):
        raise InferenceError(
            f"Proposal: scores {scores.shape} and offsets {offsets.shape} do not "
            f"fit {len(anchors)} anchors"
        )
    info = [float(n) for n in image_shape.reshape(-1)]
    rows = op.post_nms_topn
    rois = np.zeros((images, rows, 5), np.float32)
    best = np.zeros((images, rows), np.float32)
    for image in range(images):
        # [H, W, anchors]: the order in which equal scores are kept
        score = scores[image, len(anchors) :].astype(np.float32).transpose(1, 2, 0).reshape(-1)
        offset = offsets[image].astype(np.float32).reshape(-1, 4, height, width)
        boxes, valid = _proposals(op, anchors, offset.transpose(2, 3, 0, 1), info)
        score = score * valid
        order = by_score(score, min(op.pre_nms_topn, len(score)))
        unit = 0.0 if op.framework == "tensorflow" else 1.0
        kept = order[suppress(boxes[order], op.nms_thresh, rows, offset=unit)]
        chosen = boxes[kept]
        size = _image_size(op, info)
        if op.clip_after_nms:
            chosen = np.clip(chosen, 0, size)
        if op.normalize:
            chosen = chosen / size
        rois[image, : len(kept), 0] = image
        rois[image, : len(kept), 1:] = chosen
        best[image, : len(kept)] = score[kept]
        if len(kept) < rows:
            rois[image, len(kept), 0] = -1
    y = rois.reshape(-1, 5).astype(scores.dtype)
    return (y, best.reshape(-1).astype(scores.dtype)) if op.with_scores else (y,)


def _image_size(op: Proposal, info: list[float]) -> Array:
    """Return [4]: the limits of a box's coordinates; TensorFlow's come y first."""
    height, width = info[:2]
    return np.array(
        [height, width] * 2 if op.framework == "tensorflow" else [width, height] * 2, np.float32
    )


def _anchors(op: Proposal) -> Array:
    """Return [ratios × scales, 4]: x1, y1, x2, y2 at the first cell."""
    tensorflow = op.framework == "tensorflow"
    unit = 0.0 if tensorflow else 1.0
    centre = 0.5 * (op.base_size - unit) - (op.base_size * 0.5 if tensorflow else 0.0)
    result = []
    for ratio in op.ratio:
        width = (op.base_size**2 / ratio) ** 0.5
        width = width if tensorflow else np.floor(width + 0.5)
        height = width * ratio if tensorflow else np.floor(width * ratio + 0.5)
        for scale in op.scale:
            half_w, half_h = 0.5 * (width * scale - unit), 0.5 * (height * scale - unit)
            result.append([centre - half_w, centre - half_h, centre + half_w, centre + half_h])
    return np.array(result, np.float32).reshape(-1, 4)


def _proposals(
    op: Proposal, anchors: Array, offset: Array, info: list[float]
) -> tuple[Array, Array]:
    """Return boxes [n, 4] from offsets [H, W, anchors, 4], and whether each is large enough."""
    height, width = offset.shape[:2]
    tensorflow = op.framework == "tensorflow"
    unit = np.float32(0 if tensorflow else 1)
    x = np.arange(width, dtype=np.float32) * op.feat_stride
    y = np.arange(height, dtype=np.float32) * op.feat_stride
    across, down = np.meshgrid(x, y)
    if tensorflow:  # y first
        across, down = down, across
    boxes = anchors + np.stack([across, down, across, down], -1)[:, :, None]
    size = _image_size(op, info)
    if tensorflow:
        boxes = np.clip(boxes, 0, size)
    moved = np.concatenate(
        [offset[..., :2] / op.box_coordinate_scale, offset[..., 2:] / op.box_size_scale], -1
    )
    boxes = shifted(boxes, moved, unit)
    if op.clip_before_nms:
        boxes = np.clip(boxes, 0, size - unit)
    boxes = boxes.reshape(-1, 4).astype(np.float32)
    least = op.min_size * np.array([info[3] if len(info) > 3 else info[2], info[2]], np.float32)
    valid = (boxes[:, 2:] - boxes[:, :2] + unit >= least).all(axis=1)
    return boxes, valid


def shifted(boxes: Array, offset: Array, unit: float, most: float | None = None) -> Array:
    """Return boxes [..., 4] moved and scaled by offsets [..., 4].

    Args:
        boxes: x1, y1, x2, y2.
        offset: shift of the centre in sizes, logarithm of the scale.
        unit: added to sizes, 1 where coordinates are those of whole pixels.
        most: largest logarithm of a scale.
    """
    size = boxes[..., 2:] - boxes[..., :2] + unit
    centre = boxes[..., :2] + 0.5 * size + offset[..., :2] * size
    scale = offset[..., 2:] if most is None else np.minimum(offset[..., 2:], most)
    half = 0.5 * np.exp(scale) * size
    return np.concatenate([centre - half, centre + half], axis=-1)


@implements(GenerateProposals)
def generate_proposals(
    op: GenerateProposals, image_info: Array, anchors: Array, offsets: Array, scores: Array
) -> tuple[Array, ...]:
    """Shift the anchors, then keep the best of each image."""
    rois: list[Array] = [np.zeros((0, 4), np.float32)]
    best: list[Array] = [np.zeros(0, np.float32)]
    counts = []
    unit = 0.0 if op.normalized else 1.0
    flat = anchors.reshape(-1, 4)
    for info, offset, score in zip(image_info, offsets, scores, strict=True):
        sizes = [float(v) for v in info]
        scale = [1.0, 1.0] if len(sizes) < 3 else [sizes[-1], sizes[2]]  # of x, of y
        boxes, values = anchor_boxes(flat, offset, score, (sizes[0], sizes[1]), unit)
        order = by_score(values, min(op.pre_nms_count, len(values)))
        least = op.min_size * np.array(scale, np.float32)
        large = (boxes[order, 2:] - boxes[order, :2] + unit >= least).all(axis=1)
        order = order[large]
        kept = order[
            suppress(boxes[order], op.nms_threshold, op.post_nms_count, offset=unit, eta=op.nms_eta)
        ]
        rois.append(boxes[kept])
        best.append(values[kept])
        counts.append(len(kept))
    return (
        np.concatenate(rois).astype(image_info.dtype),
        np.concatenate(best).astype(scores.dtype),
        np.array(counts, op.roi_num_type.dtype),
    )


def anchor_boxes(
    anchors: Array, offset: Array, score: Array, size: tuple[float, float], unit: float
) -> tuple[Array, Array]:
    """Return boxes [n, 4] within an image of `size` (height, width), and their scores [n].

    Args:
        anchors: [H × W × anchors, 4].
        offset: [anchors × 4, H, W].
        score: [anchors, H, W].
        size: height and width of the image.
        unit: added to sizes, 1 where coordinates are those of whole pixels.
    """
    height, width = score.shape[1:]
    moved = offset.astype(np.float32).reshape(-1, 4, height, width).transpose(2, 3, 0, 1)
    boxes = shifted(anchors.astype(np.float32), moved.reshape(-1, 4), unit, MAX_LOG_SCALE)
    boxes[:, 2:] -= unit
    limit = np.array([size[1], size[0]] * 2, np.float32) - np.float32(unit)
    boxes = np.clip(boxes, 0, limit)
    return boxes, score.astype(np.float32).transpose(1, 2, 0).reshape(-1)
