"""Boxes given by two corners: how much they overlap, and which ones better boxes suppress."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array


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
    low = np.maximum(box[:2], boxes[:, :2])
    high = np.minimum(box[2:], boxes[:, 2:])
    length = high - low + offset
    apart = (length <= 0) if gap else (high < low)
    shared = np.where(apart.any(axis=1), 0, length[:, 0] * length[:, 1])
    own, others = areas(box, offset), areas(boxes, offset)
    union = own + others - shared
    valid = (own > 0) & (others > 0) & (shared > 0)
    return np.asarray(np.divide(shared, union, out=np.zeros_like(union), where=valid))


def suppress(
    boxes: Array,
    threshold: float,
    limit: int | None = None,
    *,
    offset: float = 0.0,
    gap: bool = False,
    eta: float = 1.0,
    inclusive: bool = False,
) -> Array:
    """Return the indices of the boxes that no better one overlaps by more than `threshold`.

    Args:
        boxes: [n, 4], the best first.
        threshold: of intersection over union.
        limit: how many to keep at most.
        offset: see `overlaps`.
        gap: see `overlaps`.
        eta: factor on a threshold above 0.5 after each box that was kept.
        inclusive: whether an overlap of exactly `threshold` is too much.
    """
    rest = np.arange(len(boxes))
    kept: list[int] = []
    while rest.size and (limit is None or len(kept) < limit):
        best, rest = rest[0], rest[1:]
        kept.append(int(best))
        if eta < 1 and threshold > 0.5:
            # The next box is judged by the lower threshold against all that were kept.
            threshold *= eta
            rest = _still_free(boxes, kept, rest, threshold, offset, gap, inclusive)
            continue
        overlap = overlaps(boxes[best], boxes[rest], offset, gap=gap)
        rest = rest[overlap < threshold if inclusive else overlap <= threshold]
    return np.array(kept, np.int64)


def _still_free(
    boxes: Array,
    kept: list[int],
    rest: Array,
    threshold: float,
    offset: float,
    gap: bool,
    inclusive: bool,
) -> Array:
    """Return the indices of `rest` that no kept box overlaps too much."""
    for index in kept:
        overlap = overlaps(boxes[index], boxes[rest], offset, gap=gap)
        rest = rest[overlap < threshold if inclusive else overlap <= threshold]
    return rest


def by_score(scores: Array, limit: int | None = None) -> Array:
    """Return the indices of the best scores, best first; of equal ones the lower index first."""
    order = np.argsort(-scores.astype(np.float64), kind="stable")
    return order if limit is None else order[:limit]
