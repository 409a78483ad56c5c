"""Which boxes stay, against the rule written down: one after the other, the best first."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms import suppression
from polydevice_cpu.algorithms.suppression import suppress

F = np.float32


def overlap(a, b, offset):
    """Intersection over union of two boxes, in f32."""
    width, height = (np.minimum(a[k + 2], b[k + 2]) - np.maximum(a[k], b[k]) for k in (0, 1))
    areas = [(c[2] - c[0] + F(offset)) * (c[3] - c[1] + F(offset)) for c in (a, b)]
    if not (width >= 0 and height >= 0 and min(areas) > 0):
        return F(0)
    shared = (width + F(offset)) * (height + F(offset))
    return shared / (areas[0] + areas[1] - shared) if shared > 0 else F(0)


def one_by_one(boxes, threshold, limit, offset, inclusive):
    kept, threshold = [], F(threshold)  # NumPy 1 compares a number of Python's in f64
    for i, box in enumerate(boxes):
        found = [overlap(boxes[k], box, offset) for k in kept]
        if len(kept) < limit and not any(
            value > threshold or (inclusive and value == threshold) for value in found
        ):
            kept.append(i)
    return kept


def drawn(rng, count, crowd):
    """Boxes apart, in a crowd or in a chain, some of them empty, turned round or no numbers."""
    place = rng.uniform(0, 100, (count, 2))
    if crowd == "crowd":
        place = rng.choice(place[:2], count) + rng.uniform(0, 3, (count, 2))
    elif crowd == "chain":
        place = np.arange(count)[:, None] * [3.0, 0.0]
    sizes = rng.uniform(5, 25, (count, 2)) if crowd != "chain" else np.full((count, 2), 10.0)
    boxes = np.concatenate([place, place + sizes], 1).astype(F)
    if rng.random() < 0.5:  # equal overlaps, and coordinates that are equal
        boxes = np.round(boxes)
    for odd in (
        [5, 5, 5, 9],
        [9, 9, 5, 5],
        [np.nan, 0, 9, 9],
        [0, 0, np.inf, 9],
        [0, 0, 1e30, 1e30],
        [0, 0, 9, 1e30],
        [0, 0, 1e30, 9],
    ):
        if rng.random() < 0.3:
            boxes[rng.integers(count)] = odd
    return boxes


@pytest.mark.parametrize("crowd", ["apart", "crowd", "chain"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered")
def test_suppression_is_that_of_the_rule(crowd, seed):
    rng = np.random.default_rng([21, seed])
    for _ in range(4):
        scale = F(rng.choice([1, 1, 1e-15]))
        parts = [drawn(rng, int(n), crowd) * scale for n in (1, *rng.integers(2, 150, 2))]
        threshold = float(rng.choice([0, 0.3, 0.5, 0.9]))
        offset, inclusive = float(rng.choice([0, 1])), bool(rng.random() < 0.3)
        limit = int(rng.choice([0, 3, 20, 1000]))
        with np.errstate(all="ignore"):
            expected = [one_by_one(part, threshold, limit, offset, inclusive) for part in parts]
            settings = {"offset": offset, "inclusive": inclusive}
            alone = [suppress(part, threshold, limit, **settings) for part in parts]
            groups = np.repeat([0, 3, 4], [len(part) for part in parts])
            together = suppress(np.concatenate(parts), threshold, limit, groups=groups, **settings)
        for rule, found in zip(expected, alone, strict=True):
            assert found.tolist() == rule
        starts = np.cumsum([0, *(len(part) for part in parts)])
        assert together.tolist() == [
            start + i for start, rule in zip(starts, expected, strict=False) for i in rule
        ]


def test_any_box_is_too_much_where_no_overlap_is_allowed():
    """Boxes that lie apart overlap by 0, which an inclusive threshold of 0 counts."""
    boxes = np.array([[0, 0, 1, 1], [5, 5, 6, 6], [0, 8, 1, 9]], F)
    assert suppress(boxes, 0, inclusive=True).tolist() == [0]
    assert suppress(boxes, 0, inclusive=False).tolist() == [0, 1, 2]


@pytest.mark.parametrize("limit", [None, 9])
def test_large_groups_are_looked_at_one_by_one(monkeypatch, limit):
    """Where machine code does not take them together."""
    rng = np.random.default_rng(4)
    monkeypatch.setattr(suppression, "APART", 20)
    parts = [drawn(rng, count, "crowd") for count in (40, 1, 60, 50)]
    groups = np.repeat([1, 2, 5, 6], [len(part) for part in parts])
    given = []
    monkeypatch.setattr(
        suppression, "keep_greedily", lambda *arguments: given.append(len(arguments[2]))
    )
    with np.errstate(all="ignore"):
        rule = [one_by_one(part, 0.4, limit or 60, 0, inclusive=False) for part in parts]
        found = suppress(np.concatenate(parts), 0.4, limit, groups=groups)
    starts = np.cumsum([0, *(len(part) for part in parts)])
    assert found.tolist() == [
        start + i for start, kept in zip(starts, rule, strict=False) for i in kept
    ]
    assert given[0] == 4 and set(given[1:]) == {1}
