"""How graphs become networks: names, constants, scopes, functions, bodies, old opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.errors import ModelFormatError, UnsupportedOperationError
from polydevice.network import Network
from polydevice.ops.io import Constant
from polydevice.readers.onnx import read_onnx
from tests.onnx.models import model, onnxruntime_outputs, run, tensor, value

BOOL, INT = TensorProto.BOOL, TensorProto.INT64
X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def _read(proto: onnx.ModelProto) -> Network:
    with Core() as core:
        return core.read_network(proto.SerializeToString())


def _agrees(proto: onnx.ModelProto, *inputs: Any, atol: float = 1e-6) -> None:
    expected = onnxruntime_outputs(proto, *inputs)
    for result, wanted in zip(run(proto, *inputs), expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=atol)


# -- names ----------------------------------------------------------------------------------------


def test_inputs_outputs_and_tensors_keep_their_names() -> None:
    nodes = [
        helper.make_node("Split", ["x"], ["left", "right"], name="cut", axis=1, num_outputs=2),
        helper.make_node("Relu", ["left"], ["y"], name="activate"),
    ]
    proto = model(nodes, [value("x", (2, 4))], [value("y", None), value("right", None)])
    network = _read(proto)
    assert list(network.inputs) == ["x"]
    assert list(network.outputs) == ["y", "right"]
    assert network.node("activate").type == "ReLU"
    assert network.name_of_tensor("left") == "cut.0"
    names = [node.name for node in network.nodes()]
    assert len(names) == len(set(names))


def test_names_that_collide_are_made_unique() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="x"),
        helper.make_node("Relu", ["a"], ["y"], name="x"),
    ]
    network = _read(model(nodes))
    names = [node.name for node in network.nodes()]
    assert len(names) == len(set(names))
    assert list(network.inputs) == ["x"]


def test_both_names_of_the_default_domain() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")
    np.testing.assert_array_equal(run(model([node]), X)[0], np.maximum(X, 0))


# -- inputs and constants -------------------------------------------------------------------------


def test_an_input_with_an_initializer_is_a_constant() -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    proto = model([node], [value("x"), value("w")], initializers=[tensor("w", X)])
    network = _read(proto)
    assert list(network.inputs) == ["x"]
    np.testing.assert_array_equal(run(proto, X)[0], 2 * X)


def test_unknown_sizes_and_ranks() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    shapes = [("batch", 3), (None, 3), (-1, 3), None]
    for shape in shapes:
        network = _read(model([node], [value("x", shape)]))
        known = network.inputs["x"].shape
        assert known is None if shape is None else not known.is_static
    np.testing.assert_array_equal(
        run(model([node], [value("x", ("n", 3))]), X)[0], np.maximum(X, 0)
    )


def test_shapes_are_computed_ahead() -> None:
    """Shape, Gather, Concat, Reshape as exporters write it: the pattern is known when reading."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["b"]),
        helper.make_node("Concat", ["b", "rest"], ["pattern"], axis=0),
        helper.make_node("Reshape", ["x", "pattern"], ["y"]),
    ]
    stored = [
        tensor("zero", np.array(0)),
        tensor("axes", np.array([0])),
        tensor("rest", np.array([12])),
    ]
    proto = model(nodes, [value("x", (2, 3, 4))], initializers=stored)
    assert _read(proto).results[0].output.shape == (2, 12)
    dynamic = model(nodes, [value("x", ("n", 3, 4))], initializers=stored)
    shape = _read(dynamic).results[0].output.shape
    assert shape is not None
    assert shape[1] == 12


@pytest.mark.parametrize(("count", "is_known"), [(1024, True), (1025, False)])
def test_of_numbers_of_eight_bits_only_few_are_computed_ahead(count, is_known) -> None:
    """Quantised weights, which would be four times as large; sizes are longer numbers."""
    rng = np.random.default_rng(count)
    stored = [
        tensor("bytes", rng.integers(0, 256, (1, count), dtype=np.uint8)),
        tensor("zero", np.uint8(131)),
        tensor("sizes", rng.integers(0, 256, (1, count))),
    ]
    nodes = [
        helper.make_node("MatMulInteger", ["x", "bytes", "", "zero"], ["y"]),
        helper.make_node("Add", ["sizes", "sizes"], ["z"]),
    ]
    outputs = [value("y", None, TensorProto.INT32), value("z", None, TensorProto.INT64)]
    proto = model(nodes, [value("x", (2, 1), TensorProto.UINT8)], outputs, initializers=stored)
    product, sums = (result.inputs[0].node for result in _read(proto).results)
    left, right = (port.desc.constant for port in product.inputs)
    assert left is None
    assert (right is not None) is is_known
    if right is not None:
        weights = numpy_helper.to_array(stored[0]).astype(np.int32)
        np.testing.assert_array_equal(right, weights - 131)
    np.testing.assert_array_equal(sums.output.desc.constant, 2 * numpy_helper.to_array(stored[2]))


