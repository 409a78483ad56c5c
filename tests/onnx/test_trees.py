"""Decision trees of ai.onnx.ml, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.errors import ModelError, ModelLimitError, UnsupportedOperationError
from tests.onnx.models import ONE_SCORE, onnxruntime_outputs, run, value

pytestmark = pytest.mark.usefixtures("compiled_sparingly")

Rng = np.random.Generator
FEATURES, TARGETS, ROWS = 5, 3, 7
INNER = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]


def _model(node: onnx.NodeProto, version: int, rows: int | str = "n") -> onnx.ModelProto:
    graph = helper.make_graph([node], "trees", [value("x", [rows, FEATURES])], [value("y", None)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _data(rng: Rng) -> np.ndarray:
    """Numbers of which many are equal to splits, and some missing."""
    x = rng.integers(-3, 4, (ROWS, FEATURES)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def _grow(rng: Rng, depth: int) -> Any:
    """A random tree: a leaf's number, or two trees."""
    if depth == 0 or rng.random() < 0.2:
        return None
    return _grow(rng, depth - 1), _grow(rng, depth - 1)


def _regressor(rng: Rng, trees: int, depth: int, **attributes: Any) -> onnx.NodeProto:
    nodes: dict[str, list[Any]] = {
        name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values",
                              "truenodeids", "falsenodeids", "missing_value_tracks_true")
    }  # fmt: skip
    votes: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}

    def add(tree: int, shape: Any, numbers: Any) -> int:
        number = next(numbers)
        place = len(nodes["treeids"])
        leaf = shape is None
        mode = "LEAF" if leaf else f"BRANCH_{rng.choice(INNER)}"
        row = (tree, number, int(rng.integers(FEATURES)), mode, float(rng.integers(-2, 3)), 0, 0,
               int(rng.integers(2)))  # fmt: skip
        for name, item in zip(nodes, row, strict=True):
            nodes[name].append(item)
        if leaf:
            # For all targets: where nobody votes, ONNX Runtime gives 0 without the base value,
            # and onnx.reference, which we follow, the base value or the type's limit.
            for target in rng.permutation(TARGETS):
                vote = (tree, number, int(target), float(rng.normal()))
                for name, item in zip(votes, vote, strict=True):
                    votes[name].append(item)
            return number
        nodes["truenodeids"][place] = add(tree, shape[0], numbers)
        nodes["falsenodeids"][place] = add(tree, shape[1], numbers)
        return number

    for tree in range(trees):
        add(tree, _grow(rng, depth), iter(range(1 << 12)))
    named = {f"nodes_{name}": items for name, items in nodes.items()}
    named |= {f"target_{name}": items for name, items in votes.items()}
    return helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=TARGETS,
        **named, **attributes,
    )  # fmt: skip


def _same(proto: onnx.ModelProto, device: str, x: np.ndarray) -> None:
    (expected,) = onnxruntime_outputs(proto, x)
    for _ in range(2):
        (y,) = run(proto, x, device=device)
        assert y.dtype == expected.dtype
        np.testing.assert_allclose(y, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("seed", range(3))
def test_regressor(aggregate: str, seed: int, device: str) -> None:
    rng = np.random.default_rng(seed)
    attributes: dict[str, Any] = {"aggregate_function": aggregate}
    if seed:
        attributes["base_values"] = rng.normal(size=TARGETS).tolist()
    node = _regressor(rng, trees=int(rng.integers(1, 6)), depth=seed + 1, **attributes)
    _same(_model(node, 3), device, _data(rng))


@pytest.mark.parametrize("numbers", [[1, 0, 2], [7, 3, 5], [0, 1, 2]])
def test_the_root_is_the_node_that_is_listed_first(numbers: list[int], device: str) -> None:
    """Whatever its number; the leaves of two trees say 1 or 2, and 10 or 20."""
    _, true, false = numbers
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=[4, 4, 4, 2, 2, 2], nodes_nodeids=numbers * 2, nodes_featureids=[0] * 6,
        nodes_values=[0.5, 0, 0, 1.5, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
        nodes_truenodeids=[true, 0, 0] * 2, nodes_falsenodeids=[false, 0, 0] * 2,
        target_treeids=[4, 4, 2, 2], target_nodeids=[true, false] * 2, target_ids=[0] * 4,
        target_weights=[1.0, 2.0, 10.0, 20.0],
    )  # fmt: skip
    x = np.zeros((3, FEATURES), np.float32)
    x[:, 0] = 0, 1, 2
    proto = _model(node, 3)
    (y,) = run(proto, x, device=device)
    assert y.tolist() == [[11], [12], [22]]
    (answer,) = onnxruntime_outputs(proto, x)
    assert answer.tolist() == y.tolist()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("aggregate", "sign"), [("MIN", 1), ("MAX", -1)])
