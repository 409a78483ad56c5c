"""Boxes given by two corners: how much they overlap, and in which order they come."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.algorithms.ranking import smallest


def areas(boxes: Array, offset: float = 0.0) -> Array:
    """Return [...]: the area of boxes [..., 4]; `offset` is added to both lengths."""
    return np.asarray(
        (boxes[..., 2] - boxes[..., 0] + offset) * (boxes[..., 3] - boxes[..., 1] + offset)
    )


def overlaps(box: Array, boxes: Array, offset: float = 0.0, *, gap: bool = False) -> Array:
    """Return [n]: intersection over union of `box` [4] with `boxes` [n, 4].

    Args:
        box: two corners.
        boxes: two corners each.
        offset: added to lengths, 1 where coordinates are those of whole pixels.
        gap: whether boxes overlap already when they are less than `offset` apart.
    """
    own = np.append(box, areas(box, offset))
    return table_overlaps(own, table_of(boxes, offset), offset, gap=gap)


def table_of(boxes: Array, offset: float) -> Array:
    """Return [5, n]: coordinates and areas as rows, so that every step works on whole rows."""
    return np.vstack([boxes.T, areas(boxes, offset)])


def table_overlaps(box: Array, others: Array, offset: float, *, gap: bool) -> Array:
    """Return the intersection over union of boxes [5, …] with others [5, …] that broadcast."""
    width = np.minimum(box[2], others[2])
    width -= np.maximum(box[0], others[0])
    height = np.minimum(box[3], others[3])
    height -= np.maximum(box[1], others[1])
    least = -offset if gap else 0.0
    valid = (width >= least) & (height >= least)
    if offset:
        width += offset
        height += offset
    shared = width
    shared *= height
    valid &= shared > 0
    valid &= (others[4] > 0) & (box[4] > 0)
    union = box[4] + others[4]
    union -= shared
    shared /= union  # all of it, which is faster than a masked division
    np.copyto(shared, 0, where=~valid)
    return np.asarray(shared)


def overlap_more(box: Array, others: Array, threshold: float) -> Array:
    """Return where `table_overlaps` without an offset is above a threshold, which is 0 or more.

    That takes half as long where the ratio itself, of which some are no numbers, is not wanted.
    """
    width = np.minimum(box[2], others[2])
    width -= np.maximum(box[0], others[0])
    np.maximum(width, 0, out=width)
    height = np.minimum(box[3], others[3])
    height -= np.maximum(box[1], others[1])
    np.maximum(height, 0, out=height)
    width *= height
    np.add(box[4], others[4], out=height)
    height -= width
    width /= height
    return np.asarray(width > threshold)


def by_score(scores: Array, limit: int | None = None) -> Array:
    """Return the indices of the best scores, best first; of equal ones the lower index first."""
    return smallest(-scores, limit)
