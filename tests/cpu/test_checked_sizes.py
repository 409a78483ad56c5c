"""Sizes that only data told: what the operation's own rule says of them, asked once for many."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import ShapeError
from polydevice_cpu.plan.array_steps import checking
from tests.cpu.loading import load

F, WHOLE, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture
def inferred(monkeypatch):
    """The names of the nodes that were inferred on sizes, of numbers or of symbols."""
    found = []
    infer = checking.Check._infer

    def noted(self, sizes, values):
        found.append(self._node.name)
        return infer(self, sizes, values)

    monkeypatch.setattr(checking.Check, "_infer", noted)
    return found


def info(name, kind, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(), [output], name=output, **attributes)


def chosen(*nodes, **constants) -> bytes:
    """What nodes make of the chosen rows of x, `rows`, and of those of z, `others`."""
    constants = {"first": np.int64([0]), **constants}
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    before = [node("Compress", f"{x} {m}", y, axis=0) for x, m, y in ROWS]
    inputs = [info("x", F, ["n", 4]), info("m", B, ["n"]), info("z", F, ["k", 4])]
    inputs.append(info("w", B, ["k"]))
    graph = helper.make_graph([*before, *nodes], "g", inputs, [info("y", F)], stored)
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


ROWS = (("x", "m", "rows"), ("z", "w", "others"))


def given(rng, rows, others, length=40):
    """Values of which so many rows are chosen."""
    masks = [np.zeros(length, np.bool_) for _ in range(2)]
    for mask, count in zip(masks, (rows, others), strict=True):
        mask[rng.permutation(length)[:count]] = True
    x, z = (rng.normal(size=(length, 4)).astype(np.float32) for _ in range(2))
    return {"x": x, "m": masks[0], "z": z, "w": masks[1]}


NODES = {
    "one by one": [
        node("Relu", "rows", "a"),
        node("Mul", "a a", "b"),
        node("Transpose", "b", "c", perm=[1, 0]),
        node("ReduceMax", "c", "d", axes=[0], keepdims=0),
        node("Softmax", "d", "e", axis=0),
        node("Concat", "e e", "y", axis=0),
    ],
    "a row at a time": [
        node("ReduceSum", "others first", "sum", keepdims=1),
        node("Sub", "rows sum", "a"),
        node("Flatten", "a", "y"),
    ],
}


@pytest.mark.parametrize("kind", NODES)
def test_a_rule_serves_all_sizes_like_these(core, inferred, kind):
    content, rng = chosen(*NODES[kind]), np.random.default_rng(2)
    session = onnxruntime.InferenceSession(content)
    request = load(core, content).create_infer_request()
    for turn, count in enumerate(rng.permutation(np.arange(2, 33))):
        if turn == 4:
            inferred.clear()
        feed = given(rng, int(count), 3 + turn)
        got, want = request.infer(feed)["y"], session.run(None, feed)[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert not inferred


def test_sizes_that_are_not_like_these_are_asked_for_again(core, inferred):
    content, rng = chosen(node("Add", "rows others", "y")), np.random.default_rng(3)
    request = load(core, content).create_infer_request()
    for count in (2, 5, 6, 9):
        feed = given(rng, count, count)
        right = feed["x"][feed["m"]] + feed["z"][feed["w"]]
        np.testing.assert_array_equal(request.infer(feed)["y"], right)
    inferred.clear()
    for rows, others in ((7, 1), (1, 8), (1, 1), (30, 1), (1, 30), (11, 11), (0, 0), (0, 1)):
        feed = given(rng, rows, others)
        right = feed["x"][feed["m"]] + feed["z"][feed["w"]]
        np.testing.assert_array_equal(request.infer(feed)["y"], right)
    assert "y" in inferred
    for rows, others in ((7, 5), (2, 0), (0, 2), (12, 11)):
        with pytest.raises(ShapeError, match="y"):
            request.infer(given(rng, rows, others))


def test_what_numpy_would_repeat_is_refused(core):
    """One row of updates for several rows of places: none, of which NumPy would make several."""
    nodes = [
        node("Cast", "others", "places", to=WHOLE),
        node("ReduceSum", "others first", "sum", keepdims=1),
        node("ScatterElements", "rows places sum", "y", axis=0),
    ]
    content, rng = chosen(*nodes), np.random.default_rng(4)
    request = load(core, content).create_infer_request()
    for count in (3, 4, 8, 5):
        feed = given(rng, count, 1)
        feed["z"] *= 0
        right = feed["x"][feed["m"]]
        right[0] = 0
        np.testing.assert_array_equal(request.infer(feed)["y"], right)
    for others in (2, 3):
        feed = given(rng, 5, others)
        feed["z"] *= 0
        with pytest.raises(ShapeError, match="y"):
            request.infer(feed)


def test_classes_of_sizes_are_bounded(core, inferred, monkeypatch):
    learned = []
    learn = checking.Check._learn
    monkeypatch.setattr(checking.Check, "_learn", lambda *a: learned.append(a[0]) or learn(*a))
    content, rng = chosen(node("Add", "rows others", "y")), np.random.default_rng(5)
    request = load(core, content).create_infer_request()
    for turn in range(60):
        count = int(rng.integers(2, 30))
        sizes = [(count, count), (count, 1), (1, count), (1, 1)][turn % 4]
        feed = given(rng, *sizes)
        right = feed["x"][feed["m"]] + feed["z"][feed["w"]]
        np.testing.assert_array_equal(request.infer(feed)["y"], right)
    for check in set(learned):
        assert sum(map(len, check._classes.values())) <= checking.CLASSES
