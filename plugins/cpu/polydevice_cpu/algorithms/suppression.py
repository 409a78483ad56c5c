"""Suppression: which boxes stay where better ones remove those that overlap them too much."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.algorithms.boxes import overlap_more, table_of, table_overlaps
from polydevice_cpu.algorithms.by_machine.greedy import keep_greedily

BLOCK = 64
"""Boxes judged at once; measured from 100 to 10,000 boxes, 32 and 128 are slower."""

CLOSE, FEW, MOST = 300, 1 / 3, 1 << 22
"""Pairs are looked at one by one where no more are close than so many per box, than this part of
all pairs, and than so many: they take 300 bytes each.

Where boxes lie apart that takes a fifth to a tenth of the time of blocks, of which all pairs are
looked at; in crowds blocks are quicker. At 1 / 16, 1,000 boxes of which a tenth are close take 2.2
ms instead of 0.8.
"""

SMALL = 256
"""Boxes of a group in a crowd up to which all pairs of all groups are looked at together, which
takes half the time where groups have 100 (20 of them 1.1 ms); of larger ones blocks leave out most
pairs."""

APART = 1024
"""Groups that have more boxes than this on average are looked at one by one where machine code does
not take all at once: 20 of 3,600 take 18 ms instead of 209."""

CELLS = 1 << 15
"""Pairs that are looked at together, in a core's cache."""

Clash = Callable[[Array, Array], Array]
"""(boxes [5, …], others [5, …] that broadcast) → whether they overlap too much."""


def suppress(
    boxes: Array,
    threshold: float,
    limit: int | None = None,
    *,
    offset: float = 0.0,
    gap: bool = False,
    eta: float = 1.0,
    inclusive: bool = False,
    groups: Array | None = None,
) -> Array:
    """Return the indices of the boxes that no better one overlaps by more than `threshold`.

    Args:
        boxes: [n, 4], the best first; group by group, where there are groups.
        threshold: of intersection over union.
        limit: how many to keep at most, of each group.
        offset: see `overlaps`.
        gap: see `overlaps`.
        eta: factor on a threshold above 0.5 after each box that was kept.
        inclusive: whether an overlap of exactly `threshold` is too much.
        groups: [n], ascending: boxes of different groups do not suppress one another.
    """
    if groups is None and limit is not None and len(boxes) > 8 * limit:
        best = boxes[: 4 * limit]
        kept = suppress(
            best, threshold, limit, offset=offset, gap=gap, eta=eta, inclusive=inclusive
        )
        if len(kept) == limit:  # those behind are not needed
            return kept
    most = len(boxes) if limit is None else min(limit, len(boxes))
    is_plain = eta >= 1 and threshold >= 0 and not (offset or inclusive)
    if is_plain and len(boxes) > 1 and most > 0 and boxes.dtype == np.float32:
        starts = _starts(groups)
        ranges = np.zeros((len(starts), 3), np.int64)
        ranges[:, 0], ranges[:-1, 1], ranges[-1, 1] = starts, starts[1:], len(boxes)
        index = np.arange(len(boxes))
        stay = keep_greedily(np.ascontiguousarray(boxes), index, ranges, most, threshold)
        if stay is not None:
            return stay
        if len(starts) > 1 and len(boxes) > APART * len(starts):
            ends = [*starts.tolist(), len(boxes)]
            alone = [suppress(boxes[a:b], threshold, limit) for a, b in pairwise(ends)]
            return np.concatenate([first + kept for first, kept in zip(ends, alone, strict=False)])
    table = table_of(boxes, offset)

    def clash(some: Array, others: Array, threshold: float = threshold) -> Array:
        overlap = table_overlaps(some, others, offset, gap=gap)
        return overlap >= threshold if inclusive else overlap > threshold

    if eta < 1:
        one = partial(_adaptively, threshold=threshold, eta=eta, clash=clash)
        return _each_group(table, groups, most, one)
    if len(boxes) > 1 and most > 0 and (threshold > 0 or (threshold == 0 and not inclusive)):
        if is_plain:
            clash = partial(overlap_more, threshold=threshold)
        pairs = _clashing(table, threshold, offset, groups, clash)
        if pairs is not None:
            return _first_of_each(_stay(len(boxes), *pairs), groups, most)
    return _each_group(table, groups, most, partial(_in_blocks, clash=clash))