def test_targets_without_votes_are_finite(aggregate: str, sign: int, kind: type) -> None:
    """The limit of f32, which the output has, of whatever type the features are."""
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2,
        aggregate_function=aggregate, nodes_treeids=[0] * 3, nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0] * 3, nodes_values=[0.5, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0],
        target_nodeids=[1, 2], target_ids=[0, 1], target_weights=[1.0, 2.0],
    )  # fmt: skip
    proto = _model(node, 3)
    proto.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(
        np.dtype(kind)
    )
    x = np.zeros((2, FEATURES), kind)
    x[1, 0] = 1
    (y,) = run(proto, x)
    none = sign * np.finfo(np.float32).max
    assert y.dtype == np.float32 and y.tolist() == [[1, none], [none, 2]]


@pytest.mark.parametrize("transform", ["SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_transforms(transform: str, device: str, rng: Rng) -> None:
    node = _regressor(rng, trees=3, depth=2, post_transform=transform)
    _same(_model(node, 1, ROWS), device, _data(rng))


def _ensemble(rng: Rng, trees: int, depth: int, kind: type, **attributes: Any) -> onnx.NodeProto:
    inner: list[tuple[Any, ...]] = []
    leaves: list[tuple[int, float]] = []

    def add(level: int) -> tuple[int, int]:
        if level == 0 or (level < depth and rng.random() < 0.2):
            leaves.append((int(rng.integers(TARGETS)), float(rng.normal())))
            return len(leaves) - 1, 1
        place = len(inner)
        inner.append(())
        mode, feature = int(rng.integers(7)), int(rng.integers(FEATURES))
        (true, true_leaf), (false, false_leaf) = add(level - 1), add(level - 1)
        split, tracks = float(rng.integers(-2, 3)), int(rng.integers(2))
        inner[place] = (mode, feature, split, tracks, true, true_leaf, false, false_leaf)
        return place, 0

    roots = [add(depth)[0] for _ in range(trees)]
    modes, features, splits, tracks, true, true_leaf, false, false_leaf = zip(*inner, strict=True)
    members: list[float] = []
    for mode in modes:
        if mode == 6:
            members += [*rng.permutation(5)[:2].astype(float) - 2, np.nan]

    def array(name: str, items: Any, dtype: type) -> TensorProto:
        return numpy_helper.from_array(np.array(items, dtype), name)

    if members:
        attributes["membership_values"] = array("membership_values", members, kind)
    return helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=TARGETS, tree_roots=roots,
        nodes_modes=array("nodes_modes", modes, np.uint8), nodes_featureids=features,
        nodes_splits=array("nodes_splits", splits, kind), nodes_missing_value_tracks_true=tracks,
        nodes_truenodeids=true, nodes_trueleafs=true_leaf,
        nodes_falsenodeids=false, nodes_falseleafs=false_leaf,
        leaf_targetids=[target for target, _ in leaves],
        leaf_weights=array("leaf_weights", [weight for _, weight in leaves], kind), **attributes,
    )  # fmt: skip


def _walked(node: onnx.NodeProto, x: np.ndarray, aggregate: int) -> np.ndarray:
    """What each row's walk from the roots gives, one comparison after the other."""
    a = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    arrays = {
        k: numpy_helper.to_array(v) if isinstance(v, TensorProto) else v for k, v in a.items()
    }
    lists = iter(np.asarray(arrays.get("membership_values", [])).tolist())
    members = {
        i: list(iter(lambda: None if np.isnan(item := next(lists)) else item, None))
        for i, mode in enumerate(arrays["nodes_modes"]) if mode == 6
    }  # fmt: skip
    compare = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal]
    start = {2: np.finfo(x.dtype).max, 3: np.finfo(x.dtype).min}.get(aggregate, 0)
    y = np.full((len(x), TARGETS), start, np.float64)
    for row, out in zip(x, y, strict=True):
        for root in a["tree_roots"]:
            place, leaf = root, 0
            while not leaf:
                feature, mode = row[a["nodes_featureids"][place]], arrays["nodes_modes"][place]
                if mode == 6:
                    true = feature in members[place]
                else:
                    true = compare[mode](feature, arrays["nodes_splits"][place])
                if np.isnan(feature) and a["nodes_missing_value_tracks_true"][place]:
                    true = True
                side = "true" if true else "false"
                place, leaf = a[f"nodes_{side}nodeids"][place], a[f"nodes_{side}leafs"][place]
            target, weight = a["leaf_targetids"][place], arrays["leaf_weights"][place]
            if aggregate in (2, 3):
                out[target] = (min if aggregate == 2 else max)(out[target], weight)
            else:
                out[target] += weight / (len(a["tree_roots"]) if aggregate == 0 else 1)
    return y


