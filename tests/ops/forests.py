"""Random forests, and what one row's way through them says, one comparison after the other."""

from __future__ import annotations

import math
import operator

import numpy as np

COMPARE = (operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne)
MEMBER = len(COMPARE)


def random_forest(rng, kind, trees, depth, targets, features=6, *, modes=range(7), votes="all"):
    """Return the tables of a forest of all modes, and its levels; votes are whole numbers.

    Args:
        rng: random numbers.
        kind: of splits and votes.
        trees: how many.
        depth: levels of a tree at most.
        targets: what leaves vote for.
        features: of a row.
        modes: which comparisons there are.
        votes: "all", or "one" where each leaf votes for one target alone.
    """
    inner, leaves, levels = [], [], 0

    def grow(level):
        nonlocal levels
        if level == depth or rng.random() < 0.2:
            leaves.append(len(leaves))
            return -len(leaves)
        place = len(inner)
        inner.append(None)
        levels = max(levels, level + 1)
        inner[place] = grow(level + 1), grow(level + 1)
        return place

    roots = [grow(0) for _ in range(trees)]
    count = len(inner)
    number = np.vectorize(lambda node: node if node >= 0 else count - node - 1, otypes=[np.int32])
    splits = rng.integers(-2, 3, count).astype(kind)
    splits[rng.random(count) < 0.1] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    members = np.full((count, 3), np.nan, kind)
    for row in members:
        size = rng.integers(0, 4)
        row[:size] = rng.integers(-2, 3, size)
    ballots = rng.integers(-9, 10, (len(leaves), targets)).astype(kind)
    if votes == "one":
        ballots *= np.eye(targets, dtype=kind)[rng.integers(0, targets, len(leaves))]
    tables = [
        rng.integers(0, features, count).astype(np.int32),
        splits,
        rng.choice([*modes], count).astype(np.uint8),
        rng.random(count) < 0.5,
        number(np.array(inner).reshape(-1, 2).T) if count else np.zeros((2, 0), np.int32),
        number(np.array(roots)),
        ballots,
    ]
    return tables if MEMBER not in modes else [*tables, members], levels


def walked(x, features, splits, modes, missing, children, roots, votes, members=None):
    """Return the sums of what each row's leaves say."""
    y = np.zeros((len(x), votes.shape[1]), x.dtype)
    for row, said in zip(x.tolist(), y, strict=True):
        for root in roots.tolist():
            node = root
            while node < len(features):
                value, mode = row[features[node]], modes[node]
                if mode == MEMBER:
                    is_true = value in [each for each in members[node].tolist() if each == each]
                else:
                    is_true = COMPARE[mode](value, splits[node].item())
                is_true = is_true or (math.isnan(value) and bool(missing[node]))
                node = int(children[0 if is_true else 1, node])
            said += votes[node - len(features)]
    return y
