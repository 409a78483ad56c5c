"""Python's garbage collector while networks are loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice import Core
from polydevice.garbage import Apart
from polydevice.node import Node
from tests.onnx.models import model, onnxruntime_outputs, tensor, value


class Cycle:
    """What only the collector frees."""

    freed: list[str]

    def __init__(self, name: str) -> None:
        self.name, self.itself = name, self

    def __del__(self) -> None:
        self.freed.append(self.name)


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of cycles that are gone; what other tests have frozen is none of the block's."""
    gc.collect()
    gc.unfreeze()
    gc.disable()
    freed: list[str] = []
    monkeypatch.setattr(Cycle, "freed", freed, raising=False)
    try:
        yield freed
    finally:
        gc.enable()
        gc.freeze()


def test_what_a_block_makes_is_collected_alone(freed):
    apart = Apart()
    Cycle("before")
    with apart:
        Cycle("within")
        apart.collect()
        assert freed == ["within"]
    assert not gc.get_freeze_count()
    gc.collect()
    assert freed == ["within", "before"]


def test_the_last_of_several_blocks_collects(freed):
    apart = Apart()
    with apart:
        with apart:
            Cycle("inner")
            apart.collect()
            assert not freed
        assert gc.get_freeze_count()
        apart.collect()
        assert freed == ["inner"]
    assert not gc.get_freeze_count()


def test_a_block_that_fails_ends(freed):
    apart = Apart()
    with pytest.raises(KeyError), apart:
        raise KeyError
    assert not gc.get_freeze_count()


def test_what_a_program_has_frozen_stays_so(freed):
    apart = Apart()
    Cycle("frozen")
    gc.freeze()
    count = gc.get_freeze_count()
    with apart:
        Cycle("within")
        apart.collect()
    assert freed == ["within"]
    assert gc.get_freeze_count() >= count - 10  # of which some went by themselves
    gc.unfreeze()
    gc.collect()
    assert freed == ["within", "frozen"]


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_no_weights_wait_for_the_collector_behind_a_load():
    """Neither nodes that were replaced, nor what was made of weights on the way."""
    rng = np.random.default_rng(1)
    size, layers = 512, 5
    stored = [tensor("factor", np.float32(1e-4))]
    nodes, last = [], "x"
    for number in range(layers):
        weights = rng.integers(0, 256, (size, size), dtype=np.uint8)
        stored += [tensor(f"w{number}", weights), tensor(f"z{number}", np.uint8(113 + number))]
        names = [f"{name}{number}" for name in ("bytes", "scale", "zero", "sums", "floats", "y")]
        bytes_, scale, zero, sums, floats, y = names
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [last], [bytes_, scale, zero]),
            helper.make_node("MatMulInteger", [bytes_, f"w{number}", zero, f"z{number}"], [sums]),
            helper.make_node("Cast", [sums], [floats], to=TensorProto.FLOAT),
            helper.make_node("Mul", [floats, "factor"], [y]),
        ]
        last = y
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    proto = model(nodes, [value("x", (3, size))], initializers=stored)
    with Core() as core:
        network = core.read_network(proto.SerializeToString())
        others = {id(each) for each in gc.get_objects() if isinstance(each, Node)}
        gc.disable()
        try:
            executable = core.load_network(network, "CPU")
            found = [each for each in gc.get_objects() if isinstance(each, Node)]
        finally:
            gc.enable()
        own = {address(each.constant) for each in network.nodes() if each.constant is not None}
        made = [each.constant for each in found if id(each) not in others]
        new = [each for each in made if each is not None and address(each) not in own]
        assert sum(each.nbytes for each in new if any(each.strides)) < size
        x = rng.standard_normal((3, size)).astype(np.float32)
        want = onnxruntime_outputs(proto, x)[0]
        np.testing.assert_allclose(executable.infer({"x": x})["y"], want, rtol=1e-4, atol=1e-4)
