"""A network that is kept to be had once more is the same then, and small meanwhile."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import PolydeviceError
from polydevice.files import kept_source
from polydevice.files.archive import network_to_bytes
from polydevice.files.kept_source import SMALL_BYTES, KeptSource
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op
from polydevice.shape import Shape
from tests.onnx.node_cases import load_cases


def chain(length: int, size: int = 64) -> Network:
    """Relu and a constant added, by turns."""
    x = Node("x", Parameter(ElementType.f32, Shape([1, size])))
    last, rng = x.output, np.random.default_rng(length)
    for number in range(length):
        if number % 2:
            weights = constant(f"weights/{number}", rng.normal(size=(1, size)).astype(np.float32))
            last = Node(f"layer/{number}/add", Add(), [last, weights.output]).output
        else:
            last = Node(f"layer/{number}/relu", Relu(), [last]).output
        last.names.add(f"tensor {number}")
    return Network("chain", [x], [Node("result", Result("y"), [last])], rt_info={"version": 11})


@pytest.mark.full
def test_every_onnx_operator_gives_the_same_network():
    """As objects where it cannot be packed, and after weights were asked for twice."""
    packed, operators = 0, set[str]()
    with Core() as core:
        for case in load_cases():
            kinds = {node.op_type for node in case.model.graph.node}
            if kinds <= operators:
                continue
            operators |= kinds
            try:
                network = core.read_network(case.model.SerializeToString())
            except PolydeviceError:
                continue  # not readable at all: nothing to keep
            source = KeptSource(network)
            packed += source._form.__name__ == "unpacked"
            wanted = network_to_bytes(network)
            assert network_to_bytes(source.network()) == wanted, case.name
            assert network_to_bytes(source.network()) == wanted, case.name
    assert packed > 100


def test_nothing_that_is_done_to_it_reaches_the_next_one():
    network = chain(6)
    network.node("layer/0/relu").rt_info["affinity"] = "GPU"
    source, wanted = KeptSource(network), network_to_bytes(network)
    network.node("layer/0/relu").rt_info["affinity"] = "CPU"
    for made in (network, source.network()):
        made.node("layer/2/relu").output.names.clear()
        made.node("layer/4/relu").rt_info["affinity"] = "CPU"
        made.rt_info["version"] = 10
        made.take_apart()
    assert network_to_bytes(source.network()) == wanted


@pytest.mark.parametrize("size", [SMALL_BYTES // 4, SMALL_BYTES // 4 + 1])
def test_large_arrays_are_shared_and_small_ones_are_not_kept_apart(size):
    network = chain(9, size)
    source = KeptSource(network)
    is_large = 4 * size > SMALL_BYTES
    assert len(source.constants) == (4 if is_large else 0)
    for number in (1, 3, 5, 7):
        own, made = (
            each.node(f"weights/{number}").constant for each in (network, source.network())
        )
        assert own is not None
        assert made is not None
        np.testing.assert_array_equal(made, own)
        assert np.shares_memory(made, own) is is_large


class Local(Op):
    """An operation that has a function of no module."""

    def __init__(self) -> None:
        vars(self)["function"] = lambda: None

    def infer(self, inputs):
        return list(inputs)


def test_what_no_pickle_takes_is_kept_as_it_is():
    x = Node("x", Parameter(ElementType.f32, Shape([1, 64])))
    weights = constant("weights", np.arange(64, dtype=np.float32)[None])
    last = Node("local", Local(), [Node("sum", Add(), [x.output, weights.output]).output])
    network = Network("n", [x], [Node("result", Result("y"), [last.output])])
    source = KeptSource(network)
    (kept,) = source.constants
    assert kept is weights.constant
    for _ in range(2):
        made = source.network()
        assert made.node("local").op is last.op
        assert made.node("local") is not last
        assert made.node("weights").constant is kept
        assert made.node("sum").output.shape == (1, 64)


def test_nodes_take_few_bytes():
    """25 here, of places of arrays and the like; 900 as a copy."""
    count = 2000
    KeptSource(chain(4))
    network = chain(count, SMALL_BYTES)
    gc.collect()
    tracemalloc.start()
    try:
        source = KeptSource(network)
        gc.collect()  # what Python keeps of freed tuples counts until then
        made = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(source.network().nodes()) == count + count // 2 + 2
    assert made < 100 * count


def test_a_deep_network_is_kept():
    """Nodes are not pickled by way of one another."""
    assert len(KeptSource(chain(20_000)).network().nodes()) == 30_002
    assert kept_source._packed(chain(20_000)) is not None
