"""Rotated rectangles: how much they overlap."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array


def corners(box: Array) -> Array:
    """Return [4, 2]: the corners of centre x, centre y, width, height, clockwise angle."""
    x, y, width, height, angle = (float(v) for v in box)
    along = np.array([np.cos(angle), np.sin(angle)]) * width / 2
    across = np.array([-np.sin(angle), np.cos(angle)]) * height / 2
    centre = np.array([x, y])
    return np.stack(
        [
            centre - along - across,
            centre + along - across,
            centre + along + across,
            centre - along + across,
        ]
    )


def rotated_overlaps(box: Array, boxes: Array) -> Array:
    """Return [n]: intersection over union of `box` [5] with `boxes` [n, 5]."""
    area = float(box[2] * box[3])
    result = np.zeros(len(boxes))
    if area <= 0:
        return result
    polygon = corners(box)
    # Circles around the centres tell most of the pairs that cannot meet.
    reach = np.hypot(box[2], box[3]) / 2 + np.hypot(boxes[:, 2], boxes[:, 3]) / 2
    near = np.hypot(*(boxes[:, :2] - box[:2]).T) <= reach
    for i in np.flatnonzero(near):
        other = float(boxes[i, 2] * boxes[i, 3])
        if other > 0:
            shared = _area(_clip(polygon, corners(boxes[i])))
            result[i] = shared / (area + other - shared)
    return result


def _clip(polygon: Array, convex: Array) -> Array:
    """Return the part of `polygon` within `convex` (Sutherland and Hodgman, 1974)."""
    for start, end in zip(convex, np.roll(convex, -1, 0), strict=True):
        if not len(polygon):
            break
        edge = end - start
        side = edge[0] * (polygon[:, 1] - start[1]) - edge[1] * (polygon[:, 0] - start[0])
        kept: list[Array] = []
        for i in range(len(polygon)):
            here, there = side[i - 1], side[i]
            if (here >= 0) != (there >= 0):
                part = here / (here - there)
                kept.append(polygon[i - 1] + part * (polygon[i] - polygon[i - 1]))
            if there >= 0:
                kept.append(polygon[i])
        polygon = np.array(kept).reshape(-1, 2)
    return polygon


def _area(polygon: Array) -> float:
    if len(polygon) < 3:
        return 0.0
    x, y = polygon.T
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)
