"""NonMaxSuppression, NMSRotated, MatrixNms and MulticlassNms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.nms import (
    BoxEncoding,
    DecayFunction,
    MatrixNms,
    MulticlassNms,
    NMSRotated,
    NonMaxSuppression,
    NonMaxSuppressionPadded,
    SortResult,
)
from polydevice_cpu.algorithms.boxes import by_score, overlaps
from polydevice_cpu.algorithms.by_machine.selection import select
from polydevice_cpu.algorithms.ranking import Ranking
from polydevice_cpu.algorithms.rotated_boxes import rotated_overlaps
from polydevice_cpu.algorithms.suppression import suppress
from polydevice_cpu.implement import implements

Selected = tuple[Array, Array]
"""[n, 3] batch, class, box and [n] scores."""


@implements(NonMaxSuppressionPadded)
def non_max_suppression_padded(
    op: NonMaxSuppressionPadded, boxes: Array, scores: Array, *limits: Array
) -> Array:
    """Fill up with -1."""
    selected, _ = _non_max_suppression(
        op.box_encoding, op.sort_result_descending, boxes, scores, limits
    )
    limit = max(_scalar(limits, 0), 0)
    batches, classes, number = scores.shape
    rows = op.rows(batches, classes, number, int(limit))
    y = np.full((int(str(rows)), 3), -1, op.output_type.dtype)
    count = min(len(selected), len(y))
    y[:count] = selected[:count]
    return y


@implements(NonMaxSuppression)
def non_max_suppression(
    op: NonMaxSuppression, boxes: Array, scores: Array, *limits: Array
) -> tuple[Array, ...]:
    """Select class by class, then sort."""
    if not scores.size:
        kind = op.output_type.dtype
        return np.empty((0, 3), kind), np.empty((0, 3), scores.dtype), np.zeros(1, kind)
    selected, table = _non_max_suppression(
        op.box_encoding, op.sort_result_descending, boxes, scores, limits
    )
    return _outputs(selected, table, op.output_type.dtype, scores.dtype)


def _outputs(
    selected: Array, table: Array, kind: np.dtype[np.generic], score_kind: np.dtype[np.generic]
) -> tuple[Array, ...]:
    if selected.dtype != kind:
        selected = selected.astype(kind)
    if table.dtype != score_kind:
        table = table.astype(score_kind)
    return selected, table, np.array([len(selected)], kind)


def _with_scores(selected: Array, best: Array) -> tuple[Array, Array]:
    """The same, and a table of image, class and score."""
    table = np.empty((len(selected), 3), best.dtype)
    table[:, :2] = selected[:, :2]
    table[:, 2] = best
    return selected, table


def _scalar(limits: Sequence[Array], index: int) -> float:
    return float(limits[index].item(0)) if len(limits) > index else 0.0


def _corners(boxes: Array, encoding: BoxEncoding) -> Array:
    """Return [..., 4]: lower corner, upper corner."""
    boxes = boxes.astype(np.float32)
    if encoding is BoxEncoding.CENTER:
        half = boxes[..., 2:] / 2
        return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)
    corners = np.empty_like(boxes)
    for low, high in ((0, 2), (1, 3)):  # whole columns: pairs of coordinates are 4 times slower
        np.minimum(boxes[..., low], boxes[..., high], out=corners[..., low])
        np.maximum(boxes[..., low], boxes[..., high], out=corners[..., high])
    return corners


def _non_max_suppression(
    encoding: BoxEncoding, descending: bool, boxes: Array, scores: Array, limits: Sequence[Array]
) -> tuple[Array, Array]:
    """Return image, class and box of those that stay, [n, 3], and their table of scores."""
    if not scores.size:
        return np.empty((0, 3), np.int64), np.empty((0, 3), np.float32)
    limit = int(min(max(_scalar(limits, 0), 0), scores.shape[2]))
    iou, least, sigma = (_scalar(limits, i) for i in (1, 2, 3))
    if sigma > 0:
        corners = _corners(boxes, encoding)

        def softened(batch: int, of_class: Array) -> Selected:
            return _soften(corners[batch], of_class, limit, least, -0.5 / sigma)

        return _with_scores(*_each_class(scores, softened, descending=descending))
    batches, classes, number = scores.shape
    rows = np.ascontiguousarray(scores, np.float32)
    limits_ = limit, iou, least
    if limit and scores.size and iou >= 0 and not math.isnan(least):
        corners = np.ascontiguousarray(boxes, np.float32)
        made = select(corners, rows, limits_, is_centered=encoding is BoxEncoding.CENTER)
        if made is not None:
            return _best_first(*made) if descending else made
    rows = rows.reshape(batches * classes, number)
    found = _selected(encoding, boxes, rows, limits_)
    return _with_scores(*_sorted(found, rows, classes, descending=descending))


def _best_first(selected: Array, scored: Array) -> tuple[Array, Array]:
    order = np.lexsort((selected[:, 2], selected[:, 1], selected[:, 0], -scored[:, 2]))
    return selected[order], scored[order]


def _selected(
    encoding: BoxEncoding, boxes: Array, rows: Array, limits: tuple[int, float, float]
) -> Array:
    """Return rows and boxes [n, 2] that stay."""
    limit, iou, least = limits
    batches, number, classes = *boxes.shape[:2], len(rows) // max(len(boxes), 1)
    found = [np.zeros((0, 2), np.int64)]
    above = np.flatnonzero(rows > least)
    ends = above.searchsorted(np.arange(1, len(rows) + 1) * number)
    ranking = Ranking(-rows.take(above), ends)
    left = np.arange(len(rows) if limit else 0)
    # The best ones are mostly enough; sorting all of 12,804 takes longer than the rest for 100.
    for count in (2 * limit, 8 * limit, None):
        if not left.size:
            break
        candidates = [ranking.smallest(row, count) for row in left.tolist()]
        sizes = [len(each) for each in candidates]
        groups, place = np.repeat(left, sizes), above.take(np.concatenate(candidates))
        index = place - groups * number
        several = groups if len(left) > 1 else None
        place = index if batches == 1 else groups // classes * number + index
        chosen = _corners(boxes.reshape(-1, 4).take(place, axis=0), encoding)
        kept = suppress(chosen, iou, limit, groups=several)
        table = np.empty((len(kept), 2), np.int64)
        table[:, 0], table[:, 1] = groups.take(kept), index.take(kept)
        left = _unfinished(left, np.array(sizes) == count, table[:, 0], limit)
        if left.size:
            table = table[~np.isin(table[:, 0], left)]
        found.append(table)
    return np.concatenate(found)


def _unfinished(rows: Array, cut: Array, kept: Array, limit: int) -> Array:
    """The rows of which fewer were kept than may be, where some candidates were cut off."""
    if not cut.any():
        return rows[:0]
    return np.asarray(rows[cut & (np.bincount(kept, minlength=rows[-1] + 1)[rows] < limit)])


def _sorted(found: Array, rows: Array, classes: int, *, descending: bool) -> Selected:
    """Rows and boxes [n, 2], of which those of a row are in order, as batch, class and box."""
    if descending:
        found = found[np.lexsort((found[:, 1], found[:, 0], -rows[found[:, 0], found[:, 1]]))]
    elif len(rows) > 1:
        found = found[found[:, 0].argsort(kind="stable")]
    table = np.empty((len(found), 3), np.int64)
    np.divmod(found[:, 0], classes, out=(table[:, 0], table[:, 1]))
    table[:, 2] = found[:, 1]
    return table, rows[found[:, 0], found[:, 1]]


def _each_class(
    scores: Array, select: Callable[[int, Array], Selected], *, descending: bool
) -> Selected:
    """Call ``select(batch, scores of one class)`` for all classes and join what it returns."""
    rows: list[Array] = []
    best: list[Array] = []
    for batch, of_batch in enumerate(scores.astype(np.float32)):
        for number, of_class in enumerate(of_batch):
            kept, values = select(batch, of_class)
            rows.append(np.stack([np.full_like(kept, batch), np.full_like(kept, number), kept], 1))
            best.append(values)
    table = np.concatenate(rows) if rows else np.zeros((0, 3), np.int64)
    values = np.concatenate(best) if best else np.zeros(0, np.float32)
    if descending:  # stable: equal scores stay in the order of batch, class and box
        order = np.lexsort((table[:, 2], table[:, 1], table[:, 0], -values))
        table, values = table[order], values[order]
    return table, values


def _soften(boxes: Array, scores: Array, limit: int, least: float, scale: float) -> Selected:
    """Take the best box, lower the scores of the others by their overlap with it, and again."""
    scores = scores.copy()
    free = scores > least
    kept: list[int] = []
    while len(kept) < limit and free.any():
        best = int(np.argmax(np.where(free, scores, -np.inf)))
        kept.append(best)
        free[best] = False
        others = np.flatnonzero(free)
        overlap = overlaps(boxes[best], boxes[others])
        scores[others] *= np.exp(scale * overlap * overlap)
        free[others] = scores[others] > least
    index = np.array(kept, np.int64)
    return index, scores[index]


@implements(NMSRotated)
def nms_rotated(
    op: NMSRotated, boxes: Array, scores: Array, max_boxes: Array, iou: Array, least: Array
) -> tuple[Array, ...]:
    """Greedy, with the overlap of rotated rectangles."""
    limit, threshold, low = int(_scalar([max_boxes], 0)), _scalar([iou], 0), _scalar([least], 0)
    turned = boxes.astype(np.float64)
    if not op.clockwise:
        turned[..., 4] *= -1

    def select(batch: int, of_class: Array) -> Selected:
        rest = np.flatnonzero(of_class > low)
        rest = rest[by_score(of_class[rest])]
        kept: list[int] = []
        while rest.size and len(kept) < limit:
            best, rest = rest[0], rest[1:]
            kept.append(int(best))
            rest = rest[rotated_overlaps(turned[batch][best], turned[batch][rest]) <= threshold]
        index = np.array(kept, np.int64)
        return index, of_class[index]

    selected, best = _each_class(scores, select, descending=op.sort_result_descending)
    selected, table = _with_scores(selected, best)
    return _outputs(selected, table, op.output_type.dtype, scores.dtype)


def _order(kind: SortResult, batch: Array, classes: Array, scores: Array, index: Array) -> Array:
    """Return the order of the results; `batch` is 0 for all within one image."""
    if kind is SortResult.CLASSID:
        return np.lexsort((index, -scores, batch, classes))
    return np.lexsort((index, classes, batch, -scores))


Detection = tuple[int, Array, Array, Array, Array]
"""Image, classes [n], indices of boxes [n], scores [n], boxes [n, 4]."""


def _join(
    found: list[Detection], op: MatrixNms | MulticlassNms, kind: np.dtype[np.generic]
) -> tuple[Array, ...]:
    """Put the detections of all images together, in the order that the attributes ask for."""
    output = op.output_type.dtype
    counts = np.array([len(scores) for _, _, _, scores, _ in found], output)
    image = np.concatenate([np.full(len(f[1]), f[0]) for f in found] or [np.zeros(0, np.int64)])
    parts = [np.concatenate([f[i] for f in found] or [np.zeros(0, np.float32)]) for i in (1, 2, 3)]
    classes, index, scores = parts
    boxes = np.concatenate([f[4] for f in found] or [np.zeros((0, 4), np.float32)])
    if op.sort_result_across_batch and op.sort_result_type is not SortResult.NONE:
        order = _order(op.sort_result_type, image, classes, scores, index)
        classes, index, scores, boxes = (a[order] for a in (classes, index, scores, boxes))
    table = np.column_stack([classes.astype(np.float32), scores, boxes])
    return table.astype(kind), index.astype(output)[:, None], counts


@implements(MatrixNms)
def matrix_nms(op: MatrixNms, boxes: Array, scores: Array) -> tuple[Array, ...]:
    """Decay all scores of a class by one matrix of overlaps."""
    found: list[Detection] = []
    number = boxes.shape[1]
    for image, (of_image, best) in enumerate(
        zip(boxes.astype(np.float32), scores.astype(np.float32), strict=True)
    ):
        classes, index, values = _collect(
            op.background_class, best, functools.partial(_decay, op, of_image)
        )
        order = _order(SortResult.SCORE, np.zeros_like(classes), classes, values, index)
        if op.keep_top_k > -1:
            order = order[: op.keep_top_k]
        classes, index, values = classes[order], index[order], values[order]
        if op.sort_result_type is SortResult.CLASSID and not op.sort_result_across_batch:
            order = _order(SortResult.CLASSID, np.zeros_like(classes), classes, values, index)
            classes, index, values = classes[order], index[order], values[order]
        found.append((image, classes, index + image * number, values, of_image[index]))
    return _join(found, op, boxes.dtype)


def _collect(
    background: int, scores: Array, select: Callable[[Array], Selected]
) -> tuple[Array, Array, Array]:
    """Return classes, indices and scores of what ``select(scores of one class)`` keeps."""
    classes: list[Array] = [np.zeros(0, np.int64)]
    index: list[Array] = [np.zeros(0, np.int64)]
    values: list[Array] = [np.zeros(0, np.float32)]
    for number, of_class in enumerate(scores):
        if number == background:
            continue
        kept, best = select(of_class)
        classes.append(np.full(len(kept), number, np.int64))
        index.append(kept)
        values.append(best)
    return np.concatenate(classes), np.concatenate(index), np.concatenate(values)


def _decay(op: MatrixNms, boxes: Array, scores: Array) -> Selected:
    candidates = np.flatnonzero(scores > op.score_threshold)
    order = candidates[by_score(scores[candidates], op.nms_top_k if op.nms_top_k > -1 else None)]
    if not order.size:
        return order, scores[order]
    offset = 0.0 if op.normalized else 1.0
    chosen = boxes[order]
    best = np.zeros(len(order), np.float32)  # largest overlap of each box with better ones
    decay = np.ones(len(order), np.float32)
    for i in range(1, len(order)):
        overlap = overlaps(chosen[i], chosen[:i], offset)
        best[i] = overlap.max()
        if op.decay_function is DecayFunction.GAUSSIAN:
            factor = np.exp((best[:i] ** 2 - overlap**2) * op.gaussian_sigma)
        else:
            factor = (1.0 - overlap) / (1.0 - best[:i] + 1e-10)
        decay[i] = min(1.0, float(factor.min()))
    lowered = decay * scores[order]
    keep = lowered > op.post_threshold
    return order[keep], lowered[keep]


@implements(MulticlassNms)
def multiclass_nms(
    op: MulticlassNms, boxes: Array, scores: Array, counts: Array | None = None
) -> tuple[Array, ...]:
    """Greedy suppression class by class, then the best of each image."""
    found: list[Detection] = []
    for image, first, of_image, best in _images(boxes, scores, counts):
        classes, index, values = _collect_boxes(op, of_image, best)
        order = _order(SortResult.SCORE, np.zeros_like(classes), classes, values, index)
        if op.keep_top_k > -1:
            order = order[: op.keep_top_k]
        if op.sort_result_type is SortResult.CLASSID and not op.sort_result_across_batch:
            by_class = _order(
                SortResult.CLASSID,
                np.zeros_like(order),
                classes[order],
                values[order],
                index[order],
            )
            order = order[by_class]
        classes, index, values = classes[order], index[order], values[order]
        chosen = of_image[classes if len(of_image) > 1 else 0, index]
        place = first + index
        if counts is not None:  # an index counts boxes, then classes
            place = place * len(boxes) + classes
        found.append((image, classes, place, values, chosen.reshape(-1, 4)))
    return _join(found, op, boxes.dtype)


def _images(
    boxes: Array, scores: Array, counts: Array | None
) -> Iterator[tuple[int, int, Array, Array]]:
    """Yield image, index of its first box, boxes [1 or classes, n, 4], scores [classes, n]."""
    boxes, scores = boxes.astype(np.float32), scores.astype(np.float32)
    if counts is None:
        for image in range(len(boxes)):
            yield image, image * boxes.shape[1], boxes[image][None], scores[image]
        return
    first = 0
    for image, count in enumerate(int(n) for n in counts.reshape(-1)):
        if count < 0 or first + count > boxes.shape[1]:
            raise InferenceError(
                f"MulticlassNms: {count} boxes from {first} on exceed the {boxes.shape[1]} given"
            )
        part = slice(first, first + count)
        yield image, first, boxes[:, part], scores[:, part]
        first += count


def _collect_boxes(op: MulticlassNms, boxes: Array, scores: Array) -> tuple[Array, Array, Array]:
    offset = 0.0 if op.normalized else 1.0
    top = op.nms_top_k if op.nms_top_k > -1 else None
    number = iter(range(len(scores)))
    positions = [n for n in number if n != op.background_class]
    following = iter(positions)

    def select(of_class: Array) -> Selected:
        of_boxes = boxes[next(following) if len(boxes) > 1 else 0]
        candidates = np.flatnonzero(of_class >= op.score_threshold)
        order = candidates[by_score(of_class[candidates], top)]
        kept = order[
            suppress(
                of_boxes[order],
                op.iou_threshold,
                offset=offset,
                gap=True,
                eta=op.nms_eta,
                inclusive=True,
            )
        ]
        return kept, of_class[kept]

    return _collect(op.background_class, scores, select)
