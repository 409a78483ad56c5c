"""Forest: decision trees as tables, and as nodes that lie in memory as machine code reads them.

There every node asks whether a whole number, the key of a feature, is not above its own: keys are
ordered as the floats are, and NaN is the largest of them, or the smallest where it counts as true.
Other comparisons become this one, with a key below or with the sides exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.trees import MODES, Aggregate

MOST_LEVELS = 512
"""Of a tree whose comparisons have become several, which nodes of a list of members do."""

MOST_BYTES = 1 << 31
"""Nodes and votes count bytes by 32 bits."""

AT_ONCE = 8
"""Rows that go through a tree at once, or trees that one row goes through."""

NODE_BYTES = {4: 16, 8: 24}
"""Of a node, by bytes of a key: the key, then of 4 bytes each the place of the feature's key in a
row, and how many bytes behind this one the next node is, if not and if so. A leaf has its vote in
the place of the key: the number itself, or how many bytes behind the first vote it begins."""

TREE_BYTES = 24
"""Of a tree: where its root is, its levels, and those of the trees that it goes with."""

COLUMN_BYTES = 16
"""Of a feature: where it is in a row, and the key of what is not a number."""


class Votes(Enum):
    """What leaves vote for."""

    ONE = 0
    """There is one target."""
    SINGLE = 1
    """Each for one of several."""
    ALL = 2
    """Each for all."""


class Layout(NamedTuple):
    """Where tables are, in bytes, and what they are of; the packed forest begins with this.

    Attributes:
        votes_kind: number of `Votes`.
        trees: how many there are, filled up to groups of `AT_ONCE`.
        columns: features that are compared; those of which NaN counts as true are others.
        targets: what leaves vote for.
        levels: of all trees together.
        none: bits of what a sum, a minimum or maximum begins with.
        nodes_at: where nodes begin.
        trees_at: the same.
        columns_at: the same.
        votes_at: the same.
    """

    votes_kind: int
    trees: int
    columns: int
    targets: int
    levels: int
    none: int
    nodes_at: int
    trees_at: int
    columns_at: int
    votes_at: int

    @classmethod
    def of(cls, packed: Array) -> Layout:
        """Return what is said at the beginning of a packed forest."""
        return cls(*packed[: len(cls._fields)].tolist())


_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(len(MODES))


class Forest(NamedTuple):
    """The tables of `polydevice.ops.trees.TreeEnsemble`."""

    features: Array
    splits: Array
    modes: Array
    missing: Array
    children: Array
    roots: Array
    votes: Array
    members: Array | None = None

    def check(self, features: int) -> None:
        """Raise InferenceError where a table names what is not there."""
        nodes = len(self.features) + len(self.votes)
        for name, table, count in (
            ("feature", self.features, features),
            ("mode", self.modes, len(MODES) - (self.members is None)),
            ("node", self.children, nodes),
            ("root", self.roots, nodes),
        ):
            if table.size and not (table.min() >= 0 and table.max() < count):
                raise InferenceError(f"TreeEnsemble: a {name} is not among the {count} there are")


@dataclass
class _Nodes:
    """Nodes that ask whether a key is not above theirs, and leaves, in any order.

    Attributes:
        key: [nodes] i64.
        column: [nodes] i64: twice the feature, and 1 where NaN counts as true.
        sides: [2, nodes] i64: where to go if not, and if so; leaves lead to themselves.
        is_inner: [nodes] bool: whether it is no leaf.
    """

    key: Array
    column: Array
    sides: Array
    is_inner: Array

    def __len__(self) -> int:
        return len(self.key)

    def heights(self) -> Array | None:
        """Return how many levels are below each node; None for cycles, or too many."""
        height = np.zeros(len(self), np.int64)
        inner = np.flatnonzero(self.is_inner)
        sides = self.sides[:, inner]
        for _ in range(MOST_LEVELS + 1):
            higher = height[sides].max(0, initial=0) + 1
            if np.array_equal(higher, height[inner]):
                return height
            height[inner] = higher
        return None


def keys_of(numbers: Array) -> Array:
    """Return numbers of f32 or f64 as i64 that are ordered alike; zeros are 0, NaN is the largest.

    Those of f32 lie within 32 bits.
    """
    kind = np.dtype(f"i{numbers.dtype.itemsize}")
    bits = np.ascontiguousarray(numbers).view(kind)
    keys = np.where(bits < 0, bits ^ np.iinfo(kind).max, bits)
    keys[numbers == 0] = 0
    keys[np.isnan(numbers)] = np.iinfo(kind).max
    return np.asarray(keys, np.int64)


def _plain(forest: Forest) -> _Nodes:
    """Return the forest of one comparison; nodes keep their numbers, and others follow."""
    inner, leaves = len(forest.features), len(forest.votes)
    limits = np.iinfo(f"i{forest.splits.dtype.itemsize}")
    true, false = (side.astype(np.int64) for side in forest.children)
    mode, tracks = forest.modes, forest.missing.astype(bool)
    key = keys_of(forest.splits)
    is_odd = np.isnan(forest.splits)  # to which nothing compares
    is_below, is_turned = np.isin(mode, (_LT, _GTE)), np.isin(mode, (_GTE, _GT))
    key[is_odd] = limits.min
    key[is_below & ~is_odd] -= 1
    key[is_turned & is_odd] = limits.max - 1
    column = 2 * forest.features.astype(np.int64) + (tracks ^ is_turned)
    sides = np.stack([np.where(is_turned, true, false), np.where(is_turned, false, true)])
    own = np.broadcast_to(np.arange(inner, inner + leaves), (2, leaves))
    nothing = np.zeros(leaves, np.int64)
    nodes = _Nodes(
        np.concatenate([key, nothing]),
        np.concatenate([column, nothing]),
        np.concatenate([sides, own], axis=1),
        np.arange(inner + leaves) < inner,
    )
    special = np.flatnonzero(mode >= _EQ)
    return _with_several(nodes, forest, special) if special.size else nodes


def _with_several(nodes: _Nodes, forest: Forest, special: Array) -> _Nodes:
    """Let two nodes find each number that one of these nodes looks for.

    The upper one finds what is not above it, the lower one what is below it.
    """
    owner, wanted = _wanted(forest, special)
    limits = np.iinfo(f"i{wanted.dtype.itemsize}")
    differs = forest.modes[owner] == _NEQ
    true, false = (side[owner].astype(np.int64) for side in forest.children)
    true, false = np.where(differs, false, true), np.where(differs, true, false)
    key = np.where(np.isnan(wanted), limits.min, keys_of(wanted))
    is_first = np.append(True, owner[1:] != owner[:-1])
    count = len(nodes)
    upper = np.where(is_first, owner, count + 2 * np.arange(len(owner)))
    lower = count + 2 * np.arange(len(owner)) + 1
    behind = np.where(np.append(is_first[1:], True), false, np.append(upper[1:], 0))
    more = np.arange(count, count + 2 * len(owner))
    is_used = np.stack([~is_first, is_first | ~is_first], axis=1).reshape(-1)
    made = _Nodes(
        np.concatenate([nodes.key, 0 * more]),
        np.concatenate([nodes.column, 0 * more]),
        np.concatenate([nodes.sides, [more, more]], axis=1),
        np.concatenate([nodes.is_inner, is_used]),
    )
    column = 2 * forest.features[owner].astype(np.int64)
    # NaN differs from everything, and is found at once where it counts as true.
    tracks = forest.missing[owner].astype(bool) & ~differs & is_first
    made.key[upper], made.key[lower] = key, np.maximum(key, limits.min + 1) - 1
    made.column[upper], made.column[lower] = column + tracks, column
    made.sides[:, upper], made.sides[:, lower] = (behind, lower), (true, behind)
    return made


def _wanted(forest: Forest, special: Array) -> tuple[Array, Array]:
    """Return which nodes look for which numbers, one after the other; NaN where for none."""
    split = np.where(forest.modes[special] == _MEMBER, np.nan, forest.splits[special])
    if forest.members is None or not forest.members.shape[1]:
        return special, split.astype(forest.splits.dtype)
    found = forest.members[special]
    found = np.where((forest.modes[special] == _MEMBER)[:, None], found, np.nan)
    is_there = ~np.isnan(found)
    is_there[:, 0] |= ~is_there.any(1)  # nothing is among none
    found[:, 0] = np.where(forest.modes[special] == _MEMBER, found[:, 0], split)
    rows, _ = np.nonzero(is_there)
    return special[rows], found[is_there].astype(forest.splits.dtype)


def packed(forest: Forest, features: int, depth: int, aggregate: Aggregate) -> Array:
    """Return a forest as machine code reads it: `Layout`, then what that says; i64.

    Args:
        forest: of f32 or f64.
        features: how many a row has.
        depth: levels of its deepest tree at most.
        aggregate: how votes are put together.

    Returns:
        Without elements where it would be too large, is no forest, or votes have no order.
    """
    nothing = np.empty(0, np.int64)
    try:
        forest.check(features)
    except InferenceError:
        return nothing
    is_sum = aggregate is Aggregate.SUM
    if not features or not len(forest.roots) or not forest.votes.size:
        return nothing
    if not is_sum and np.isnan(forest.votes).any():
        return nothing
    nodes = _plain(forest)
    height = nodes.heights()
    if height is None or _levels(forest) > depth:
        return nothing
    limits = np.finfo(forest.votes.dtype)
    none = {Aggregate.MIN: limits.max, Aggregate.MAX: limits.min}.get(aggregate, 0)
    votes_kind, votes, payload = _votes(forest, none)
    item = forest.splits.dtype.itemsize
    size = NODE_BYTES[item]
    order, place = _in_order(nodes, forest.roots)
    if max((len(order) + 1) * size, votes.nbytes) >= MOST_BYTES:
        return nothing
    inner = len(forest.features)
    leaf = order[~nodes.is_inner[order]]
    used, column = np.unique(nodes.column[order], return_inverse=True)
    table = np.zeros((len(order) + 1, size // 4), np.int32)  # the last one fills groups up
    words = item // 4
    key = nodes.key[order]
    if item == 4:
        key = key.astype(np.int32)
    table[:-1, :words] = key.view(np.int32).reshape(-1, words)
    table[place[leaf], :words] = payload[leaf - inner]
    table[-1, :words] = payload[-1]
    table[:-1, words] = column * item
    table[:-1, words + 1 : words + 3] = ((place[nodes.sides[:, order]] - place[order]) * size).T
    table[place[leaf], words] = 0
    trees = _trees(place[forest.roots] * size, height[forest.roots], len(order) * size)
    wide = np.iinfo(f"i{item}")
    columns = np.stack([used // 2 * item, np.where(used % 2, wide.min, wide.max)], axis=1)
    parts = [np.frombuffer(_padded(each), np.int64) for each in (table, trees, columns, votes)]
    ends = np.cumsum([len(Layout._fields), *map(len, parts)]) * 8
    head = Layout(
        votes_kind.value,
        len(trees),
        len(columns),
        forest.votes.shape[1],
        int(height[forest.roots].sum()),
        _bits(none, forest.votes),
        *ends[:4].tolist(),
    )
    return np.concatenate([np.array(head, np.int64), *parts])


def _padded(table: Array) -> bytes:
    data = np.ascontiguousarray(table).tobytes()
    return data + bytes(-len(data) % 8)


def _bits(number: float, like: Array) -> int:
    return int.from_bytes(np.array(number, like.dtype).tobytes(), "little", signed=True)


def _levels(forest: Forest) -> int:
    """Return how many inner nodes there are at most on a way from a root to a leaf."""
    inner, nodes = len(forest.features), len(forest.features) + len(forest.votes)
    own = np.broadcast_to(np.arange(nodes), (2, nodes)).copy()
    own[:, :inner] = forest.children
    height = _Nodes(own[0], own[0], own, np.arange(nodes) < inner).heights()
    return MOST_LEVELS + 1 if height is None else int(height[forest.roots].max(initial=0))


def _votes(forest: Forest, none: float) -> tuple[Votes, Array, Array]:
    """Return of which kind votes are, their table, and what leaves say of them, and fillers."""
    votes = np.append(forest.votes, np.full_like(forest.votes[:1], none), axis=0)
    words = votes.dtype.itemsize // 4
    count, targets = votes.shape
    if targets == 1:
        return Votes.ONE, np.empty(0, np.int64), votes.view(np.int32).reshape(count, words)
    counts_for = votes != none  # NaN does
    if counts_for.sum(1).max() > 1:
        kind, table, each = Votes.ALL, votes, targets * votes.dtype.itemsize
    else:
        target = counts_for.argmax(1)
        table = np.zeros((count, 2), np.int64)
        table[:, 0] = target * votes.dtype.itemsize
        table[:, 1:].view(votes.dtype)[:, 0] = votes[np.arange(count), target]
        kind, each = Votes.SINGLE, table.shape[1] * 8
    payload = np.zeros((count, words), np.int32)
    payload[:, 0] = np.minimum(np.arange(count) * each, MOST_BYTES - 1)
    return kind, table, payload


def _in_order(nodes: _Nodes, roots: Array) -> tuple[Array, Array]:
    """Return the nodes that trees reach, those of a tree together, level by level; their places."""
    is_new = np.ones(len(nodes), bool)
    found: list[tuple[Array, Array]] = []
    level, owner = roots.astype(np.int64), np.arange(len(roots))
    while level.size:
        first = np.sort(np.unique(level, return_index=True)[1])
        first = first[is_new[level[first]]]
        level, owner = level[first], owner[first]
        is_new[level] = False
        found.append((level, owner))
        has_next = nodes.is_inner[level]
        # Both next nodes lie side by side, as one of them is what is read next.
        level = nodes.sides[:, level[has_next]].T.reshape(-1)
        owner = owner[has_next].repeat(2)
    every, owners = (np.concatenate(each) for each in zip(*found, strict=True))
    order = every[np.argsort(owners, kind="stable")]
    place = np.zeros(len(nodes), np.int64)
    place[order] = np.arange(len(order))
    return order, place


def _trees(roots: Array, levels: Array, filler: int) -> Array:
    """Return [trees, 3]: roots, levels, and those of the deepest tree of each group."""
    groups = -(-len(roots) // AT_ONCE)
    table = np.zeros((groups * AT_ONCE, TREE_BYTES // 8), np.int64)
    table[:, 0] = filler
    table[: len(roots), 0], table[: len(roots), 1] = roots, levels
    deepest = table[:, 1].reshape(groups, AT_ONCE).max(1)
    table[:, 2] = deepest.repeat(AT_ONCE)
    return table
