"""Nodes that mean nothing: wrong numbers, types and ranks of inputs, wrong attributes."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from polydevice.errors import (
    ElementTypeError,
    ModelError,
    ModelFormatError,
    NetworkError,
    ShapeError,
    UnsupportedOperationError,
)
from polydevice.readers.onnx import read_onnx
from tests.onnx.models import model, value


def _read(proto: onnx.ModelProto) -> None:
    read_onnx(proto.SerializeToString())


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Relu", ["x", "x"], ["y"]),
        helper.make_node("Relu", [], ["y"]),
        helper.make_node("Relu", ["x"], ["y", "z"]),
        helper.make_node("Softmax", ["x"], ["y"], axis="last"),
        helper.make_node("Softmax", ["x"], ["y"], axis=7),
        helper.make_node("Concat", ["x", "x"], ["y"]),
        helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0]),
        helper.make_node("Cast", ["x"], ["y"], to=99),
        helper.make_node("Conv", ["x", "x"], ["y"]),
        helper.make_node("Reshape", ["x", ""], ["y"]),
        helper.make_node("Split", ["x"], ["y"], num_outputs=0),
        helper.make_node("Constant", [], ["y"]),
        helper.make_node("If", ["x"], ["y"]),
    ],
)
def test_ill_formed_nodes(node: onnx.NodeProto) -> None:
    node.name = "the_node"
    with pytest.raises((ModelError, NetworkError), match="'the_node'"):
        _read(model([node]))


def _loop(conditions: list[str]) -> onnx.NodeProto:
    """A Loop without carried values whose body goes on for ever."""
    going = [helper.make_node("Identity", ["on"], ["more"]), helper.make_node("Neg", ["k"], ["z"])]
    given = [value("k", (), TensorProto.INT64), value("on", (), TensorProto.BOOL)]
    made = [value("more", (), TensorProto.BOOL), value("z", (), TensorProto.INT64)]
    body = helper.make_graph(going, "body", given, made)
    return helper.make_node("Loop", conditions, ["y"], body=body)


def _scan(x: str, **attributes: list[int]) -> onnx.NodeProto:
    """A Scan that gives each part of a value as it is."""
    same = helper.make_node("Identity", ["part"], ["same"])
    body = helper.make_graph([same], "body", [value("part", None)], [value("same", None)])
    return helper.make_node("Scan", [x], ["y"], body=body, num_scan_inputs=1, **attributes)


def _if(inputs: int) -> onnx.NodeProto:
    """An If whose branches have inputs of their own, which nothing gives them."""
    own = [value(f"own{i}") for i in range(inputs)]
    node = helper.make_node("Neg", ["x"], ["n0"])
    branch = helper.make_graph([node], "branch", own, [value("n0")])
    return helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)


@pytest.mark.parametrize(
    ("nodes", "error", "match"),
    [
        ([helper.make_node("Sin", ["t"], ["y"])], ElementTypeError, "strings"),
        ([helper.make_node("Pow", ["t", "t"], ["y"])], ElementTypeError, "strings"),
        (
            [helper.make_node("Gather", ["x", "t"], ["y"])],
            ElementTypeError,
            "input 1 holds strings",
        ),
        ([helper.make_node("Reshape", ["x", "t"], ["y"])], ElementTypeError, "strings"),
        ([helper.make_node("Neg", ["b"], ["y"])], ElementTypeError, "booleans"),
        ([helper.make_node("Sub", ["b", "b"], ["y"])], ElementTypeError, "booleans"),
        ([helper.make_node("SplitToSequence", ["x", "x"], ["y"])], ElementTypeError, "integers"),
        ([helper.make_node("SplitToSequence", ["x", "i"], ["y"])], ShapeError, "rank is 0 or 1"),
        ([helper.make_node("SplitToSequence", ["s"], ["y"])], ShapeError, "no axes"),
        ([helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])], ShapeError, "zero point"),
        (
            [
                helper.make_node("SequenceConstruct", ["x"], ["q"]),
                helper.make_node("Add", ["x", "q"], ["y"]),
            ],
            ElementTypeError,
            "is a sequence",
        ),
        (
            [
                helper.make_node("SequenceConstruct", ["i"], ["q"]),
                helper.make_node("SequenceAt", ["q", "q"], ["y"]),
            ],
            ElementTypeError,
            "input 1 is a sequence",
        ),
        (
            [helper.make_node("SequenceConstruct", ["c"], ["q"]), _loop(["n", "q"])],
            ElementTypeError,
            "input 1 is a sequence",
        ),
        (
            [
                helper.make_node(
                    "TfIdfVectorizer",
                    ["x3"],
                    ["y"],
                    mode="TF",
                    min_gram_length=1,
                    max_gram_length=1,
                    max_skip_count=0,
                    ngram_counts=[0],
                    ngram_indexes=[0],
                    pool_int64s=[1],
                )
            ],
            ShapeError,
            "rank is 1 or 2",
        ),
        ([helper.make_node("OneHot", ["i", "s", "e"], ["y"])], ShapeError, "takes one number"),
        ([helper.make_node("Concat", ["s"], ["y"], axis=0)], ShapeError, "scalar has no axis"),
        ([helper.make_node("Split", ["x", "x"], ["y"])], ElementTypeError, "takes integers"),
        ([helper.make_node("Col2Im", ["x3", "i", "x"], ["y"])], ElementTypeError, "takes integers"),
        (
            [
                helper.make_node("SequenceConstruct", ["t"], ["q"]),
                helper.make_node("SequenceInsert", ["q", "t", "t1"], ["y"]),
            ],
            ElementTypeError,
            "takes integers",
        ),
        (
            [helper.make_node("SequenceConstruct", ["x"], ["q"]), _scan("q")],
            ElementTypeError,
            "a loop cuts tensors",
        ),
        ([_loop(["n", "n"])], ElementTypeError, "takes a boolean"),
        ([_scan("x", scan_input_axes=[0, 1])], ModelFormatError, "2 numbers for 1 scanned inputs"),
        (
            [_scan("x", scan_input_directions=[0, 1])],
            ModelFormatError,
            "2 numbers for 1 scanned inputs",
        ),
        ([_scan("x", scan_output_axes=[0, 1])], ModelFormatError, "2 numbers for 1 scanned output"),
        ([_scan("x", scan_output_directions=[0, 1])], ModelFormatError, "2 numbers for 1 scanned"),
        ([helper.make_node("Split", ["x"], ["y"], axis=2)], ShapeError, "axis 2 is outside"),
        ([helper.make_node("Split", ["s"], ["y"])], ShapeError, "a scalar has no axes"),
        ([_loop(["c", "c"])], ElementTypeError, "booleans"),
        ([_if(inputs=1)], UnsupportedOperationError, "1 inputs of its own"),
        (
            [helper.make_node("ReduceSum", ["b"], ["y"])],
            UnsupportedOperationError,
            "boolean; legal: numbers. Put a Cast",
        ),
    ],
)
def test_inputs_of_types_and_ranks_that_mean_nothing(
    nodes: list[onnx.NodeProto], error: type[Exception], match: str
) -> None:
    inputs = [
        value("x"),
        value("t", (2,), TensorProto.STRING),
        value("b", (2,), TensorProto.BOOL),
        value("i", (1, 2), TensorProto.INT64),
        value("s", ()),
        value("z", (2,), TensorProto.UINT8),
        value("e", (0,)),
        value("x3", (1, 1, 2), TensorProto.INT64),
        value("t1", (), TensorProto.STRING),
        value("n", (), TensorProto.INT64),
        value("c", (), TensorProto.BOOL),
    ]
    with pytest.raises(error, match=match):
        _read(model(nodes, inputs))


def test_attribute_given_twice() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    node.attribute.append(helper.make_attribute("axis", 0))
    with pytest.raises(ModelFormatError, match="twice"):
        _read(model([node]))
