"""Network.replace and Network.extract, and the Emitter."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.errors import NetworkError
from polydevice.network import Network, namer
from polydevice.node import Node
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.io import Parameter, Result
from polydevice.ops.math import Negative
from polydevice.shape import Shape


def _network() -> Network:
    """y = relu(-x) * 2 + -x."""
    x = Node("x", Parameter(ElementType.f32, Shape([3, 5])))
    make = Emitter("made")
    turned = make.emit(Negative(), x.output, name="turned")
    positive = make.emit(Relu(), turned, name="positive")
    twice = make.emit(Multiply(), positive, make.like(2.0, positive), name="twice")
    y = make.emit(Add(), twice, turned, name="sum")
    return Network("net", [x], [Node("y", Result(), [y])])


def _run(network: Network, x: np.ndarray) -> np.ndarray:
    (y,) = Core().load_network(network, "CPU").infer({"x": x}).values()
    return np.asarray(y)


X = np.linspace(-3, 4, 15, dtype=np.float32).reshape(3, 5)


def test_several_ports_are_replaced_in_one_walk_and_one_after_the_other() -> None:
    network = _network()
    turned, positive = network.node("turned").output, network.node("positive").output
    x = network.node("x").output
    again = Emitter("again").emit(Relu(), turned)  # reads what is replaced as well
    network.replace({positive: again, turned: x})
    assert again.node.inputs == [x]
    np.testing.assert_allclose(_run(network, X), np.maximum(X, 0) * 2 + X, rtol=1e-6)


def test_what_is_put_behind_a_port_keeps_reading_it() -> None:
    network = _network()
    turned = network.node("turned").output
    make = Emitter("behind")
    behind = make.emit(Multiply(), make.emit(Relu(), turned), make.like(3.0, turned))
    network.replace({turned: behind})
    new = 3 * np.maximum(-X, 0)
    np.testing.assert_allclose(_run(network, X), new * 2 + new, rtol=1e-6)


def test_replacing_keeps_the_tensors_names() -> None:
    network = _network()
    old, new = network.node("positive").output, network.node("turned").output
    old.names.add("framework:0")
    network.replace({old: new})
    assert network.name_of_tensor("framework:0") == "turned"


def test_a_part_is_extracted_with_its_constants_and_the_whole_stays() -> None:
    network = _network()
    before = [(node.name, node.type) for node in network.nodes()]
    turned, y = network.node("turned").output, network.node("sum").output
    nodes = [network.node(name) for name in ("positive", "twice", "sum")]
    part = network.extract(nodes, {turned: "x"}, {y: "y", turned: "same"}, name="part")
    assert [(node.name, node.type) for node in network.nodes()] == before
    assert {node.name for node in part.nodes() if node.type == "Const"} == {"made"}
    found = Core().load_network(part, "CPU").infer({"x": X})
    np.testing.assert_allclose(found["y"], np.maximum(X, 0) * 2 + X, rtol=1e-6)
    np.testing.assert_array_equal(found["same"], X)


def test_a_part_needs_all_that_it_reads() -> None:
    network = _network()
    y = network.node("sum").output
    with pytest.raises(NetworkError, match="'twice' is read, but not among the inputs of part"):
        network.extract([network.node("sum")], {}, {y: "y"}, name="part")


def test_emitted_nodes_get_names_of_their_own() -> None:
    network = _network()
    make = Emitter("sum", origins=["a", "b"])
    inner = make.emit(Relu(), network.node("x").output)
    outer = make.emit(Relu(), make.emit(Relu(), inner))
    make.name_nodes([outer], namer(network))
    assert [node.name for node in make.emitted] == ["sum/ReLU", "sum/ReLU_1", "sum_1"]
    assert {node.layers for node in make.emitted} == {("a", "b")}
    assert network.node("sum").layers == ("sum",)


def test_short_forms_leave_out_what_changes_nothing() -> None:
    x = Node("x", Parameter(ElementType.f32, Shape([3, 5]))).output
    make = Emitter("made")
    assert make.reshape(x, [3, 5]) is x
    assert make.transpose(x, [0, 1]) is x
    assert make.convert(x, ElementType.f32) is x
    assert make.split(x, 1, [5]) == [x]
    assert make.emitted == []
    parts = make.split(make.value(np.arange(6.0)), 0, [2, 4])
    assert [part.node.constant.tolist() for part in parts if part.node.constant is not None] == [
        [0.0, 1.0], [2.0, 3.0, 4.0, 5.0]
    ]  # fmt: skip


def test_numbers_become_constants_of_the_right_type() -> None:
    x = Node("x", Parameter(ElementType.f16, Shape([3, 5]))).output
    make = Emitter("made")
    half = make.emit(Multiply(), x, 0.5).node.inputs[1]
    assert half.element_type is ElementType.f16
    assert make.value(7).element_type is ElementType.i64
    assert make.value([1, 2]).element_type is ElementType.i64
    assert make.value(True).element_type is ElementType.boolean
    assert make.value(0.5).element_type is ElementType.f64
