"""TreeEnsemble, where machine code does not compute it."""

from __future__ import annotations

import numpy as np

from polydevice.bounds import bounded
from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.trees import MODES, Aggregate, TreeEnsemble
from polydevice_cpu.algorithms.forest import Forest
from polydevice_cpu.implement import implements

AT_ONCE = 1 << 20
"""About how many numbers are made for rows that are computed together."""

_COMPARE = {
    "LEQ": np.less_equal, "LT": np.less, "GTE": np.greater_equal, "GT": np.greater,
    "EQ": np.equal, "NEQ": np.not_equal,
}  # fmt: skip


@implements(TreeEnsemble)
def tree_ensemble(op: TreeEnsemble, x: Array, *tables: Array) -> Array:
    """Go down one level at a time, for some rows and all trees at once."""
    forest = Forest(*tables)
    forest.check(x.shape[1])
    y = np.empty((len(x), forest.votes.shape[1]), x.dtype)
    each = max(AT_ONCE // max(len(forest.roots) * max(y.shape[1], 4), 1), 1)
    for first in bounded(range(0, len(x), each)):
        some = slice(first, first + each)
        y[some] = _voted(op.aggregate, forest.votes[_leaves(op.depth, x[some], forest)])
    return y


def _leaves(depth: int, x: Array, forest: Forest) -> Array:
    """Return [rows, trees]: the number of the leaf that a row reaches in each tree."""
    node = np.broadcast_to(forest.roots.astype(np.int64), (len(x), len(forest.roots)))
    rows, inner = np.arange(len(x))[:, None], len(forest.features)
    true, false = forest.children
    for _ in range(depth if inner else 0):
        is_inner = node < inner
        at = np.where(is_inner, node, 0)
        goes = _goes(x[rows, forest.features[at]], at, forest)
        node = np.where(is_inner, np.where(goes, true[at], false[at]), node)
    if node.size and node.min() < inner:
        raise InferenceError(f"TreeEnsemble: a tree has more than {depth} levels")
    return node - inner


def _goes(value: Array, node: Array, forest: Forest) -> Array:
    """Return whether each node's comparison of a value is true."""
    mode = forest.modes[node]
    goes = forest.missing[node] & np.isnan(value)
    for number in np.unique(forest.modes).tolist():
        if MODES[number] == "MEMBER":
            assert forest.members is not None
            true = (value[..., None] == forest.members[node]).any(-1)
        else:
            true = _COMPARE[MODES[number]](value, forest.splits[node])
        goes |= true & (mode == number)
    return goes


def _voted(aggregate: Aggregate, votes: Array) -> Array:
    """Put votes [rows, trees, targets] together."""
    if aggregate is Aggregate.SUM:
        wide = np.float32 if votes.dtype.itemsize < 4 else votes.dtype
        return np.asarray(votes.sum(1, dtype=wide))
    limits = np.finfo(votes.dtype)
    if aggregate is Aggregate.MIN:
        return np.asarray(votes.min(1, initial=limits.max))
    return np.asarray(votes.max(1, initial=limits.min))