def test_networks_can_be_reshaped_after_reading() -> None:
    """Sizes seen while reading must not be baked into the network."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"], axis=0),
        helper.make_node("Split", ["b"], ["c", "d"], axis=1),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    proto = model(nodes, [value("x", (2, 3, 4))], opset=11)
    network = _read(proto)
    network.reshape({"x": (5, 3, 4)})
    assert network.results[0].output.shape == (5, 6)
    x = np.random.default_rng(0).random((5, 3, 4), np.float32)
    with Core() as core:
        request = core.load_network(network, "CPU").create_infer_request()
        result = request.infer({"x": x})["y"]
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5
    np.testing.assert_allclose(result, onnxruntime_outputs(proto, x)[0], rtol=1e-5)


def test_declared_ranks_help_where_inference_cannot_tell() -> None:
    """What Squeeze without axes removes is unknown until inference; the model knows the rank."""
    nodes = [
        helper.make_node("Squeeze", ["x"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=0),
    ]
    proto = model(nodes, [value("x", ("n", 1, "m"))], opset=11)
    with pytest.raises(UnsupportedOperationError, match="rank"):
        _read(proto)
    proto.graph.value_info.append(value("s", ("n", "m")))
    shape = _read(proto).results[0].output.shape
    assert shape is not None
    assert len(shape) == 2
    _agrees(proto, X[:, None])


# -- functions ------------------------------------------------------------------------------------


def _leaky(default: float | None = None) -> onnx.FunctionProto:
    """y = LeakyRelu(x, alpha) where alpha is the function's attribute."""
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    attribute = node.attribute.add()
    attribute.name, attribute.ref_attr_name = "alpha", "slope"
    attribute.type = onnx.AttributeProto.FLOAT
    protos = [] if default is None else [helper.make_attribute("slope", default)]
    return helper.make_function(
        "local",
        "Leaky",
        ["a"],
        ["b"],
        [node],
        [helper.make_opsetid("", 21)],
        [] if protos else ["slope"],
        protos,
    )


@pytest.mark.parametrize(
    ("default", "given", "slope"),
    [(None, 0.25, 0.25), (0.5, None, 0.5), (0.5, 0.25, 0.25), (None, None, 0.01)],
)
def test_function_attributes(default: float | None, given: float | None, slope: float) -> None:
    attributes = {} if given is None else {"slope": given}
    call = helper.make_node("Leaky", ["x"], ["y"], domain="local", **attributes)
    proto = model([call], functions=[_leaky(default)], domains=["local"])
    wanted = np.where(X < 0, X * np.float32(slope), X)
    np.testing.assert_allclose(run(proto, X)[0], wanted, rtol=1e-6)


def test_functions_do_not_see_their_caller() -> None:
    function = helper.make_function(
        "local", "F", ["a"], ["b"], [helper.make_node("Add", ["a", "x"], ["b"])],
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    call = helper.make_node("F", ["x"], ["y"], domain="local")
    with pytest.raises(Exception, match="'x' is not defined"):
        read_onnx(model([call], functions=[function], domains=["local"]).SerializeToString())


def test_a_function_overrides_an_operator_and_may_omit_inputs() -> None:
    function = helper.make_function(
        "local",
        "Clip2",
        ["a", "low", "high"],
        ["b"],
        [helper.make_node("Clip", ["a", "low", "high"], ["b"])],
        [helper.make_opsetid("", 21)],
    )
    call = helper.make_node("Clip2", ["x", "", "top"], ["y"], domain="local")
    proto = model(
        [call], functions=[function], domains=["local"],
        initializers=[tensor("top", np.float32(0.5))],
    )  # fmt: skip
    np.testing.assert_array_equal(run(proto, X)[0], np.minimum(X, np.float32(0.5)))


# -- bodies ---------------------------------------------------------------------------------------


def _body(nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any]) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs)


