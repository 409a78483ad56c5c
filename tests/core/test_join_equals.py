"""Equal nodes become one; the network computes the same, and says whose layers it computes."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.network import Network
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.random import RandomUniform
from polydevice.rewrites.join_equals import join_equals
from tests.cpu.models import answer, build

F = np.float32
RNG = np.random.default_rng(9)


def read(nodes, outputs, constants=None, inputs=None):
    sizes = inputs or {"x": ["n", 6]}
    model = build(nodes, sizes, outputs, constants or {}, opset=18)
    with Core() as core:
        network = core.read_network(model)
    return model, network


def types(network: Network) -> list[str]:
    kinds = (Relu, Add, Multiply)
    return sorted(node.type for node in network.nodes() if isinstance(node.op, kinds))


def check(model, network):
    feed = {"x": RNG.normal(size=(3, 6)).astype(F)}
    with Core() as core:
        found = core.load_network(network, "CPU").infer(feed)
    for got, want in zip(found.values(), answer(model, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_chains_are_joined_from_their_beginning():
    """The second chain's steps are equal once those before them are the first's."""
    nodes = [
        ("Relu", ["x"], ["a"], {}), ("Add", ["a", "two"], ["b"], {}),
        ("Relu", ["x"], ["c"], {}), ("Add", ["c", "pair"], ["d"], {}),
        ("Mul", ["b", "d"], ["y"], {}),
    ]  # fmt: skip
    model, network = read(nodes, ["y"], {"two": F([2]), "pair": F([2])})
    assert join_equals(network) == 2
    assert types(network) == ["Add", "Multiply", "ReLU"]
    layers = [set(node.layers) for node in network.nodes() if isinstance(node.op, Add)]
    assert layers == [{"b", "d"}]
    check(model, network)
    assert join_equals(network) == 0


def test_results_stay_results_of_their_own_names():
    nodes = [("Relu", ["x"], ["a"], {}), ("Relu", ["x"], ["b"], {})]
    model, network = read(nodes, ["a", "b"])
    assert join_equals(network) == 1
    assert [name for name, _ in network.output_ports()] == ["a", "b"]
    check(model, network)


@pytest.mark.parametrize(
    "nodes",
    [
        [("Elu", ["x"], ["a"], {"alpha": 1.0}), ("Elu", ["x"], ["b"], {"alpha": 0.5})],
        [("Sub", ["x", "two"], ["a"], {}), ("Sub", ["two", "x"], ["b"], {})],
        [("Add", ["x", "two"], ["a"], {}), ("Add", ["x", "three"], ["b"], {})],
        [("Add", ["x", "two"], ["a"], {}), ("Add", ["x", "twos"], ["b"], {})],
        [("Add", ["x", "zero"], ["a"], {}), ("Add", ["x", "minus"], ["b"], {})],
    ],
)
def test_what_differs_in_anything_stays(nodes):
    constants = {
        "two": F([2]),
        "three": F([3]),
        "twos": F([[2]]),
        "zero": F([0]),
        "minus": F([-0.0]),
    }
    model, network = read([*nodes, ("Mul", ["a", "b"], ["y"], {})], ["y"], constants)
    assert join_equals(network) == 0
    check(model, network)


def test_large_constants_are_equal_where_they_are_one():
    """Comparing weights would take longer than it gains."""
    weights = RNG.normal(size=(6, 40)).astype(F)
    nodes = [
        ("MatMul", ["x", "w"], ["a"], {}), ("MatMul", ["x", "w"], ["b"], {}),
        ("MatMul", ["x", "v"], ["c"], {}), ("Sum", ["a", "b", "c"], ["y"], {}),
    ]  # fmt: skip
    model, network = read(nodes, ["y"], {"w": weights, "v": weights.copy()})
    assert join_equals(network) == 1
    check(model, network)


def test_random_numbers_are_drawn_as_often_as_before():
    nodes = [
        ("RandomUniformLike", ["x"], ["a"], {}), ("RandomUniformLike", ["x"], ["b"], {}),
        ("Sub", ["a", "b"], ["y"], {}),
    ]  # fmt: skip
    _, network = read(nodes, ["y"])
    join_equals(network)  # what asks for the shape is joined
    assert sum(isinstance(node.op, RandomUniform) for node in network.nodes()) == 2


def test_nodes_with_other_notes_stay():
    """An affinity places a node."""
    nodes = [("Relu", ["x"], ["a"], {}), ("Relu", ["x"], ["b"], {}), ("Mul", ["a", "b"], ["y"], {})]
    _, network = read(nodes, ["y"])
    next(node for node in network.nodes() if node.name == "b").rt_info["affinity"] = "GPU"
    assert join_equals(network) == 0
