"""Forest: decision trees as ONNX files list them, and the operation that goes through them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.errors import ModelFormatError
from polydevice.node import Port
from polydevice.ops.activation import Sigmoid
from polydevice.ops.arithmetic import Divide, Multiply, Subtract
from polydevice.ops.comparison import Greater
from polydevice.ops.math import Abs, ErfInv
from polydevice.ops.select import Select
from polydevice.ops.softmax import SoftMax
from polydevice.ops.trees import MODES, Aggregate, TreeEnsemble
from polydevice.readers.onnx.node import OnnxNode

DEPTH_LIMIT = 128
"""Levels of the deepest tree; each is about ten operations where a device has none for trees."""

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


def aggregated(
    n: OnnxNode,
    x: Port,
    trees: Forest,
    targets: int,
    aggregate: str,
    result: ElementType | None = None,
) -> Port:
    """Return [rows, targets]: what the leaves that each row reaches say together.

    Of nothing, MIN is the largest finite number, as onnx.reference has it (ONNX Runtime says 0):
    that of the type which the `result` will have, x's without one. MAX likewise.
    """
    if aggregate not in AGGREGATES:
        raise n.unsupported(f"aggregate_function {aggregate!r}; legal: {', '.join(AGGREGATES)}")
    depth = trees.check(None if x.shape is None else x.shape[1])
    inner = np.array([bool(mode) for mode in trees.mode], bool)
    order = np.concatenate([np.flatnonzero(inner), np.flatnonzero(~inner)])
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    first = order[: np.count_nonzero(inner)]
    limits = np.finfo((result or x.element_type).dtype)
    none = float({"MIN": limits.max, "MAX": limits.min}.get(aggregate, 0))
    votes = _ballots(n, trees, targets, aggregate, none)[order[len(first) :]]
    modes = [MODES.index(trees.mode[node]) for node in first.tolist()]
    op = TreeEnsemble(depth, Aggregate.SUM if aggregate == "AVERAGE" else Aggregate(aggregate))
    y = n.emit(
        op,
        x,
        n.value(trees.feature[first].astype(np.int32)),
        n.like(trees.split[first], x),
        n.value(np.array(modes, np.uint8)),
        n.value(trees.tracks[first]),
        n.value(place[trees.children[:, first]]),
        n.value(place[trees.roots]),
        n.like(votes, x),
        *([n.like(_members(n, trees, first), x)] if trees.members else []),
    )
    return n.emit(Divide(), y, n.like(len(trees.roots), y)) if aggregate == "AVERAGE" else y


def _ballots(n: OnnxNode, trees: Forest, targets: int, aggregate: str, none: float) -> Array:
    """Return [nodes, targets]: what each leaf adds, or `none`, which changes nothing."""
    places, ids, weights = trees.votes
    if not len(places) == len(ids) == len(weights):
        raise ModelFormatError("nodes, targets and weights of leaves differ in number")
    if ids.size and not (ids.min() >= 0 and ids.max() < targets):
        raise ModelFormatError(f"a leaf votes for a target outside the {targets} there are")
    if targets < 1:
        raise ModelFormatError(f"there are {targets} targets; at least 1 is needed")
    n.take_dense(len(trees.mode) * targets * np.dtype(np.float64).itemsize)
    made = np.full((len(trees.mode), targets), none, np.float64)
    combine = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
    combine.at(made, (places, ids), weights)
    return made


def _members(n: OnnxNode, trees: Forest, inner: Array) -> Array:
    """Return [inner nodes, members]: what each of these looks for, filled up with NaN."""
    width = max(map(len, trees.members.values()), default=0)
    n.take_dense(len(inner) * width * np.dtype(np.float64).itemsize)
    table = np.full((len(inner), max(width, 1)), np.nan)
    for row, node in enumerate(inner.tolist()):
        members = trees.members.get(node, [])
        table[row, : len(members)] = members
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
    # Zeros, and what is as near to them as ONNX Runtime says, are zeros and take no part.
    there = n.emit(Greater(), n.emit(Abs(), y), n.like(1e-7, y))
    hidden = n.emit(Select(), there, y, n.like(-np.inf, y))
    return n.emit(Select(), there, n.emit(SoftMax(axis=1), hidden), n.like(0, y))
