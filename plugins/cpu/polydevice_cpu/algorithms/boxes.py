"""Boxes given by two corners: how much they overlap, and which ones better boxes suppress."""

from __future__ import annotations

from collections.abc import Callable

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
    others = np.vstack([boxes.T, areas(boxes, offset)])
    return _overlaps(own, others, offset, gap=gap)


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

    def clash(some: Array, others: Array, limit: float) -> Array:
        overlap = _overlaps(some[:, :, None], others[:, None, :], offset, gap=gap)
        return overlap >= limit if inclusive else overlap > limit

    most = len(boxes) if limit is None else min(limit, len(boxes))
    if eta < 1:
        return _suppress_adaptively(_rows(boxes, offset), threshold, most, eta, clash)
    kept: list[Array] = []
    tables: list[Array] = []
    start, size = 0, max(4 * BLOCK, 2 * most)
    # Boxes far behind are not looked at before it is known that they are needed.
    while start < len(boxes) and most > 0:
        index = np.arange(start, min(start + size, len(boxes)))
        table = _rows(boxes[start : start + size], offset)
        for judges in tables:
            free = ~clash(judges, table, threshold).any(axis=0)
            index, table = index[free], table[:, free]
        while index.size and most > 0:
            # The best of the rest judge one another, then, all at once, those behind them.
            first, table = table[:, :BLOCK], table[:, BLOCK:]
            chosen = _free(clash(first, first, threshold), most)
            kept.append(index[chosen])
            tables.append(first[:, chosen])
            index = index[BLOCK:]
            most -= len(chosen)
            if index.size and most > 0:
                free = ~clash(tables[-1], table, threshold).any(axis=0)
                index, table = index[free], table[:, free]
        start, size = start + size, 4 * size
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def _rows(boxes: Array, offset: float) -> Array:
    """Return [5, n]: coordinates and areas as rows, so that every step works on whole rows."""
    return np.vstack([boxes.T, areas(boxes, offset)])


BLOCK = 64
"""Boxes judged at once; measured from 100 to 10,000 boxes, 32 and 128 are slower."""

Clash = Callable[[Array, Array, float], Array]


def _free(clashes: Array, most: int) -> list[int]:
    """Return which boxes remain when each one, the best first, removes those it clashes with."""
    # Rows as bits of Python's integers, which are faster than arrays of 64 flags.
    bits = np.packbits(clashes, axis=1, bitorder="little")
    data, width = bits.tobytes(), bits.shape[1]
    removed = 0
    chosen: list[int] = []
    for i in range(len(clashes)):
        if not removed >> i & 1:
            chosen.append(i)
            if len(chosen) == most:
                break
            removed |= int.from_bytes(data[i * width : (i + 1) * width], "little")
    return chosen


def _suppress_adaptively(
    table: Array, threshold: float, most: int, eta: float, clash: Clash
) -> Array:
    """Lower the threshold after each kept box; the next is judged by it against all of them."""
    kept: list[int] = []
    for i in range(table.shape[1]):
        if len(kept) == most:
            break
        box = table[:, i : i + 1]
        if not kept or not clash(table[:, kept], box, threshold).any():
            kept.append(i)
            if threshold > 0.5:
                threshold *= eta
    return np.array(kept, np.int64)


def _overlaps(box: Array, others: Array, offset: float, *, gap: bool) -> Array:
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


def by_score(scores: Array, limit: int | None = None) -> Array:
    """Return the indices of the best scores, best first; of equal ones the lower index first."""
    return smallest(-scores, limit)