def test_if_reads_outer_values() -> None:
    then = _body([helper.make_node("Add", ["x", "w"], ["t"])], [], [value("t", None)])
    other = _body([helper.make_node("Mul", ["hidden", "x"], ["e"])], [], [value("e", None)])
    nodes = [
        helper.make_node("Relu", ["x"], ["hidden"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    proto = model(nodes, [value("x"), value("c", (), BOOL)], initializers=[tensor("w", X * 3)])
    for condition in (True, False):
        _agrees(proto, X, np.array(condition))


def test_if_on_a_constant_is_inlined() -> None:
    then = _body([helper.make_node("Relu", ["x"], ["t"])], [], [value("t", None)])
    other = _body([helper.make_node("Neg", ["x"], ["e"])], [], [value("e", None)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    network = _read(model([node], initializers=[tensor("c", np.array(False))]))
    assert {n.type for n in network.nodes()} == {"Parameter", "Negative", "Result"}


def test_nested_captures() -> None:
    inner = _body([helper.make_node("Add", ["x", "w"], ["i"])], [], [value("i", None)])
    outer = _body(
        [
            helper.make_node("If", ["d"], ["z"], then_branch=inner, else_branch=inner),
            helper.make_node("Mul", ["z", "x"], ["o"]),
        ],
        [],
        [value("o", None)],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=outer, else_branch=outer)
    inputs = [value("x"), value("w"), value("c", (), BOOL), value("d", (), BOOL)]
    _agrees(model([node], inputs), X, X + 1, np.array(True), np.array(False))


@pytest.mark.parametrize("stop", [2.5, 100.0, -100.0])
def test_loop_with_condition_carried_and_collected_values(stop: float) -> None:
    """Grows until the sum passes `stop`; collects every state; uses the counter and `x` outside."""
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["state", "f"], ["next"]),
            helper.make_node("Mul", ["next", "x"], ["collected"]),
            helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "limit"], ["more"]),
        ],
        "body",
        [value("i", (), INT), value("go", (), BOOL), value("state", (3,))],
        [value("more", (), BOOL), value("next", (3,)), value("collected", (2, 3))],
    )
    node = helper.make_node("Loop", ["n", "c", "start"], ["y", "all"], body=body)
    stored = [
        tensor("n", np.array(6)),
        tensor("c", np.array(True)),
        tensor("start", np.zeros(3, np.float32)),
        tensor("limit", np.float32(stop)),
    ]
    outputs = [value("y", None), value("all", None)]
    _agrees(model([node], outputs=outputs, initializers=stored), X)


def test_loop_that_changes_a_shape() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["state", "x"], ["next"], axis=0),
            helper.make_node("Identity", ["go"], ["more"]),
        ],
        "body",
        [value("i", (), INT), value("go", (), BOOL), value("state", None)],
        [value("more", (), BOOL), value("next", None)],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    proto = model([node], [value("x"), value("n", (), INT)])
    for count in (0, 1, 3):
        _agrees(proto, X, np.array(count))


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scan(backwards: int, axis: int) -> None:
    size = 3 if axis == 0 else 2
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "slice"], ["next"]),
            helper.make_node("Mul", ["next", "w"], ["out"]),
        ],
        "body",
        [value("state", (size,)), value("slice", (size,))],
        [value("next", (size,)), value("out", (size,))],
    )
    node = helper.make_node(
        "Scan", ["start", "x"], ["y", "all"], body=body, num_scan_inputs=1,
        scan_input_axes=[axis], scan_input_directions=[backwards],
        scan_output_axes=[1], scan_output_directions=[backwards],
    )  # fmt: skip
    stored = [tensor("start", np.ones(size, np.float32)), tensor("w", np.float32(2))]
    proto = model([node], outputs=[value("y", None), value("all", None)], initializers=stored)
    steps = list(np.moveaxis(X, axis, 0))
    state, collected = np.ones(size, np.float32), []
    for part in reversed(steps) if backwards else steps:
        state = state + part
        collected.append(state * 2)
    if backwards:
        collected.reverse()
    last, everything = run(proto, X)
    np.testing.assert_allclose(last, state, rtol=1e-6)
    np.testing.assert_allclose(everything, np.stack(collected, 1), rtol=1e-6)


