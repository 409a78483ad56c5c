"""What IR files say by an operation's version, and quantisation, which they say by arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.gather import Gather, GatherND
from polydevice.ops.io import Parameter, Result
from polydevice.ops.nms import NonMaxSuppressionPadded
from polydevice.ops.op import Op
from polydevice.ops.proposal import Proposal
from polydevice.readers.ir import read_ir
from polydevice.rewrites.integers import hold_integers
from polydevice.shape import Shape
from polydevice.writers.ir import ir_bytes
from tests.onnx.models import model, onnxruntime_outputs, tensor, value

from .round_trip import assert_same, by_openvino

F32 = ElementType.f32
PROPOSAL = {
    "base_size": "4", "pre_nms_topn": "9", "post_nms_topn": "3", "nms_thresh": "0.7",
    "feat_stride": "4", "min_size": "1", "ratio": "1", "scale": "2",
}  # fmt: skip


def _network(op: Op, shape: tuple[int, ...], *others: np.ndarray) -> Network:
    x = Node("x", Parameter(F32, Shape(shape)))
    inputs: list[Port] = [
        x.output, *(constant(f"c{i}", other).output for i, other in enumerate(others))
    ]  # fmt: skip
    node = Node("y", op, inputs)
    results = [Node(f"r{p.index}", Result(), [p]) for p in node.outputs]
    return Network("m", [x], results)


@pytest.mark.parametrize(
    ("opset", "written", "indices", "axis"), [(1, 7, [2, 0], 0), (7, 7, [1], 1), (8, 8, [-1], 0)]
)
def test_gather_keeps_what_negative_indices_mean(opset, written, indices, axis, rng):
    op = Gather.from_ir({}, opset)
    network = _network(op, (3, 4), np.array(indices, np.int64), np.array(axis, np.int64))
    topology, weights = ir_bytes(network)
    assert f'type="Gather" version="opset{written}"'.encode() in topology
    assert_same(network, read_ir(topology, weights))
    x = rng.standard_normal((3, 4)).astype(np.float32)
    (y,) = by_openvino(topology, weights, [x])
    np.testing.assert_array_equal(y, np.take(x, indices, axis))


@pytest.mark.parametrize(("opset", "shape"), [(5, (6, 2)), (8, (2, 3, 2))])
def test_gather_nd_keeps_its_batch_axes(opset, shape, rng):
    op = GatherND.from_ir({"batch_dims": "2"}, opset)
    network = _network(op, (2, 3, 4, 2), np.arange(6, dtype=np.int64).reshape(2, 3, 1) % 4)
    topology, weights = ir_bytes(network)
    assert f'type="GatherND" version="opset{opset}"'.encode() in topology
    assert_same(network, read_ir(topology, weights))
    x = rng.standard_normal((2, 3, 4, 2)).astype(np.float32)
    (y,) = by_openvino(topology, weights, [x])
    assert y.shape == shape


def test_old_versions_are_written_as_such():
    old = NonMaxSuppressionPadded.from_ir({}, 1)
    assert (old.per_batch, old.opset) == (False, "opset3")
    assert NonMaxSuppressionPadded().opset == "opset4"
    proposal = Proposal.from_ir(PROPOSAL, 1)
    assert (proposal.with_scores, proposal.opset) == (False, "opset1")
    assert Proposal.from_ir(PROPOSAL, 4).opset == "opset4"


def _quantised(name: str, x: str) -> list[object]:
    return [
        helper.make_node("QuantizeLinear", [x, f"s{name}", f"z{name}"], [f"{name}q"]),
        helper.make_node("DequantizeLinear", [f"{name}q", f"s{name}", f"z{name}"], [name]),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_quantised_networks_come_back_the_same(seed):
    """With biases in 32 bits, as quantisation tools write them; OpenVINO agrees too."""
    rng = np.random.default_rng(seed)
    scale_x, scale_y = rng.uniform(0.01, 0.05, 2).astype(np.float32)
    scale_w = rng.uniform(0.001, 0.01, 5).astype(np.float32)
    stored = {
        "sa": scale_x, "za": np.uint8(113), "sy": scale_y, "zy": np.uint8(3), "sw": scale_w,
        "w": rng.integers(-127, 128, (5, 3, 3, 3)).astype(np.int8),
        "b": rng.integers(-(2**17), 2**17, 5).astype(np.int32), "sb": scale_x * scale_w,
    }  # fmt: skip
    nodes = [
        *_quantised("a", "x"),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "sb"], ["bd"], axis=0),
        helper.make_node("Conv", ["a", "wd", "bd"], ["c"]),
        *_quantised("y", "c"),
    ]
    initializers = [tensor(name, array) for name, array in stored.items()]
    proto = model(nodes, [value("x", (2, 3, 9, 7))], initializers=initializers)
    x = (rng.standard_normal((2, 3, 9, 7)) * 2).astype(np.float32)
    (expected,) = onnxruntime_outputs(proto, x)
    with Core() as core:
        first = core.read_network(proto.SerializeToString())
        topology, weights = ir_bytes(first)
        again = ir_bytes(core.read_network(topology, weights))
        answers = [
            core.load_network(network, "CPU", {"LP_TRANSFORMS_MODE": mode}).infer({"x": x})["y"]
            for mode in ("NO", "YES")
            for network in (first, core.read_network(topology, weights))
        ]
    assert again == (topology, weights)
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[2], answers[3])
    (by_others,) = by_openvino(topology, weights, [x])
    np.testing.assert_array_equal(by_others, *by_openvino(proto.SerializeToString(), b"", [x]))
    for answer in (*answers, by_others):
        # A sum on the edge between two steps may fall to either side.
        assert np.abs(answer - expected).max() <= scale_y * 1.001
        assert (np.abs(answer - expected) > scale_y / 2).mean() < 0.01


def test_quantised_networks_are_integers_again(rng):
    """Two convolutions and a sum, so that each rounding of the first shows in what follows."""
    stored = {f"s{k}": np.float32(v) for k, v in {"a": 0.02, "b": 0.013, "y": 0.05}.items()}
    stored |= {f"z{k}": v for k, v in {"a": np.uint8(113), "b": np.uint8(3)}.items()}
    stored |= {"zy": np.int8(-7), "sw": np.float32(0.01), "sv": np.float32(0.007)}
    stored |= {key: rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8) for key in "wv"}
    nodes = [
        *_quantised("a", "x"),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["wd"]),
        helper.make_node("Conv", ["a", "wd"], ["c"], pads=[1, 1, 1, 1]),
        *_quantised("b", "c"),
        helper.make_node("DequantizeLinear", ["v", "sv"], ["vd"]),
        helper.make_node("Conv", ["b", "vd"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "a"], ["e"]),
        *_quantised("y", "e"),
    ]
    initializers = [tensor(name, array) for name, array in stored.items()]
    proto = model(nodes, [value("x", (2, 4, 9, 7))], initializers=initializers)
    with Core() as core:
        first = core.read_network(proto.SerializeToString())
        second = core.read_network(*ir_bytes(first))
        loaded = [core.load_network(network, "CPU") for network in (first, second)]
        for _ in range(2):
            x = (rng.standard_normal((2, 4, 9, 7)) * 2).astype(np.float32)
            one, other = (next(iter(each.infer({"x": x}).values())) for each in loaded)
            np.testing.assert_array_equal(one, other)
    for network in (first, second):
        assert hold_integers(network) == 2
