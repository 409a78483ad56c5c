"""The places of a mask are found once; the reference of ONNX judges what is chosen by them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from polydevice import Core
from polydevice.rewrites.share_coordinates import share_coordinates


def chosen(*, second="mask", axes=(1, 1)):
    """Elements of x where a mask is true, times those of y, by coordinates each finds itself."""
    nodes = []
    for name, mask, axis in (("x", "mask", axes[0]), ("y", second, axes[1])):
        nodes += [
            helper.make_node("NonZero", [mask], [f"{name}_at"]),
            helper.make_node("Transpose", [f"{name}_at"], [f"{name}_rows"], perm=[1, 0]),
            helper.make_node("Split", [f"{name}_rows"], [f"{name}_a", f"{name}_b"], axis=axis),
            helper.make_node("GatherND", [name, f"{name}_rows"], [f"{name}_chosen"]),
        ]
    nodes.append(helper.make_node("Mul", ["x_chosen", "y_chosen"], ["product"]))
    nodes.append(helper.make_node("Add", ["x_b", "y_b"], ["last"]))
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "xy"]
    masks = ["mask"] if second != "more" else ["mask", "more"]
    inputs += [helper.make_tensor_value_info(n, TensorProto.BOOL, ["n", 3]) for n in masks]
    outputs = [
        helper.make_tensor_value_info("product", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("last", TensorProto.INT64, None),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def given(model, seed):
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        if value.type.tensor_type.elem_type == TensorProto.BOOL:
            found[value.name] = rng.random((4 + seed, 3)) < 0.5
            found[value.name][0] = True
        else:
            found[value.name] = rng.standard_normal((4 + seed, 3)).astype(np.float32)
    return found


@pytest.mark.parametrize(("wanted", "options"), [
    (3, {}), (0, {"second": "more"}), (2, {"axes": (1, -1)}),
])  # fmt: skip
def test_equal_coordinates_are_one(wanted, options):
    model = chosen(**options)
    with Core() as core:
        network = core.read_network(model.SerializeToString())
        before = len(network.nodes())
        assert share_coordinates(network) == wanted
        assert len(network.nodes()) <= before
        executable = core.load_network(network, "CPU")
        evaluator = ReferenceEvaluator(model)
        for seed in range(4):
            feed = given(model, seed)
            if "more" in feed:
                feed["more"] = feed["mask"][::-1].copy()
            found, right = executable.infer(feed), evaluator.run(None, feed)
            np.testing.assert_allclose(found["product"], right[0])
            np.testing.assert_array_equal(found["last"], right[1])


def test_constants_are_told_by_what_they_hold():
    joined = [f"{at}{number}" for at in "ab" for number in ("0", "zero", "1")]
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("NonZero", ["x"], ["b"]),
        *(helper.make_node("Gather", [at, number], [at + number], axis=0)
          for at in "ab" for number in ("0", "zero", "1")),
        helper.make_node("Concat", joined, ["y"], axis=0),
    ]  # fmt: skip
    stored = {"0": np.array([0]), "zero": np.array([0]), "1": np.array([1])}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
        [numpy_helper.from_array(v, k) for k, v in stored.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with Core() as core:
        network = core.read_network(model.SerializeToString())
        assert share_coordinates(network) == 5
        left = [node.type for node in network.nodes()]
        assert (left.count("NonZero"), left.count("Gather")) == (1, 2)
        x = np.array([[0, 1, 2], [3, 0, 4]], np.float32)
        found = core.load_network(network, "CPU").infer({"x": x})["y"]
        assert found.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [1, 2, 0, 2]] * 2
