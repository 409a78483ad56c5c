"""Network, Node, Port: walking, changing, reshaping, and what messages say."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import onnx
import pytest

from polydevice import Core, Dim
from polydevice.dtype import ElementType
from polydevice.errors import NetworkError, ShapeError
from polydevice.interval import Interval
from polydevice.network import Network, unique_name
from polydevice.node import Node, constant
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.comparison import Less
from polydevice.ops.concat import Concat
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.reshape import Reshape, ShapeOf
from polydevice.ops.signal import CumSum
from polydevice.ops.split import VariadicSplit
from polydevice.passes.constant_folding import constant_folding
from polydevice.shape import Shape
from polydevice.symbolic_size import is_symbolic, number_of
from polydevice.symbolic_trace import tracing

from .conftest import relu_network

f32 = ElementType.f32


def parameter(name, shape, element_type=f32) -> Node:
    return Node(name, Parameter(element_type=element_type, shape=Shape(shape)))


def flatten_network() -> Network:
    """X[batch, 2, 3] reshaped to [batch, 6] by way of ShapeOf: shape arithmetic in the graph."""
    from polydevice.ops.gather import Gather

    x = parameter("x", [-1, 2, 3])
    sizes = Node("sizes", ShapeOf(), [x.output])
    zero = constant("zero", np.array([0], np.int64))
    axis = constant("axis", np.array(0, np.int64))
    batch = Node("batch", Gather(), [sizes.output, zero.output, axis.output])
    rest = constant("rest", np.array([-1], np.int64))
    target = Node("target", Concat(axis=0), [batch.output, rest.output])
    flat = Node("flat", Reshape(special_zero=False), [x.output, target.output])
    return Network("flatten", [x], [Node("out", Result(), [flat.output])])


def test_nodes_come_after_what_they_read():
    network = flatten_network()
    order = [node.name for node in network]
    for node in network:
        for port in node.inputs:
            assert order.index(port.node.name) < order.index(node.name)


@pytest.mark.parametrize("op", [Relu(), Concat(axis=1)], ids=["no attributes", "one"])
def test_an_operation_stays_as_it_was_made(op: Op) -> None:
    for name in ("axis", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(op, name, 2)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(op, name)
    assert repr(op) in ("Relu()", "Concat(axis=1)")
    assert op == op.replace() != Add()
    assert hash(op) == hash(op.replace())
    assert pickle.loads(pickle.dumps(op)) == copy.copy(op) == op


def test_unused_parameters_stay_and_disconnected_nodes_go():
    network = relu_network()
    network.parameters.append(parameter("unused", [1]))
    assert {n.name for n in network} == {"x", "relu", "out", "unused"}
    network.replace({network.node("relu").output: network.node("x").output})
    assert {n.name for n in network} == {"x", "out", "unused"}


def test_a_cycle_is_named():
    network = relu_network()
    relu = network.node("relu")
    relu.inputs[0] = relu.output
    with pytest.raises(NetworkError, match="cycle.*'relu'"):
        network.nodes()


def test_deep_networks_need_no_recursion():
    port = (x := parameter("x", [1])).output
    for i in range(20_000):
        port = Node(f"relu{i}", Relu(), [port]).output
    network = Network("deep", [x], [Node("out", Result(), [port])])
    assert len(network.clone().nodes()) == 20_002


def test_shape_arithmetic_follows_the_batch():
    network = flatten_network()
    with Core() as core:
        network.evaluate = core.evaluate
        network.infer()
        assert network.outputs["flat"].shape == (Dim(), Dim())
        network.reshape({"x": [4, 2, 3]})
        assert network.outputs["flat"].shape == (4, 6)
        assert network.batch_size == 4
        network.batch_size = 7
        assert network.outputs["flat"].shape == (7, 6)


def test_reshape_names_what_is_wrong_and_changes_nothing():
    a, b = parameter("a", [2, 3]), parameter("b", [3, 4])
    product = Node("product", MatMul(), [a.output, b.output])
    network = Network("n", [a, b], [Node("out", Result(), [product.output])])
    with pytest.raises(ShapeError, match="node 'product' \\(MatMul, opset1\\)"):
        network.reshape({"a": [2, 5]})
    assert network.inputs["a"].shape == (2, 3)
    assert network.outputs["product"].shape == (2, 4)
    with pytest.raises(NetworkError, match="no input 'aa'.*Did you mean 'a'"):
        network.reshape({"aa": [1, 1]})
    with pytest.raises(ShapeError, match="batch size 0"):
        network.batch_size = 0


def test_node_errors_name_node_type_opset_and_reason():
    x, y = parameter("x", [2, 3]), parameter("y", [4])
    with pytest.raises(ShapeError) as caught:
        Node("sum", Add(), [x.output, y.output])
    assert "node 'sum' (Add, opset1)" in str(caught.value)
    assert "[2,3] and [4]" in str(caught.value)


def test_wrong_number_of_inputs_is_an_error_of_the_network():
    x = parameter("x", [2, 3])
    with pytest.raises(NetworkError, match="'sum'.*does not accept"):
        Node("sum", Add(), [x.output])


def test_clone_is_independent():
    network = flatten_network()
    copy = network.clone()
    copy.reshape({"x": [9, 2, 3]})
    assert network.inputs["x"].shape == (Dim(), 2, 3)
    assert [n.name for n in copy] == [n.name for n in network]
    assert not set(copy.nodes()) & set(network.nodes())


def test_add_outputs():
    network = flatten_network()
    network.add_outputs(["sizes", ("batch", 0)])
    assert list(network.outputs) == ["flat", "sizes", "batch"]
    network.add_outputs("sizes")
    assert list(network.outputs) == ["flat", "sizes", "batch"], "once is enough"
    with pytest.raises(NetworkError, match="no node 'size'.*Did you mean 'sizes'"):
        network.add_outputs("size")
    with pytest.raises(NetworkError, match="no output 3"):
        network.add_outputs([("sizes", 3)])


def test_output_names_are_unique():
    x = parameter("x", [1])
    relu = Node("relu", Relu(), [x.output])
    results = [Node(f"r{i}", Result(), [relu.output]) for i in range(2)]
    named = Node("r2", Result(output_name="mine"), [relu.output])
    passed = Node("r3", Result(), [x.output])
    network = Network("n", [x], [*results, named, passed])
    assert list(network.outputs) == ["relu", "relu_1", "mine", "x"]


def test_settings_of_inputs_and_outputs():
    network = relu_network((1, 3, 4, 5))
    info = network.inputs["x"]
    assert (info.precision, info.layout) == ("FP32", "NCHW")
    info.precision, info.layout = "U8", "NHWC"
    assert (network.inputs["x"].precision, network.inputs["x"].layout) == ("U8", "NHWC")
    with pytest.raises(NetworkError, match="'HW'.*orders of NCHW"):
        info.layout = "HW"
    assert network.outputs["relu"].precision == "FP32"


@pytest.mark.usefixtures("core")
def test_settings_become_part_of_the_loaded_network():
    network = relu_network((1, 3, 4, 5))
    network.inputs["x"].precision = "U8"
    network.inputs["x"].layout = "NHWC"
    network.outputs["relu"].precision = "FP16"
    network.outputs["relu"].layout = "NHWC"
    image = np.random.default_rng().integers(0, 255, (1, 4, 5, 3), np.uint8)
    with Core() as real:
        executable = real.load_network(network, "CPU")
        assert (executable.inputs["x"].precision, executable.inputs["x"].shape) == (
            "U8",
            (1, 4, 5, 3),
        )
        result = executable.infer({"x": image})["relu"]
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, image.astype(np.float16))
    assert network.inputs["x"].element_type is f32, "the network itself does not change"


def test_constant_folding_leaves_only_what_depends_on_inputs():
    network = flatten_network()
    network.reshape({"x": [4, 2, 3]})
    with Core() as core:
        constant_folding(network, core.evaluate)
    assert [n.type for n in network] == ["Parameter", "Const", "Reshape", "Result"]
    target = network.node("flat").inputs[1].node.constant
    np.testing.assert_array_equal(target, [4, -1])


@pytest.mark.parametrize(
    ("op", "for_8", "for_9"),
    [(Add(), [9, 9], [10, 9]), (Less(), [False, True], [False, True])],
    ids=["arithmetic", "comparison"],
)
def test_folding_leaves_symbolic_sizes_open(op, for_8, for_9):
    """What is computed of them serves other sizes, where it was not known with the shapes."""
    with tracing() as notes:
        like = parameter("like", [notes.input(8), 3])
        sizes = Node("sizes", ShapeOf(), [like.output])
        numbers = constant("numbers", np.array([1, 5])), constant("axis", np.array(0))
        sums = Node("sums", CumSum(), [each.output for each in numbers])
        y = Node("y", op, [sizes.output, sums.output])
        network = Network("folded", [like], [Node("result", Result(output_name="y"), [y.output])])
        network.infer()
        with Core() as core:
            constant_folding(network, core.evaluate)
        found = [*network.results[0].inputs[0].node.constant]
        assert [*map(number_of, found)] == for_8
        formulas = notes.formulas([number for number in found if is_symbolic(number)])
    made = iter(formulas([9])[0])
    assert [next(made) if is_symbolic(number) else number for number in found] == for_9


def test_an_output_without_elements_is_known_beside_others_that_are_not():
    """So that no device has to add up nothing, or to pack weights that have no inputs."""
    x = parameter("x", [3, 2])
    numbers = constant("axis", np.array(0)), constant("lengths", np.array([0, 3]))
    parts = Node("parts", VariadicSplit(), [x.output, *(each.output for each in numbers)])
    sums = Node("sums", ReduceSum(keep_dims=False), [parts.outputs[0], numbers[0].output])
    pairs = {"a": sums.output, "b": parts.outputs[1]}
    results = [Node(name, Result(output_name=name), [port]) for name, port in pairs.items()]
    network = Network("parts", [x], results)
    network.infer()
    with Core() as core:
        constant_folding(network, core.evaluate)
    np.testing.assert_array_equal(network.results[0].inputs[0].node.constant, [0, 0])
    assert network.results[1].inputs[0].node is parts


def test_unique_name():
    network = relu_network()
    assert unique_name(network, "fresh") == "fresh"
    assert unique_name(network, "relu") == "relu_1"


def test_networks_are_copied_and_pickled(core):
    """With what their user set, and with shapes that the network itself computes."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Shape", ["like"], ["sizes"]),
        helper.make_node("Reshape", ["x", "sizes"], ["y"]),
    ]
    values = {"x": [2, 6], "like": [3, 4], "y": None}
    infos = {n: helper.make_tensor_value_info(n, kind, shape) for n, shape in values.items()}
    graph = helper.make_graph(nodes, "g", [infos["x"], infos["like"]], [infos["y"]])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    network = core.read_network(made.SerializeToString())
    network.inputs["x"].precision = "U8"
    network.rt_info["framework"] = {"names": "cat"}
    x, like = np.arange(12, dtype=np.uint8).reshape(2, 6), np.zeros((3, 4), np.float32)
    expected = core.load_network(network, "CPU").infer({"x": x, "like": like})["y"]
    for make in (copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        other = make(network)
        assert other is not network
        assert other.rt_info == network.rt_info
        assert other.rt_info["framework"] is not network.rt_info["framework"]
        executable = core.load_network(other, "CPU")
        assert executable.outputs["y"].shape == [3, 4]
        np.testing.assert_array_equal(executable.infer({"x": x, "like": like})["y"], expected)
        other.inputs["x"].precision = "FP32"
        other.reshape({"x": [4, 3]})
        assert (network.inputs["x"].precision, network.inputs["x"].shape) == ("U8", (2, 6))


def test_a_long_network_is_copied_and_pickled(core):
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(3000)]
    infos = [helper.make_tensor_value_info(name, kind, [2]) for name in ("t0", "t3000")]
    graph = helper.make_graph(nodes, "long", infos[:1], infos[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    network = core.read_network(made.SerializeToString())
    assert len(copy.deepcopy(network).nodes()) == len(network.nodes())
    assert len(pickle.loads(pickle.dumps(network)).nodes()) == len(network.nodes())


def test_what_holds_a_device_is_neither_copied_nor_pickled(core):
    x = Node("x", Parameter(ElementType.f32, Shape([2])))
    network = Network("n", [x], [Node("r", Result(), [x.output])])
    executable = core.load_network(network, "CPU")
    for thing, said in [
        (core, "make another"),
        (executable, r"export\(\) it to bytes"),
        (executable.requests[0], r"create_infer_request\(\)"),
    ]:
        for call in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=said):
                call(thing)


def test_the_preprocessing_of_an_input_is_copied_and_pickled(core):
    network = relu_network([1, 3, 2, 2])
    (name,) = network.inputs
    network.inputs[name].preprocess.set_mean([1.0, 2.0, 3.0], scale=[1.0, 2.0, 4.0])
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    expected = core.load_network(network, "CPU").infer(x)
    for make in (copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        other = make(network)
        for key, value in core.load_network(other, "CPU").infer(x).items():
            np.testing.assert_array_equal(value, expected[key])
        other.inputs[name].preprocess.channels[0].mean_value = 9.0
        assert network.inputs[name].preprocess.channels[0].mean_value == 1.0


def test_a_constant_that_is_refused_leaves_the_network_as_it_was() -> None:
    x = Node("x", Parameter(ElementType.f32, Shape([2, 3])), [])
    c = Node("c", Constant(np.array([3, 2], np.int64), ElementType.i64), [])
    y = Node("y", Reshape(special_zero=False), [x.output, c.output])
    network = Network("n", [x], [Node("r", Result(), [y.output])])
    network.infer()
    for value in ([3, 2], np.array([4, 2], np.int64)):
        with pytest.raises(NetworkError):
            network.set_constant("c", value)
        assert network.node("y").output.shape == [3, 2]
        assert network.node("c").op.value.tolist() == [3, 2]


def test_products_with_numbers_that_no_float_holds() -> None:
    huge = Interval(1, None) * 10**400
    assert huge == Interval(10**400, None)
    assert Interval(1, None) * -(10**400) == Interval(None, -(10**400))
