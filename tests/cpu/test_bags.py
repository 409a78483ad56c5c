"""Embedding bags as PyTorch exports them: a loop over slices of indices; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from polydevice_cpu.plan.array_steps import bags
from tests.cpu.loading import load
from tests.cpu.models import answer, build

I64 = TensorProto.INT64


def bags_in_a_loop(kind, table, *, known_axes=False):
    """PyTorch's graph: the i-th result is of rows that ids[starts[i]:ends[i]] name."""
    is_sum = kind == "ReduceSum"
    reduced = {"keepdims": 0} if is_sum else {"keepdims": 0, "axes": [0]}
    nodes = [
        *(helper.make_node("Gather", [name, "i"], [f"{name}1"]) for name in ("starts", "ends")),
        *(helper.make_node("Unsqueeze", [f"{name}1", "zero"], [name[0]])
          for name in ("starts", "ends")),
        helper.make_node("Slice", ["ids", "s", "e", *["zero", "one"] * known_axes], ["n"]),
        helper.make_node("Gather", ["table", "n"], ["rows"]),
        helper.make_node(kind, ["rows", *["zero"] * is_sum], ["r"], **reduced),
        helper.make_node("Cast", ["yes"], ["goes_on"], to=TensorProto.BOOL),
    ]  # fmt: skip
    body = helper.make_graph(
        nodes,
        "body",
        [helper.make_tensor_value_info("i", I64, []),
         helper.make_tensor_value_info("goes", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
    )  # fmt: skip
    constants = {
        "table": table, "zero": np.array([0]), "one": np.array([1]), "yes": np.array(True),
        "first": np.array(0),
    }  # fmt: skip
    outer = [
        ("Shape", ["starts"], ["sizes"], {}),
        ("Gather", ["sizes", "first"], ["count"], {}),
        ("Loop", ["count", "yes"], ["y"], {"body": body}),
    ]
    inputs = {"ids": ["n"], "starts": ["b"], "ends": ["b"]}
    model = onnx.load_from_string(build(outer, inputs, ["y"], constants, element_type=np.int64))
    return model.SerializeToString()


@pytest.fixture
def computed(monkeypatch):
    """Whether each loop was computed at once."""
    found, compute = [], bags.Bags.compute

    def note(self, *given):
        found.append(compute(self, *given))
        return found[-1]

    monkeypatch.setattr(bags.Bags, "compute", note)
    return found


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("known_axes", [True, False])
def test_bags(core, computed, kind, known_axes):
    rng = np.random.default_rng(len(kind))
    table = rng.normal(size=(50, 7)).astype(np.float32)
    model = bags_in_a_loop(kind, table, known_axes=known_axes)
    executable = load(core, model)
    for count, size in ((1, 1), (5, 20), (8, 8), (30, 200), (5, 20)):
        cuts = np.sort(rng.choice(np.arange(1, size), count - 1, replace=False))
        starts, ends = np.append(0, cuts), np.append(cuts, size)
        ids = rng.integers(-50, 50, size)
        for first, behind in (
            (starts, ends),
            (starts - size, np.append(cuts, size + 99)),
            (starts[::-1].copy(), ends[::-1].copy()),
            (np.zeros_like(starts), ends),
        ):
            feed = {"ids": ids, "starts": first, "ends": behind}
            (want,) = answer(model, feed)
            got = executable.infer(feed)["y"]
            assert computed[-1] is not None
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean"])
def test_bags_without_rows(core, computed, kind):
    table = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    model = bags_in_a_loop(kind, table)
    executable = load(core, model)
    for starts, ends in (([0, 2, 2], [2, 2, 5]), ([0, 0], [0, 0]), ([3, 4], [1, 5])):
        feed = {"ids": np.arange(5), "starts": np.array(starts), "ends": np.array(ends)}
        (want,) = answer(model, feed)
        np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-5)
        assert computed[-1] is not None


def test_rows_that_a_table_does_not_have(core, computed):
    """They are the loop's, whatever it makes of them."""
    executable = load(core, bags_in_a_loop("ReduceSum", np.ones((9, 4), np.float32)))
    feed = {"ids": np.array([3, 9]), "starts": np.array([0]), "ends": np.array([2])}
    executable.infer(feed)
    assert computed == [None]


def test_loops_that_are_something_else(core, computed):
    """What ends by itself, and what reduces another axis."""
    table = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    feed = {"ids": np.arange(6), "starts": np.array([0, 3]), "ends": np.array([3, 6])}
    for change in ("axis", "condition"):
        model = onnx.load_from_string(bags_in_a_loop("ReduceMean", table))
        body = next(node for node in model.graph.node if node.op_type == "Loop").attribute[0].g
        if change == "axis":
            reduce = next(node for node in body.node if node.op_type == "ReduceMean")
            next(each for each in reduce.attribute if each.name == "axes").ints[0] = 1
        else:
            del body.node[-1]
            body.node.append(helper.make_node("Less", ["i", "first"], ["goes_on"]))
        data = model.SerializeToString()
        (want,) = answer(data, feed)
        got = load(core, data).infer(feed)["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert computed == []
