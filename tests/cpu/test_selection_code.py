"""Boxes that stay, selected by machine code in one call, against the rule written down."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine import selection
from tests.cpu.machine_code import with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512
F = np.float32


@pytest.fixture(autouse=True)
def nothing_was_attempted():
    selection._attempts.cache_clear()


def overlap(a, b):
    """Intersection over union of corners, in f32."""
    width, height = (max(min(a[k + 2], b[k + 2]) - max(a[k], b[k]), F(0)) for k in (0, 1))
    first, second = ((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
    shared = width * height
    return shared / (first + second - shared)


def by_the_rule(boxes, scores, limit, iou, least, *, is_centered):
    found = []
    with np.errstate(all="ignore"):
        for image, classes in enumerate(scores):
            corners = boxes[image]
            if is_centered:
                half = corners[:, 2:] / 2
                corners = np.concatenate([corners[:, :2] - half, corners[:, :2] + half], 1)
            pairs = corners[:, :2], corners[:, 2:]
            corners = np.concatenate([np.minimum(*pairs), np.maximum(*pairs)], 1)
            for number, row in enumerate(classes):
                kept = []
                for box in np.argsort(-row, kind="stable"):
                    if len(kept) == limit or not row[box] > least:
                        break
                    if not any(overlap(corners[k], corners[box]) > iou for k in kept):
                        kept.append(box)
                found += [(image, number, box) for box in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def put(side, array):
    place = guarded(side, array.nbytes).view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("is_centered", [True, False])
@pytest.mark.parametrize("images", [1, 3])
def test_every_number_of_boxes_and_classes(side, is_centered, images):
    """Crowds, ties, equal overlaps, and fewer above the limit than may stay."""
    rng = np.random.default_rng(images)
    tried = 0
    for number in (1, 3, 4, 5, 17, 40, 300):
        for limit, iou, least in ((1, 0.5, 0.1), (3, 0.0, 0.9), (5, 0.3, -1.0), (20, 0.7, 0.5)):
            classes = int(rng.integers(1, 5))
            place = rng.integers(0, int(rng.choice([4, 30])), (images, number, 2))
            boxes = np.concatenate([place, place + rng.integers(1, 9, place.shape)], 2).astype(F)
            if not is_centered:
                turned = rng.random((images, number)) < 0.5
                boxes[turned] = boxes[turned][:, [2, 1, 0, 3]]
            scores = rng.random((images, classes, number)).astype(F)
            scores = np.round(scores, 1) if rng.random() < 0.5 else scores
            given = put(side, boxes), put(side, scores)
            made = selection.select(*given, (limit, iou, least), is_centered=is_centered)
            if made is None:  # of few, which are sorted; or the best remove one another
                continue
            tried += 1
            want = by_the_rule(boxes, scores, limit, F(iou), F(least), is_centered=is_centered)
            table, scored = made
            np.testing.assert_array_equal(table, want)
            np.testing.assert_array_equal(scored[:, :2], want[:, :2])
            np.testing.assert_array_equal(scored[:, 2], scores[tuple(want.T)])
    assert tried > 12


def test_more_are_ranked_where_the_best_remove_one_another(monkeypatch):
    rng = np.random.default_rng(5)
    boxes = np.tile(F([0, 0, 4, 4]), (1, 900, 1))
    boxes[0, 300:] += 50 * rng.permutation(600)[:, None].astype(F)
    scores = np.empty((1, 2, 900), F)
    for row, best in ((scores[0, 0], slice(300)), (scores[0, 1], slice(300, None))):
        row[:] = rng.permutation(900) / 1800
        row[best] += 0.5
    counts = []
    prepared = selection.prepared
    monkeypatch.setattr(
        selection,
        "prepared",
        lambda *given, **how: (counts.append((given[1], how["is_whole"])), prepared(*given, **how))[
            1
        ],
    )
    for limit, want in ((5, [160, 10, 40, 480]), (2, [128, 4, 16, 480])):
        counts.clear()
        assert selection.select(boxes, scores, (limit, 0.5, 0.0), is_centered=False) is None
        assert [count for count, _ in counts] == want, "the first class has 300 boxes in one place"
    boxes[0, 5:] += 50 * rng.permutation(895)[:, None].astype(F)  # those are not the best now
    counts.clear()
    selection._attempts.cache_clear()
    table, _ = selection.select(boxes, scores, (5, 0.5, 0.0), is_centered=False)
    want = by_the_rule(boxes, scores, 5, F(0.5), F(0), is_centered=False)
    np.testing.assert_array_equal(table, want)
    assert counts == [(160, True), (10, False)]


@pytest.mark.parametrize("side", SIDES)
def test_all_above_the_limit_are_ranked_in_crowds(side, monkeypatch):
    """Up to 480 of a row, and others are left to others; what failed is not tried again at once."""
    rng = np.random.default_rng(8)
    counts = []
    prepared = selection.prepared
    monkeypatch.setattr(
        selection,
        "prepared",
        lambda *given, **how: (counts.append((given[1], how["is_whole"])), prepared(*given, **how))[
            1
        ],
    )
    every = [(240, True), (60, False), (480, True)]
    for number, above, want in (
        (527, 163, 1),
        (200, 199, 1),
        (800, 300, 3),
        (800, 480, 3),
        (800, 481, 0),
    ):
        place = rng.uniform(0, 9, (2, number, 2))
        boxes = np.concatenate([place, place + rng.uniform(20, 70, place.shape)], 2).astype(F)
        scores = np.stack([rng.permutation(number) for _ in range(14)]).astype(F)
        scores = scores.reshape(2, 7, number)
        scores[1, 2] = np.nan  # which is above nothing
        limits = 30, 0.5, number - 1 - above
        tried = [(min(count, number), whole) for count, whole in every]
        counts.clear()
        given = put(side, boxes), put(side, scores)
        made = selection.select(*given, limits, is_centered=False)
        assert counts == tried[: want or 3]
        assert (made is None) == (not want)
        if not want:
            continue
        right = by_the_rule(boxes, scores, 30, F(0.5), limits[2], is_centered=False)
        np.testing.assert_array_equal(made[0], right)
        counts.clear()
        for _ in range(selection.AGAIN):
            again = selection.select(*given, limits, is_centered=False)
            np.testing.assert_array_equal(again[0], right)
        others = tried[: want - 1] if want > 1 else []
        assert counts == [tried[want - 1]] * (selection.AGAIN - 1) + [*others, tried[want - 1]]


@pytest.mark.parametrize("limit", [40, 200])
def test_few_above_the_limit_are_all_ranked(limit):
    """And nothing is told where more are, and too few of those ranked stay."""
    rng = np.random.default_rng(limit)
    number = 8 * limit + 3
    place = rng.integers(0, 900, (2, number, 2))
    boxes = np.concatenate([place, place + rng.integers(9, 40, place.shape)], 2).astype(F)
    scores = rng.permutation(6 * number).reshape(2, 3, number).astype(F)
    seen = set()
    for above in (0, 9, limit - 3, limit + 1, 2 * limit, 6 * number):
        least = 6 * number - 1 - above
        made = selection.select(boxes, scores, (limit, 0.4, least), is_centered=False)
        seen.add(made is None)
        want = by_the_rule(boxes, scores, limit, F(0.4), F(least), is_centered=False)
        if made is not None:
            np.testing.assert_array_equal(made[0], want)
        assert made is not None or above > limit
    assert False in seen


def test_every_thread_has_its_own_memory():
    rng = np.random.default_rng(1)
    place = rng.uniform(0, 60, (8, 1, 50, 2))
    boxes = np.concatenate([place, place + 9], 3).astype(F)
    scores = rng.random((8, 1, 2, 50)).astype(F)

    def selected(k):
        return [
            selection.select(boxes[k], scores[k], (7, 0.3, 0.2), is_centered=False)[0]
            for _ in range(200)
        ]

    with ThreadPoolExecutor(8) as pool:
        for k, found in enumerate(pool.map(selected, range(8))):
            want = by_the_rule(boxes[k], scores[k], 7, F(0.3), F(0.2), is_centered=False)
            for each in found:
                np.testing.assert_array_equal(each, want)


@pytest.mark.parametrize("odd", [[np.nan, 0, 4, 4], [0, 0, 4, np.nan], [0, 0, np.inf, 4]])
def test_boxes_without_a_finite_area_are_left_to_others(odd):
    boxes = np.tile(F([0, 0, 4, 4]), (1, 200, 1))
    scores = np.linspace(0, 1, 200, dtype=F)[None, None]
    boxes[0, 0] = odd  # far behind those that are looked at
    assert selection.select(boxes, scores, (3, 0.5, 0.9), is_centered=False) is not None
    boxes[0, -1] = odd
    assert selection.select(boxes, scores, (3, 0.5, 0.9), is_centered=False) is None


@pytest.mark.parametrize("center", [0, 1])
def test_networks(core, center):
    """ONNX Runtime judges, with sizes that come with the inputs."""
    rng = np.random.default_rng(center)
    inputs = {"b": ["n", "k", 4], "s": ["n", "c", "k"]}
    limits = {"m": np.int64(7), "i": F([0.4]), "l": F([0.3])}
    model = build(
        [("NonMaxSuppression", ["b", "s", "m", "i", "l"], ["y"], {"center_point_box": center})],
        inputs, ["y"], {name: np.asarray(each) for name, each in limits.items()},
    )  # fmt: skip
    executable = core.load_network(core.read_network(model), "CPU")
    for images, classes, number in ((1, 1, 500), (2, 5, 800), (1, 80, 300), (3, 2, 1), (1, 3, 0)):
        place = rng.uniform(0, 40, (images, number, 2))
        sizes = rng.uniform(2, 20, (images, number, 2))
        boxes = np.concatenate([place, sizes if center else place + sizes], 2).astype(F)
        feed = {"b": boxes, "s": rng.random((images, classes, number)).astype(F)}
        (want,) = answer(model, feed)
        np.testing.assert_array_equal(executable.infer(feed)["y"], want)
