"""Lists of which all tensors are known ahead are no lists any more; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.errors import PolydeviceError
from polydevice.rewrites.control_flow import settle_lists as module
from polydevice_cpu.implement import evaluate

F, WHOLE = TensorProto.FLOAT, TensorProto.INT64
LISTS = {
    "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceAt",
    "SequenceLength", "SplitToSequence", "ConcatFromSequence", "Loop",
}  # fmt: skip


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def made(nodes, outputs, shape=(7, 5), **numbers):
    """A model of x, whose outputs are tensors, but for those called `list`."""
    shown = [
        helper.make_tensor_sequence_value_info(name, F, None)
        if name.startswith("list")
        else helper.make_tensor_value_info(name, WHOLE if name == "n" else F, None)
        for name in outputs.split()
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", F, shape)], shown,
        [numpy_helper.from_array(np.asarray(v), k) for k, v in numbers.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def right_of(model, x):
    made = model.SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


def settled(model, left=(), x=None):
    """Compare what a device computes, in which so many kinds of nodes of lists are left."""
    content = model.SerializeToString()
    with Core() as core:
        network = core.read_network(content)
        for name, _ in network.output_ports():
            assert name in {output.name for output in model.graph.output}
        network.evaluate = evaluate
        module.settle_lists(network)
        assert {each.type for each in network.nodes()} & LISTS == {*left}
        executable = core.load_network(core.read_network(content), "CPU")
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        x = np.random.default_rng(3).standard_normal(shape).astype(np.float32) if x is None else x
        wanted = right_of(model, x)
        for _ in range(2):
            found = executable.infer({"x": x})
            for output, right in zip(model.graph.output, wanted, strict=True):
                got = found[output.name]
                pairs = zip(got, right, strict=True) if isinstance(right, list) else [(got, right)]
                for one, other in pairs:
                    assert one.shape == np.shape(other)
                    np.testing.assert_allclose(one, other, 1e-6, 1e-6)


SPLITS = {
    "rows": ("x", {}, {}),
    "rows without their axis": ("x", {"keepdims": 0}, {}),
    "columns": ("x", {"axis": -1}, {}),
    "lengths": ("x s", {"axis": 0}, {"s": np.int64([4, 1, 2])}),
    "one length": ("x s", {"axis": 1}, {"s": np.int64(2)}),
    "one part": ("x s", {"axis": 1, "keepdims": 0}, {"s": np.int64([5])}),
}


@pytest.mark.parametrize("name", SPLITS)
def test_parts_of_a_tensor(name):
    inputs, attributes, numbers = SPLITS[name]
    nodes = [
        node("SplitToSequence", inputs, "s0", **attributes),
        node("SequenceAt", "s0 last", "a"),
        node("Relu", "a", "y"),
        node("SequenceLength", "s0", "n"),
        node("ConcatFromSequence", "s0", "z", axis=attributes.get("axis", 0)),
    ]
    settled(made(nodes, "y n z", last=np.int64(-1), **numbers))


def test_parts_that_are_put_together():
    nodes = [
        node("SplitToSequence", "x", "s0", axis=0, keepdims=0),
        node("SequenceAt", "s0 two", "a"),
        node("Exp", "a", "b"),
        node("SequenceInsert", "s0 b two", "s1"),
        node("SequenceErase", "s1 first", "s2"),
        node("SequenceErase", "s2", "s3"),
        node("SequenceInsert", "s3 a", "s4"),
        node("ConcatFromSequence", "s4", "stacked", axis=-1, new_axis=1),
        node("ConcatFromSequence", "s4", "joined", axis=-1),
        node("SequenceLength", "s4", "n"),
    ]
    settled(made(nodes, "stacked joined n", two=np.int64(2), first=np.int64(-8)))


def test_a_list_that_is_wanted_is_made_once():
    nodes = [
        node("SequenceEmpty", "", "s0"),
        node("Relu", "x", "a"),
        node("SequenceInsert", "s0 x", "s1"),
        node("SequenceInsert", "s1 a zero", "s2"),
        node("SequenceInsert", "s2 x", "list"),
        node("SequenceAt", "list zero", "y"),
    ]
    settled(made(nodes, "list y", zero=np.int64(0)), left=["SequenceConstruct"])


def looped(count, body, carried=()):
    """A loop over such a body of i and c, and of s, to which it gives t."""
    lists = [helper.make_tensor_sequence_value_info("s", F, None)]
    inputs = [
        helper.make_tensor_value_info("i", WHOLE, []),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info("d", TensorProto.BOOL, [])]
    gives = [helper.make_tensor_sequence_value_info("t", F, None)]
    graph = helper.make_graph(
        [node("Identity", "c", "d"), *body], "body", inputs + lists, outputs + gives
    )
    return [
        node("SplitToSequence", "x", "parts", axis=0),
        node("SequenceLength", "parts", "length"),
        node("SequenceEmpty", "", "empty"),
        helper.make_node("Loop", [count, "yes", "empty"], ["list"], body=graph),
    ]


def test_loops_over_lists_are_written_out():
    body = [
        node("SequenceAt", "parts i", "p"),
        node("Cast", "i", "f", to=F),
        node("Mul", "p f", "q"),
        node("SequenceInsert", "s q zero", "t"),
    ]
    nodes = [*looped("length", body), node("ConcatFromSequence", "list", "y", axis=0)]
    settled(made(nodes, "y", yes=np.bool_(True), zero=np.int64(0)))
    settled(made(nodes, "list y", yes=np.bool_(True), zero=np.int64(0)), ["SequenceConstruct"])


def test_loops_that_would_become_too_many_nodes_stay(monkeypatch):
    monkeypatch.setattr(module, "MOST_NODES", 8)
    body = [node("SequenceAt", "parts i", "p"), node("SequenceInsert", "s p zero", "t")]
    nodes = [*looped("length", body), node("ConcatFromSequence", "list", "y", axis=0)]
    left = ["SplitToSequence", "SequenceEmpty", "Loop", "ConcatFromSequence"]
    settled(made(nodes, "y", yes=np.bool_(True), zero=np.int64(0)), left)


def test_what_data_tells_stays():
    """A position, and how often a loop runs."""
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0),
        node("Cast", "m", "k", to=WHOLE),
        node("SplitToSequence", "x", "s0", axis=1),
        node("SequenceAt", "s0 k", "y"),
        node("SequenceErase", "s0 k", "s1"),
        node("ConcatFromSequence", "s1", "z", axis=1),
    ]
    left = ["SplitToSequence", "SequenceAt", "SequenceErase", "ConcatFromSequence"]
    x = np.zeros((7, 5), np.float32)
    x[3, 2] = 3.5
    settled(made(nodes, "y z"), left, x)
    body = [node("SequenceAt", "parts i", "p"), node("SequenceInsert", "s p", "t")]
    nodes = [*nodes[:2], *looped("k", body), node("SequenceLength", "list", "n")]
    left = ["SplitToSequence", "SequenceEmpty", "Loop", "SequenceLength"]
    settled(made(nodes, "n list", yes=np.bool_(True)), left, x)


WRONG = {
    "position": ("x", node("SequenceAt", "s k", "y"), 9, "position"),
    "lengths": ("x k", node("SequenceAt", "s o", "y"), [3, 3], "add up"),
    "parts": ("x k", node("ConcatFromSequence", "s", "y", axis=1), [3, 4], "cannot be joined"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_as_before(name):
    inputs, reader, k, said = WRONG[name]
    nodes = [node("SplitToSequence", inputs, "s"), reader]
    content = made(nodes, "y", k=np.int64(k), o=np.int64(0)).SerializeToString()
    with Core() as core:
        executable = core.load_network(core.read_network(content), "CPU")
        with pytest.raises(PolydeviceError, match=said):
            executable.infer({"x": np.zeros((7, 5), np.float32)})


def test_open_sizes(rng):
    """What is cut along them stays a list; along others, it is none."""
    for axis, left in ((0, {"SplitToSequence", "ConcatFromSequence"}), (1, set())):
        nodes = [
            node("SplitToSequence", "x", "s", axis=axis),
            node("ConcatFromSequence", "s", "y", axis=1 - axis),
        ]
        model = made(nodes, "y", shape=("n", 4))
        with Core() as core:
            network = core.read_network(model.SerializeToString())
            executable = core.load_network(network, "CPU")
            kept = {each.type for each in executable.compiled.network.nodes()}
            assert kept & LISTS == left
            for count in (3, 1, 6):
                x = rng.standard_normal((count, 4)).astype(np.float32)
                (right,) = right_of(model, x)
                np.testing.assert_array_equal(executable.infer({"x": x})["y"], right)
