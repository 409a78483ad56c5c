"""Cutting a placed network: few subgraphs, never a cycle between them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.io import Parameter, Result
from polydevice.shape import Shape
from polydevice_hetero.split import schedule, split


def diamond() -> Network:
    """Two branches of one input, joined: a branch on another device must not make a cycle."""
    x = Node("x", Parameter(element_type=ElementType.f32, shape=Shape([2])))
    a = Node("a", Relu(), [x.output])
    b = Node("b", Relu(), [a.output])
    c = Node("c", Relu(), [a.output])
    d = Node("d", Add(), [b.output, c.output])
    return Network("diamond", [x], [Node("r", Result(), [d.output])])


@pytest.mark.parametrize(
    ("devices", "phases"),
    [
        ("AAAA", ["A:abcd"]),
        ("AABA", ["A:ab", "B:c", "A:d"]),
        ("ABBA", ["A:a", "B:bc", "A:d"]),
        ("ABAB", ["A:ac", "B:bd"]),
        ("BABA", ["B:ac", "A:bd"]),
    ],
)
def test_phases(devices, phases):
    place = dict(zip("abcd", devices))
    computing = [node for node in diamond().nodes() if node.name in "abcd"]
    found = schedule(computing, lambda node: place[node.name])
    assert [f"{d}:{''.join(n.name for n in nodes)}" for d, nodes in found] == phases


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_random_graphs_are_cut_without_cycles(data):
    count = data.draw(st.integers(1, 25))
    x = Node("x", Parameter(element_type=ElementType.f32, shape=Shape([2])))
    made = [x]
    for i in range(count):
        picks = st.integers(max(0, len(made) - 6), len(made) - 1)
        left, right = data.draw(picks), data.draw(picks)
        made.append(Node(f"n{i}", Add(), [made[left].output, made[right].output]))
    results = [Node("r", Result(), [made[-1].output])]
    network = Network("random", [x], results)
    place = {n: data.draw(st.sampled_from("ABC")) for n in made}
    parts = split(network, place.__getitem__)
    computed = {x.output}
    for part in parts:
        assert {place[n] for n in part.nodes} == {part.device}
        assert set(part.sources.values()) <= computed, "only earlier parts feed this one"
        part.network.infer()
        computed |= set(part.targets.values())
    assert [a.device for a in parts] != [b.device for b in parts[1:]] or len(parts) == 1
    neighbours = itertools.pairwise(parts)
    assert all(a.device != b.device for a, b in neighbours), "equal neighbours would be one part"
    live = [n for n in network.nodes() if n.type == "Add"]
    assert sorted(n.name for p in parts for n in p.nodes) == sorted(n.name for n in live)


def test_values_used_twice_cross_once():
    network = diamond()
    (first, second) = split(network, lambda node: "A" if node.name == "a" else "B")
    assert list(first.targets) == ["a/out"]
    assert list(second.sources) == ["a/in"]
    np.testing.assert_equal(len(second.network.parameters), 1)


def test_values_wanted_first_have_subgraphs_of_their_own():
    network = diamond()
    first = next(node for node in network.nodes() if node.name == "b").output
    parts = split(network, lambda node: "A", [first])
    assert [[node.name for node in part.nodes] for part in parts] == [["a", "b"], ["c", "d"]]
    assert list(parts[0].targets.values())[-1] is first
