"""Lists of tensors, made at once or by a loop, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import ShapeError
from polydevice_cpu.ops import containers
from tests.cpu.loading import load
from tests.cpu.models import answer

F, WHOLE, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def inserting(steps, part, kind, carried, shape=None):
    """A loop's body that inserts `part` into a list, and hands `carried` on as `a`."""
    listed = helper.make_tensor_sequence_value_info
    return helper.make_graph(
        [
            *steps, node("SequenceInsert", f"list {part}", "longer"),
            node("Identity", "given", "goes"),
        ],
        "body",
        [info("number", WHOLE, []), info("given", B, []), info("a", F, shape),
         listed("list", kind, None)],
        [info("goes", B, []), info(carried, F, shape), listed("longer", kind, None)],
    )  # fmt: skip


@pytest.mark.parametrize("trips", [1, 2, 9])
@pytest.mark.parametrize("read", ["joined", "stacked", "stacked last", "stacked and counted"])
def test_what_iterations_insert_into_a_list(core, monkeypatch, read, trips):
    """As TorchScript writes lists; an iteration's memory is written again by the next one.

    Where the list is joined alone, parts are the loop's output, and no list is made.
    """
    steps = [node("MatMul", "a w", "b"), node("ArgMax", "b", "k", axis=1)]
    body = inserting(steps, "k", WHOLE, "b", [3, 4])
    nodes = [
        node("SequenceEmpty", "", "none", dtype=WHOLE),
        helper.make_node("Loop", ["n", "go", "x", "none"], ["last", "list"], body=body),
        node(
            *("ConcatFromSequence", "list", "y"),
            axis=-1 if read == "stacked last" else 0, new_axis=int(read != "joined"),
        ),
    ]  # fmt: skip
    if "counted" in read:
        nodes.append(node("SequenceLength", "list", "length"))
    nodes[0].ClearField("input")
    rng = np.random.default_rng(trips)
    stored = {"go": np.array(True), "w": rng.standard_normal((4, 4)).astype(np.float32)}
    graph = helper.make_graph(
        nodes, "g", [info("n", WHOLE, []), info("x", F, [3, 4])],
        [info("y", WHOLE, None), info("last", F, None),
         *([info("length", WHOLE, None)] if "counted" in read else [])],
        [numpy_helper.from_array(v, k) for k, v in stored.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    inserted, keep = [], containers.kept
    monkeypatch.setattr(containers, "kept", lambda x: inserted.append(x) or keep(x))
    request = load(core, made).create_infer_request()
    for _ in range(3):
        feed = {"n": np.array(trips), "x": rng.standard_normal((3, 4)).astype(np.float32)}
        for found, right in zip(request.infer(feed).values(), session.run(None, feed), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4)
    assert bool(inserted) is ("counted" in read)


@pytest.mark.parametrize("rows", [3, "rows"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("stacked", [True, False])
def test_lists_that_have_parts_before(core, monkeypatch, stacked, axis, rows):
    """Which stay where they are, in front, whether there is an iteration or not."""
    body = inserting([node("MatMul", "a w", "b"), node("Tanh", "b", "c")], "c", F, "c")
    nodes = [
        node("Neg", "x", "z"), node("SequenceConstruct", "x z", "two"),
        helper.make_node("Loop", ["n", "", "x", "two"], ["last", "list"], body=body),
        node(*("ConcatFromSequence", "list", "y"), axis=axis, new_axis=int(stacked)),
    ]  # fmt: skip
    w = (np.random.default_rng(1).standard_normal((4, 4)) / 2).astype(np.float32)
    graph = helper.make_graph(
        nodes, "g", [info("n", WHOLE, []), info("x", F, [rows, 4])],
        [info("y", F, None), info("last", F, None)], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    inserted, keep = [], containers.kept
    monkeypatch.setattr(containers, "kept", lambda x: inserted.append(x) or keep(x))
    request = load(core, made).create_infer_request()
    for trips in (2, 0, 1, 7, 5):
        x = np.random.default_rng(trips).standard_normal((3 + (rows != 3) * trips, 4))
        feed = {"n": np.array(trips), "x": x.astype(np.float32)}
        for found, right in zip(request.infer(feed).values(), session.run(None, feed), strict=True):
            assert found.shape == right.shape
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    is_known = stacked or rows == 3 or axis != 0
    assert bool(inserted) is not is_known


def test_parts_before_of_another_shape(core):
    """What a loop of no iteration would have inserted could not be joined with them."""
    body = inserting([node("MatMul", "a w", "b")], "b", F, "b", [2, 3])
    nodes = [
        node("Neg", "x", "z"), node("SequenceConstruct", "x z", "two"),
        helper.make_node("Loop", ["n", "", "a", "two"], ["last", "list"], body=body),
        node("ConcatFromSequence", "list", "y", axis=1),
    ]  # fmt: skip
    w = np.random.default_rng(1).standard_normal((3, 3)).astype(np.float32)
    graph = helper.make_graph(
        nodes, "g", [info("n", WHOLE, []), info("x", F, [4, 3]), info("a", F, [2, 3])],
        [info("y", F, None), info("last", F, None)], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    request, rng = load(core, made).create_infer_request(), np.random.default_rng(2)
    for trips in (0, 1, 0):
        feed = {"n": np.array(trips)}
        feed |= {k: rng.standard_normal((r, 3)).astype(np.float32) for k, r in (("x", 4), ("a", 2))}
        if trips:
            with pytest.raises(ShapeError, match="cannot be joined"):
                request.infer(feed)
            continue
        for found, right in zip(request.infer(feed).values(), answer(made, feed), strict=True):
            np.testing.assert_array_equal(found, right)


def test_sequences_and_their_parts_stay_as_they_were_made(core):
    """What a sequence holds lies where later steps write."""
    nodes = [
        node("Add", "x one", "a"), node("Mul", "x x", "b"), node("SequenceConstruct", "a b", "s"),
        node("SplitToSequence", "b two", "t", axis=0),
        node("MatMul", "x w", "c"), node("MatMul", "c w", "d"), node("MatMul", "d w", "e"),
        node("MatMul", "e w", "f"),
        node("ConcatFromSequence", "s", "y", axis=1), node("SequenceAt", "t one_i", "z"),
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    stored = {
        "one": np.float32(1), "two": np.array(2), "one_i": np.array(1),
        "w": rng.standard_normal((4, 4)).astype(np.float32),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [info("x", F, [4, 4])], [info(name, F, None) for name in "yzf"],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    request = load(core, made).create_infer_request()
    for _ in range(3):
        feed = {"x": rng.standard_normal((4, 4)).astype(np.float32)}
        for found, right in zip(request.infer(feed).values(), session.run(None, feed), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
