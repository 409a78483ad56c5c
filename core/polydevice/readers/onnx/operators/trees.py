"""Decision trees of ai.onnx.ml; what they become is in `forest`."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import ModelFormatError
from polydevice.node import Port
from polydevice.ops.activation import Sigmoid
from polydevice.ops.arithmetic import Add, Subtract
from polydevice.ops.comparison import Greater
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.reshape import Squeeze
from polydevice.ops.slice import Slice
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.ops.trees import MODES
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.forest import (
    AGGREGATES,
    TRANSFORMS,
    Forest,
    aggregated,
    transformed,
)
from polydevice.readers.onnx.protos.attributes import TensorValue

_ML = "ai.onnx.ml"


@translates("TreeEnsemble", since=5, domain=_ML)
def tree_ensemble(n: OnnxNode) -> Port:
    """Inner nodes and leaves are numbered apart, and a leaf has one vote."""
    feature = np.array(n.required("nodes_featureids"), np.int64)
    inner, leaves = len(feature), len(n.required("leaf_targetids"))
    sides = []
    for side in ("true", "false"):
        places = np.array(n.required(f"nodes_{side}nodeids"), np.int64)
        leaf = np.array(n.required(f"nodes_{side}leafs"), bool)
        if len(places) != inner or len(leaf) != inner:
            raise ModelFormatError(f"nodes_{side}nodeids or nodes_{side}leafs are not {inner} long")
        if np.any(places < 0) or np.any(places >= np.where(leaf, leaves, inner)):
            raise ModelFormatError(f"nodes_{side}nodeids name a node that is not there")
        sides.append(np.concatenate([places + leaf * inner, inner + np.arange(leaves)]))
    modes = [_name([*MODES], code, "mode") for code in _array(n, "nodes_modes").tolist()]
    split = _array(n, "nodes_splits")
    missing = np.zeros(leaves, np.int64)
    trees = Forest(
        feature=np.concatenate([feature, missing]),
        split=np.concatenate([split, missing.astype(split.dtype)]),
        mode=[*modes, *[""] * leaves],
        children=np.stack(sides),
        tracks=np.concatenate([_tracks(n, inner), missing.astype(bool)]),
        members=_members(n, modes),
        roots=np.array(n.required("tree_roots"), np.int64),
        votes=(
            inner + np.arange(leaves),
            np.array(n.required("leaf_targetids"), np.int64),
            _array(n, "leaf_weights"),
        ),
    )
    aggregate = _name(AGGREGATES, n.attribute("aggregate_function", 1), "aggregate_function")
    y = aggregated(n, _features(n), trees, n.attribute("n_targets", 1), aggregate)
    return transformed(n, y, _name(TRANSFORMS, n.attribute("post_transform", 0), "post_transform"))


@translates("TreeEnsembleRegressor", domain=_ML)
def tree_ensemble_regressor(n: OnnxNode) -> Port:
    """Nodes are named by tree and number; leaves are nodes, with any number of votes."""
    y = aggregated(
        n,
        _features(n),
        _forest(n, "target"),
        n.required("n_targets"),
        n.attribute("aggregate_function", "SUM"),
        ElementType.f32,
    )
    base = _base(n)
    if base.size:
        y = n.emit(Add(), y, n.like(base, y))
    return transformed(n, _as_f32(n, y), n.attribute("post_transform", "NONE"))


@translates("TreeEnsembleClassifier", domain=_ML)
def tree_ensemble_classifier(n: OnnxNode) -> list[Port]:
    """Labels [rows] and scores [rows, labels]; two labels may share one score.

    Where all leaves vote for the first of two labels, the sum is the second one's score. What the
    first gets then, and from where on it is the second, is as in ONNX Runtime: onnx.reference
    chooses by what a transformation made of the scores.
    """
    texts, numbers = n.attribute("classlabels_strings"), n.attribute("classlabels_int64s")
    labels = np.array(texts or numbers or [], object if texts else np.int64)
    forest, transform = _forest(n, "class"), n.attribute("post_transform", "NONE")
    if len(labels) < 2:
        raise n.unsupported(f"{len(labels)} labels; give a score to two of them, 0 and 1 say")
    voted, base = set(forest.votes[1].tolist()), _base(n)
    alone = len(labels) == 2 and len(voted) == 1
    if base.size not in ((0, 1) if voted == {0} and alone else (0,) if alone else (0, len(labels))):
        raise n.unsupported(f"{base.size} base_values for {len(labels)} labels")
    y = aggregated(n, _features(n), forest, len(labels), "SUM")
    if base.size and not (alone and voted == {0}):
        y = n.emit(Add(), y, n.like(base, y))
    if not alone:
        _, index = n.emit_all(_LARGEST, y, 1)
        index = n.emit(Squeeze(), index, [1])
        scores = transformed(n, _as_f32(n, y), transform)
        return [n.emit(Gather(), n.value(labels), index, 0), scores]
    return _of_two(n, y, forest, labels, base)


_LARGEST = TopK(axis=1, mode=TopKMode.MAX, sort=TopKSort.VALUE, index_element_type=ElementType.i64)


def _of_two(n: OnnxNode, y: Port, forest: Forest, labels: Array, base: Array) -> list[Port]:
    """Return label and scores for a sum that is the score of one of two labels."""
    transform = n.attribute("post_transform", "NONE")
    (column,) = set(forest.votes[1].tolist())
    score = n.emit(Slice(), y, [column], [column + 1], [1], [1])
    if base.size:
        score = n.emit(Add(), score, n.like(base, score))
    is_probability = bool(np.all(forest.votes[2] >= 0))
    second = n.emit(Greater(), score, n.like(0.5 if is_probability else 0.0, score))
    index = n.emit(Squeeze(), n.emit(Convert(ElementType.i64), second), [1])
    chosen = n.emit(Gather(), n.value(labels), index, 0)
    if column == 1:
        return [chosen, transformed(n, _as_f32(n, y), transform)]
    if transform == "PROBIT":
        raise n.unsupported("post_transform 'PROBIT' of one score for two labels; use 'NONE'")
    whole = float(is_probability and transform != "LOGISTIC")
    first = n.emit(Subtract(), n.like(whole, score), score)
    scores = _as_f32(n, n.emit(Concat(1), first, score))
    return [chosen, n.emit(Sigmoid(), scores) if transform == "LOGISTIC" else scores]


def _forest(n: OnnxNode, votes: str) -> Forest:
    """Return the trees; the attributes of votes are called "target" or "class"."""
    keys = list(zip(n.required("nodes_treeids"), n.required("nodes_nodeids"), strict=True))
    place = {key: i for i, key in enumerate(keys)}
    modes = [mode.removeprefix("BRANCH_") for mode in n.required("nodes_modes")]
    modes = ["" if mode == "LEAF" else mode for mode in modes]
    if len(place) != len(keys) or len(modes) != len(keys) or set(modes) - {*MODES[:-1], ""}:
        raise ModelFormatError("nodes_nodeids name a node twice, or nodes_modes do not fit them")
    own = np.arange(len(keys))
    sides = [
        _found(place, [k[0] for k in keys], n.required(f"nodes_{side}nodeids"), modes)
        for side in ("true", "false")
    ]
    voting = zip(n.required(f"{votes}_treeids"), n.required(f"{votes}_nodeids"), strict=True)
    roots: dict[int, int] = {}
    for position, (tree, _) in enumerate(keys):
        roots.setdefault(tree, position)  # the one that is listed first, whatever its number
    return Forest(
        feature=np.array(n.required("nodes_featureids"), np.int64),
        split=_numbers(n, "nodes_values"),
        mode=modes,
        children=np.stack([np.where(np.array(modes) == "", own, side) for side in sides]),
        tracks=_tracks(n, len(keys)),
        members={},
        roots=np.array([*roots.values()], np.int64),
        votes=(
            np.array([place.get(key, -1) for key in voting], np.int64),
            np.array(n.required(f"{votes}_ids"), np.int64),
            _numbers(n, f"{votes}_weights"),
        ),
    )


def _base(n: OnnxNode) -> Array:
    base = n.attribute("base_values") or _optional_array(n, "base_values_as_tensor")
    return np.asarray([] if base is None else base)


def _as_f32(n: OnnxNode, y: Port) -> Port:
    return y if y.element_type is ElementType.f32 else n.emit(Convert(ElementType.f32), y)


def _found(place: dict[Any, int], trees: list[int], numbers: list[int], modes: list[str]) -> Array:
    found = [
        place.get(key, -1) if mode else 0
        for key, mode in zip(zip(trees, numbers, strict=True), modes, strict=True)
    ]
    return np.array(found, np.int64)


def _features(n: OnnxNode) -> Port:
    x = n.input(0)
    if x.element_type in (ElementType.f16, ElementType.f32, ElementType.f64):
        return x
    return n.emit(Convert(ElementType.f32), x)


def _members(n: OnnxNode, modes: list[str]) -> dict[int, list[float]]:
    """Return the members of each node of mode MEMBER; lists end with NaN, in the nodes' order."""
    rest = _optional_array(n, "membership_values")
    places = [i for i, mode in enumerate(modes) if mode == "MEMBER"]
    numbers = [] if rest is None else rest.reshape(-1).tolist()
    lists: list[list[float]] = [[]]
    for number in numbers:
        if math.isnan(number):
            lists.append([])
        else:
            lists[-1].append(number)
    if len(lists) - 1 != len(places) or lists[-1]:
        raise ModelFormatError(
            f"membership_values have {len(lists) - 1} lists ending with NaN for {len(places)} nodes"
        )
    return dict(zip(places, lists))


def _tracks(n: OnnxNode, count: int) -> Array:
    tracks = n.attribute("nodes_missing_value_tracks_true") or [0] * count
    if len(tracks) != count:
        raise ModelFormatError(f"nodes_missing_value_tracks_true must have {count} items")
    return np.array(tracks, bool)


def _array(n: OnnxNode, name: str) -> Array:
    return cast("TensorValue", n.required(name)).array.reshape(-1)


def _optional_array(n: OnnxNode, name: str) -> Array | None:
    value: TensorValue | None = n.attribute(name)
    return None if value is None else value.array.reshape(-1)


def _numbers(n: OnnxNode, name: str) -> Array:
    """Return an attribute of floats, or its form in f64."""
    wide = _optional_array(n, f"{name}_as_tensor")
    return np.array(n.required(name), np.float32) if wide is None else wide


def _name(names: list[str], code: int, what: str) -> str:
    if not 0 <= code < len(names):
        raise ModelFormatError(f"{what} {code} is unknown; legal: 0 to {len(names) - 1}")
    return names[code]