@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_ensemble(aggregate: int, kind: type, device: str, rng: Rng) -> None:
    node = _ensemble(rng, trees=4, depth=3, kind=kind, aggregate_function=aggregate)
    proto = _model(node, 5)
    if kind is np.float64:
        proto.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    x = _data(rng).astype(kind)
    (y,) = run(proto, x, device=device)
    assert y.dtype == kind
    np.testing.assert_allclose(y, _walked(node, x, aggregate), 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes_truenodeids": [5]}, "not there"),
        ({"nodes_truenodeids": [0], "nodes_trueleafs": [0]}, "cycle"),
        ({"tree_roots": [3]}, "root is not among"),
        ({"nodes_featureids": [FEATURES]}, "feature outside"),
        ({"leaf_targetids": [0, 9]}, "target outside"),
        ({"aggregate_function": 4}, "aggregate_function 4"),
        ({"nodes_falseleafs": [1, 1]}, "1 long"),
    ],
)
def test_what_is_no_tree_is_refused(change: dict[str, Any], reason: str) -> None:
    rng = np.random.default_rng(0)
    node = _ensemble(rng, trees=1, depth=1, kind=np.float32)
    for attribute in list(node.attribute):
        if attribute.name in change:
            node.attribute.remove(attribute)
    node.attribute.extend(helper.make_attribute(k, v) for k, v in change.items())
    with Core() as core, pytest.raises((ModelError, UnsupportedOperationError), match=reason):
        core.read_network(_model(node, 5).SerializeToString())


def test_tables_that_few_numbers_make_large_are_refused(rng: Rng) -> None:
    """A node asks for gigabytes by its number of targets; the limit is looked at before."""
    node = _regressor(rng, 1, 2)
    for attribute in node.attribute:
        if attribute.name == "n_targets":
            attribute.i = 1_200_000_000
    with pytest.raises(ModelLimitError, match="tables of trees"):
        Core().read_network(_model(node, 3).SerializeToString())


LABELS = {"few": [10, 20], "many": [7, 5, 9, 1]}
VOTED = {"first": [0], "second": [1], "both": [0, 1], "all": [0, 1, 2, 3]}


