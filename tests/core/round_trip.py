"""What tests of the IR writer share: networks to write, all of a network, OpenVINO's answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.control_flow import If, Iteration
from polydevice.ops.io import Constant, Result
from polydevice.ops.op import Op


def by_openvino(topology: bytes | Path, weights: bytes | Path, inputs: list) -> list[np.ndarray]:
    openvino = pytest.importorskip("openvino", reason="compares with OpenVINO")
    core = openvino.Core()
    model = core.read_model(topology, weights)
    # In floats, as its sums of products of bytes are clipped on processors without VNNI.
    exact = {"INFERENCE_PRECISION_HINT": "f32", "LP_TRANSFORMS_MODE": "NO"}
    answers = core.compile_model(model, "CPU", exact)(inputs)
    return [answers[output] for output in range(len(model.outputs))]


def structure(network: Network) -> list[object]:
    """All that a network consists of, to compare with another."""
    nodes = network.nodes()
    index = {node: i for i, node in enumerate(nodes)}
    return [
        (
            node.name,
            _attributes(node.op),
            [(index[port.node], port.index) for port in node.inputs],
            [(str(port.desc), port.names) for port in node.outputs],
            node.rt_info,
        )
        for node in nodes
    ]


def _attributes(op: Op) -> object:
    """An operation compares by its attributes; bodies in them need a comparison of their own."""
    if not isinstance(op, (Iteration, If)):
        return op
    values = op.attributes().values()
    return type(op), [structure(v) if isinstance(v, Network) else v for v in values]


def assert_same(first: Network, second: Network) -> None:
    assert structure(first) == structure(second)
    assert first.name == second.name


def of_constants(*values: tuple[np.ndarray, ElementType]) -> Network:
    nodes = [Node(f"c{i}", Constant(value, kind)) for i, (value, kind) in enumerate(values)]
    return Network("m", [], [Node(f"y{n.name}", Result(), [n.output]) for n in nodes])