def _each_group(table: Array, groups: Array | None, most: int, keep: Callable[..., Array]) -> Array:
    """Call ``keep(table, most=most)`` for each group and join the indices."""
    if groups is None or not len(groups):
        return keep(table, most=most)
    ends = [*_starts(groups).tolist(), table.shape[1]]
    return np.concatenate(
        [first + keep(table[:, first:last], most=most) for first, last in pairwise(ends)]
    )


def _first_of_each(kept: Array, groups: Array | None, most: int) -> Array:
    """The first `most` of the indices that were kept, of each group."""
    if groups is None:
        return kept[:most]
    of = groups[kept]
    first = of.searchsorted(of)
    return np.asarray(kept[np.arange(len(kept)) < first + most])


def _clashing(
    table: Array, threshold: float, offset: float, groups: Array | None, clash: Clash
) -> tuple[Array, Array] | None:
    """Pairs of indices (better, worse) of boxes that overlap too much; None for too many."""
    pairs = _close_pairs(table, threshold, offset, groups)
    if pairs is not None:
        # `take` takes a quarter of the time of an index in brackets.
        better, worse = pairs
        bad = np.flatnonzero(clash(table.take(better, axis=1), table.take(worse, axis=1)))
        return better.take(bad), worse.take(bad)
    starts = _starts(groups)
    sizes = np.diff(np.append(starts, table.shape[1]))
    most = int(sizes.max())
    if most > SMALL or len(sizes) * most**2 > MOST:
        return None
    return _of_all_pairs(table, starts, sizes, clash)


def _starts(groups: Array | None) -> Array:
    """Where each group begins."""
    if groups is None:
        return np.zeros(1, np.int64)
    behind = (groups[1:] != groups[:-1]).nonzero()[0]
    starts = np.zeros(len(behind) + 1, np.int64)
    np.add(behind, 1, out=starts[1:])
    return starts


