"""Forest: decision trees as tables, and the operations that go through them.

All rows and trees go down one level at a time, so that any device computes them in parallel; a
leaf leads to itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import ModelFormatError
from polydevice.node import Port
from polydevice.ops.activation import Sigmoid
from polydevice.ops.arithmetic import Divide, Multiply, Subtract
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.comparison import Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual
from polydevice.ops.gather import Gather, GatherElements
from polydevice.ops.logical import LogicalAnd, LogicalOr
from polydevice.ops.math import ErfInv, IsNaN
from polydevice.ops.op import Op
from polydevice.ops.reduce import ReduceLogicalOr, ReduceMax, ReduceMin, ReduceSum
from polydevice.ops.reshape import Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.softmax import SoftMax
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.reshape import joined, part_of_shape

DEPTH_LIMIT = 128
"""Levels of the deepest tree; each is about ten operations."""

COMPARISONS: dict[str, type[Op]] = {
    "LEQ": LessEqual, "LT": Less, "GTE": GreaterEqual, "GT": Greater, "EQ": Equal, "NEQ": NotEqual,
}  # fmt: skip
MODES = [*COMPARISONS, "MEMBER"]
AGGREGATES = ["AVERAGE", "SUM", "MIN", "MAX"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


@dataclass
class Forest:
    """Nodes of all trees in one list, inner nodes before leaves or among them.

    Attributes:
        feature: [nodes] i64, what is compared.
        split: [nodes], with what.
        mode: [nodes], names of `MODES`; "" for leaves.
        children: [2, nodes] i64, where to go if the comparison is true, and if not.
        tracks: [nodes] bool, whether a missing feature counts as true.
        members: node → the numbers that mode MEMBER looks for.
        roots: [trees] i64.
        votes: lists of node, target and weight.
    """

    feature: Array
    split: Array
    mode: list[str]
    children: Array
    tracks: Array
    members: dict[int, list[float]]
    roots: Array
    votes: tuple[Array, Array, Array]

    def check(self, features: Any) -> int:
        """Return the depth of the deepest tree; raises ModelFormatError for what is no tree."""
        count = len(self.mode)
        for name, places in (
            ("child", self.children),
            ("root", self.roots),
            ("leaf", self.votes[0]),
        ):
            if places.size and not (places.min() >= 0 and places.max() < count):
                raise ModelFormatError(f"a {name} is not among the {count} nodes")
        most = features if isinstance(features, int) else None
        if self.feature.size and (
            self.feature.min() < 0 or (most is not None and self.feature.max() >= most)
        ):
            raise ModelFormatError(f"a node compares a feature outside the {most} of the input")
        inner = np.array([bool(mode) for mode in self.mode])
        level = np.unique(self.roots)
        for depth in range(DEPTH_LIMIT + 1):
            if not inner[level].any():
                return depth
            level = np.unique(self.children[:, level])
        raise ModelFormatError(f"a tree has more than {DEPTH_LIMIT} levels, or a cycle")


def aggregated(n: OnnxNode, x: Port, trees: Forest, targets: int, aggregate: str) -> Port:
    """Return [rows, targets]: what the leaves that each row reaches say together."""
    if aggregate not in AGGREGATES:
        raise n.unsupported(f"aggregate_function {aggregate!r}; legal: {', '.join(AGGREGATES)}")
    depth = trees.check(None if x.shape is None else x.shape[1])
    shape = joined(n, part_of_shape(n, x, 0, 1), [len(trees.roots)])
    node = n.emit(Broadcast(), trees.roots, shape)
    tables = _Tables(n, x, trees) if depth else None
    for _ in range(depth):
        assert tables is not None
        node = tables.step(node)
    votes = n.emit(Gather(), n.like(_ballots(n, trees, targets, aggregate, x), x), node, 0)
    reduce = {"MIN": ReduceMin, "MAX": ReduceMax}.get(aggregate, ReduceSum)
    y = n.emit(reduce(keep_dims=False), votes, [1])
    return n.emit(Divide(), y, n.like(len(trees.roots), y)) if aggregate == "AVERAGE" else y


def _ballots(n: OnnxNode, trees: Forest, targets: int, aggregate: str, x: Port) -> Array:
    """Return [nodes, targets]: what each leaf adds, or what changes nothing."""
    places, ids, weights = trees.votes
    if not len(places) == len(ids) == len(weights):
        raise ModelFormatError("nodes, targets and weights of leaves differ in number")
    if ids.size and not (ids.min() >= 0 and ids.max() < targets):
        raise ModelFormatError(f"a leaf votes for a target outside the {targets} there are")
    if targets < 1:
        raise ModelFormatError(f"there are {targets} targets; at least 1 is needed")
    n.take_dense(len(trees.mode) * targets * np.dtype(np.float64).itemsize)
    limits = np.finfo(x.desc.dtype)
    none = {"MIN": limits.max, "MAX": limits.min}.get(aggregate, 0)
    made = np.full((len(trees.mode), targets), none, np.float64)
    combine = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
    combine.at(made, (places, ids), weights)
    return made


class _Tables:
    """A forest as constants, which all levels share."""

    def __init__(self, n: OnnxNode, x: Port, trees: Forest) -> None:
        self._n, self._x = n, x
        self._feature = n.value(trees.feature)
        self._split = n.like(trees.split, x)
        self._sides = [n.value(side) for side in trees.children]
        self._tracks = n.value(trees.tracks) if trees.tracks.any() else None
        self._modes = {
            mode: n.value(np.array([each == mode for each in trees.mode]))
            for mode in sorted({mode for mode in trees.mode if mode})
        }
        self._members = n.like(_members(n, trees), x) if "MEMBER" in self._modes else None

    def step(self, node: Port) -> Port:
        """Go from nodes [rows, trees] to the next ones."""
        emit = self._n.emit
        feature = emit(GatherElements(1), self._x, emit(Gather(), self._feature, node, 0))
        goes: Port | None = None
        for mode, has_it in self._modes.items():
            true = self._is_true(mode, feature, node)
            goes = (
                true
                if goes is None
                else emit(Select(), emit(Gather(), has_it, node, 0), true, goes)
            )
        assert goes is not None
        if self._tracks is not None:
            tracked = emit(Gather(), self._tracks, node, 0)
            goes = emit(LogicalOr(), goes, emit(LogicalAnd(), tracked, emit(IsNaN(), feature)))
        left, right = (emit(Gather(), side, node, 0) for side in self._sides)
        return emit(Select(), goes, left, right)

    def _is_true(self, mode: str, feature: Port, node: Port) -> Port:
        emit = self._n.emit
        if mode != "MEMBER":
            return emit(COMPARISONS[mode](), feature, emit(Gather(), self._split, node, 0))
        assert self._members is not None
        wanted = emit(Gather(), self._members, node, 0)
        equal = emit(Equal(), emit(Unsqueeze(), feature, [2]), wanted)
        return emit(ReduceLogicalOr(keep_dims=False), equal, [2])


def _members(n: OnnxNode, trees: Forest) -> Array:
    """Return [nodes, members]: what each node looks for, filled up with NaN."""
    width = max(map(len, trees.members.values()), default=0)
    n.take_dense(len(trees.mode) * width * np.dtype(np.float64).itemsize)
    table = np.full((len(trees.mode), max(width, 1)), np.nan)
    for place, members in trees.members.items():
        table[place, : len(members)] = members
    return table


def transformed(n: OnnxNode, y: Port, name: str) -> Port:
    """Emit a transformation of scores [rows, targets] by its ONNX name."""
    if name == "NONE":
        return y
    if name == "LOGISTIC":
        return n.emit(Sigmoid(), y)
    if name == "SOFTMAX":
        return n.emit(SoftMax(axis=1), y)
    if name == "PROBIT":
        centred = n.emit(Subtract(), n.emit(Multiply(), y, n.like(2, y)), n.like(1, y))
        return n.emit(Multiply(), n.emit(ErfInv(), centred), n.like(math.sqrt(2), y))
    if name != "SOFTMAX_ZERO":
        raise n.unsupported(f"post_transform {name!r}; legal: {', '.join(TRANSFORMS)}")
    # Zeros stay zeros and take no part.
    there = n.emit(NotEqual(), y, n.like(0, y))
    hidden = n.emit(Select(), there, y, n.like(-np.inf, y))
    return n.emit(Select(), there, n.emit(SoftMax(axis=1), hidden), n.like(0, y))