def test_known_outer_values_become_constants_of_bodies() -> None:
    """A Reshape inside a body needs its pattern for the shape, although it lies outside."""
    then = _body([helper.make_node("Reshape", ["x", "p"], ["t"])], [], [value("t", None)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=then)
    proto = model(
        [node], [value("x"), value("c", (), BOOL)], initializers=[tensor("p", np.array([3, 2]))]
    )
    network = _read(proto)
    assert network.results[0].output.shape == (3, 2)
    body = network.node(network.results[0].inputs[0].node.name).op.then_body  # type: ignore[attr-defined]
    assert any(isinstance(n.op, Constant) for n in body.nodes())


# -- operators as older opsets write them ---------------------------------------------------------

OLD = [
    (7, helper.make_node("Softmax", ["x"], ["y"]), {}),
    (7, helper.make_node("LogSoftmax", ["x"], ["y"], axis=0), {}),
    (7, helper.make_node("Hardmax", ["x"], ["y"], axis=0), {}),
    (9, helper.make_node("Flatten", ["x"], ["y"], axis=0), {}),
    (7, helper.make_node("Unsqueeze", ["x"], ["y"], axes=[0, 2]), {}),
    (7, helper.make_node("Slice", ["x"], ["y"], starts=[0, 1], ends=[2, -1]), {}),
    (7, helper.make_node("Slice", ["x"], ["y"], starts=[-2], ends=[9], axes=[1]), {}),
    (7, helper.make_node("Pad", ["x"], ["y"], pads=[1, 0, 0, 2], value=3.0), {}),
    (7, helper.make_node("Clip", ["x"], ["y"], min=-1.0, max=1.0), {}),
    (7, helper.make_node("Clip", ["x"], ["y"], max=1.0), {}),
    (7, helper.make_node("Split", ["x"], ["y", "z"], axis=1, split=[1, 2]), {}),
    (7, helper.make_node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0), {}),
    (7, helper.make_node("ReduceMean", ["x"], ["y"]), {}),
    (7, helper.make_node("TopK", ["x"], ["y", "z"], k=2, axis=1), {}),
    (7, helper.make_node("Upsample", ["x"], ["y"], scales=[2.0, 3.0], mode="nearest"), {}),
    (9, helper.make_node("Upsample", ["x", "s"], ["y"]), {"s": np.array([1, 2], np.float32)}),
    (10, helper.make_node("Resize", ["x", "s"], ["y"]), {"s": np.array([2, 1], np.float32)}),
    (7, helper.make_node("Dropout", ["x"], ["y"]), {}),
    (7, helper.make_node("Cast", ["x"], ["y"], to=INT), {}),
    (10, helper.make_node("ThresholdedRelu", ["x"], ["y"], alpha=0.5), {}),
    (9, helper.make_node("Scatter", ["x", "i", "u"], ["y"], axis=1),
     {"i": np.array([[0, 2]]), "u": np.array([[7, 8]], np.float32)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("opset", "node", "stored"), OLD, ids=[f"{n.op_type}-{o}" for o, n, _ in OLD]
)
def test_old_opsets(opset: int, node: onnx.NodeProto, stored: dict[str, np.ndarray]) -> None:
    """Compared with what ONNX Runtime computes."""
    outputs = [value(name, None) for name in node.output]
    for output in outputs[1:]:
        if node.op_type == "TopK":
            output.type.tensor_type.elem_type = INT
    if node.op_type == "Cast":
        outputs[0].type.tensor_type.elem_type = INT
    initializers = [tensor(k, v) for k, v in stored.items()]
    proto = model([node], outputs=outputs, initializers=initializers, opset=opset)
    expected = onnxruntime_outputs(proto, X)
    for result, wanted in zip(run(proto, X), expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_nodes_may_stand_before_what_they_read() -> None:
    """As converters write them; a cycle is still refused."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["late", "x"], ["inner"])],
        "body",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [2])],
    )
    nodes = [
        helper.make_node("If", ["truth"], ["chosen"], then_branch=body, else_branch=body),
        helper.make_node("Sub", ["chosen", "late"], ["y"]),
        helper.make_node("Add", ["early", "x"], ["late"]),
        helper.make_node("Neg", ["x"], ["early"]),
        helper.make_node("Constant", [], ["truth"], value=helper.make_tensor("t", 9, [], [True])),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.array([2, 3], np.float32)
    with Core() as core:
        network = core.read_network(made.SerializeToString())
        (y,) = core.load_network(network, "CPU").infer({"x": x}).values()
    assert y.tolist() == onnxruntime_outputs(made, x)[0].tolist() == [0, 0]
    graph.node[3].input[0] = "late"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with Core() as core, pytest.raises(ModelFormatError, match="not defined"):
        core.read_network(made.SerializeToString())
