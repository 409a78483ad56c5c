"""Trees become steps: all rows and trees go down one level at a time, and a leaf leads to itself.

So any device computes them in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.comparison import Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual
from polydevice.ops.concat import Concat
from polydevice.ops.gather import Gather, GatherElements
from polydevice.ops.logical import LogicalAnd, LogicalOr
from polydevice.ops.math import IsNaN
from polydevice.ops.op import Op
from polydevice.ops.reduce import ReduceLogicalOr, ReduceMax, ReduceMin, ReduceSum
from polydevice.ops.reshape import ShapeOf, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.trees import MODES, Aggregate, TreeEnsemble
from polydevice.rewrites.facts import Declined, array_of, parameters_known
from polydevice.rewrites.rule import decomposes

_COMPARISONS: dict[str, type[Op]] = {
    "LEQ": LessEqual, "LT": Less, "GTE": GreaterEqual, "GT": Greater, "EQ": Equal, "NEQ": NotEqual,
}  # fmt: skip
_TOGETHER = {
    Aggregate.SUM: ReduceSum, Aggregate.MIN: ReduceMin, Aggregate.MAX: ReduceMax,
}  # fmt: skip


@decomposes(TreeEnsemble, where=parameters_known)
def _tree_ensemble(build: Emitter, op: TreeEnsemble, inputs: Sequence[Port]) -> list[Port]:
    tables = _Tables(build, inputs)
    x = inputs[0]
    roots = array_of(inputs[6]).astype(np.int64)
    rows = build.emit(Gather(), build.emit(ShapeOf(), x), [0], 0)
    node = build.emit(Broadcast(), roots, build.emit(Concat(0), rows, [len(roots)]))
    for _ in range(op.depth if tables.inner else 0):
        node = tables.step(node)
    votes = build.emit(Gather(), tables.votes, node, 0)
    return [build.emit(_TOGETHER[op.aggregate](keep_dims=False), votes, [1])]


class _Tables:
    """A forest as constants of as many rows as it has nodes, which all levels share."""

    def __init__(self, build: Emitter, inputs: Sequence[Port]) -> None:
        features, splits, modes, missing, children, _, votes, *members = map(array_of, inputs[1:])
        self._build, self._x = build, inputs[0]
        self._kind = inputs[0].element_type
        self.inner, leaves = len(features), len(votes)
        if modes.size and modes.max() >= len(MODES) - (not members):
            raise Declined("modes are unknown, or lack their members")

        def with_leaves(table: Array, filler: object = 0) -> Array:
            more = np.full((leaves, *table.shape[1:]), filler, table.dtype)
            return np.concatenate([table, more])

        self._features = build.value(with_leaves(features.astype(np.int64)))
        self._splits = build.value(with_leaves(splits), self._kind)
        own = np.arange(self.inner, self.inner + leaves)
        self._sides = [build.value(np.concatenate([side, own])) for side in children]
        self._missing = build.value(with_leaves(missing)) if missing.any() else None
        self._modes = {
            MODES[mode]: build.value(with_leaves(modes == mode))
            for mode in np.unique(modes).tolist()
        }
        self._members = (
            build.value(with_leaves(members[0], np.nan), self._kind) if members else None
        )
        none = np.zeros((self.inner, votes.shape[1]), votes.dtype)
        self.votes = build.value(np.concatenate([none, votes]), self._kind)

    def step(self, node: Port) -> Port:
        """Go from nodes [rows, trees] to the next ones."""
        emit = self._build.emit
        feature = emit(GatherElements(1), self._x, emit(Gather(), self._features, node, 0))
        goes: Port | None = None
        for mode, has_it in self._modes.items():
            true = self._is_true(mode, feature, node)
            goes = (
                true
                if goes is None
                else emit(Select(), emit(Gather(), has_it, node, 0), true, goes)
            )
        assert goes is not None
        if self._missing is not None:
            tracked = emit(Gather(), self._missing, node, 0)
            goes = emit(LogicalOr(), goes, emit(LogicalAnd(), tracked, emit(IsNaN(), feature)))
        left, right = (emit(Gather(), side, node, 0) for side in self._sides)
        return emit(Select(), goes, left, right)

    def _is_true(self, mode: str, feature: Port, node: Port) -> Port:
        emit = self._build.emit
        if mode != "MEMBER":
            return emit(_COMPARISONS[mode](), feature, emit(Gather(), self._splits, node, 0))
        assert self._members is not None
        wanted = emit(Gather(), self._members, node, 0)
        equal = emit(Equal(), emit(Unsqueeze(), feature, [2]), wanted)
        return emit(ReduceLogicalOr(keep_dims=False), equal, [2])