def _classifier(
    rng: Rng, labels: list[Any], voted: list[int], lowest: float, **attributes: Any
) -> onnx.NodeProto:
    """The trees of a regressor, whose leaves vote for some labels."""
    made = _regressor(rng, 4, 3)
    given = {a.name: helper.get_attribute_value(a) for a in made.attribute}
    kept = {name: value for name, value in given.items() if name.startswith("nodes_")}
    leaves = [
        key
        for key, mode in zip(
            zip(kept["nodes_treeids"], kept["nodes_nodeids"], strict=True),
            kept["nodes_modes"],
            strict=True,
        )
        if mode == b"LEAF"
    ]
    votes = [(tree, number, label) for tree, number in leaves for label in voted]
    kind = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    return helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["y", "s"], domain="ai.onnx.ml",
        class_treeids=[v[0] for v in votes], class_nodeids=[v[1] for v in votes],
        class_ids=[v[2] for v in votes],
        class_weights=[float(w) for w in rng.uniform(lowest, 0.4, len(votes))],
        **{kind: labels}, **kept, **attributes,
    )  # fmt: skip


def _labels_and_scores(node: onnx.NodeProto) -> onnx.ModelProto:
    made = _model(node, 3)
    made.graph.output.append(onnx.ValueInfoProto(name="s"))
    made.graph.output[0].ClearField("type")
    return made


@pytest.mark.parametrize(
    ("post_transform", "labels", "voted", "base", "lowest"),
    [
        ("NONE", "few", "first", [], 0.0),
        pytest.param("LOGISTIC", "few", "first", [0.25], 0.0, marks=ONE_SCORE),
        ("SOFTMAX", "few", "first", [], 0.0),
        ("NONE", "few", "first", [0.25], -0.6),
        ("LOGISTIC", "few", "first", [], -0.6),
        ("SOFTMAX_ZERO", "few", "first", [], -0.6),
        ("NONE", "few", "second", [], 0.0),
        ("LOGISTIC", "few", "second", [], -0.6),
        ("SOFTMAX", "few", "both", [], -0.6),
        ("NONE", "many", "all", [], 0.0),
        ("SOFTMAX", "many", "all", [0.5, -0.25, 0, 1], -0.6),
    ],
)
def test_classifier(post_transform, labels, voted, base, lowest, device, rng) -> None:
    names: list[Any] = LABELS[labels]
    if base:
        names = [f"label {name}" for name in names]
    settings: dict[str, Any] = {"post_transform": post_transform}
    if base:
        settings["base_values"] = base
    proto = _labels_and_scores(_classifier(rng, names, VOTED[voted], lowest, **settings))
    x = _data(rng)
    expected = onnxruntime_outputs(proto, x)
    if voted == "both":
        # ONNX Runtime gives the labels 0 and 1 here, whatever they are called.
        expected[0] = np.array(names)[np.argmax(expected[1], axis=1)]
    for _ in range(2):
        label, scores = run(proto, x, device=device)
        np.testing.assert_array_equal(label, expected[0])
        np.testing.assert_allclose(scores, expected[1], 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("labels", "voted", "settings", "reason"),
    [
        ([1], [0], {}, "1 labels"),
        ([1, 2], [0, 1], {"base_values": [1.0]}, "1 base_values for 2 labels"),
        ([1, 2], [1], {"base_values": [1.0]}, "base_values"),
        ([1, 2], [0], {"post_transform": "PROBIT"}, "PROBIT"),
    ],
)
def test_classifiers_that_are_refused(labels, voted, settings, reason, rng) -> None:
    proto = _labels_and_scores(_classifier(rng, labels, voted, 0.0, **settings))
    with Core() as core, pytest.raises(UnsupportedOperationError, match=reason):
        core.read_network(proto.SerializeToString())


def test_a_forest_is_stored_once(rng: Rng) -> None:
    """Not once per level of its deepest tree."""
    proto = _model(_regressor(rng, 3, 12), 3)
    with Core() as core:
        network = core.read_network(proto.SerializeToString())
    (nodes,) = (len(a.ints) for a in proto.graph.node[0].attribute if a.name == "nodes_treeids")
    held = sum(node.constant.nbytes for node in network if node.constant is not None)
    assert held < nodes * 200