def _of_all_pairs(table: Array, starts: Array, sizes: Array, clash: Clash) -> tuple[Array, Array]:
    """Pairs of indices (better, worse) that clash, looking at every pair of each group."""
    most = int(sizes.max())
    if most * len(sizes) > table.shape[1]:  # shorter groups are filled up with what clashes never
        at = starts[:, None] + np.arange(most)
        at[np.arange(most) >= sizes[:, None]] = table.shape[1]
        table = np.append(table, np.full((5, 1), np.nan, table.dtype), axis=1).take(at, axis=1)
    table = table.reshape(5, len(sizes), most)
    found: list[tuple[Array, Array]] = []
    step = max(CELLS // (len(sizes) * most), 1)
    for first in range(0, most, step):
        bad = clash(table[:, :, first : first + step, None], table[:, :, None, first:])
        rows, worse = np.divmod(np.flatnonzero(bad), most - first)
        group, better = np.divmod(rows, bad.shape[1])
        behind = np.flatnonzero(worse > better)
        base = starts.take(group.take(behind)) + first
        found.append((base + better.take(behind), base + worse.take(behind)))
    better, worse = (np.concatenate(part) for part in zip(*found, strict=True))
    return better, worse


def _close_pairs(
    table: Array, threshold: float, offset: float, groups: Array | None
) -> tuple[Array, Array] | None:
    """Pairs of indices (better, worse) of boxes that may overlap too much; None for too many.

    Where more than `threshold` of both boxes is shared, one begins behind the other by less than
    the rest of the other's length, in each direction.
    """
    index = np.flatnonzero(np.isfinite(table).all(axis=0))
    corners = table[:4].take(index, axis=1).astype(np.float64)
    if not index.size:
        return index, index
    slack = 1e-5 * (float(np.abs(corners).max()) + offset)
    width, height = (
        (1 - threshold) * (corners[k + 2] - corners[k] + offset) + slack for k in (0, 1)
    )
    place = corners[0]
    every = len(index) * (len(index) - 1) / 2
    if groups is not None:  # side by side, further apart than any box reaches
        place = place + groups[index] * float(np.ptp(place) + max(float(width.max()), 0.0))
        sizes = np.bincount(groups[index]).astype(np.float64)
        every = float((sizes * (sizes - 1)).sum()) / 2
    order = place.argsort()
    place, low, height = place.take(order), corners[1].take(order), height.take(order)
    behind = np.arange(1, len(order) + 1)
    count = place.searchsorted(place + width.take(order), side="right") - behind
    np.maximum(count, 0, out=count)
    total = int(count.sum())
    if total > min(CLOSE * len(order), max(FEW * every, len(order)), MOST):
        return None
    left = (behind - 1).repeat(count)
    right = (behind - (count.cumsum() - count)).take(left)
    right += np.arange(total)
    apart = low.take(right)
    apart -= low.take(left)
    close = apart <= height.take(left)
    close &= np.negative(apart, out=apart) <= height.take(right)
    near = np.flatnonzero(close)
    left, right = left.take(near), right.take(near)
    if groups is not None:  # which the numbers of huge and of tiny boxes do not keep apart
        of = groups[index[order]]
        same = np.flatnonzero(of[left] == of[right])
        left, right = left[same], right[same]
    order = index.take(order)
    one, other = order.take(left), order.take(right)
    return np.minimum(one, other), np.maximum(one, other)


def _stay(count: int, better: Array, worse: Array) -> Array:
    """The indices that remain of so many, by pairs of which the worse one goes if the better stays.

    Whatever has no better one left stays; what it removes removes nothing any more.
    """
    gone = np.zeros(count, bool)
    while better.size:
        waits = np.zeros(count, bool)
        waits[worse] = True
        later = waits.take(better)
        gone[worse[~later]] = True
        left = np.flatnonzero(later & ~gone.take(better) & ~gone.take(worse))
        better, worse = better.take(left), worse.take(left)
    return np.flatnonzero(~gone)


def _in_blocks(table: Array, most: int, clash: Clash) -> Array:
    """Look at all pairs, block by block."""
    kept: list[Array] = []
    tables: list[Array] = []
    start, size = 0, max(4 * BLOCK, 2 * most)
    # Boxes far behind are not looked at before it is known that they are needed.
    while start < table.shape[1] and most > 0:
        rest = table[:, start : start + size]
        index = np.arange(start, start + rest.shape[1])
        for judges in tables:
            free = ~_judged(judges, rest, clash)
            index, rest = index[free], rest[:, free]
        while index.size and most > 0:
            # The best of the rest judge one another, then, all at once, those behind them.
            first, rest = rest[:, :BLOCK], rest[:, BLOCK:]
            chosen = _free(clash(first[:, :, None], first[:, None, :]), most)
            kept.append(index[chosen])
            tables.append(first[:, chosen])
            index = index[BLOCK:]
            most -= len(chosen)
            if index.size and most > 0:
                free = ~_judged(tables[-1], rest, clash)
                index, rest = index[free], rest[:, free]
        start, size = start + size, 4 * size
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def _judged(judges: Array, others: Array, clash: Clash) -> Array:
    """Which of the others some judge overlaps too much."""
    return np.asarray(clash(judges[:, :, None], others[:, None, :]).any(axis=0))


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


def _adaptively(
    table: Array, most: int, threshold: float, eta: float, clash: Callable[..., Array]
) -> Array:
    """Lower the threshold after each kept box; the next is judged by it against all of them."""
    kept: list[int] = []
    for i in range(table.shape[1]):
        if len(kept) == most:
            break
        if not kept or not clash(table[:, kept], table[:, i : i + 1], threshold).any():
            kept.append(i)
            if threshold > 0.5:
                threshold *= eta
    return np.array(kept, np.int64)
