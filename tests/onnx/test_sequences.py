"""Sequences between parts that are compiled for different sizes, on every device."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice import Core
from polydevice.errors import BlobError, ElementTypeError
from tests.onnx.models import model, run, tensor, value

X = np.array([1.5, -2.0, 3.0], np.float32)
DEVICES = ("CPU", "GPU", "HETERO:GPU,CPU")


def _node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def test_a_sequence_before_a_product(device, rng):
    """What follows a sequence is compiled when its sizes are known; the sequence stays one."""
    w = rng.standard_normal((5, 3)).astype(np.float32)
    nodes = [
        _node("SequenceConstruct", "x z", "s"),
        _node("ConcatFromSequence", "s", "c", axis=0, new_axis=1),
        _node("MatMul", "c w", "y"),
    ]
    proto = model(nodes, [value("x", ["n"]), value("z", [5])], initializers=[tensor("w", w)])
    for _ in range(2):
        x, z = (rng.standard_normal(5).astype(np.float32) for _ in range(2))
        (y,) = run(proto, x, z, device=device)
        np.testing.assert_allclose(y, np.stack([x, z]) @ w, 1e-4, 1e-5)


def test_a_sequence_of_two_types_is_refused():
    nodes = [_node("SequenceConstruct", "x z", "s"), _node("SequenceLength", "s", "y")]
    proto = model(nodes, [value("x", [2]), value("z", [2], TensorProto.INT64)])
    with pytest.raises(ElementTypeError, match="SequenceConstruct has inputs f32.* and i64"):
        run(proto, np.zeros(2, np.float32), np.zeros(2, np.int64))


def test_an_optional_sequence_and_an_optional_tensor_come_out_as_they_are():
    for kind, given in (("sequence", [X, 2 * X]), ("tensor", X)):
        inner = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
        if kind == "sequence":
            inner = helper.make_sequence_type_proto(inner)
        optional = helper.make_optional_type_proto(inner)
        ends = [helper.make_value_info(name, optional) for name in "xy"]
        proto = model([_node("Identity", "x", "y")], [ends[0]], [ends[1]])
        (y,) = run(proto, given)
        assert isinstance(y, list if kind == "sequence" else np.ndarray)
        np.testing.assert_array_equal(y, given)


def test_a_sequence_of_products_and_what_reads_it(device, rng):
    w = rng.standard_normal((4, 3)).astype(np.float32)
    nodes = [
        _node("SplitToSequence", "x", "s", axis=0),
        _node("SequenceAt", "s i", "a"),
        _node("MatMul", "a w", "p"),
        _node("SequenceInsert", "s p", "t"),
        _node("SequenceLength", "t", "n"),
        _node("SequenceAt", "t i", "y"),
    ]
    proto = model(
        nodes, [value("x", ["n", 4]), value("i", [], TensorProto.INT64)],
        [value("p", None), value("n", [], TensorProto.INT64), value("y", None)],
        initializers=[tensor("w", w)],
    )  # fmt: skip
    for rows, index in ((3, -1), (2, 0)):
        x = rng.standard_normal((rows, 4)).astype(np.float32)
        p, n, y = run(proto, x, np.array(index), device=device)
        np.testing.assert_allclose(p, x[index : index + 1 or None] @ w, 1e-4, 1e-5)
        assert n == rows + 1
        np.testing.assert_allclose(y, x[:1] if index == 0 else p, 1e-5)


@pytest.mark.parametrize("name", DEVICES)
def test_sequences_are_inputs_and_outputs(name, rng, request):
    """Their items have sizes of their own, whatever their number."""
    if "GPU" in name:
        request.getfixturevalue("needs_gpu")
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"]))
    nodes = [_node("SequenceInsert", "s x", "y"), _node("SequenceLength", "y", "n")]
    proto = model(
        nodes, [helper.make_value_info("s", kind), value("x", ["m"])],
        [helper.make_value_info("y", kind), value("n", [], TensorProto.INT64)],
    )  # fmt: skip
    for count in (3, 1, 4):
        items = [rng.standard_normal(k + 2).astype(np.float32) for k in range(count)]
        x = rng.standard_normal(5).astype(np.float32)
        y, n = run(proto, items, x, device=name)
        assert n == count + 1 == len(y)
        for found, right in zip(y, [*items, x]):
            np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("unary", ["Sigmoid", "Sqrt", "Neg"])
def test_items_without_axes_are_arrays_as_well(unary, device, rng):
    """NumPy computes scalars of arrays without axes, which no blob can hold."""
    nodes = [
        _node("SequenceConstruct", "x x", "s"),
        _node("SequenceAt", "s i", "a"),
        _node(unary, "a", "b"),
        _node(unary, "b", "y") if unary == "Neg" else _node("Abs", "b", "y"),
    ]
    i = tensor("i", np.array(-1))
    proto = model(nodes, [value("x", [])], [value("b", []), value("y", [])], initializers=[i])
    x = np.float32(rng.uniform(1, 2))
    right = {"Sigmoid": 1 / (1 + np.exp(-x)), "Sqrt": np.sqrt(x), "Neg": -x}[unary]
    for _ in range(2):
        b, y = run(proto, np.asarray(x), device=device)
        assert isinstance(b, np.ndarray)
        np.testing.assert_allclose(b, right, 1e-5)
        np.testing.assert_allclose(y, abs(right), 1e-5)


WRONG_ITEMS = {
    "optional_sequence": ([1.0, 2.0], [1, 2], [None], ["a"], np.ones(3, np.float32)),
    "optional": ([1.0, 2.0], [None], ["a"], np.ones(2, np.float32)),
    "sequence": ([1.0, 2.0], [None], ["a"], np.ones(2, np.float32)),
}


@pytest.mark.parametrize("kind", WRONG_ITEMS)
def test_what_is_no_tensor_is_refused_as_an_item(kind):
    """Numbers and texts reached the operation, whose failure said it was a defect."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [None])
    of = helper.make_sequence_type_proto(tensor) if "sequence" in kind else tensor
    given = of if kind == "sequence" else helper.make_optional_type_proto(of)
    op = "SequenceLength" if kind == "sequence" else "OptionalHasElement"
    y = helper.make_tensor_value_info("y", 7 if kind == "sequence" else 9, [])
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"])], "g", [helper.make_value_info("x", given)], [y]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with Core() as core:
        executable = core.load_network(core.read_network(model.SerializeToString()), "CPU")
        for value in WRONG_ITEMS[kind]:
            with pytest.raises(BlobError, match=f"'x' is of kind {kind}"):
                executable.infer({"x": value})
